//! Making a tenant.

use tidegate_model::{
    Code, ConfigKind,
    api::{CreateTenant, TenantView},
};

use crate::{Engine, Error, Principal, checks};

/// Makes a tenant. Its name is never given away again, not even after its deletion.
pub async fn create(
    engine: &Engine,
    principal: &Principal,
    request: CreateTenant,
) -> Result<TenantView, Error> {
    principal.require_operator()?;
    checks::label("displayName", request.display_name.as_deref())?;
    let name = request.tenant.clone();
    let written = engine
        .store()
        .create_tenant(request, &principal.author())
        .await?;
    let created = engine.written(ConfigKind::Tenant, written).await;
    created.ok_or_else(|| {
        Error::refused(
            Code::VersionConflict,
            format!("the tenant name {name} is taken, or was once; choose another one"),
        )
    })
}
