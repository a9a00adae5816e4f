//! The audit log (R2.5).

use tidegate_model::{
    api::{AuditView, Page, PageQuery},
    principal::Role,
};

use crate::{Engine, Error, Principal, checks};

/// A page, newest first: everything for the operator, a tenant's own writes for its administrator.
pub async fn audit(
    engine: &Engine,
    principal: &Principal,
    query: &PageQuery,
) -> Result<Page<AuditView>, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::TenantAdmin])?;
    let tenant = match principal.role {
        Role::SuperAdmin => None,
        _ => Some(principal.require_tenant()?),
    };
    let size = checks::page_size(query)?;
    let before = checks::cursor(query)?;
    let rows = engine.store().list_audit(tenant, before, size + 1).await?;
    Ok(checks::page(rows, size, |row| row.seq.to_string()))
}
