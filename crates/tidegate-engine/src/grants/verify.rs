//! Checking a grant at a point of consumption of this server.

use std::{sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use tidegate_grants::{Demand, GrantProblem, TOKEN_MAX_BYTES, Verified};

use super::keys::{KeySet, keys, keys_anew};
use crate::{Engine, Error};

/// A stranger who names unknown keys has them read anew no more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why a grant is not good here.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The grant's own fault.
    #[error(transparent)]
    Problem(#[from] GrantProblem),
    /// It could not be found out.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Checks a token for a demand. Its signatures are checked once and remembered until it ends; time, fences and counts are
/// checked each time.
pub async fn verify(
    engine: &Engine,
    token: &str,
    demand: &Demand,
) -> Result<Arc<Verified>, VerifyError> {
    let mut keys = keys(engine).await?;
    let mut verified = signatures(engine, &keys, token);
    if matches!(verified, Err(GrantProblem::UnknownKey { .. })) {
        // The news of a key may not have arrived here.
        keys = keys_anew(engine, LOOK_AGAIN).await?;
        verified = signatures(engine, &keys, token);
    }
    let verified = verified?;
    verified.allows(keys.now(), demand)?;
    Ok(verified)
}

fn signatures(engine: &Engine, keys: &KeySet, token: &str) -> Result<Arc<Verified>, GrantProblem> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(GrantProblem::TooLarge {
            what: "bytes",
            limit: TOKEN_MAX_BYTES,
        });
    }
    let now = keys.now();
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let remembered = engine.verified_tokens();
    if let Some(verified) = remembered.get(&digest) {
        let claims = verified.claims();
        if now >= claims.ends_at() {
            remembered.remove(&digest);
        } else if !keys.verifier.knows(claims.key, now) {
            return Err(GrantProblem::UnknownKey { key: claims.key });
        }
        return Ok(verified);
    }
    let verified = Arc::new(keys.verifier.signatures(token, now)?);
    let ends_at = verified.claims().ends_at();
    if now < ends_at {
        remembered.insert(digest, Arc::clone(&verified));
    }
    metrics::counter!("tidegate_grants_verified_total").increment(1);
    Ok(verified)
}
