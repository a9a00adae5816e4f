//! What dangles after a restore or a promotion (R4.7).

use tidegate_model::{
    Fence, RunId,
    api::{DanglingLease, RecoveryView},
};

use crate::{Error, Store, error::stored};

/// The most leases that one answer lists.
const LISTED_MAX: i64 = 1_000;

impl Store {
    /// The generation in force, the leases of earlier ones, and how many attempts of theirs were taken over.
    pub async fn recovery(&self) -> Result<RecoveryView, Error> {
        let cluster =
            sqlx::query!("SELECT generation, generation_since, generation_cause FROM cluster")
                .fetch_one(self.pool())
                .await?;
        let leases = sqlx::query!(
            "SELECT run_id, tenant, fence_generation, fence_number, holder, pool, lease_until FROM run_leases
             WHERE fence_generation < $1 ORDER BY tenant, run_id LIMIT $2",
            cluster.generation,
            LISTED_MAX,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| {
            Ok(DanglingLease {
                run_id: RunId::from_uuid(row.run_id),
                tenant: stored(&row.tenant, "run_leases.tenant")?,
                fence: Fence {
                    generation: row.fence_generation,
                    number: row.fence_number,
                },
                holder: row.holder,
                pool: stored(&row.pool, "run_leases.pool")?,
                lease_until: row.lease_until,
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
        let recovered = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM run_attempts
               WHERE outcome = 'lease_lost' AND fence_generation < $1 AND ended_at >= $2"#,
            cluster.generation,
            cluster.generation_since,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(RecoveryView {
            generation: cluster.generation,
            since: cluster.generation_since,
            cause: cluster.generation_cause,
            leases,
            recovered,
        })
    }
}
