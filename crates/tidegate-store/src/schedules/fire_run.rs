//! The runs of a due schedule: the cold row, its place, its first event, as for every run that is accepted.
//!
//! A statement of its own beside that of submissions ([`crate::runs`]). A run that was fired before is found by its due
//! time and not by an idempotency key, and a statement names one such index; its terms stand in the schedule's row and do
//! not travel to the database again; and its schedule is locked and settled in the same transaction. One statement for
//! both would carry the columns, the second index and the join of each to the other, at the cost of every submission. That
//! both write the same is proved column by column by the test `a_fired_run_is_written_like_a_submitted_one`.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_model::{
    RunId,
    run::{QuotaBucket, RunKind},
};
use uuid::Uuid;

use super::fire::{Due, FireTerms, FiredRun};
use crate::{Error, attempts::bucket_number, error::stored};

/// A run that was written.
pub(super) struct Accepted {
    pub(super) run_id: Uuid,
    pub(super) due_at: DateTime<Utc>,
    class: i32,
    capability: String,
    priority: i16,
}

impl Accepted {
    pub(super) fn fired(self, schedule: &Due) -> Result<FiredRun, Error> {
        Ok(FiredRun {
            tenant: schedule.tenant.clone(),
            schedule: schedule.name.clone(),
            due_at: self.due_at,
            run_id: RunId::from_uuid(self.run_id),
            class: self.class,
            capability: stored(&self.capability, "schedules.capability")?,
            priority: self.priority,
        })
    }
}

/// Writes a run for each due time that has none yet; answers them by due time.
pub(super) async fn write_runs(
    tx: &mut PgConnection,
    terms: &FireTerms,
    schedule: &Due,
    due: &[DateTime<Utc>],
) -> Result<Vec<Accepted>, Error> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let bucket: QuotaBucket = RunKind::Scheduled.quota_bucket();
    let ids: Vec<Uuid> = due.iter().map(|_| RunId::new().as_uuid()).collect();
    Ok(sqlx::query_as!(
        Accepted,
        r#"WITH given AS MATERIALIZED (
            SELECT g.run_id, g.due_at, s.*, clock.now,
                   clock.now + $9::bigint * interval '1 millisecond' AS expires_at
            FROM unnest($3::uuid[], $4::timestamptz[]) AS g(run_id, due_at)
            CROSS JOIN schedules s CROSS JOIN (SELECT clock_timestamp() AS now) clock
            WHERE s.tenant = $1 AND s.name = $2
        ), written AS (
            INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
                priority_source, root_run_id, request_digest, max_attempts, backoff_base_ms, backoff_max_ms,
                budget_tokens, budget_ms, created_at, created_by, user_name, input, schedule, due_at)
            SELECT tenant, run_id, scope, 'scheduled', capability, class, service_class, priority, priority_source,
                run_id, request_digest, coalesce(max_attempts, $6), $7, $8, budget_tokens, budget_ms, now, created_by,
                user_name, input, name, due_at
            FROM given ORDER BY due_at
            -- R3.14: this due time was fired before.
            ON CONFLICT (tenant, schedule, due_at) WHERE schedule IS NOT NULL DO NOTHING
            RETURNING run_id
        ), placed AS MATERIALIZED (
            SELECT g.* FROM given g JOIN written w ON w.run_id = g.run_id
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, queued_at, expires_at)
            SELECT scope, $5, tenant, class, 1, -priority, run_id, 2, now, expires_at FROM placed ORDER BY due_at
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, 1, now, 'run.queued', jsonb_build_object('kind', 'scheduled', 'capability', capability,
                'schedule', name, 'dueAt', to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
            FROM placed
        )
        SELECT run_id AS "run_id!", due_at AS "due_at!", class AS "class!", capability AS "capability!",
               priority AS "priority!"
        FROM placed ORDER BY due_at"#,
        schedule.tenant.as_str(),
        schedule.name.as_str(),
        &ids,
        due,
        bucket_number(bucket),
        terms.max_attempts,
        terms.backoff_base_ms,
        terms.backoff_max_ms,
        terms.queue_max_age_ms,
    )
    .fetch_all(tx)
    .await?)
}
