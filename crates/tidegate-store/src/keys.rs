//! API keys (R2.1). Only the hash of a secret is stored.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    ConfigKind, KeyId, PoolId, TenantId,
    api::{KeyGrants, KeyView},
    principal::{KeyScope, Role, TenantState},
    run::ServiceClass,
};
use uuid::Uuid;

use crate::{
    Error, Store, TenantStore,
    error::stored,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// A key to be stored.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its id.
    pub key_id: KeyId,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// What it may do.
    pub role: Role,
    /// Its tenant, for roles that are bound to one.
    pub tenant: Option<TenantId>,
    /// Its pool, for role `worker`.
    pub pool: Option<PoolId>,
    /// Its user.
    pub user: Option<String>,
    /// Its scopes.
    pub scopes: Vec<KeyScope>,
    /// What its runs are granted.
    pub grants: KeyGrants,
    /// Its label.
    pub name: Option<String>,
    /// When it ends.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A key that is neither revoked nor expired by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveKey {
    /// The key.
    pub key: KeyView,
    /// How long it is still good, in milliseconds; `None` for ever.
    pub remaining_ms: Option<i64>,
    /// The state of its tenant.
    pub tenant_state: Option<TenantState>,
}

/// What came of storing a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertKey {
    /// It is stored.
    Stored(Box<KeyView>),
    /// There is no such tenant, or it is deleted.
    NoTenant,
    /// The key would be expired already, by the database's clock.
    AlreadyExpired,
}

/// What came of revoking a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RevokeKey {
    /// It is revoked, now or before.
    Revoked(Box<KeyView>),
    /// It is the last key that can administer the platform, and stays.
    LastOperator,
}

impl Outcome for InsertKey {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Stored(_))
    }

    fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Stored(key) => key.tenant.as_ref(),
            Self::NoTenant | Self::AlreadyExpired => None,
        }
    }
}

impl Outcome for RevokeKey {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Revoked(_))
    }

    fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Revoked(key) => key.tenant.as_ref(),
            Self::LastOperator => None,
        }
    }
}

struct KeyRow {
    key_id: Uuid,
    role: String,
    tenant: Option<String>,
    pool_id: Option<String>,
    user_name: Option<String>,
    scopes: Vec<String>,
    priority: Option<i16>,
    service_class: Option<String>,
    name: Option<String>,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl KeyRow {
    fn view(self) -> Result<KeyView, Error> {
        Ok(KeyView {
            key_id: KeyId::from_uuid(self.key_id),
            role: stored(&self.role, "api_keys.role")?,
            tenant: self
                .tenant
                .map(|tenant| stored(&tenant, "api_keys.tenant"))
                .transpose()?,
            pool: self
                .pool_id
                .map(|pool| stored(&pool, "api_keys.pool_id"))
                .transpose()?,
            user: self.user_name,
            // A scope that a newer release added grants nothing here.
            scopes: self
                .scopes
                .iter()
                .filter_map(|scope| scope.parse().ok())
                .collect(),
            grants: KeyGrants {
                priority: self.priority,
                service_class: self
                    .service_class
                    .map(|class| stored(&class, "api_keys.service_class"))
                    .transpose()?,
            },
            name: self.name,
            created_at: self.created_at,
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
        })
    }
}

fn views(rows: Vec<KeyRow>) -> Result<Vec<KeyView>, Error> {
    rows.into_iter().map(KeyRow::view).collect()
}

/// What the audit log shows of a key.
fn audited(key: &KeyView) -> Value {
    json!({
        "role": key.role, "tenant": key.tenant, "pool": key.pool, "user": key.user, "scopes": key.scopes,
        "grants": key.grants, "name": key.name, "expiresAt": key.expires_at, "revokedAt": key.revoked_at,
    })
}

impl Store {
    /// The live key with this hash.
    pub async fn live_key(&self, hash: &[u8; 32]) -> Result<Option<LiveKey>, Error> {
        let row = sqlx::query!(
            r#"SELECT k.key_id, k.role, k.tenant, k.pool_id, k.user_name, k.scopes, k.priority, k.service_class, k.name,
                      k.created_at, k.expires_at, k.revoked_at, k.last_used_at, t.state AS "state?",
                      (extract(epoch FROM k.expires_at - clock_timestamp()) * 1000)::bigint AS remaining_ms
               FROM api_keys k LEFT JOIN tenants t ON t.tenant = k.tenant
               WHERE k.hash = $1 AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())"#,
            hash.as_slice(),
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(|row| {
            let tenant_state = row
                .state
                .as_deref()
                .map(|state| stored(state, "tenants.state"))
                .transpose()?;
            let key = KeyRow {
                key_id: row.key_id,
                role: row.role,
                tenant: row.tenant,
                pool_id: row.pool_id,
                user_name: row.user_name,
                scopes: row.scopes,
                priority: row.priority,
                service_class: row.service_class,
                name: row.name,
                created_at: row.created_at,
                expires_at: row.expires_at,
                revoked_at: row.revoked_at,
                last_used_at: row.last_used_at,
            };
            Ok(LiveKey {
                key: key.view()?,
                remaining_ms: row.remaining_ms,
                tenant_state,
            })
        })
        .transpose()
    }

    /// Stores a key.
    pub async fn insert_key(
        &self,
        key: NewKey,
        author: &Author,
    ) -> Result<Written<InsertKey>, Error> {
        self.write("key.create", author, move |tx, author| {
            let key = key.clone();
            Box::pin(async move { insert(tx, &key, &author).await })
        })
        .await
    }

    /// Stores the first super_admin key; `None` where there was one before, revoked or not (R2.1).
    pub async fn insert_bootstrap_key(
        &self,
        key: NewKey,
        author: &Author,
    ) -> Result<Option<Written<InsertKey>>, Error> {
        let author = author.clone();
        self.transaction("key.bootstrap", move |tx| {
            let (key, author) = (key.clone(), author.clone());
            Box::pin(async move {
                // The lock makes a second call wait and then see the first one's row.
                sqlx::query!("LOCK TABLE key_bootstrap IN EXCLUSIVE MODE")
                    .execute(&mut *tx)
                    .await?;
                let done =
                    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM key_bootstrap) AS "done!""#)
                        .fetch_one(&mut *tx)
                        .await?;
                if done {
                    return Ok(None);
                }
                let written = insert(tx, &key, &author).await?;
                sqlx::query!(
                    "INSERT INTO key_bootstrap (key_id) VALUES ($1)",
                    key.key_id.as_uuid()
                )
                .execute(&mut *tx)
                .await?;
                Ok(Some(written))
            })
        })
        .await
    }

    /// Whether the database has had its first key.
    pub async fn has_bootstrap_key(&self) -> Result<bool, Error> {
        Ok(
            sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM key_bootstrap) AS "done!""#)
                .fetch_one(self.pool())
                .await?,
        )
    }

    /// Revokes the first key and lets another one be made in its place.
    pub async fn take_back_bootstrap_key(
        &self,
        key: KeyId,
        author: &Author,
    ) -> Result<Written<Option<RevokeKey>>, Error> {
        let author = author.clone();
        self.transaction("key.bootstrap.take_back", move |tx| {
            let author = author.clone();
            Box::pin(async move {
                sqlx::query!("DELETE FROM key_bootstrap WHERE key_id = $1", key.as_uuid())
                    .execute(&mut *tx)
                    .await?;
                match locked(tx, key, None).await? {
                    Some(before) => mark_revoked(tx, before, &author).await,
                    None => Ok(Written::unchanged(None)),
                }
            })
        })
        .await
    }

    /// Keys of every tenant and of none, in the order of their making.
    pub async fn list_keys(&self, after: Option<KeyId>, limit: i64) -> Result<Vec<KeyView>, Error> {
        let rows = sqlx::query_as!(
            KeyRow,
            "SELECT key_id, role, tenant, pool_id, user_name, scopes, priority, service_class, name, created_at,
                    expires_at, revoked_at,
                    last_used_at
             FROM api_keys WHERE $1::uuid IS NULL OR key_id > $1 ORDER BY key_id LIMIT $2",
            after.map(KeyId::as_uuid),
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        views(rows)
    }

    /// Revokes any key; `None` where there is none of that id.
    pub async fn revoke_key(
        &self,
        key: KeyId,
        author: &Author,
    ) -> Result<Written<Option<RevokeKey>>, Error> {
        revoke(self, key, None, author).await
    }

    /// Notes, to the minute, that keys were used. This column and no other: writing use never writes settings (O-24).
    pub async fn touch_keys(&self, keys: &[KeyId]) -> Result<u64, Error> {
        let keys: Vec<Uuid> = keys.iter().map(|key| key.as_uuid()).collect();
        // SKIP LOCKED: an administrator's write is never waited for; the next use notes it.
        let done = sqlx::query!(
            "UPDATE api_keys SET last_used_at = greatest(created_at, date_trunc('minute', clock_timestamp()))
             WHERE key_id IN (SELECT key_id FROM api_keys
                              WHERE key_id = ANY($1)
                                AND (last_used_at IS NULL OR last_used_at < date_trunc('minute', clock_timestamp()))
                              ORDER BY key_id FOR NO KEY UPDATE SKIP LOCKED)",
            &keys,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

impl TenantStore {
    /// The tenant's keys, in the order of their making.
    pub async fn list_keys(&self, after: Option<KeyId>, limit: i64) -> Result<Vec<KeyView>, Error> {
        let rows = sqlx::query_as!(
            KeyRow,
            "SELECT key_id, role, tenant, pool_id, user_name, scopes, priority, service_class, name, created_at,
                    expires_at, revoked_at,
                    last_used_at
             FROM api_keys WHERE tenant = $1 AND ($2::uuid IS NULL OR key_id > $2) ORDER BY key_id LIMIT $3",
            self.key(),
            after.map(KeyId::as_uuid),
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        views(rows)
    }

    /// Revokes a key of the tenant; `None` for another's.
    pub async fn revoke_key(
        &self,
        key: KeyId,
        author: &Author,
    ) -> Result<Written<Option<RevokeKey>>, Error> {
        revoke(self.store(), key, Some(self.tenant().clone()), author).await
    }
}

async fn insert(
    tx: &mut PgConnection,
    key: &NewKey,
    author: &Author,
) -> Result<Written<InsertKey>, Error> {
    if let Some(tenant) = &key.tenant {
        // Shared: the tenant cannot be deleted between this look and the commit.
        let state = sqlx::query_scalar!(
            "SELECT state FROM tenants WHERE tenant = $1 FOR SHARE",
            tenant.as_str()
        )
        .fetch_optional(&mut *tx)
        .await?;
        if state.is_none_or(|state| state == TenantState::Deleted.as_str()) {
            return Ok(Written::unchanged(InsertKey::NoTenant));
        }
    }
    let scopes: Vec<String> = key.scopes.iter().map(ToString::to_string).collect();
    let row = sqlx::query_as!(
        KeyRow,
        "INSERT INTO api_keys (key_id, hash, role, tenant, pool_id, user_name, scopes, name, expires_at, priority,
                               service_class)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9::timestamptz, $10, $11
         WHERE $9::timestamptz IS NULL OR $9::timestamptz > clock_timestamp()
         RETURNING key_id, role, tenant, pool_id, user_name, scopes, priority, service_class, name, created_at,
                    expires_at, revoked_at,
                   last_used_at",
        key.key_id.as_uuid(),
        key.hash.as_slice(),
        key.role.as_str(),
        key.tenant.as_ref().map(TenantId::as_str),
        key.pool.as_ref().map(PoolId::as_str),
        key.user,
        &scopes,
        key.name,
        key.expires_at,
        key.grants.priority,
        key.grants.service_class.map(ServiceClass::as_str),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else {
        return Ok(Written::unchanged(InsertKey::AlreadyExpired));
    };
    let view = row.view()?;
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Key,
            action: "key.create",
            subject: &view.key_id.to_string(),
            tenant: view.tenant.as_ref(),
            before: Value::Null,
            after: audited(&view),
        },
    )
    .await?;
    Ok(Written {
        value: InsertKey::Stored(Box::new(view)),
        revision: Some(revision),
    })
}

async fn revoke(
    store: &Store,
    key: KeyId,
    tenant: Option<TenantId>,
    author: &Author,
) -> Result<Written<Option<RevokeKey>>, Error> {
    store
        .write("key.revoke", author, move |tx, author| {
            let tenant = tenant.clone();
            Box::pin(async move { revoke_in(tx, key, tenant.as_ref(), &author).await })
        })
        .await
}

async fn revoke_in(
    tx: &mut PgConnection,
    key: KeyId,
    tenant: Option<&TenantId>,
    author: &Author,
) -> Result<Written<Option<RevokeKey>>, Error> {
    let Some(before) = locked(tx, key, tenant).await? else {
        return Ok(Written::unchanged(None));
    };
    if before.revoked_at.is_some() {
        let before = Box::new(before);
        return Ok(Written::unchanged(Some(RevokeKey::Revoked(before))));
    }
    if before.role == Role::SuperAdmin && !another_operator(tx, key).await? {
        return Ok(Written::unchanged(Some(RevokeKey::LastOperator)));
    }
    mark_revoked(tx, before, author).await
}

/// The key of that id, of the tenant where one is given.
async fn locked(
    tx: &mut PgConnection,
    key: KeyId,
    tenant: Option<&TenantId>,
) -> Result<Option<KeyView>, Error> {
    let row = sqlx::query_as!(
        KeyRow,
        "SELECT key_id, role, tenant, pool_id, user_name, scopes, priority, service_class, name, created_at,
                    expires_at, revoked_at,
                last_used_at
         FROM api_keys WHERE key_id = $1 AND ($2::text IS NULL OR tenant = $2) FOR UPDATE",
        key.as_uuid(),
        tenant.map(TenantId::as_str),
    )
    .fetch_optional(tx)
    .await?;
    row.map(KeyRow::view).transpose()
}

async fn mark_revoked(
    tx: &mut PgConnection,
    before: KeyView,
    author: &Author,
) -> Result<Written<Option<RevokeKey>>, Error> {
    let key = before.key_id;
    let revoked_at = sqlx::query_scalar!(
        r#"UPDATE api_keys SET revoked_at = clock_timestamp() WHERE key_id = $1 RETURNING revoked_at AS "at!""#,
        key.as_uuid(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let after = KeyView {
        revoked_at: Some(revoked_at),
        ..before.clone()
    };
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Key,
            action: "key.revoke",
            subject: &key.to_string(),
            tenant: after.tenant.as_ref(),
            before: audited(&before),
            after: audited(&after),
        },
    )
    .await?;
    Ok(Written {
        value: Some(RevokeKey::Revoked(Box::new(after))),
        revision: Some(revision),
    })
}

/// Whether another key can administer the platform for good: one that expires is none to stay with, for nobody may be
/// there to revoke or extend anything when it does. All of them are locked, so that two cannot revoke each other.
async fn another_operator(tx: &mut PgConnection, key: KeyId) -> Result<bool, Error> {
    let live = sqlx::query_scalar!(
        "SELECT key_id FROM api_keys
         WHERE role = 'super_admin' AND revoked_at IS NULL AND expires_at IS NULL
         ORDER BY key_id FOR UPDATE"
    )
    .fetch_all(tx)
    .await?;
    Ok(live.into_iter().any(|other| other != key.as_uuid()))
}
