//! `GET /v1/admissions/{admissionId}`.

use tidegate_model::{AdmissionId, api::AdmissionView, principal::Role};

use super::view;
use crate::{Engine, Error, Principal};

/// An admission of the caller's tenant, open or over.
pub async fn get_admission(
    engine: &Engine,
    principal: &Principal,
    id: AdmissionId,
) -> Result<AdmissionView, Error> {
    principal.require_role(&[Role::Coordinator, Role::TenantAdmin])?;
    let tenant = principal.require_tenant()?;
    let store = engine.store();
    let version = store
        .ledger_version(&engine.settings().execution_scope)
        .await?;
    match store.tenant(tenant).admission(id).await? {
        Some(admission) => view(engine, admission, version).await,
        None => Err(Error::not_found("admission")),
    }
}
