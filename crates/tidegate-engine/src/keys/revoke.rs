//! Revoking a key: in force here with the commit, elsewhere within the config bus's delay (R2.1, R17).

use tidegate_model::{Code, ConfigKind, KeyId, api::KeyView, principal::Role};
use tidegate_store::keys::RevokeKey;

use crate::{Engine, Error, Principal};

/// Revokes a key; doing so twice changes nothing.
pub async fn revoke(engine: &Engine, principal: &Principal, key: KeyId) -> Result<KeyView, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::TenantAdmin])?;
    let author = principal.author();
    let written = if principal.role == Role::SuperAdmin {
        engine.store().revoke_key(key, &author).await?
    } else {
        let tenant = engine.store().tenant(principal.require_tenant()?);
        tenant.revoke_key(key, &author).await?
    };
    match engine.written(ConfigKind::Key, written).await {
        None => Err(Error::not_found("key")),
        Some(RevokeKey::Revoked(key)) => Ok(*key),
        Some(RevokeKey::LastOperator) => Err(Error::refused(
            Code::StateConflict,
            "this is the last super_admin key that does not expire; make another such key first with `tidegate key create \
             --role super_admin`",
        )),
    }
}
