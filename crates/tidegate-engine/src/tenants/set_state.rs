//! Suspending, resuming and deleting a tenant (R2.6).

use tidegate_model::{
    Code, ConfigKind, TenantId,
    api::{SetTenantState, TenantView},
    principal::TenantState,
};
use tidegate_store::tenants::SetState;

use super::erasure;
use crate::{Engine, Error, Principal};

/// Changes the state. A deletion answers when the content is gone; asking for it again finishes one that was cut short.
pub async fn set_state(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
    request: SetTenantState,
) -> Result<TenantView, Error> {
    principal.require_operator()?;
    let written = engine
        .store()
        .set_tenant_state(tenant, request.state, &principal.author())
        .await?;
    let view = match engine.written(ConfigKind::Tenant, written).await {
        SetState::Set(view) => view,
        SetState::NotFound => return Err(Error::not_found("tenant")),
        SetState::Deleted => {
            return Err(Error::refused(
                Code::StateConflict,
                format!("tenant {tenant} is deleted for good; make a new one under another name"),
            ));
        }
    };
    if request.state == TenantState::Deleted {
        erasure::erase(engine, tenant).await?;
    }
    Ok(view)
}
