//! Pools: immutable descriptors, the epoch in force and those that drain or are revoked (R5.1, R5.3, R18).

pub mod epochs;
pub mod publish;
pub mod workers;

use std::{collections::HashMap, sync::Arc};

use tidegate_model::{
    PoolId,
    api::{DescriptorEpochView, PoolView},
    digest::Digest,
    strict,
};
use tidegate_policy::eligibility::{self, Moment, PoolOffer};

use crate::{Error, Store, error::stored};

/// All pools at one moment, as routing needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolOffers {
    /// Every pool with the descriptor in force.
    pub offers: Vec<PoolOffer>,
    /// When they were read, and the policy generation in force.
    pub moment: Moment,
}

fn digest_text(bytes: &[u8]) -> Result<String, Error> {
    let bytes: [u8; 32] = bytes.try_into().map_err(|_| Error::Corrupt {
        what: "pool_descriptors.digest",
    })?;
    Ok(Digest(bytes).to_string())
}

impl Store {
    /// Every pool with its descriptor in force, for the eligibility rule. What was revoked is not in force.
    pub async fn pool_offers(&self, scope: &str) -> Result<PoolOffers, Error> {
        let moment = self.moment(scope).await?;
        let rows = sqlx::query!(
            r#"SELECT p.pool_id, d.epoch AS "epoch?", d.body AS "body?" FROM pools p
               LEFT JOIN pool_descriptors d ON d.pool_id = p.pool_id AND d.epoch = p.active_epoch
                AND d.epoch <> ALL (p.revoked_epochs)
               ORDER BY p.pool_id"#
        )
        .fetch_all(self.pool())
        .await?;
        let offers = rows.into_iter().map(|row| {
            // A descriptor of a contract that this release does not know is not eligible (R6.2).
            let descriptor = row.body.and_then(|body| strict::from_value(body).ok());
            Ok(PoolOffer {
                pool: stored(&row.pool_id, "pools.pool_id")?,
                epoch: row.epoch,
                descriptor: descriptor.map(Arc::new),
            })
        });
        Ok(PoolOffers {
            offers: offers.collect::<Result<_, Error>>()?,
            moment,
        })
    }

    /// The time and the policy generation in force.
    async fn moment(&self, scope: &str) -> Result<Moment, Error> {
        let moment = sqlx::query!(
            r#"SELECT clock_timestamp() AS "now!",
                      coalesce((SELECT generation FROM policy_generations WHERE scope = $1), 1) AS "generation!""#,
            scope,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(Moment {
            now: moment.now,
            policy_generation: moment.generation,
        })
    }

    /// Every pool with its descriptors and how much it runs.
    pub async fn list_pools(&self, scope: &str) -> Result<Vec<PoolView>, Error> {
        let pools = sqlx::query!(
            r#"SELECT p.pool_id, p.draining_epochs, p.revoked_epochs,
                      (SELECT count(*) FROM run_leases l WHERE l.pool = p.pool_id) AS "running!"
               FROM pools p ORDER BY p.pool_id"#
        )
        .fetch_all(self.pool())
        .await?;
        let read = self.pool_offers(scope).await?;
        let mut offers: HashMap<PoolId, PoolOffer> = read
            .offers
            .into_iter()
            .map(|offer| (offer.pool.clone(), offer))
            .collect();
        let mut epochs = self.published_epochs().await?;
        let mut workers = self.live_workers().await?;
        pools
            .into_iter()
            .map(|pool| {
                let pool_id: PoolId = stored(&pool.pool_id, "pools.pool_id")?;
                // One that was made since the list was read is seen with the next look.
                let offer = offers.remove(&pool_id).unwrap_or_else(|| PoolOffer {
                    pool: pool_id.clone(),
                    epoch: None,
                    descriptor: None,
                });
                Ok(PoolView {
                    active_descriptor_epoch: offer.epoch,
                    closed_by: eligibility::closed(&offer, read.moment).collect(),
                    descriptor: offer.descriptor.map(Arc::unwrap_or_clone),
                    draining_epochs: pool.draining_epochs,
                    revoked_epochs: pool.revoked_epochs,
                    epochs: epochs.remove(&pool_id).unwrap_or_default(),
                    running: pool.running,
                    workers: workers.remove(&pool_id).unwrap_or_default(),
                    pool_id,
                })
            })
            .collect()
    }

    /// Every published epoch, by pool and in order.
    async fn published_epochs(&self) -> Result<HashMap<PoolId, Vec<DescriptorEpochView>>, Error> {
        let rows = sqlx::query!(
            "SELECT pool_id, epoch, digest, published_at FROM pool_descriptors ORDER BY pool_id, epoch"
        )
        .fetch_all(self.pool())
        .await?;
        let mut epochs: HashMap<PoolId, Vec<DescriptorEpochView>> = HashMap::new();
        for row in rows {
            let pool = stored(&row.pool_id, "pool_descriptors.pool_id")?;
            epochs.entry(pool).or_default().push(DescriptorEpochView {
                epoch: row.epoch,
                digest: digest_text(&row.digest)?,
                published_at: row.published_at,
            });
        }
        Ok(epochs)
    }
}
