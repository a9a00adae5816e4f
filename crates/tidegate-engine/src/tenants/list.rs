//! Listing tenants.

use tidegate_model::{
    TenantId,
    api::{Page, PageQuery, TenantView},
};

use crate::{Engine, Error, Principal, checks};

/// Tenants by name, deleted ones included.
pub async fn list(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<TenantView>, Error> {
    principal.require_operator()?;
    let size = checks::page_size(query)?;
    let after: Option<TenantId> = checks::cursor(query)?;
    let tenants = engine
        .store()
        .list_tenants(after.as_ref(), size + 1)
        .await?;
    Ok(checks::page(tenants, size, |tenant| {
        tenant.tenant.to_string()
    }))
}
