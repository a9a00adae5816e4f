//! The heads of the lanes and the tenants' running counts, as one snapshot.

use chrono::{DateTime, Utc};
use tidegate_model::{Capability, RunId, TenantId, run::QuotaBucket};
use tidegate_policy::{buckets::Tier, fairness::LaneView};

use crate::{Error, Fleet, attempts::bucket_of, error::stored};

/// How many runs of a lane are counted before it counts as endless.
const QUEUED_COUNTED_MAX: i64 = 16;

/// A lane with work, and what the plan of a claim needs to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its requirement class.
    pub class: i32,
    /// What a pool must offer to serve it.
    pub capability: Capability,
    /// The first run.
    pub head: RunId,
    /// 0 woken or taken over, 1 others.
    pub head_rank: i16,
    /// The negated priority of the first run.
    pub head_urgency: i16,
    /// The number of the first run in the queue.
    pub head_position: i64,
    /// When the first run was created.
    pub head_created_at: DateTime<Utc>,
    /// When the runs behind the first were created, in order, as many as were asked for.
    pub next_created_at: Vec<DateTime<Utc>>,
    /// Runs in the lane; `None` for 16 or more.
    pub queued: Option<i64>,
    /// Leases of the tenant in the bucket, over all classes.
    pub running: i64,
}

impl LaneRow {
    /// The lane as the policy sees it, given the tenant's tier, weight and pass.
    pub fn into_view(self, tier: Tier, weight: u32, pass: u64) -> LaneView {
        LaneView {
            cap: tier.cap(self.bucket),
            bucket: self.bucket,
            tenant: self.tenant,
            class: self.class,
            weight,
            running: self.running,
            head_rank: self.head_rank,
            head_urgency: self.head_urgency,
            head_position: self.head_position,
            head_created_ms: self.head_created_at.timestamp_millis(),
            next_created_ms: self
                .next_created_at
                .iter()
                .map(DateTime::timestamp_millis)
                .collect(),
            queued_hint: self.queued.unwrap_or(i64::MAX),
            pass,
        }
    }
}

impl Fleet {
    /// Every lane of the scope with work of an active tenant whose capability is among those given (all where `None`).
    ///
    /// `upcoming` is how many runs behind the head are looked at for their age; only a plan with fairness off needs
    /// them. Costs a few probes per lane (some 10 µs) whatever the backlog, and one pass over the open leases.
    pub async fn lane_views(
        &self,
        scope: &str,
        capabilities: Option<&[Capability]>,
        upcoming: u32,
    ) -> Result<Vec<LaneRow>, Error> {
        let capabilities: Option<Vec<String>> =
            capabilities.map(|all| all.iter().map(|c| c.as_str().to_owned()).collect());
        let rows = sqlx::query!(
            r#"WITH RECURSIVE lanes AS (
                (SELECT q.bucket, q.tenant, q.class FROM run_queue q WHERE q.scope = $1
                 ORDER BY q.bucket, q.tenant, q.class LIMIT 1)
                UNION ALL
                (SELECT n.bucket, n.tenant, n.class FROM lanes l CROSS JOIN LATERAL (
                    SELECT q.bucket, q.tenant, q.class FROM run_queue q
                    WHERE q.scope = $1 AND (q.bucket, q.tenant, q.class) > (l.bucket, l.tenant, l.class)
                    ORDER BY q.bucket, q.tenant, q.class LIMIT 1) n)
            ), running AS MATERIALIZED (
                SELECT r.bucket, r.tenant, count(*) AS runs FROM run_leases r WHERE r.scope = $1 GROUP BY 1, 2
            )
            SELECT l.bucket AS "bucket!", l.tenant AS "tenant!", l.class AS "class!", k.capability,
                   h.run_id AS "run_id!", h.rank AS "rank!", h.urgency AS "urgency!", h.position AS "position!",
                   -- A scalar query is always a look-up by key; a join may become a scan of all runs.
                   (SELECT a.created_at FROM agent_runs a
                    WHERE a.tenant = l.tenant AND a.run_id = h.run_id) AS "created_at!",
                   (SELECT count(*) FROM (SELECT FROM run_queue q
                        WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                        LIMIT $4::bigint) c) AS "queued!",
                   CASE WHEN $3::bigint > 0 THEN ARRAY (
                       SELECT (SELECT a.created_at FROM agent_runs a WHERE a.tenant = l.tenant AND a.run_id = n.run_id)
                       FROM (SELECT q.run_id, q.rank, q.urgency, q.position FROM run_queue q
                             WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                             ORDER BY q.rank, q.urgency, q.position OFFSET 1 LIMIT $3::bigint) n
                       ORDER BY n.rank, n.urgency, n.position) ELSE '{}' END AS "next!: Vec<DateTime<Utc>>",
                   coalesce(r.runs, 0) AS "running!"
            FROM lanes l
            JOIN tenants t ON t.tenant = l.tenant AND t.state = 'active'
            JOIN requirement_classes k ON k.class = l.class
            CROSS JOIN LATERAL (
                SELECT q.run_id, q.rank, q.urgency, q.position FROM run_queue q
                WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                ORDER BY q.rank, q.urgency, q.position LIMIT 1) h
            LEFT JOIN running r ON r.bucket = l.bucket AND r.tenant = l.tenant
            WHERE $2::text[] IS NULL OR k.capability = ANY ($2)"#,
            scope,
            capabilities.as_deref(),
            i64::from(upcoming),
            QUEUED_COUNTED_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(LaneRow {
                    bucket: bucket_of(row.bucket)?,
                    tenant: stored(&row.tenant, "run_queue.tenant")?,
                    class: row.class,
                    capability: stored(&row.capability, "requirement_classes.capability")?,
                    head: RunId::from_uuid(row.run_id),
                    head_rank: row.rank,
                    head_urgency: row.urgency,
                    head_position: row.position,
                    head_created_at: row.created_at,
                    next_created_at: row.next,
                    queued: Some(row.queued).filter(|queued| *queued < QUEUED_COUNTED_MAX),
                    running: row.running,
                })
            })
            .collect()
    }
}
