//! Publishing descriptors: by a controller, and by the server for the pool of its own executor (R5.1, R5.4).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{
    Capability, ConfigKind, PoolId,
    api::DescriptorEpochView,
    contracts::{CapabilityDescriptor, Health},
    digest::canonical_digest,
    strict,
};

use super::{
    digest_text,
    epochs::{Force, lock_pool, policy_generation, put_in_force},
};
use crate::{
    Error, Store,
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

impl Outcome for Publish {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Published(_))
    }
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

    /// Makes a set of capabilities the content in force of a pool that the server publishes itself: a new epoch where
    /// it differs from the one in force, nothing otherwise. Attempts of the one before end what they have begun.
    pub async fn ensure_descriptor(
        &self,
        scope: &str,
        pool: &PoolId,
        capabilities: &[Capability],
        author: &Author,
    ) -> Result<Written<i64>, Error> {
        let (scope, pool, author) = (scope.to_owned(), pool.clone(), author.clone());
        let capabilities = capabilities.to_vec();
        self.transaction("pool.ensure", move |tx| {
            let (scope, pool, author) = (scope.clone(), pool.clone(), author.clone());
            let capabilities = capabilities.clone();
            Box::pin(async move {
                let generation = policy_generation(tx, &scope).await?;
                ensure(tx, &pool, capabilities, generation, &author).await
            })
        })
        .await
    }
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
    // Of the content: the same one in another order is no other descriptor.
    let digest = canonical_digest(&descriptor.clone().in_order()).map_err(unreadable)?;
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

/// The end of the calendar: what the server publishes itself is in force as long as the server says so.
fn never() -> DateTime<Utc> {
    DateTime::from_timestamp(253_402_300_799, 0).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// See [`Store::ensure_descriptor`].
pub(super) async fn ensure(
    tx: &mut PgConnection,
    pool: &PoolId,
    mut capabilities: Vec<Capability>,
    policy_generation: i64,
    author: &Author,
) -> Result<Written<i64>, Error> {
    let active = lock_pool(tx, pool).await?;
    capabilities.sort();
    capabilities.dedup();
    let known = sqlx::query!(
        r#"SELECT coalesce(max(epoch), 0) AS "last!",
                  (SELECT body FROM pool_descriptors WHERE pool_id = $1 AND epoch = $2) AS body,
                  ARRAY (SELECT DISTINCT descriptor_epoch FROM run_leases
                      WHERE pool = $1 AND descriptor_epoch IS NOT NULL) AS "in_use!"
           FROM pool_descriptors WHERE pool_id = $1"#,
        pool.as_str(),
        active,
    )
    .fetch_one(&mut *tx)
    .await?;
    let before = active.unwrap_or_default();
    let health = Health {
        checked_at: DateTime::UNIX_EPOCH,
        valid_until: never(),
    };
    let mut descriptor = CapabilityDescriptor {
        policy_generation,
        ..CapabilityDescriptor::new(pool.clone(), before, capabilities, health)
    };
    // One of a contract that this release does not know is published anew.
    let there: Option<CapabilityDescriptor> =
        known.body.and_then(|body| strict::from_value(body).ok());
    if let (Some(active), true) = (active, there.as_ref() == Some(&descriptor)) {
        return Ok(Written::unchanged(active));
    }
    let epoch = known.last + 1;
    descriptor.descriptor_epoch = epoch;
    publish(tx, &descriptor, author).await?;
    // Those that nobody uses have nothing to end, and the list stays short.
    let mut draining = known.in_use;
    draining.extend(active.filter(|active| !draining.contains(active)));
    let force = Force {
        before: active,
        epoch,
        draining,
    };
    let revision = put_in_force(tx, pool, &force, author).await?;
    Ok(Written {
        value: epoch,
        revision: Some(revision),
    })
}
