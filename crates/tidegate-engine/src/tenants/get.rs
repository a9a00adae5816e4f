//! One tenant.

use tidegate_model::{TenantId, api::TenantView};

use crate::{Engine, Error, Principal};

/// A tenant; for its own administrator and for the operator.
pub async fn get(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
) -> Result<TenantView, Error> {
    principal.require_admin_of(tenant)?;
    engine
        .store()
        .get_tenant(tenant)
        .await?
        .ok_or_else(|| Error::not_found("tenant"))
}
