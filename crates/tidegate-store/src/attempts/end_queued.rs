//! Ends runs that hold no lease: cancelled, expired or unroutable while queued or parked.

use sqlx::PgConnection;
use tidegate_model::{Code, RunId, TenantId, run::RunState};
use uuid::Uuid;

use super::{
    close::Step,
    trees::{Family, lock_trees, settle},
    turns::{EndedTurn, end_turns, lock_conversations},
};
use crate::{Error, Fleet, error::stored};

/// One run to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndQueued {
    /// Its tenant.
    pub tenant: TenantId,
    /// The run.
    pub run_id: RunId,
    /// How it ends: failed, cancelled or expired.
    pub state: RunState,
    /// Why.
    pub code: Code,
    /// For people.
    pub detail: Option<String>,
}

impl Fleet {
    /// Ends queued and parked runs in one transaction; answers those that it ended. A run that a claim is just taking is
    /// waited for, and then not ended here: it runs. `queue_max_age_ms` bounds the next turns that this lets into the
    /// queue.
    pub async fn end_queued(
        &self,
        ends: Vec<EndQueued>,
        queue_max_age_ms: i64,
    ) -> Result<Vec<(TenantId, RunId)>, Error> {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        self.store()
            .transaction("end_queued", move |tx| {
                let ends = ends.clone();
                Box::pin(async move { end(tx, &ends, queue_max_age_ms).await })
            })
            .await
    }

    /// Queued and parked runs whose deadline or greatest age has passed (R3.9).
    pub async fn expired_in_queue(&self, limit: i64) -> Result<Vec<EndQueued>, Error> {
        sqlx::query!(
            r#"SELECT w.tenant AS "tenant!", w.run_id AS "run_id!",
                      coalesce(a.deadline <= clock_timestamp(), false) AS "deadline_passed!"
               FROM (SELECT tenant, run_id, expires_at FROM run_queue WHERE expires_at <= clock_timestamp()
                     UNION ALL
                     SELECT tenant, run_id, expires_at FROM run_parked WHERE expires_at <= clock_timestamp()
                     LIMIT $1) w
               JOIN agent_runs a ON a.tenant = w.tenant AND a.run_id = w.run_id"#,
            limit
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| {
            Ok(EndQueued {
                tenant: stored(&row.tenant, "run_queue.tenant")?,
                run_id: RunId::from_uuid(row.run_id),
                state: RunState::Expired,
                code: if row.deadline_passed {
                    Code::DeadlineExceeded
                } else {
                    Code::QueueExpired
                },
                detail: None,
            })
        })
        .collect()
    }
}

/// Runs to end, as arrays.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) tenants: Vec<String>,
    pub(super) runs: Vec<Uuid>,
    pub(super) states: Vec<String>,
    pub(super) codes: Vec<String>,
    pub(super) details: Vec<Option<String>>,
}

impl Ends {
    pub(super) fn of(ends: &[EndQueued]) -> Self {
        let mut arrays = Self::default();
        for end in ends {
            arrays.tenants.push(end.tenant.as_str().to_owned());
            arrays.runs.push(end.run_id.as_uuid());
            arrays.states.push(end.state.as_str().to_owned());
            arrays.codes.push(end.code.as_str().to_owned());
            arrays.details.push(end.detail.clone());
        }
        arrays
    }
}

/// A run that was ended.
pub(super) struct EndedRow {
    pub(super) tenant: String,
    pub(super) run_id: Uuid,
    state: String,
    conversation_id: Option<Uuid>,
}

/// Locks what stands above the rows of runs: their conversations, then their trees.
pub(super) async fn lock_above(tx: &mut PgConnection, runs: &Ends) -> Result<(), Error> {
    let conversations = sqlx::query!(
        r#"SELECT a.tenant, a.conversation_id AS "conversation_id!"
           FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
           JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
           WHERE a.conversation_id IS NOT NULL"#,
        &runs.tenants,
        &runs.runs,
    )
    .fetch_all(&mut *tx)
    .await?
    .into_iter()
    .map(|row| (row.tenant, row.conversation_id))
    .collect::<Vec<_>>();
    lock_conversations(tx, &conversations).await?;
    lock_trees(tx, &runs.tenants, &runs.runs).await
}

/// The same, inside a transaction that holds the locks of the conversations already or takes them here.
pub(super) async fn end(
    tx: &mut PgConnection,
    ends: &[EndQueued],
    queue_max_age_ms: i64,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    let ends = Ends::of(ends);
    lock_above(tx, &ends).await?;
    end_locked(tx, &ends, queue_max_age_ms).await
}

/// The same where what stands above the runs is locked.
pub(super) async fn end_locked(
    tx: &mut PgConnection,
    ends: &Ends,
    queue_max_age_ms: i64,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    let ended = end_rows(tx, ends).await?;
    let turns: Vec<EndedTurn> = ended
        .iter()
        .filter_map(|row| {
            Some(EndedTurn {
                tenant: row.tenant.clone(),
                conversation: row.conversation_id?,
                run_id: row.run_id,
                messages: Vec::new(),
            })
        })
        .collect();
    end_turns(tx, &turns, queue_max_age_ms).await?;
    let mut family = Family::default();
    let mut answer = Vec::with_capacity(ended.len());
    for row in ended {
        family.ended(
            &row.tenant,
            row.run_id,
            stored(&row.state, "run_ends.state")?,
        );
        answer.push((
            stored(&row.tenant, "agent_runs.tenant")?,
            RunId::from_uuid(row.run_id),
        ));
    }
    settle(tx, family, Step::InTrees, queue_max_age_ms).await?;
    Ok(answer)
}

/// Ends those of some runs that are queued or parked.
pub(super) async fn end_rows(tx: &mut PgConnection, ends: &Ends) -> Result<Vec<EndedRow>, Error> {
    Ok(sqlx::query_as!(
        EndedRow,
        r#"/* attempt:close */
        WITH given AS (
            SELECT g.*, a.scope, a.class, -a.priority AS urgency, a.conversation_id,
                   CASE a.quota_bucket WHEN 'foreground' THEN 0 WHEN 'background' THEN 1 ELSE 2 END AS bucket
            FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[])
                AS g(tenant, run_id, state, code, detail)
            JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
        ), from_queue AS (
            DELETE FROM run_queue q USING given g
            WHERE q.scope = g.scope AND q.bucket = g.bucket AND q.tenant = g.tenant AND q.class = g.class
              AND q.rank IN (0, 1) AND q.urgency = g.urgency AND q.run_id = g.run_id
            RETURNING q.tenant, q.run_id, q.attempts, q.fence_number, q.spent_tokens, q.spent_ms
        ), from_parked AS (
            DELETE FROM run_parked p USING given g WHERE p.tenant = g.tenant AND p.run_id = g.run_id
            RETURNING p.tenant, p.run_id, p.attempts, p.fence_number, p.spent_tokens, p.spent_ms
        ), gone AS MATERIALIZED (
            SELECT w.*, g.state, g.code, g.detail, g.conversation_id, clock_timestamp() AS now,
                   (SELECT coalesce(max(e.seq), 0) + 1 FROM run_events e
                    WHERE e.tenant = w.tenant AND e.run_id = w.run_id) AS seq
            FROM (SELECT * FROM from_queue UNION ALL SELECT * FROM from_parked) w
            JOIN given g ON g.tenant = w.tenant AND g.run_id = w.run_id
        ), ends AS (
            INSERT INTO run_ends (tenant, run_id, state, code, detail, attempts, fence_number, spent_tokens, spent_ms,
                next_seq, ended_at)
            SELECT tenant, run_id, state, code, detail, attempts, fence_number, spent_tokens, spent_ms, seq + 1, now
            FROM gone
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, seq, now, 'run.ended', jsonb_build_object('state', state, 'code', code) FROM gone
        )
        SELECT tenant AS "tenant!", run_id AS "run_id!", state AS "state!", conversation_id FROM gone"#,
        &ends.tenants,
        &ends.runs,
        &ends.states,
        &ends.codes,
        &ends.details as &[Option<String>],
    )
    .fetch_all(tx)
    .await?)
}
