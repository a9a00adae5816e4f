//! The audit of the ledger (R7.4): one statement, so one look, and no function that decides has a part in it.

use chrono::{DateTime, Utc};
use tidegate_model::{
    AdmissionId,
    api::{LedgerAudit, LedgerDifference, ResourceView},
    contracts::ResourceName,
};
use tidegate_policy::ledger::Counter;

use super::{Admission, AdmissionKey, read_counters, rows};
use crate::{Error, Store, TenantStore, error::stored};

impl Store {
    /// Sums up what admissions and leases hold, and lays it beside the counters.
    pub async fn audit_ledger(&self, scope: &str) -> Result<LedgerAudit, Error> {
        let rows = sqlx::query!(
            r#"WITH holders AS MATERIALIZED (
                   SELECT o.resources, o.held FROM admissions_open o WHERE o.scope = $1
                   UNION ALL
                   SELECT l.resources, l.held FROM run_leases l WHERE l.scope = $1 AND l.resources IS NOT NULL
               ), sums AS (
                   SELECT u.resource, sum(u.held)::bigint AS held
                   FROM holders h CROSS JOIN LATERAL unnest(h.resources, h.held) AS u(resource, held) GROUP BY u.resource
               ), looked AS (
                   SELECT coalesce(r.name, 'shared/unknown-' || s.resource) AS name, coalesce(r.capacity, 0) AS capacity,
                          coalesce(r.in_use, 0) AS in_use, coalesce(s.held, 0) AS held, r.over_since,
                          r.removed_at IS NOT NULL AS removed
                   FROM (SELECT * FROM resources WHERE scope = $1) r FULL JOIN sums s ON s.resource = r.resource
               )
               SELECT b.version AS "version!", (SELECT count(*) FROM holders) AS "holders!",
                      (SELECT count(*) FROM looked) AS "resources!", l.name AS "name?", l.capacity AS "capacity?",
                      l.in_use AS "in_use?", l.held AS "held?", l.over_since, l.removed AS "removed?"
               FROM (SELECT coalesce((SELECT version FROM ledger_books WHERE scope = $1), 0) AS version) b
               LEFT JOIN looked l ON l.in_use <> l.held OR l.in_use > l.capacity
               ORDER BY l.name"#,
            scope,
        )
        .fetch_all(self.pool())
        .await?;
        let mut audit = LedgerAudit {
            balanced: true,
            ledger_version: rows.first().map_or(0, |row| row.version),
            resources: rows.first().map_or(0, |row| row.resources),
            holders: rows.first().map_or(0, |row| row.holders),
            differences: Vec::new(),
            over_capacity: Vec::new(),
        };
        for row in rows {
            let (Some(name), Some(capacity), Some(in_use), Some(held)) =
                (row.name, row.capacity, row.in_use, row.held)
            else {
                continue;
            };
            let resource = stored::<ResourceName>(&name, "resources.name")?;
            if in_use != held {
                audit.balanced = false;
                audit.differences.push(LedgerDifference {
                    resource: resource.clone(),
                    counted: in_use,
                    held,
                });
            }
            if in_use > capacity {
                audit.over_capacity.push(ResourceView {
                    kind: resource.kind(),
                    resource,
                    capacity,
                    in_use,
                    free: 0,
                    over_capacity_since: row.over_since,
                    removed: row.removed.unwrap_or(false),
                });
            }
        }
        Ok(audit)
    }

    /// The version of a scope's book, and some counters that are at least as new.
    pub async fn look_at_ledger(
        &self,
        scope: &str,
        resources: &[i32],
    ) -> Result<(i64, Vec<(i32, Counter)>), Error> {
        let version = self.ledger_version(scope).await?;
        let mut connection = self.pool().acquire().await?;
        let counters = read_counters(&mut connection, resources).await?;
        Ok((version, counters))
    }

    /// The version of a scope's book.
    pub async fn ledger_version(&self, scope: &str) -> Result<i64, Error> {
        let version = sqlx::query_scalar!(
            r#"SELECT coalesce((SELECT version FROM ledger_books WHERE scope = $1), 0) AS "version!""#,
            scope,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(version)
    }
}

/// What an admission rests on, as of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// Whether its history is the one in force (R4.7).
    pub generation_holds: bool,
    /// Whether the epoch that it was admitted under is in force or drains (R18.2, R18.3).
    pub epoch_holds: bool,
}

impl TenantStore {
    /// What an admission of the tenant rests on.
    pub async fn standing(&self, admission: &Admission) -> Result<Standing, Error> {
        let row = sqlx::query!(
            r#"SELECT clock_timestamp() AS "now!", c.generation = $1 AS "generation_holds!",
                      coalesce((SELECT (p.active_epoch = $3 OR $3 = ANY (p.draining_epochs)) AND $3 <> ALL (p.revoked_epochs)
                                FROM pools p WHERE p.pool_id = $2), false) AS "epoch_holds!"
               FROM cluster c"#,
            admission.fence.generation,
            admission.pool.as_str(),
            admission.descriptor_epoch,
        )
        .fetch_one(self.pool())
        .await?;
        Ok(Standing {
            now: row.now,
            generation_holds: row.generation_holds,
            epoch_holds: row.epoch_holds,
        })
    }

    /// An admission of the tenant, open or over.
    pub async fn admission(&self, id: AdmissionId) -> Result<Option<Admission>, Error> {
        let key = AdmissionKey {
            tenant: self.tenant().clone(),
            id,
        };
        let mut connection = self.pool().acquire().await?;
        Ok(rows::read(&mut connection, &[&key]).await?.pop())
    }
}
