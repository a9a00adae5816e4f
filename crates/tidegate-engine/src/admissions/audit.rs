//! `GET /v1/admin/ledger`: whether it adds up (R7.4).

use tidegate_model::api::LedgerAudit;

use crate::{Engine, Error, Principal};

/// Lays the counters beside what is held.
pub async fn audit_ledger(engine: &Engine, principal: &Principal) -> Result<LedgerAudit, Error> {
    principal.require_operator()?;
    let scope = &engine.settings().execution_scope;
    Ok(engine.store().audit_ledger(scope).await?)
}
