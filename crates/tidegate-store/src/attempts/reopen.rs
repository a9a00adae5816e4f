//! Puts a dead letter back, and starts a parked run now (R3.11); the claim checks everything again.

use sqlx::PgConnection;
use tidegate_model::RunId;
use uuid::Uuid;

use super::{trees::lock_trees, turns::lock_conversations};
use crate::{
    Error, Intent, TenantStore,
    repeats::{Progress, Step},
    written::Written,
};

impl TenantStore {
    /// Queues failed, scheduled and backed-off runs of the tenant; answers those that it queued.
    ///
    /// A dead letter starts with all its attempts, but with the fence and the budgets it had: money that is spent stays
    /// spent. A run whose deadline has passed, or whose budget is spent, is left alone, and so is a child whose parent has
    /// ended without success. A turn whose conversation has gone on waits for its turn. One that ended with an effect of
    /// which nobody knows whether it happened comes back to review (R4.5).
    pub async fn reopen(
        &self,
        runs: Vec<RunId>,
        by: String,
        queue_max_age_ms: i64,
        intent: Option<&Intent>,
    ) -> Result<Vec<RunId>, Error> {
        let tenant = self.key().to_owned();
        let ids: Vec<Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        let reopened = self
            .store()
            .once("reopen", intent, move |tx| {
                let (tenant, ids, by) = (tenant.clone(), ids.clone(), by.clone());
                Box::pin(async move {
                    let reopened = reopen(tx, &tenant, &ids, &by, queue_max_age_ms).await?;
                    Ok(Written::unchanged(reopened))
                })
            })
            .await?;
        Ok(reopened.value)
    }

    /// The same as one step of a write in several; answers how far that has come.
    pub async fn reopen_step(
        &self,
        runs: Vec<RunId>,
        by: String,
        queue_max_age_ms: i64,
        step: Step,
    ) -> Result<Progress, Error> {
        let tenant = self.key().to_owned();
        let ids: Vec<Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        self.store()
            .transaction("reopen_step", move |tx| {
                let (tenant, ids) = (tenant.clone(), ids.clone());
                let (by, step) = (by.clone(), step.clone());
                Box::pin(async move {
                    if let Some(overtaken) = step.overtaken(tx).await? {
                        return Ok(overtaken);
                    }
                    let reopened = reopen(tx, &tenant, &ids, &by, queue_max_age_ms).await?;
                    step.done(tx, reopened.len() as u64, 0).await
                })
            })
            .await
    }
}

async fn reopen(
    tx: &mut PgConnection,
    tenant: &str,
    runs: &[Uuid],
    by: &str,
    queue_max_age_ms: i64,
) -> Result<Vec<RunId>, Error> {
    let conversations = sqlx::query!(
        r#"SELECT conversation_id AS "conversation_id!" FROM agent_runs
           WHERE tenant = $1 AND run_id = ANY ($2) AND conversation_id IS NOT NULL"#,
        tenant,
        runs,
    )
    .fetch_all(&mut *tx)
    .await?
    .into_iter()
    .map(|row| (tenant.to_owned(), row.conversation_id))
    .collect::<Vec<_>>();
    lock_conversations(tx, &conversations).await?;
    lock_trees(tx, &vec![tenant.to_owned(); runs.len()], runs).await?;
    let reopened = sqlx::query!(
        r#"/* run:reopen */
        WITH dead AS (
            DELETE FROM run_ends e USING agent_runs a
            WHERE e.tenant = $1 AND e.run_id = ANY ($2) AND e.state = 'failed'
              AND a.tenant = e.tenant AND a.run_id = e.run_id
              AND coalesce(a.deadline > clock_timestamp(), true)
              AND coalesce(e.spent_tokens < a.budget_tokens, true) AND coalesce(e.spent_ms < a.budget_ms, true)
              AND NOT EXISTS (SELECT FROM run_ends o WHERE o.tenant = a.tenant AND o.run_id = a.parent_run_id
                AND o.state <> 'succeeded')
            RETURNING e.tenant, e.run_id, 0 AS attempts, e.fence_number, 0 AS leases_lost, e.spent_tokens, e.spent_ms,
                e.next_seq
        ), parked AS (
            DELETE FROM run_parked p
            WHERE p.tenant = $1 AND p.run_id = ANY ($2) AND p.why IN ('scheduled', 'retry_backoff')
            RETURNING p.tenant, p.run_id, p.attempts, p.fence_number, p.leases_lost, p.spent_tokens, p.spent_ms, p.next_seq
        ), back AS MATERIALIZED (
            SELECT w.*, a.scope, a.class, -a.priority AS urgency, a.conversation_id, a.turn_no, clock.now,
                   CASE a.quota_bucket WHEN 'foreground' THEN 0 WHEN 'background' THEN 1 ELSE 2 END AS bucket,
                   least(a.deadline, clock.now + $4::bigint * interval '1 millisecond') AS expires_at,
                   -- Another turn may have become the active one since this one ended, or two come back at once.
                   a.conversation_id IS NOT NULL AND c.active_run IS DISTINCT FROM w.run_id AND (c.active_run IS NOT NULL
                     OR w.run_id <> first_value(w.run_id) OVER (PARTITION BY a.conversation_id ORDER BY a.turn_no)) AS busy,
                   EXISTS (SELECT FROM run_effects x WHERE x.tenant = w.tenant AND x.run_id = w.run_id
                           AND x.outcome IS NULL AND NOT x.idempotent) AS unknown,
                   -- Of an ended run the events may be pruned; their numbers are not given again (R4.6).
                   greatest(w.next_seq, (SELECT coalesce(max(e.seq), 0) + 1 FROM run_events e
                    WHERE e.tenant = w.tenant AND e.run_id = w.run_id)) AS seq
            FROM (SELECT * FROM dead UNION ALL SELECT * FROM parked) w
            JOIN agent_runs a ON a.tenant = w.tenant AND a.run_id = w.run_id
            LEFT JOIN conversations c ON c.tenant = a.tenant AND c.conversation_id = a.conversation_id
            CROSS JOIN (SELECT clock_timestamp() AS now) clock
        ), active AS (
            UPDATE conversations c SET active_run = b.run_id FROM back b
            WHERE b.conversation_id IS NOT NULL AND NOT b.busy
              AND c.tenant = b.tenant AND c.conversation_id = b.conversation_id
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
                leases_lost, spent_tokens, spent_ms, next_seq, queued_at, expires_at)
            SELECT scope, bucket, tenant, class, 0, urgency, run_id, attempts, fence_number, leases_lost, spent_tokens,
                spent_ms, seq + 1, now, expires_at FROM back WHERE NOT busy AND NOT unknown
        ), waiting AS (
            INSERT INTO run_parked (tenant, run_id, why, scope, bucket, class, urgency, conversation_id, turn_no,
                attempts, fence_number, leases_lost, spent_tokens, spent_ms, next_seq, parked_at, expires_at)
            SELECT tenant, run_id, CASE WHEN unknown THEN 'review' ELSE 'conversation_busy' END, scope, bucket, class, urgency, conversation_id, turn_no,
                attempts, fence_number, leases_lost, spent_tokens, spent_ms, seq + 1, now,
                CASE WHEN unknown THEN 'infinity' ELSE expires_at END
            FROM back WHERE busy OR unknown
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, seq, now, 'run.requeued', jsonb_build_object('by', $3::text) FROM back
        )
        SELECT run_id AS "run_id!" FROM back"#,
        tenant,
        runs,
        by,
        queue_max_age_ms,
    )
    .fetch_all(tx)
    .await?;
    Ok(reopened
        .into_iter()
        .map(|row| RunId::from_uuid(row.run_id))
        .collect())
}
