//! Writes under an idempotency key (R3.1): what tells a repeat from another request, and how long keys are remembered.

pub mod forget;

use tidegate_store::Intent;

use crate::{Engine, Error, Principal};

/// A write as it came in.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Method and path of the route.
    pub route: String,
    /// The path with its parameters, and the query.
    pub target: &'a str,
    /// The body's bytes; empty where there is none.
    pub body: &'a [u8],
}

impl Engine {
    /// What the caller means to do once under `key`. The same JSON in another order or spacing is the same request; one
    /// by another user of the tenant is not.
    pub fn intent(
        &self,
        principal: &Principal,
        key: String,
        request: Request<'_>,
    ) -> Result<Intent, Error> {
        // What is no JSON is refused before anything is done, whatever its digest.
        let body: serde_json::Value = serde_json::from_slice(request.body).unwrap_or_default();
        let whole = (request.target, &principal.user, body);
        let digest = self.body_digest(&request.route, &whole)?;
        Ok(Intent::new(
            principal.tenant.clone(),
            key,
            request.route,
            digest,
        ))
    }
}
