//! The gate: finds the route in the table, checks the key, the role and the scope, and only then lets the request in.
//!
//! It runs before anything of the request is read, so that a caller without rights learns nothing from a malformed
//! body, and costs nothing.

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Uri, header};
use tidegate_engine::{Principal, auth};
use tidegate_model::{Code, api::Problem};

use super::{access_log::CallerSeen, repeats, request_id::RequestId};
use crate::{
    extract::{Credential, idempotency_key},
    problem::Failure,
    routes::{self, Access, Route, Verb},
    state::AppState,
};

/// How much of a parameter's name a refusal repeats.
const SHOWN_MAX_CHARS: usize = 100;

/// Lets a request through to its handler, with its [`Principal`].
pub async fn check(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let route = match route_of(&request) {
        Ok(route) => route,
        Err(failure) => return failure.into_response(),
    };
    let admitted = match admit(&state, route, request.headers()).await {
        Ok(admitted) => admitted,
        Err(failure) => return failure.into_response(),
    };
    let Some((mut principal, credential)) = admitted else {
        return next.run(request).await;
    };
    if let Some(tenant) = &principal.tenant {
        tracing::Span::current().record("tenant_id", tenant.as_str());
    }
    let seen = CallerSeen {
        key: principal.key_id,
    };
    if let Err(failure) = refuse_query(route, request.uri()) {
        return failure.into_response();
    }
    let id = request.extensions().get::<RequestId>();
    principal.request_id = id.map(|id| id.0.clone());
    let mut response = match repeats::prepare(&state.engine, route, &mut principal, request).await {
        Ok(mut request) => {
            request.extensions_mut().insert(principal.clone());
            request.extensions_mut().insert(credential);
            repeats::mark(&principal, next.run(request).await)
        }
        Err(failure) => failure.into_response(),
    };
    response.extensions_mut().insert(seen);
    response
}

fn route_of(request: &Request) -> Result<&'static Route, Failure> {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str)
        .unwrap_or_default();
    let found = Verb::of(request.method()).and_then(|verb| routes::find(verb, path));
    found.ok_or_else(|| {
        let allowed = routes::allowed(path);
        let detail = format!("{path} has the methods {allowed}");
        let failure = Failure::new(Code::MethodNotAllowed, detail);
        match HeaderValue::from_str(&allowed) {
            Ok(value) => failure.with_header(header::ALLOW, value),
            Err(_) => failure,
        }
    })
}

async fn admit(
    state: &AppState,
    route: &Route,
    headers: &HeaderMap,
) -> Result<Option<(Principal, Credential)>, Failure> {
    if route.access == Access::Anyone {
        return Ok(None);
    }
    let secret = bearer(headers)?;
    let principal = auth::authenticate(&state.engine, secret)
        .await
        .map_err(|error| challenge(error.into()))?;
    if !route.access.roles().contains(&principal.role) {
        let detail = format!(
            "{} {} is for the roles {}; this key has the role {}",
            route.verb.as_str(),
            route.path,
            names(route),
            principal.role,
        );
        return Err(Failure::new(Code::Forbidden, detail));
    }
    if let Some(scope) = route.access.scope()
        && !principal.scopes.contains(&scope)
    {
        let detail = format!(
            "this needs a key with the scope {scope}; create one with tidegate key create --scope {scope}"
        );
        return Err(Failure::new(Code::Forbidden, detail));
    }
    // Also where a route does without it: a malformed key is a mistake of the caller that would show only later.
    idempotency_key(headers)?;
    Ok(Some((principal, Credential::new(secret))))
}

/// Where no parameters are known, one that is sent would be ignored silently. A scraper may add its own.
fn refuse_query(route: &Route, uri: &Uri) -> Result<(), Failure> {
    let query = uri.query().unwrap_or_default();
    if route.takes_query() || !route.path.starts_with("/v1/") {
        return Ok(());
    }
    let Some((name, _)) = form_urlencoded::parse(query.as_bytes()).next() else {
        return Ok(());
    };
    let instead = if route.path.ends_with("/events") && route.verb == Verb::Get {
        "; to read on after an event, send its number in the header Last-Event-ID"
    } else {
        ""
    };
    let shown: String = name.chars().take(SHOWN_MAX_CHARS).collect();
    let detail = format!("no parameter {shown:?}: this route takes none in its query{instead}");
    Err(Problem::new(Code::UnknownField, detail)
        .with_field(name)
        .into())
}

fn names(route: &Route) -> String {
    let roles: Vec<&str> = route
        .access
        .roles()
        .iter()
        .map(|role| role.as_str())
        .collect();
    roles.join(", ")
}

/// The secret of `Authorization: Bearer …`. It is looked up, never logged.
fn bearer(headers: &HeaderMap) -> Result<&str, Failure> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(unauthenticated(
            "send the header authorization: Bearer tg_… once",
        ));
    };
    let text = value.to_str().unwrap_or_default();
    let (scheme, secret) = text.split_once(' ').unwrap_or((text, ""));
    let secret = secret.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || secret.is_empty() {
        return Err(unauthenticated(
            "the header must read authorization: Bearer tg_…",
        ));
    }
    Ok(secret)
}

fn unauthenticated(detail: &str) -> Failure {
    challenge(Failure::new(Code::Unauthenticated, detail))
}

/// RFC 9110 wants a 401 to say how to authenticate.
fn challenge(failure: Failure) -> Failure {
    if failure.problem().code == Code::Unauthenticated {
        failure.with_header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"tidegate\""),
        )
    } else {
        failure
    }
}
