//! The heads of the lanes and the tenants' running counts, chunk by chunk.

use chrono::{DateTime, Utc};
use tidegate_model::{Capability, RunId, TenantId, run::QuotaBucket};

use super::LaneKey;
use crate::{
    Error, Fleet,
    attempts::{bucket_number, bucket_of},
    error::stored,
};

/// How many runs of a lane are counted before it counts as endless.
const QUEUED_COUNTED_MAX: i64 = 16;

/// A lane with work, and what the plan of a claim needs to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// Whether its runs descend from background roots.
    pub of_background: bool,
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
    /// What these leases were charged by estimate, in cost units.
    pub charged: i64,
    /// What the tenant has been charged, as stored.
    pub pass: Option<u64>,
}

/// Some lanes in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneChunk {
    /// Lanes with work of active tenants.
    pub lanes: Vec<LaneRow>,
    /// Where to go on; `None` where no lane comes after these.
    pub next: Option<LaneKey>,
}

impl Fleet {
    /// The next lanes of the scope with work, at most `limit`.
    ///
    /// `upcoming` is how many runs behind the head are looked at for their age; only a plan with fairness off needs
    /// them. Costs a few probes per lane (some 10 µs) whatever the backlog.
    pub async fn lane_views(
        &self,
        scope: &str,
        after: Option<&LaneKey>,
        limit: i32,
        upcoming: u32,
    ) -> Result<LaneChunk, Error> {
        let (bucket, tenant, class) = after.map_or((-1, "", 0), |key| {
            (bucket_number(key.bucket), key.tenant.as_str(), key.class)
        });
        let rows = sqlx::query!(
            r#"WITH RECURSIVE lanes AS (
                (SELECT q.bucket, q.tenant, q.class, 1 AS n FROM run_queue q
                 WHERE q.scope = $1 AND (q.bucket, q.tenant, q.class) > ($4::smallint, $5::text, $6::integer)
                 ORDER BY q.bucket, q.tenant, q.class LIMIT 1)
                UNION ALL
                (SELECT n.bucket, n.tenant, n.class, l.n + 1 FROM lanes l CROSS JOIN LATERAL (
                    SELECT q.bucket, q.tenant, q.class FROM run_queue q
                    WHERE q.scope = $1 AND (q.bucket, q.tenant, q.class) > (l.bucket, l.tenant, l.class)
                    ORDER BY q.bucket, q.tenant, q.class LIMIT 1) n
                 WHERE l.n < $7::integer)
            )
            SELECT l.bucket AS "bucket!", l.tenant AS "tenant!", l.class AS "class!", k.capability,
                   t.state = 'active' AS "active!", k.of_background,
                   h.run_id AS "run_id!", h.rank AS "rank!", h.urgency AS "urgency!", h.position AS "position!",
                   -- A scalar query is always a look-up by key; a join may become a scan of all runs.
                   (SELECT a.created_at FROM agent_runs a
                    WHERE a.tenant = l.tenant AND a.run_id = h.run_id) AS "created_at!",
                   (SELECT count(*) FROM (SELECT FROM run_queue q
                        WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                        LIMIT $3::bigint) c) AS "queued!",
                   CASE WHEN $2::bigint > 0 THEN ARRAY (
                       SELECT (SELECT a.created_at FROM agent_runs a WHERE a.tenant = l.tenant AND a.run_id = n.run_id)
                       FROM (SELECT q.run_id, q.rank, q.urgency, q.position FROM run_queue q
                             WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                             ORDER BY q.rank, q.urgency, q.position OFFSET 1 LIMIT $2::bigint) n
                       ORDER BY n.rank, n.urgency, n.position) ELSE '{}' END AS "next!: Vec<DateTime<Utc>>",
                   r.running AS "running!", r.charged AS "charged!",
                   (SELECT p.pass FROM run_passes p WHERE p.scope = $1 AND p.tenant = l.tenant) AS pass
            FROM lanes l
            JOIN tenants t ON t.tenant = l.tenant
            JOIN requirement_classes k ON k.class = l.class
            CROSS JOIN LATERAL (
                SELECT q.run_id, q.rank, q.urgency, q.position FROM run_queue q
                WHERE q.scope = $1 AND q.bucket = l.bucket AND q.tenant = l.tenant AND q.class = l.class
                ORDER BY q.rank, q.urgency, q.position LIMIT 1) h
            CROSS JOIN LATERAL (
                SELECT count(*) AS running, coalesce(sum(r.charged), 0)::bigint AS charged FROM run_leases r
                WHERE r.scope = $1 AND r.bucket = l.bucket AND r.tenant = l.tenant) r
            ORDER BY l.n"#,
            scope,
            i64::from(upcoming),
            QUEUED_COUNTED_MAX,
            bucket,
            tenant,
            class,
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        let more = i32::try_from(rows.len()).is_ok_and(|found| found >= limit);
        let mut chunk = LaneChunk {
            lanes: Vec::with_capacity(rows.len()),
            next: None,
        };
        for row in rows {
            let key = LaneKey {
                bucket: bucket_of(row.bucket)?,
                tenant: stored(&row.tenant, "run_queue.tenant")?,
                class: row.class,
            };
            if more {
                chunk.next = Some(key.clone());
            }
            if !row.active {
                continue;
            }
            chunk.lanes.push(LaneRow {
                bucket: key.bucket,
                of_background: row.of_background,
                tenant: key.tenant,
                class: key.class,
                capability: stored(&row.capability, "requirement_classes.capability")?,
                head: RunId::from_uuid(row.run_id),
                head_rank: row.rank,
                head_urgency: row.urgency,
                head_position: row.position,
                head_created_at: row.created_at,
                next_created_at: row.next,
                queued: Some(row.queued).filter(|queued| *queued < QUEUED_COUNTED_MAX),
                running: row.running,
                charged: row.charged,
                pass: row.pass.and_then(|pass| u64::try_from(pass).ok()),
            });
        }
        Ok(chunk)
    }
}
