//! Who calls.

use axum::extract::FromRequestParts;
use http::request::Parts;
use tidegate_engine::Principal;
use tidegate_model::Code;

use crate::problem::Failure;

/// The principal of the key that the gate has checked.
#[derive(Debug, Clone)]
pub struct Caller(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let principal = parts.extensions.get::<Principal>().cloned();
        principal.map(Self).ok_or_else(|| {
            // Only a route that the table calls open could get here.
            Failure::new(
                Code::Internal,
                "the route asks for a key that was not checked",
            )
        })
    }
}
