//! Pools: immutable descriptors and the epoch in force (R5.1, R5.3).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    Capability, ConfigKind, PoolId,
    api::{DescriptorEpochView, PoolView, SetEpoch},
    contracts::CapabilityDescriptor,
    digest::{Digest, canonical_digest},
};

use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// What came of a publication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Publish {
    /// It is published, now or before with the same content.
    Published(DescriptorEpochView),
    /// That epoch holds another content, whose digest this is.
    OtherContent(String),
}

/// What came of moving the epoch in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveEpoch {
    /// It is in force.
    InForce,
    /// There is no such pool.
    NoPool,
    /// The epoch was never published.
    NotPublished,
    /// Another epoch is in force than the caller expected.
    Other(Option<i64>),
    /// The epoch is below the one in force.
    Lower(i64),
}

impl Outcome for Publish {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Published(_))
    }
}

impl Outcome for MoveEpoch {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::InForce)
    }
}

/// A pool with an epoch in force, as routing needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivePool {
    /// The pool.
    pub pool_id: PoolId,
    /// The epoch in force.
    pub epoch: i64,
    /// What it offers.
    pub capabilities: Vec<Capability>,
}

fn digest_text(bytes: &[u8]) -> Result<String, Error> {
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| Error::Corrupt {
        what: "pool_descriptors.digest",
    })?;
    Ok(Digest(bytes).to_string())
}

impl Store {
    /// Publishes a descriptor; making the pool where it is the first.
    pub async fn publish_descriptor(
        &self,
        descriptor: CapabilityDescriptor,
        author: &Author,
    ) -> Result<Written<Publish>, Error> {
        self.write("pool.publish", author, move |tx, author| {
            let descriptor = descriptor.clone();
            Box::pin(async move { publish(tx, &descriptor, &author).await })
        })
        .await
    }

    /// Compare-and-set of the epoch in force.
    pub async fn move_epoch(
        &self,
        pool: &PoolId,
        epoch: SetEpoch,
        author: &Author,
    ) -> Result<Written<MoveEpoch>, Error> {
        let pool = pool.clone();
        self.write("pool.set_epoch", author, move |tx, author| {
            let pool = pool.clone();
            Box::pin(async move { move_epoch(tx, &pool, epoch, &author).await })
        })
        .await
    }

    /// Makes a set of capabilities the content in force of a pool that the server publishes itself: a new epoch where
    /// it differs from the one in force, nothing otherwise.
    pub async fn ensure_descriptor(
        &self,
        pool: &PoolId,
        capabilities: &[Capability],
        author: &Author,
    ) -> Result<Written<i64>, Error> {
        let (pool, author) = (pool.clone(), author.clone());
        let capabilities = capabilities.to_vec();
        self.transaction("pool.ensure", move |tx| {
            let (pool, author) = (pool.clone(), author.clone());
            let capabilities = capabilities.clone();
            Box::pin(async move { ensure(tx, &pool, capabilities, &author).await })
        })
        .await
    }

    /// The pools with an epoch in force. A descriptor that this release cannot read offers nothing (R6.2).
    pub async fn active_pools(&self) -> Result<Vec<ActivePool>, Error> {
        let rows = sqlx::query!(
            "SELECT p.pool_id, d.epoch, d.body FROM pools p
             JOIN pool_descriptors d ON d.pool_id = p.pool_id AND d.epoch = p.active_epoch ORDER BY p.pool_id"
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                let descriptor = serde_json::from_value::<CapabilityDescriptor>(row.body);
                Ok(ActivePool {
                    pool_id: stored(&row.pool_id, "pools.pool_id")?,
                    epoch: row.epoch,
                    capabilities: descriptor.map(|d| d.capabilities).unwrap_or_default(),
                })
            })
            .collect()
    }

    /// Every pool with its descriptors and how much it runs.
    pub async fn list_pools(&self) -> Result<Vec<PoolView>, Error> {
        let pools = sqlx::query!(
            r#"SELECT p.pool_id, p.active_epoch,
                      (SELECT count(*) FROM run_leases l WHERE l.pool = p.pool_id) AS "running!"
               FROM pools p ORDER BY p.pool_id"#
        )
        .fetch_all(self.pool())
        .await?;
        let descriptors = sqlx::query!(
            "SELECT pool_id, epoch, digest, body, published_at FROM pool_descriptors ORDER BY pool_id, epoch"
        )
        .fetch_all(self.pool())
        .await?;
        pools
            .into_iter()
            .map(|pool| {
                let mut view = PoolView {
                    pool_id: stored(&pool.pool_id, "pools.pool_id")?,
                    active_descriptor_epoch: pool.active_epoch,
                    descriptor: None,
                    epochs: Vec::new(),
                    running: pool.running,
                };
                for row in descriptors.iter().filter(|row| row.pool_id == pool.pool_id) {
                    if Some(row.epoch) == pool.active_epoch {
                        view.descriptor = serde_json::from_value(row.body.clone()).ok();
                    }
                    view.epochs.push(DescriptorEpochView {
                        epoch: row.epoch,
                        digest: digest_text(&row.digest)?,
                        published_at: row.published_at,
                    });
                }
                Ok(view)
            })
            .collect()
    }
}

async fn lock_pool(tx: &mut PgConnection, pool: &PoolId) -> Result<Option<i64>, Error> {
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

async fn publish(
    tx: &mut PgConnection,
    descriptor: &CapabilityDescriptor,
    author: &Author,
) -> Result<Written<Publish>, Error> {
    lock_pool(tx, &descriptor.pool_id).await?;
    let unreadable = |_| Error::Corrupt {
        what: "capability descriptor",
    };
    let digest = canonical_digest(descriptor).map_err(unreadable)?;
    let body = serde_json::to_value(descriptor).map_err(unreadable)?;
    let capabilities: Vec<String> = descriptor
        .capabilities
        .iter()
        .map(ToString::to_string)
        .collect();
    let row = sqlx::query!(
        "INSERT INTO pool_descriptors (pool_id, epoch, digest, capabilities, body) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING RETURNING published_at",
        descriptor.pool_id.as_str(),
        descriptor.descriptor_epoch,
        digest.as_bytes().as_slice(),
        &capabilities,
        body,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else {
        let there = sqlx::query!(
            "SELECT digest, published_at FROM pool_descriptors WHERE pool_id = $1 AND epoch = $2",
            descriptor.pool_id.as_str(),
            descriptor.descriptor_epoch,
        )
        .fetch_one(&mut *tx)
        .await?;
        let text = digest_text(&there.digest)?;
        return Ok(Written::unchanged(
            if there.digest == digest.as_bytes().as_slice() {
                Publish::Published(DescriptorEpochView {
                    epoch: descriptor.descriptor_epoch,
                    digest: text,
                    published_at: there.published_at,
                })
            } else {
                Publish::OtherContent(text)
            },
        ));
    };
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Pool,
            action: "pool.publish",
            subject: descriptor.pool_id.as_str(),
            tenant: None,
            before: Value::Null,
            after: body,
        },
    )
    .await?;
    Ok(Written {
        value: Publish::Published(DescriptorEpochView {
            epoch: descriptor.descriptor_epoch,
            digest: digest.to_string(),
            published_at: row.published_at,
        }),
        revision: Some(revision),
    })
}

async fn move_epoch(
    tx: &mut PgConnection,
    pool: &PoolId,
    epoch: SetEpoch,
    author: &Author,
) -> Result<Written<MoveEpoch>, Error> {
    let row = sqlx::query!(
        "SELECT active_epoch FROM pools WHERE pool_id = $1 FOR UPDATE",
        pool.as_str()
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else {
        return Ok(Written::unchanged(MoveEpoch::NoPool));
    };
    let active = row.active_epoch;
    if active != epoch.expected {
        return Ok(Written::unchanged(MoveEpoch::Other(active)));
    }
    if active == Some(epoch.active) {
        return Ok(Written::unchanged(MoveEpoch::InForce));
    }
    if let Some(active) = active.filter(|active| epoch.active < *active) {
        return Ok(Written::unchanged(MoveEpoch::Lower(active)));
    }
    let published = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM pool_descriptors WHERE pool_id = $1 AND epoch = $2) AS "there!""#,
        pool.as_str(),
        epoch.active,
    )
    .fetch_one(&mut *tx)
    .await?;
    if !published {
        return Ok(Written::unchanged(MoveEpoch::NotPublished));
    }
    let revision = put_in_force(tx, pool, active, epoch.active, author).await?;
    Ok(Written {
        value: MoveEpoch::InForce,
        revision: Some(revision),
    })
}

async fn put_in_force(
    tx: &mut PgConnection,
    pool: &PoolId,
    before: Option<i64>,
    epoch: i64,
    author: &Author,
) -> Result<i64, Error> {
    sqlx::query!(
        "UPDATE pools SET active_epoch = $2 WHERE pool_id = $1",
        pool.as_str(),
        epoch
    )
    .execute(&mut *tx)
    .await?;
    record(
        tx,
        Record {
            author,
            kind: ConfigKind::Pool,
            action: "pool.set_epoch",
            subject: pool.as_str(),
            tenant: None,
            before: json!({"activeDescriptorEpoch": before}),
            after: json!({"activeDescriptorEpoch": epoch}),
        },
    )
    .await
}

async fn ensure(
    tx: &mut PgConnection,
    pool: &PoolId,
    mut capabilities: Vec<Capability>,
    author: &Author,
) -> Result<Written<i64>, Error> {
    let active = lock_pool(tx, pool).await?;
    capabilities.sort();
    capabilities.dedup();
    let known = sqlx::query!(
        r#"SELECT coalesce(max(epoch), 0) AS "last!",
                  coalesce((SELECT capabilities FROM pool_descriptors WHERE pool_id = $1 AND epoch = $2), '{}')
                      AS "capabilities!"
           FROM pool_descriptors WHERE pool_id = $1"#,
        pool.as_str(),
        active,
    )
    .fetch_one(&mut *tx)
    .await?;
    let same = known
        .capabilities
        .iter()
        .map(String::as_str)
        .eq(capabilities.iter().map(Capability::as_str));
    if let (Some(active), true) = (active, same) {
        return Ok(Written::unchanged(active));
    }
    let epoch = known.last + 1;
    let descriptor = CapabilityDescriptor {
        contract: tidegate_model::contracts::DescriptorContract::V1,
        pool_id: pool.clone(),
        descriptor_epoch: epoch,
        runtime_digest: None,
        capabilities,
    };
    publish(tx, &descriptor, author).await?;
    let revision = put_in_force(tx, pool, active, epoch, author).await?;
    Ok(Written {
        value: epoch,
        revision: Some(revision),
    })
}
