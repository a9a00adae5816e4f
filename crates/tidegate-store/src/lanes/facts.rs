//! What the reasons of waiting are made of: lanes with their running counts, pools with their workers (R3.9).

use tidegate_model::{Capability, PoolId};

use super::LaneKey;
use crate::{
    Error, Fleet, Store, TenantStore,
    attempts::{bucket_number, bucket_of},
    error::stored,
};

/// A lane with work, and what may block it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    /// The lane.
    pub lane: LaneKey,
    /// Whether its runs descend from background roots.
    pub of_background: bool,
    /// What its runs ask for.
    pub capability: Capability,
    /// Whether the tenant may start anything.
    pub tenant_active: bool,
    /// Leases of the tenant in the bucket.
    pub running: i64,
}

/// The workers of a pool as live instances know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolCapacity {
    /// The pool.
    pub pool: PoolId,
    /// Runs that its workers can hold: of the built-in executors what their instances allow, of others what they hold
    /// and what they wait for in claims.
    pub slots: i64,
    /// Runs that they hold.
    pub busy: i64,
    /// Of the built-in executors the runs of bucket `background` that they can hold; `None` where workers decide
    /// themselves.
    pub background_slots: Option<i64>,
}

struct Row {
    bucket: i16,
    tenant: String,
    class: i32,
    of_background: bool,
    capability: String,
    tenant_active: bool,
    running: i64,
}

impl TryFrom<Row> for LaneState {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            lane: LaneKey {
                bucket: bucket_of(row.bucket)?,
                tenant: stored(&row.tenant, "run_queue.tenant")?,
                class: row.class,
            },
            of_background: row.of_background,
            capability: stored(&row.capability, "requirement_classes.capability")?,
            tenant_active: row.tenant_active,
            running: row.running,
        })
    }
}

impl Fleet {
    /// Every lane of the scope with work.
    pub async fn lane_states(&self, scope: &str) -> Result<Vec<LaneState>, Error> {
        sqlx::query_as!(
            Row,
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
            SELECT l.bucket AS "bucket!", l.tenant AS "tenant!", l.class AS "class!", k.of_background, k.capability,
                   t.state = 'active' AS "tenant_active!", coalesce(r.runs, 0) AS "running!"
            FROM lanes l
            JOIN tenants t ON t.tenant = l.tenant
            JOIN requirement_classes k ON k.class = l.class
            LEFT JOIN running r ON r.bucket = l.bucket AND r.tenant = l.tenant"#,
            scope,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(LaneState::try_from)
        .collect()
    }
}

impl TenantStore {
    /// One lane of the tenant, whether it has work or not.
    pub async fn lane_state(
        &self,
        scope: &str,
        lane: &LaneKey,
    ) -> Result<Option<LaneState>, Error> {
        sqlx::query_as!(
            Row,
            r#"SELECT $2::smallint AS "bucket!", t.tenant, k.class, k.of_background, k.capability, t.state = 'active' AS "tenant_active!",
                      (SELECT count(*) FROM run_leases r
                       WHERE r.scope = $1 AND r.bucket = $2 AND r.tenant = t.tenant) AS "running!"
               FROM tenants t JOIN requirement_classes k ON k.tenant = t.tenant
               WHERE t.tenant = $3 AND k.class = $4"#,
            scope,
            bucket_number(lane.bucket),
            self.key(),
            lane.class,
        )
        .fetch_optional(self.pool())
        .await?
        .map(LaneState::try_from)
        .transpose()
    }
}

impl Store {
    /// The workers of each pool, from leases and from instances that were seen within `dead_after_ms` and do not drain.
    pub async fn pool_capacities(
        &self,
        scope: &str,
        dead_after_ms: i64,
    ) -> Result<Vec<PoolCapacity>, Error> {
        let builtin = PoolId::builtin();
        let rows = sqlx::query!(
            r#"WITH live AS MATERIALIZED (
                SELECT i.concurrency, i.background_concurrency, i.waiting_claims FROM instances i
                WHERE i.seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' AND NOT i.draining
                  AND 'chat' = ANY (i.roles)
            ), waiting AS MATERIALIZED (
                SELECT w.key AS pool, sum(w.value::bigint) AS slots
                FROM live CROSS JOIN LATERAL jsonb_each_text(live.waiting_claims) w GROUP BY w.key
            ), busy AS MATERIALIZED (
                SELECT l.pool, count(*) AS runs FROM run_leases l WHERE l.scope = $1 GROUP BY l.pool
            )
            SELECT p.pool_id, coalesce(b.runs, 0) AS "busy!",
                   (CASE WHEN p.pool_id = $3 THEN (SELECT coalesce(sum(concurrency), 0) FROM live)
                         ELSE coalesce(b.runs, 0) + coalesce(w.slots, 0) END)::bigint AS "slots!",
                   CASE WHEN p.pool_id = $3
                        THEN (SELECT coalesce(sum(background_concurrency), 0) FROM live)::bigint END AS background_slots
            FROM pools p LEFT JOIN busy b ON b.pool = p.pool_id LEFT JOIN waiting w ON w.pool = p.pool_id
            ORDER BY p.pool_id"#,
            scope,
            dead_after_ms,
            builtin.as_str(),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(PoolCapacity {
                    pool: stored(&row.pool_id, "pools.pool_id")?,
                    slots: row.slots,
                    busy: row.busy,
                    background_slots: row.background_slots,
                })
            })
            .collect()
    }
}
