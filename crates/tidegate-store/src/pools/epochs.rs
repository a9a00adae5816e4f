//! Which epoch of a pool is in force, which drain and which are revoked; the policy generation (R5.3, R18.2, R18.3).
//!
//! Attempts of an epoch that is neither in force nor drains are told to stop in the transaction that takes it away. One that
//! was just being opened under it is found by [`Fleet::stop_withdrawn`] within a second.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgConnection;
use tidegate_model::{
    Capability, ConfigKind, PoolId,
    api::{PolicyGeneration, SetEpoch, SetPolicyGeneration},
    contracts::CapabilityDescriptor,
    strict,
};

use super::publish::ensure;
use crate::{
    Error, Fleet, Store,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// What came of moving the epoch in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveEpoch {
    /// It is in force.
    InForce,
    /// There is no such pool.
    NoPool,
    /// An epoch was never published.
    NotPublished(i64),
    /// An epoch was revoked.
    Revoked(i64),
    /// Another epoch is in force than the caller expected.
    Other(Option<i64>),
    /// The epoch is below the one in force.
    Lower(i64),
}

impl Outcome for MoveEpoch {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::InForce)
    }
}

/// What came of revoking an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RevokeEpoch {
    /// It is revoked, now or before.
    Revoked,
    /// There is no such pool.
    NoPool,
    /// It was never published.
    NotPublished,
}

impl Outcome for RevokeEpoch {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Revoked)
    }
}

/// What came of raising the policy generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaiseGeneration {
    /// It is in force.
    InForce,
    /// Another one is in force than the caller expected.
    Other(i64),
    /// It is below the one in force.
    Lower(i64),
}

impl Outcome for RaiseGeneration {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::InForce)
    }
}

/// What is put in force.
pub(super) struct Force {
    /// What was before.
    pub before: Option<i64>,
    /// What is now.
    pub epoch: i64,
    /// Which others may end what they have begun.
    pub draining: Vec<i64>,
}

impl Store {
    /// Compare-and-set of the epoch in force, together with those that drain.
    pub async fn move_epoch(
        &self,
        pool: &PoolId,
        epoch: SetEpoch,
        author: &Author,
    ) -> Result<Written<MoveEpoch>, Error> {
        let pool = pool.clone();
        self.write("pool.set_epoch", author, move |tx, author| {
            let (pool, epoch) = (pool.clone(), epoch.clone());
            Box::pin(async move { move_epoch(tx, &pool, epoch, &author).await })
        })
        .await
    }

    /// Takes an epoch away for good, also where it is in force: its attempts are told to stop, and nothing uses it again.
    pub async fn revoke_epoch(
        &self,
        pool: &PoolId,
        epoch: i64,
        author: &Author,
    ) -> Result<Written<RevokeEpoch>, Error> {
        let pool = pool.clone();
        self.write("pool.revoke_epoch", author, move |tx, author| {
            let pool = pool.clone();
            Box::pin(async move { revoke_epoch(tx, &pool, epoch, &author).await })
        })
        .await
    }

    /// The policy generation in force.
    pub async fn policy_generation(&self, scope: &str) -> Result<PolicyGeneration, Error> {
        let active = sqlx::query_scalar!(
            r#"SELECT coalesce((SELECT generation FROM policy_generations WHERE scope = $1), 1) AS "active!""#,
            scope,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(PolicyGeneration { active })
    }

    /// Compare-and-set of the policy generation. The pool `builtin`, which always does as the server's own policy says,
    /// follows in the same transaction; every other one serves again when it is published under the new generation.
    pub async fn raise_policy_generation(
        &self,
        scope: &str,
        generation: SetPolicyGeneration,
        author: &Author,
    ) -> Result<Written<RaiseGeneration>, Error> {
        let scope = scope.to_owned();
        self.write("policy_generation.set", author, move |tx, author| {
            let scope = scope.clone();
            Box::pin(async move { raise(tx, &scope, generation, &author).await })
        })
        .await
    }
}

impl Fleet {
    /// Tells attempts of a scope to stop whose epoch is neither in force nor drains; answers how many.
    pub async fn stop_withdrawn(&self, scope: &str) -> Result<u64, Error> {
        let mut connection = self.pool().acquire().await?;
        stop_withdrawn(&mut connection, Some(scope), None).await
    }
}

/// Tells attempts to stop whose epoch is neither in force nor drains: those of a scope, or of a pool in the transaction that
/// takes an epoch away. Locked in the order of the key.
async fn stop_withdrawn(
    connection: &mut PgConnection,
    scope: Option<&str>,
    pool: Option<&PoolId>,
) -> Result<u64, Error> {
    Ok(sqlx::query!(
        r#"UPDATE run_leases l SET stop_reason = 'epoch_withdrawn', stop_requested_at = clock_timestamp()
           FROM (
               SELECT k.scope, k.bucket, k.tenant, k.run_id FROM run_leases k
               JOIN pools p ON p.pool_id = k.pool
               WHERE ($1::text IS NULL OR k.scope = $1) AND ($2::text IS NULL OR k.pool = $2)
                 AND k.stop_reason IS NULL AND k.descriptor_epoch IS NOT NULL
                 AND (k.descriptor_epoch = ANY (p.revoked_epochs)
                      OR k.descriptor_epoch <> p.active_epoch AND k.descriptor_epoch <> ALL (p.draining_epochs))
               ORDER BY k.scope, k.bucket, k.tenant COLLATE "C", k.run_id
               FOR NO KEY UPDATE OF k) gone
           WHERE l.scope = gone.scope AND l.bucket = gone.bucket AND l.tenant = gone.tenant
             AND l.run_id = gone.run_id"#,
        scope,
        pool.map(PoolId::as_str),
    )
    .execute(connection)
    .await?
    .rows_affected())
}

pub(super) async fn lock_pool(tx: &mut PgConnection, pool: &PoolId) -> Result<Option<i64>, Error> {
    sqlx::query!(
        "INSERT INTO pools (pool_id) VALUES ($1) ON CONFLICT DO NOTHING",
        pool.as_str()
    )
    .execute(&mut *tx)
    .await?;
    let active = sqlx::query_scalar!(
        "SELECT active_epoch FROM pools WHERE pool_id = $1 FOR UPDATE",
        pool.as_str()
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(active)
}

/// The generation in force, kept from changing until the transaction ends.
pub(super) async fn policy_generation(tx: &mut PgConnection, scope: &str) -> Result<i64, Error> {
    sqlx::query!(
        "INSERT INTO policy_generations (scope, generation) VALUES ($1, 1) ON CONFLICT DO NOTHING",
        scope
    )
    .execute(&mut *tx)
    .await?;
    Ok(sqlx::query_scalar!(
        "SELECT generation FROM policy_generations WHERE scope = $1 FOR UPDATE",
        scope
    )
    .fetch_one(&mut *tx)
    .await?)
}

/// A pool under its lock.
struct Pool {
    active: Option<i64>,
    draining: Vec<i64>,
    revoked: Vec<i64>,
    published: Vec<i64>,
}

async fn locked(tx: &mut PgConnection, pool: &PoolId) -> Result<Option<Pool>, Error> {
    let row = sqlx::query!(
        "SELECT active_epoch, draining_epochs, revoked_epochs FROM pools WHERE pool_id = $1 FOR UPDATE",
        pool.as_str()
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let published = sqlx::query_scalar!(
        "SELECT epoch FROM pool_descriptors WHERE pool_id = $1",
        pool.as_str()
    )
    .fetch_all(&mut *tx)
    .await?;
    Ok(Some(Pool {
        active: row.active_epoch,
        draining: row.draining_epochs,
        revoked: row.revoked_epochs,
        published,
    }))
}

/// Which epochs drain: those that the caller names, else those that do already and the one that was in force.
fn draining(pool: &Pool, epoch: &SetEpoch) -> Result<Vec<i64>, MoveEpoch> {
    let mut epochs = match &epoch.draining {
        None => {
            let mut epochs = pool.draining.clone();
            epochs.extend(pool.active);
            epochs.retain(|drains| !pool.revoked.contains(drains));
            epochs
        }
        Some(named) => {
            for named in named {
                if !pool.published.contains(named) {
                    return Err(MoveEpoch::NotPublished(*named));
                }
                if pool.revoked.contains(named) {
                    return Err(MoveEpoch::Revoked(*named));
                }
            }
            named.clone()
        }
    };
    epochs.retain(|drains| *drains != epoch.active);
    epochs.sort_unstable();
    epochs.dedup();
    Ok(epochs)
}

async fn move_epoch(
    tx: &mut PgConnection,
    pool: &PoolId,
    epoch: SetEpoch,
    author: &Author,
) -> Result<Written<MoveEpoch>, Error> {
    let Some(there) = locked(tx, pool).await? else {
        return Ok(Written::unchanged(MoveEpoch::NoPool));
    };
    // Where the one in force was revoked, none is; the number stays the floor below which nothing goes.
    let in_force = there
        .active
        .filter(|active| !there.revoked.contains(active));
    if in_force != epoch.expected {
        return Ok(Written::unchanged(MoveEpoch::Other(in_force)));
    }
    if let Some(active) = there.active.filter(|active| epoch.active < *active) {
        return Ok(Written::unchanged(MoveEpoch::Lower(active)));
    }
    if !there.published.contains(&epoch.active) {
        return Ok(Written::unchanged(MoveEpoch::NotPublished(epoch.active)));
    }
    if there.revoked.contains(&epoch.active) {
        return Ok(Written::unchanged(MoveEpoch::Revoked(epoch.active)));
    }
    let draining = match draining(&there, &epoch) {
        Ok(draining) => draining,
        Err(refused) => return Ok(Written::unchanged(refused)),
    };
    // The one that is in force stays so by itself; naming it again may change the list of those that drain.
    let same_epoch = there.active == Some(epoch.active);
    if same_epoch && (epoch.draining.is_none() || draining == there.draining) {
        return Ok(Written::unchanged(MoveEpoch::InForce));
    }
    let force = Force {
        before: there.active,
        epoch: epoch.active,
        draining,
    };
    let revision = put_in_force(tx, pool, &force, author).await?;
    Ok(Written {
        value: MoveEpoch::InForce,
        revision: Some(revision),
    })
}

pub(super) async fn put_in_force(
    tx: &mut PgConnection,
    pool: &PoolId,
    force: &Force,
    author: &Author,
) -> Result<i64, Error> {
    sqlx::query!(
        "UPDATE pools SET active_epoch = $2, draining_epochs = $3 WHERE pool_id = $1",
        pool.as_str(),
        force.epoch,
        &force.draining,
    )
    .execute(&mut *tx)
    .await?;
    let stopped = stop_withdrawn(tx, None, Some(pool)).await?;
    record(
        tx,
        Record {
            author,
            kind: ConfigKind::Pool,
            action: "pool.set_epoch",
            subject: pool.as_str(),
            tenant: None,
            before: json!({"activeDescriptorEpoch": force.before}),
            after: json!({"activeDescriptorEpoch": force.epoch, "drainingEpochs": force.draining,
                "stoppedAttempts": stopped}),
        },
    )
    .await
}

async fn revoke_epoch(
    tx: &mut PgConnection,
    pool: &PoolId,
    epoch: i64,
    author: &Author,
) -> Result<Written<RevokeEpoch>, Error> {
    let Some(there) = locked(tx, pool).await? else {
        return Ok(Written::unchanged(RevokeEpoch::NoPool));
    };
    if !there.published.contains(&epoch) {
        return Ok(Written::unchanged(RevokeEpoch::NotPublished));
    }
    if there.revoked.contains(&epoch) {
        return Ok(Written::unchanged(RevokeEpoch::Revoked));
    }
    sqlx::query!(
        "UPDATE pools SET draining_epochs = array_remove(draining_epochs, $2::bigint),
                revoked_epochs = array_append(revoked_epochs, $2::bigint)
         WHERE pool_id = $1",
        pool.as_str(),
        epoch,
    )
    .execute(&mut *tx)
    .await?;
    let stopped = stop_withdrawn(tx, None, Some(pool)).await?;
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Pool,
            action: "pool.revoke_epoch",
            subject: pool.as_str(),
            tenant: None,
            before: json!({"drainingEpochs": there.draining, "activeDescriptorEpoch": there.active}),
            after: json!({"revokedEpoch": epoch, "stoppedAttempts": stopped}),
        },
    )
    .await?;
    Ok(Written {
        value: RevokeEpoch::Revoked,
        revision: Some(revision),
    })
}

async fn raise(
    tx: &mut PgConnection,
    scope: &str,
    generation: SetPolicyGeneration,
    author: &Author,
) -> Result<Written<RaiseGeneration>, Error> {
    let active = policy_generation(tx, scope).await?;
    if active != generation.expected {
        return Ok(Written::unchanged(RaiseGeneration::Other(active)));
    }
    if generation.active < active {
        return Ok(Written::unchanged(RaiseGeneration::Lower(active)));
    }
    if generation.active == active {
        return Ok(Written::unchanged(RaiseGeneration::InForce));
    }
    sqlx::query!(
        "UPDATE policy_generations SET generation = $2 WHERE scope = $1",
        scope,
        generation.active
    )
    .execute(&mut *tx)
    .await?;
    if let Some(capabilities) = builtin_capabilities(tx).await? {
        let builtin = PoolId::builtin();
        ensure(tx, &builtin, capabilities, generation.active, author).await?;
    }
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Pool,
            action: "policy_generation.set",
            subject: scope,
            tenant: None,
            before: json!({"policyGeneration": active}),
            after: json!({"policyGeneration": generation.active}),
        },
    )
    .await?;
    Ok(Written {
        value: RaiseGeneration::InForce,
        revision: Some(revision),
    })
}

/// What the pool of the built-in executor offers, where it is published.
async fn builtin_capabilities(tx: &mut PgConnection) -> Result<Option<Vec<Capability>>, Error> {
    let builtin = PoolId::builtin();
    let body = sqlx::query_scalar!(
        "SELECT d.body FROM pools p JOIN pool_descriptors d ON d.pool_id = p.pool_id AND d.epoch = p.active_epoch
         WHERE p.pool_id = $1",
        builtin.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    let descriptor = body.and_then(|body| strict::from_value::<CapabilityDescriptor>(body).ok());
    Ok(descriptor.map(|descriptor| descriptor.capabilities))
}
