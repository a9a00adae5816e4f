//! What dangles after a restore or a promotion (R4.7).

use tidegate_model::api::RecoveryView;

use crate::{Engine, Error, Principal};

/// The generation in force and the leases of earlier ones.
pub async fn recovery(engine: &Engine, principal: &Principal) -> Result<RecoveryView, Error> {
    principal.require_operator()?;
    Ok(engine.store().recovery().await?)
}
