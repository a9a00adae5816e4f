//! Signing the grant of an admission that is active.

use tidegate_grants::{Entropy, SignProblem, SignedGrant};
use tidegate_model::contracts::AdmissionGrant;

use super::{LIFE_MAX, keys::keys};
use crate::{Engine, Error, secrets::SecretError};

/// Signs a grant with the key whose time it is. Whether the admission holds what it says is the caller's to know; that a
/// key outlives all it has signed is seen to here.
pub async fn sign(engine: &Engine, grant: &AdmissionGrant) -> Result<SignedGrant, Error> {
    let keys = keys(engine).await?;
    if grant.expires_at - keys.now() > LIFE_MAX {
        return Err(Error::Internal {
            what: "a grant would outlive the key that signs it",
        });
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
    keys.signer()?
        .sign(grant, &Entropy(bytes))
        .map_err(|problem| match problem {
            SignProblem::TooLarge { .. } => {
                Error::refused(tidegate_model::Code::InvalidArgument, problem.to_string())
            }
            _ => Error::Internal {
                what: "a grant that cannot be signed",
            },
        })
}
