//! The key of a request that goes on: a stream or a claim asks again and again whether it still holds.

use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use secrecy::{ExposeSecret, SecretString};
use tidegate_engine::{Engine, Error, auth};
use tidegate_model::Code;

use crate::problem::Failure;

/// How often a stream asks. The answer is remembered by the engine and dropped by the config bus, so asking is cheap.
const INTERVAL: Duration = Duration::from_secs(1);

/// The secret that the gate has checked.
#[derive(Debug, Clone)]
pub struct Credential(SecretString);

impl Credential {
    /// Keeps a secret for as long as its request lasts.
    pub fn new(secret: &str) -> Self {
        Self(SecretString::from(secret))
    }

    /// Resolves when the key has been revoked or has run out (R2.1). A database that is away revokes nothing.
    pub async fn revoked(self, engine: Engine) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if self.check(&engine).await.is_err() {
                return;
            }
        }
    }

    /// Whether the key still holds; an error only where it was found not to.
    pub async fn check(&self, engine: &Engine) -> Result<(), Error> {
        match auth::authenticate(engine, self.0.expose_secret()).await {
            Err(error) if error.code() == Code::Unauthenticated => Err(error),
            _ => Ok(()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Credential {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let credential = parts.extensions.get::<Self>().cloned();
        credential.ok_or_else(|| {
            Failure::new(
                Code::Internal,
                "the route asks for a key that was not checked",
            )
        })
    }
}
