//! A person's verdict on a run in review (R4.5): the facts into the journal, the run back into the queue or to its end,
//! and the audit entry, in one transaction.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgConnection;
use tidegate_model::{
    Code, RunId, TenantId,
    effect::{CallId, EffectOutcome, ReviewVerdict},
    run::RunState,
};
use uuid::Uuid;

use super::{
    end_queued::{EndQueued, end},
    trees::lock_trees,
    turns::lock_conversations,
};
use crate::{
    Author, Error, TenantStore,
    repeats::Outcome,
    written::{Audited, Written, append_audit},
};

/// What a person says of a run in review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The run.
    pub run_id: RunId,
    /// What to do.
    pub verdict: ReviewVerdict,
    /// About one effect only.
    pub call_id: Option<CallId>,
    /// For the record and the next attempt.
    pub note: Option<String>,
    /// Who says so.
    pub by: Author,
}

/// How a verdict was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolved {
    /// The run is queued, or has ended.
    Done,
    /// So many effects are still in question; the run stays in review.
    Left(i64),
    /// The run is not in review, or not any more.
    NotInReview,
    /// The effect is not one of those in question.
    NoSuchEffect,
}

impl Outcome for Resolved {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::NotInReview | Self::NoSuchEffect)
    }
}

impl TenantStore {
    /// Takes a verdict. Of two that come at once, and of a verdict and a cancel, the first one is taken.
    pub async fn resolve_review(
        &self,
        resolution: Resolution,
        queue_max_age_ms: i64,
    ) -> Result<Resolved, Error> {
        let tenant = self.tenant().clone();
        let intent = resolution.by.intent.clone();
        let resolved = self
            .store()
            .once("resolve_review", intent.as_ref(), move |tx| {
                let (tenant, resolution) = (tenant.clone(), resolution.clone());
                Box::pin(async move {
                    let resolved = resolve(tx, &tenant, &resolution, queue_max_age_ms).await?;
                    Ok(Written::unchanged(resolved))
                })
            })
            .await?;
        Ok(resolved.value)
    }
}

async fn resolve(
    tx: &mut PgConnection,
    tenant: &TenantId,
    resolution: &Resolution,
    queue_max_age_ms: i64,
) -> Result<Resolved, Error> {
    if !lock(tx, tenant, resolution.run_id.as_uuid()).await? {
        return Ok(Resolved::NotInReview);
    }
    let outcome = match resolution.verdict {
        ReviewVerdict::ConfirmDone => Some(EffectOutcome::Done),
        ReviewVerdict::ConfirmNotDone => Some(EffectOutcome::NotDone),
        ReviewVerdict::Abandon => None,
    };
    let (calls, left) = match outcome {
        Some(outcome) => {
            let calls = confirm(tx, tenant, resolution, outcome).await?;
            if calls.is_empty() && resolution.call_id.is_some() {
                return Ok(Resolved::NoSuchEffect);
            }
            (calls, unknown(tx, tenant, resolution.run_id).await?)
        }
        None => (Vec::new(), 0),
    };
    tell(tx, tenant, resolution, &calls, left).await?;
    match outcome {
        Some(_) if left > 0 => {}
        // Queued it would end as expired by the next sweep; said at once, nobody takes it for work that goes on.
        Some(_) if is_late(tx, tenant, resolution.run_id).await? => {
            let end_of = EndQueued {
                tenant: tenant.clone(),
                run_id: resolution.run_id,
                state: RunState::Expired,
                code: Code::DeadlineExceeded,
                detail: Some("the deadline passed before the review was resolved".to_owned()),
            };
            end(tx, &[end_of], queue_max_age_ms).await?;
        }
        Some(_) => queue(tx, tenant, resolution.run_id, queue_max_age_ms).await?,
        None => {
            let end_of = EndQueued {
                tenant: tenant.clone(),
                run_id: resolution.run_id,
                state: RunState::Failed,
                code: Code::Abandoned,
                detail: resolution.note.clone(),
            };
            end(tx, &[end_of], queue_max_age_ms).await?;
        }
    }
    fail::fail_point!("resolve_before_commit", |_| Err(Error::injected()));
    Ok(if left > 0 {
        Resolved::Left(left)
    } else {
        Resolved::Done
    })
}

/// Locks the conversation and the tree, then the parked row; whether the run is in review.
async fn lock(tx: &mut PgConnection, tenant: &TenantId, run: Uuid) -> Result<bool, Error> {
    let conversations = sqlx::query_scalar!(
        r#"SELECT conversation_id AS "conversation_id!" FROM agent_runs
           WHERE tenant = $1 AND run_id = $2 AND conversation_id IS NOT NULL"#,
        tenant.as_str(),
        run,
    )
    .fetch_all(&mut *tx)
    .await?
    .into_iter()
    .map(|conversation| (tenant.as_str().to_owned(), conversation))
    .collect::<Vec<_>>();
    lock_conversations(tx, &conversations).await?;
    lock_trees(tx, &[tenant.as_str().to_owned()], &[run]).await?;
    let parked = sqlx::query_scalar!(
        r#"SELECT run_id FROM run_parked WHERE tenant = $1 AND run_id = $2 AND why = 'review' FOR UPDATE"#,
        tenant.as_str(),
        run,
    )
    .fetch_optional(tx)
    .await?;
    Ok(parked.is_some())
}

/// Records the fact for the effects that the verdict is about; answers their calls.
async fn confirm(
    tx: &mut PgConnection,
    tenant: &TenantId,
    resolution: &Resolution,
    outcome: EffectOutcome,
) -> Result<Vec<String>, Error> {
    Ok(sqlx::query_scalar!(
        r#"UPDATE run_effects SET outcome = $4, source = 'person', note = $5, recorded_at = clock_timestamp()
           WHERE tenant = $1 AND run_id = $2 AND ($3::text IS NULL OR call_id = $3)
             AND outcome IS NULL AND NOT idempotent
           RETURNING call_id"#,
        tenant.as_str(),
        resolution.run_id.as_uuid(),
        resolution.call_id.as_ref().map(CallId::as_str),
        outcome.as_str(),
        resolution.note,
    )
    .fetch_all(tx)
    .await?)
}

async fn unknown(tx: &mut PgConnection, tenant: &TenantId, run: RunId) -> Result<i64, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT count(*) AS "left!" FROM run_effects
           WHERE tenant = $1 AND run_id = $2 AND outcome IS NULL AND NOT idempotent"#,
        tenant.as_str(),
        run.as_uuid(),
    )
    .fetch_one(tx)
    .await?)
}

/// Whether the run's deadline has passed, which no review moves (R3.11).
async fn is_late(tx: &mut PgConnection, tenant: &TenantId, run: RunId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT coalesce(deadline <= clock_timestamp(), false) AS "late!" FROM agent_runs
           WHERE tenant = $1 AND run_id = $2"#,
        tenant.as_str(),
        run.as_uuid(),
    )
    .fetch_one(tx)
    .await?)
}

/// The event on the run's stream and the entry in the audit log. The note stays with the effect.
async fn tell(
    tx: &mut PgConnection,
    tenant: &TenantId,
    resolution: &Resolution,
    calls: &[String],
    left: i64,
) -> Result<(), Error> {
    let body = json!({
        "verdict": resolution.verdict, "callIds": calls, "left": left, "by": resolution.by.actor,
    });
    sqlx::query!(
        r#"WITH told AS (
            INSERT INTO run_events (tenant, run_id, seq, kind, body)
            SELECT $1, $2, coalesce(max(e.seq), 0) + 1, 'run.resolved', $3 FROM run_events e
            WHERE e.tenant = $1 AND e.run_id = $2
            RETURNING seq
        )
        UPDATE run_parked p SET next_seq = told.seq + 1 FROM told WHERE p.tenant = $1 AND p.run_id = $2"#,
        tenant.as_str(),
        resolution.run_id.as_uuid(),
        body,
    )
    .execute(&mut *tx)
    .await?;
    let subject = resolution.run_id.to_string();
    append_audit(
        tx,
        &Audited {
            author: &resolution.by,
            action: "run.resolve",
            subject: &subject,
            tenant: Some(tenant),
            before: json!({"state": RunState::Review}),
            after: json!({"verdict": resolution.verdict, "callIds": calls, "left": left}),
        },
    )
    .await
}

/// Puts the run back to the head of its tenant's queue. A person has looked into it: one more attempt is granted where
/// all were used.
async fn queue(
    tx: &mut PgConnection,
    tenant: &TenantId,
    run: RunId,
    queue_max_age_ms: i64,
) -> Result<(), Error> {
    sqlx::query!(
        r#"WITH gone AS (
            DELETE FROM run_parked p WHERE p.tenant = $1 AND p.run_id = $2 AND p.why = 'review' RETURNING p.*
        )
        INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
            leases_lost, spent_tokens, spent_ms, next_seq, expires_at)
        SELECT g.scope, g.bucket, g.tenant, g.class, 0, g.urgency, g.run_id, least(g.attempts, a.max_attempts - 1),
            g.fence_number, g.leases_lost, g.spent_tokens, g.spent_ms, g.next_seq,
            least(a.deadline, clock_timestamp() + $3::bigint * interval '1 millisecond')
        FROM gone g JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id"#,
        tenant.as_str(),
        run.as_uuid(),
        queue_max_age_ms,
    )
    .execute(tx)
    .await?;
    Ok(())
}
