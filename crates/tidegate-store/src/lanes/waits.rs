//! The intervals in which a cause held for a lane, kept by one writer (R3.9).
//!
//! A wait never updates a queue row. A cause that comes back within [`GAP_MS`] continues its interval, so that a busy
//! lane does not write a row at each observation.

use serde_json::Value;
use tidegate_model::{Code, RunId, queue_reason::QueueReason, run::RunState};
use tidegate_policy::reasons::Cause;

use super::LaneKey;
use crate::{
    Error, Fleet,
    attempts::{bucket_number, end_queued::EndQueued},
    duties::{Duty, is_held},
    error::stored,
};

/// A cause that was gone for less than this was not gone.
const GAP_MS: i64 = 2_000;

/// A cause that holds for a lane now.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenCause {
    /// The lane.
    pub lane: LaneKey,
    /// The cause.
    pub cause: Cause,
}

/// What an observation changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitChanges {
    /// Intervals that began or went on.
    pub opened: i64,
    /// Intervals that ended.
    pub closed: i64,
}

impl Fleet {
    /// Whether runs are queued in the scope, or intervals are open that have to end.
    pub async fn has_lanes_to_observe(&self, scope: &str) -> Result<bool, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM run_queue WHERE scope = $1)
                   OR EXISTS (SELECT FROM lane_waits WHERE scope = $1 AND to_at IS NULL) AS "any!""#,
            scope,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// Writes what was seen: causes that hold now begin or go on, all others end. `None` where the duty was lost; then
    /// nothing is changed.
    pub async fn record_waits(
        &self,
        duty: Duty,
        scope: &str,
        seen: &[SeenCause],
    ) -> Result<Option<WaitChanges>, Error> {
        let scope = scope.to_owned();
        let buckets: Vec<i16> = seen.iter().map(|s| bucket_number(s.lane.bucket)).collect();
        let tenants: Vec<String> = seen
            .iter()
            .map(|s| s.lane.tenant.as_str().to_owned())
            .collect();
        let classes: Vec<i32> = seen.iter().map(|s| s.lane.class).collect();
        let codes: Vec<String> = seen
            .iter()
            .map(|s| s.cause.code().as_str().to_owned())
            .collect();
        let facts: Vec<Value> = seen.iter().map(|s| s.cause.facts()).collect();
        self.store()
            .transaction("record_waits", move |tx| {
                let (scope, tenants, codes) = (scope.clone(), tenants.clone(), codes.clone());
                let (buckets, classes, facts) = (buckets.clone(), classes.clone(), facts.clone());
                Box::pin(async move {
                    if !is_held(tx, duty).await? {
                        return Ok(None);
                    }
                    let row = sqlx::query!(
                        r#"WITH seen AS MATERIALIZED (
                            SELECT * FROM unnest($2::smallint[], $3::text[], $4::integer[], $5::text[], $6::jsonb[])
                                AS s(bucket, tenant, class, code, facts)
                        ), closed AS (
                            UPDATE lane_waits w SET to_at = greatest(clock_timestamp(), w.from_at)
                            WHERE w.scope = $1 AND w.to_at IS NULL AND NOT EXISTS (SELECT FROM seen s
                                WHERE s.bucket = w.bucket AND s.tenant = w.tenant AND s.class = w.class
                                  AND s.code = w.code)
                            RETURNING 1
                        ), changed AS (
                            UPDATE lane_waits w SET facts = s.facts FROM seen s
                            WHERE w.scope = $1 AND w.to_at IS NULL AND s.bucket = w.bucket AND s.tenant = w.tenant
                              AND s.class = w.class AND s.code = w.code AND w.facts <> s.facts
                        ), begun AS MATERIALIZED (
                            SELECT s.* FROM seen s WHERE NOT EXISTS (SELECT FROM lane_waits w
                                WHERE w.scope = $1 AND w.bucket = s.bucket AND w.tenant = s.tenant
                                  AND w.class = s.class AND w.code = s.code AND w.to_at IS NULL)
                        ), again AS (
                            UPDATE lane_waits w SET to_at = NULL, facts = b.facts FROM begun b
                            WHERE w.scope = $1 AND w.bucket = b.bucket AND w.tenant = b.tenant AND w.class = b.class
                              AND w.code = b.code AND w.from_at = (SELECT max(n.from_at) FROM lane_waits n
                                WHERE n.scope = $1 AND n.bucket = b.bucket AND n.tenant = b.tenant
                                  AND n.class = b.class AND n.code = b.code)
                              AND w.to_at > clock_timestamp() - $7::bigint * interval '1 millisecond'
                            RETURNING w.bucket, w.tenant, w.class, w.code
                        ), fresh AS (
                            INSERT INTO lane_waits (scope, bucket, tenant, class, code, facts)
                            SELECT $1, b.bucket, b.tenant, b.class, b.code, b.facts FROM begun b
                            WHERE NOT EXISTS (SELECT FROM again a WHERE a.bucket = b.bucket AND a.tenant = b.tenant
                                AND a.class = b.class AND a.code = b.code)
                            RETURNING 1
                        )
                        SELECT (SELECT count(*) FROM closed) AS "closed!",
                               (SELECT count(*) FROM again) + (SELECT count(*) FROM fresh) AS "opened!""#,
                        scope,
                        &buckets,
                        &tenants,
                        &classes,
                        &codes,
                        &facts,
                        GAP_MS,
                    )
                    .fetch_one(tx)
                    .await?;
                    Ok(Some(WaitChanges {
                        opened: row.opened,
                        closed: row.closed,
                    }))
                })
            })
            .await
    }

    /// Queued runs that no active pool could serve for longer than the grace, as ends to be made (R3.9).
    pub async fn unroutable(
        &self,
        scope: &str,
        grace_ms: i64,
        limit: i64,
    ) -> Result<Vec<EndQueued>, Error> {
        let rows = sqlx::query!(
            r#"SELECT w.tenant AS "tenant!", q.run_id AS "run_id!", w.code AS "code!", w.facts AS "facts!"
               FROM lane_waits w CROSS JOIN LATERAL (
                   SELECT q.run_id FROM run_queue q
                   WHERE q.scope = w.scope AND q.bucket = w.bucket AND q.tenant = w.tenant AND q.class = w.class
                     AND q.queued_at <= clock_timestamp() - $2::bigint * interval '1 millisecond'
                   LIMIT $3) q
               WHERE w.scope = $1 AND w.to_at IS NULL AND w.code = $4
                 AND w.from_at <= clock_timestamp() - $2::bigint * interval '1 millisecond'
               LIMIT $3"#,
            scope,
            grace_ms,
            limit,
            QueueReason::NoEligiblePool.as_str(),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                let code: QueueReason = stored(&row.code, "lane_waits.code")?;
                Ok(EndQueued {
                    tenant: stored(&row.tenant, "lane_waits.tenant")?,
                    run_id: RunId::from_uuid(row.run_id),
                    state: RunState::Failed,
                    code: Code::Unsatisfiable,
                    detail: Cause::from_stored(code, &row.facts).map(|cause| cause.clause()),
                })
            })
            .collect()
    }

    /// Forgets intervals that ended longer ago than this; answers how many.
    pub async fn forget_waits(&self, kept_ms: i64) -> Result<u64, Error> {
        Ok(sqlx::query!(
            "DELETE FROM lane_waits WHERE to_at < clock_timestamp() - $1::bigint * interval '1 millisecond'",
            kept_ms,
        )
        .execute(self.pool())
        .await?
        .rows_affected())
    }
}
