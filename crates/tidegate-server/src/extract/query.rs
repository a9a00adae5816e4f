//! Query parameters.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use tidegate_model::{Code, api::Problem, words};

use crate::problem::Failure;

/// The query, read into `T`; a problem names the parameter.
#[derive(Debug, Clone, Copy)]
pub struct QueryOf<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Failure> {
    if query.contains("%00") {
        let detail = "parameters may not contain the NUL character (%00); remove it";
        return Err(Failure::invalid("query", detail));
    }
    let pairs = serde_urlencoded::Deserializer::new(form(query));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let path = error.path().to_string();
        let what = error.inner().to_string();
        failure(&path, &what)
    })
}

fn form(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

fn failure(path: &str, what: &str) -> Failure {
    if let Some(rest) = what.strip_prefix("unknown field `") {
        let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
        let known = known.trim_start_matches(", ").replace('`', "");
        return Problem::new(
            Code::UnknownField,
            format!("no parameter {:?}; {known}", words::short(name)),
        )
        .with_field(name)
        .into();
    }
    let field = if path == "." { "query" } else { path };
    Failure::invalid(field, words::plain(what))
}

#[cfg(test)]
mod tests {
    use tidegate_model::api::RunFilter;

    use super::*;

    #[test]
    fn parameters_are_read_and_refused_by_name() {
        let filter: RunFilter = parse("state=queued&limit=5&deadLetters=true").unwrap();
        assert_eq!((filter.limit, filter.dead_letters), (Some(5), Some(true)));
        let cases = [
            ("limit=many", "limit"),
            ("limit=-1", "limit"),
            ("state=flying", "state"),
            ("conversationId=conv_1", "conversationId"),
            ("tenant=globex", "tenant"),
            ("cursor=%00", "query"),
        ];
        for (query, field) in cases {
            let failure = parse::<RunFilter>(query).expect_err(query);
            assert_eq!(failure.problem().field.as_deref(), Some(field), "{query}");
        }
    }
}
