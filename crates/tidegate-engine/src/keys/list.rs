//! Listing keys; their secrets are not stored.

use tidegate_model::{
    api::{KeyView, Page, PageQuery},
    principal::Role,
};

use crate::{Engine, Error, Principal, checks};

/// The keys of the caller's tenant; for the operator all.
pub async fn list(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<KeyView>, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::TenantAdmin])?;
    let size = checks::page_size(query)?;
    let after = checks::cursor(query)?;
    let keys = if principal.role == Role::SuperAdmin {
        engine.store().list_keys(after, size + 1).await?
    } else {
        let tenant = engine.store().tenant(principal.require_tenant()?);
        tenant.list_keys(after, size + 1).await?
    };
    Ok(checks::page(keys, size, |key| key.key_id.to_string()))
}
