//! Making a key. Nobody can give what they do not have: a tenant's administrator makes keys of its own tenant, with scopes
//! that its own key carries.

use secrecy::ExposeSecret as _;
use tidegate_model::{
    Code, ConfigKind, KeyId,
    api::{CreateKey, CreatedKey},
    limits,
    principal::Role,
};
use tidegate_store::keys::{InsertKey, NewKey};

use super::secret;
use crate::{Engine, Error, Principal, checks};

/// Makes a key and shows its secret, this once: it is stored nowhere, so that a repeat answers the key without it.
pub async fn create(
    engine: &Engine,
    principal: &Principal,
    request: CreateKey,
) -> Result<CreatedKey, Error> {
    principal.require_role(&[Role::SuperAdmin, Role::TenantAdmin])?;
    let request = grant(principal, request)?;
    check(&request)?;
    let (secret, hash) = secret::generate()?;
    let key = NewKey {
        key_id: KeyId::new(),
        hash,
        role: request.role,
        tenant: request.tenant,
        pool: request.pool,
        user: request.user,
        scopes: request.scopes,
        grants: request.grants,
        name: request.name,
        expires_at: request.expires_at,
    };
    let written = engine.store().insert_key(key, &principal.author()).await?;
    match engine.written(ConfigKind::Key, written).await {
        InsertKey::Stored(key) => Ok(CreatedKey {
            key: *key,
            // A repeat finds the key of the first time; the secret made just now opens nothing.
            secret: (!principal.is_replayed()).then(|| secret.expose_secret().to_owned()),
        }),
        InsertKey::NoTenant => Err(Error::not_found("tenant")),
        InsertKey::AlreadyExpired => Err(Error::invalid(
            "expiresAt",
            "expiresAt has passed by the database's clock; give a later one, or none",
        )),
    }
}

/// Cuts a request down to what the caller may give, or refuses it.
fn grant(principal: &Principal, mut request: CreateKey) -> Result<CreateKey, Error> {
    if principal.role == Role::SuperAdmin {
        return Ok(request);
    }
    let own = principal.require_tenant()?;
    // The tenant of a body that names another one does not exist for this caller (R2.2, R2.4).
    if request.tenant.as_ref().is_some_and(|tenant| tenant != own) {
        return Err(Error::not_found("tenant"));
    }
    if !request.role.needs_tenant() {
        return Err(Error::refused(
            Code::Forbidden,
            format!(
                "a tenant's administrator cannot make a key of role {}",
                request.role
            ),
        ));
    }
    if let Some(scope) = request
        .scopes
        .iter()
        .find(|scope| !principal.has_scope(**scope))
    {
        return Err(Error::refused(
            Code::Forbidden,
            format!(
                "scope {scope} can only be given by a key that carries it; ask the platform's operator"
            ),
        ));
    }
    if request.grants.service_class.is_some() {
        return Err(Error::refused(
            Code::Forbidden,
            "grants.serviceClass decides between tenants and is the platform's operator's to give; leave it out",
        ));
    }
    request.tenant = Some(own.clone());
    Ok(request)
}

fn check(request: &CreateKey) -> Result<(), Error> {
    let role = request.role;
    match (&request.tenant, role.needs_tenant()) {
        (None, true) => {
            return Err(Error::invalid(
                "tenant",
                format!("role {role} needs a tenant"),
            ));
        }
        (Some(_), false) => {
            return Err(Error::invalid(
                "tenant",
                format!("role {role} is bound to no tenant; leave tenant out"),
            ));
        }
        _ => {}
    }
    match (&request.pool, role.needs_pool()) {
        (None, true) => Err(Error::invalid("pool", format!("role {role} needs a pool"))),
        (Some(_), false) => Err(Error::invalid(
            "pool",
            format!("role {role} is bound to no pool; leave pool out"),
        )),
        _ => Ok(()),
    }?;
    checks::time("expiresAt", request.expires_at, limits::KEY_LIFE_MAX_MS)?;
    if let Some(priority) = request.grants.priority
        && !(-limits::PRIORITY_MAX..=limits::PRIORITY_MAX).contains(&priority)
    {
        return Err(Error::invalid(
            "grants.priority",
            format!(
                "{priority} is out of bounds: -{0} to {0}",
                limits::PRIORITY_MAX
            ),
        ));
    }
    if !role.needs_tenant() && !request.grants.is_default() {
        return Err(Error::invalid(
            "grants",
            format!("role {role} submits no runs; leave grants out"),
        ));
    }
    checks::label("user", request.user.as_deref())?;
    checks::label("name", request.name.as_deref())
}
