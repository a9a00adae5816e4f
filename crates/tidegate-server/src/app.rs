//! The router of an instance, from the table of routes and the endpoints.

use std::sync::Arc;

use axum::{Router, extract::State, middleware, response::Response};
use http::{Method, Uri, header};
use tidegate_engine::settings::Roles;
use tidegate_model::Code;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    endpoints,
    middleware::{access_log, deadline, gate, panics, request_id, rest_of_body},
    problem::Failure,
    routes::ROUTES,
    shutdown::Shutdown,
    state::AppState,
};

/// The endpoints of an instance with their contract.
pub(crate) fn endpoints(roles: Roles) -> OpenApiRouter<AppState> {
    let mut router = endpoints::always();
    if roles.chat {
        router = router.merge(endpoints::chat());
    }
    if roles.admin {
        router = router.merge(endpoints::admin());
    }
    router
}

/// The service of an instance: endpoints, gate, and what every request passes.
pub fn router(state: AppState) -> Router {
    let roles = state.engine.settings().roles;
    let (routes, _) = endpoints(roles).split_for_parts();
    let absent = move |method: Method, uri: Uri| async move { not_found(&method, &uri, roles) };
    routes
        .route_layer(middleware::from_fn_with_state(state.clone(), gate::check))
        .route_layer(middleware::from_fn(deadline::bound))
        .fallback(absent)
        .layer(CatchPanicLayer::custom(panics::answer))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            part_when_draining,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&state.proxies),
            access_log::record,
        ))
        .layer(middleware::from_fn(request_id::assign))
        .layer(middleware::from_fn(rest_of_body::discard))
        .with_state(state)
}

fn not_found(method: &Method, uri: &Uri, roles: Roles) -> Failure {
    let path = uri.path();
    let elsewhere = ROUTES
        .iter()
        .any(|route| !route.mount.on(roles) && matches(route.path, path));
    let detail = if elsewhere {
        format!(
            "this instance does not have the role that serves {path}; ask one that has it (--roles)"
        )
    } else {
        format!("no route {method} {path}; GET /openapi.json lists all")
    };
    Failure::new(Code::NotFound, detail)
}

/// Whether a path fits the pattern of a route.
fn matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    pattern.split('/').all(|part| {
        segments
            .next()
            .is_some_and(|segment| part.starts_with('{') || part == segment)
    }) && segments.next().is_none()
}

/// While draining, every answer asks the client to connect anew, which takes it to another instance.
async fn part_when_draining(
    State(shutdown): State<Shutdown>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let http1 = request.version() < http::Version::HTTP_2;
    let mut response = next.run(request).await;
    if http1 && shutdown.is_draining() {
        response
            .headers_mut()
            .insert(header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_fits_its_pattern_and_no_other() {
        assert!(matches("/v1/runs/{runId}", "/v1/runs/run_1"));
        assert!(!matches("/v1/runs/{runId}", "/v1/runs"));
        assert!(!matches("/v1/runs", "/v1/runs/run_1"));
    }
}
