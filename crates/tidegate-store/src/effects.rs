//! The journal of effects (R4.5): intents before calls that change something, outcomes after them.
//!
//! Invariants: an attempt writes under its lease only, which it locks first, so that closing comes before or after it;
//! an outcome is recorded once; an effect that may not be repeated and has no outcome is handed to nobody.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{
    RunId,
    api::{EffectView, NewMessage, RecordedOutcome},
    digest::Digest,
    effect::{CallId, EffectOutcome},
    run::StopReason,
    strict,
};
use uuid::Uuid;

use crate::{
    Error, Fleet, TenantStore,
    attempts::{HeldLease, bucket_number},
    error::stored,
};

/// The most bytes of messages of earlier attempts that one answer carries; far above what one run can write.
const EARLIER_MAX_BYTES: i64 = 4 << 20;

/// A call that an attempt is about to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Names it within the run.
    pub call_id: CallId,
    /// What is called.
    pub tool: String,
    /// Of its arguments.
    pub arguments_digest: Digest,
    /// Whether it may be made twice.
    pub idempotent: bool,
}

/// How an intent was taken.
#[derive(Debug, Clone, PartialEq)]
pub enum Intended {
    /// It stands in the journal: make the call.
    Call,
    /// It was made before; this came of it.
    Recorded(RecordedOutcome),
    /// It was about to be made before, may not be repeated, and nobody knows what came of it.
    Unknown,
    /// The call id stands for another tool or other arguments.
    Differs,
    /// The run has as many effects as a run may have.
    TooMany,
    /// The attempt was told to stop: it makes no call that is not in the journal already.
    Stopped(StopReason),
    /// The fence is not that of an open lease.
    LeaseLost,
}

/// How an outcome was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is recorded, now or by an earlier request.
    Recorded,
    /// Another one is recorded.
    Differs,
    /// There is no intent of this call.
    NoIntent,
    /// The fence is not that of an open lease.
    LeaseLost,
}

struct Row {
    call_id: String,
    tool: String,
    idempotent: bool,
    attempt: i32,
    intended_at: DateTime<Utc>,
    outcome: Option<String>,
    source: Option<String>,
    note: Option<String>,
    recorded_at: Option<DateTime<Utc>>,
}

impl TryFrom<Row> for EffectView {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            call_id: stored(&row.call_id, "run_effects.call_id")?,
            tool: row.tool,
            idempotent: row.idempotent,
            attempt: row.attempt,
            intended_at: row.intended_at,
            outcome: row
                .outcome
                .map(|text| stored(&text, "run_effects.outcome"))
                .transpose()?,
            source: row
                .source
                .map(|text| stored(&text, "run_effects.source"))
                .transpose()?,
            note: row.note,
            recorded_at: row.recorded_at,
        })
    }
}

impl Fleet {
    /// Records that a call is about to be made, or says what is known of it.
    pub async fn record_intent(
        &self,
        scope: &str,
        lease: &HeldLease,
        intent: Intent,
        most: i64,
    ) -> Result<Intended, Error> {
        let (scope, lease) = (scope.to_owned(), lease.clone());
        self.store()
            .transaction("record_intent", move |tx| {
                let (scope, lease, intent) = (scope.clone(), lease.clone(), intent.clone());
                Box::pin(async move {
                    let taken = intend(tx, &scope, &lease, &intent, most).await?;
                    fail::fail_point!("intent_before_commit", |_| Err(Error::injected()));
                    Ok(taken)
                })
            })
            .await
    }

    /// Records what came of a call.
    pub async fn record_outcome(
        &self,
        scope: &str,
        lease: &HeldLease,
        call_id: CallId,
        outcome: EffectOutcome,
        result: Value,
    ) -> Result<Outcome, Error> {
        let (scope, lease) = (scope.to_owned(), lease.clone());
        self.store()
            .transaction("record_outcome", move |tx| {
                let (scope, lease) = (scope.clone(), lease.clone());
                let (call_id, result) = (call_id.clone(), result.clone());
                Box::pin(async move {
                    let taken = settle(tx, &scope, &lease, &call_id, outcome, &result).await?;
                    fail::fail_point!("outcome_before_commit", |_| Err(Error::injected()));
                    Ok(taken)
                })
            })
            .await
    }
}

/// What an attempt writes under.
struct Under {
    attempt: i32,
    stop: Option<StopReason>,
}

/// The attempt, under a lock that lets only renewals wait; `None` where the lease is not held.
async fn lock(
    tx: &mut PgConnection,
    scope: &str,
    lease: &HeldLease,
) -> Result<Option<Under>, Error> {
    let row = sqlx::query!(
        r#"SELECT l.attempt, l.stop_reason FROM run_leases l, cluster c
           WHERE l.scope = $1 AND l.bucket = $2 AND l.tenant = $3 AND l.run_id = $4
             AND l.fence_generation = $5 AND l.fence_number = $6 AND l.fence_generation = c.generation
             AND l.lease_until > clock_timestamp()
           FOR NO KEY UPDATE OF l"#,
        scope,
        bucket_number(lease.key.bucket),
        lease.key.tenant.as_str(),
        lease.key.run_id.as_uuid(),
        lease.fence.generation,
        lease.fence.number,
    )
    .fetch_optional(tx)
    .await?;
    row.map(|row| {
        let stop = row.stop_reason.as_deref();
        Ok(Under {
            attempt: row.attempt,
            stop: stop
                .map(|text| stored(text, "run_leases.stop_reason"))
                .transpose()?,
        })
    })
    .transpose()
}

async fn intend(
    tx: &mut PgConnection,
    scope: &str,
    lease: &HeldLease,
    intent: &Intent,
    most: i64,
) -> Result<Intended, Error> {
    let Some(Under { attempt, stop }) = lock(tx, scope, lease).await? else {
        return Ok(Intended::LeaseLost);
    };
    // Counted as if the run had all that it may have: what is in the journal is answered as ever, and nothing is added.
    let most = if stop.is_some() { 0 } else { most };
    let (tenant, run) = (lease.key.tenant.as_str(), lease.key.run_id.as_uuid());
    let written = sqlx::query!(
        r#"INSERT INTO run_effects (tenant, run_id, call_id, tool, arguments_digest, idempotent, attempt,
               fence_generation, fence_number)
           SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
           WHERE (SELECT count(*) FROM run_effects WHERE tenant = $1 AND run_id = $2) < $10
           ON CONFLICT DO NOTHING"#,
        tenant,
        run,
        intent.call_id.as_str(),
        intent.tool,
        intent.arguments_digest.as_bytes().as_slice(),
        intent.idempotent,
        attempt,
        lease.fence.generation,
        lease.fence.number,
        most,
    )
    .execute(&mut *tx)
    .await?
    .rows_affected();
    let taken = if written == 1 {
        Intended::Call
    } else {
        match (known(tx, lease, intent).await?, stop) {
            (Intended::TooMany, Some(why)) => Intended::Stopped(why),
            (taken, _) => taken,
        }
    };
    if matches!(taken, Intended::Call | Intended::Unknown) {
        sqlx::query!(
            r#"UPDATE run_leases SET has_effects = true
               WHERE scope = $1 AND bucket = $2 AND tenant = $3 AND run_id = $4 AND NOT has_effects"#,
            scope,
            bucket_number(lease.key.bucket),
            tenant,
            run,
        )
        .execute(tx)
        .await?;
    }
    Ok(taken)
}

/// What the journal knows of a call that it has already.
async fn known(
    tx: &mut PgConnection,
    lease: &HeldLease,
    intent: &Intent,
) -> Result<Intended, Error> {
    let (tenant, run) = (lease.key.tenant.as_str(), lease.key.run_id.as_uuid());
    let call = intent.call_id.as_str();
    let Some(row) = sqlx::query!(
        r#"SELECT tool, arguments_digest, idempotent, fence_generation, fence_number, outcome, source, result, note,
                  recorded_at
           FROM run_effects WHERE tenant = $1 AND run_id = $2 AND call_id = $3"#,
        tenant,
        run,
        call,
    )
    .fetch_optional(&mut *tx)
    .await?
    else {
        return Ok(Intended::TooMany);
    };
    if row.tool != intent.tool || row.arguments_digest != intent.arguments_digest.as_bytes() {
        return Ok(Intended::Differs);
    }
    if let (Some(outcome), Some(source), Some(recorded_at)) =
        (row.outcome, row.source, row.recorded_at)
    {
        return Ok(Intended::Recorded(RecordedOutcome {
            outcome: stored(&outcome, "run_effects.outcome")?,
            source: stored(&source, "run_effects.source")?,
            result: row.result.unwrap_or_default(),
            note: row.note,
            recorded_at,
        }));
    }
    let same_attempt =
        (row.fence_generation, row.fence_number) == (lease.fence.generation, lease.fence.number);
    if same_attempt || (row.idempotent && intent.idempotent) {
        return Ok(Intended::Call);
    }
    // A tool that was idempotent when it was called first and is not any more may not be called again.
    sqlx::query!(
        "UPDATE run_effects SET idempotent = false
         WHERE tenant = $1 AND run_id = $2 AND call_id = $3 AND idempotent",
        tenant,
        run,
        call,
    )
    .execute(tx)
    .await?;
    Ok(Intended::Unknown)
}

async fn settle(
    tx: &mut PgConnection,
    scope: &str,
    lease: &HeldLease,
    call_id: &CallId,
    outcome: EffectOutcome,
    result: &Value,
) -> Result<Outcome, Error> {
    if lock(tx, scope, lease).await?.is_none() {
        return Ok(Outcome::LeaseLost);
    }
    let (tenant, run) = (lease.key.tenant.as_str(), lease.key.run_id.as_uuid());
    let written = sqlx::query!(
        r#"UPDATE run_effects
           SET outcome = $4, source = 'attempt', result = $5, recorded_at = clock_timestamp()
           WHERE tenant = $1 AND run_id = $2 AND call_id = $3 AND outcome IS NULL"#,
        tenant,
        run,
        call_id.as_str(),
        outcome.as_str(),
        result,
    )
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if written == 1 {
        return Ok(Outcome::Recorded);
    }
    let same = sqlx::query_scalar!(
        r#"SELECT outcome = $4 AND source = 'attempt' AND result = $5 AS "same!" FROM run_effects
           WHERE tenant = $1 AND run_id = $2 AND call_id = $3"#,
        tenant,
        run,
        call_id.as_str(),
        outcome.as_str(),
        result,
    )
    .fetch_optional(tx)
    .await?;
    Ok(match same {
        None => Outcome::NoIntent,
        Some(true) => Outcome::Recorded,
        Some(false) => Outcome::Differs,
    })
}

impl TenantStore {
    /// The effects of a run, oldest first.
    pub async fn effects(&self, run: RunId) -> Result<Vec<EffectView>, Error> {
        sqlx::query_as!(
            Row,
            r#"SELECT call_id, tool, idempotent, attempt, intended_at, outcome, source, note, recorded_at
               FROM run_effects WHERE tenant = $1 AND run_id = $2 ORDER BY intended_at, call_id"#,
            self.key(),
            run.as_uuid(),
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(EffectView::try_from)
        .collect()
    }

    /// Of some runs the effects that may not be repeated and of which nobody knows whether they happened.
    pub async fn unknown_effects(
        &self,
        runs: &[RunId],
    ) -> Result<HashMap<RunId, Vec<EffectView>>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        let mut found: HashMap<RunId, Vec<EffectView>> = HashMap::new();
        let rows = sqlx::query!(
            r#"SELECT run_id, call_id, tool, idempotent, attempt, intended_at FROM run_effects
               WHERE tenant = $1 AND run_id = ANY ($2) AND outcome IS NULL AND NOT idempotent
               ORDER BY intended_at, call_id"#,
            self.key(),
            &ids,
        )
        .fetch_all(self.pool())
        .await?;
        for row in rows {
            let effects = found.entry(RunId::from_uuid(row.run_id)).or_default();
            effects.push(EffectView::try_from(Row {
                call_id: row.call_id,
                tool: row.tool,
                idempotent: row.idempotent,
                attempt: row.attempt,
                intended_at: row.intended_at,
                outcome: None,
                source: None,
                note: None,
                recorded_at: None,
            })?);
        }
        Ok(found)
    }

    /// The messages that attempts of a run wrote as events since the first attempt that had an effect. Attempts before
    /// it began anew each time; it began anew, and those after it went on from there.
    pub async fn earlier_messages(&self, run: RunId) -> Result<Vec<NewMessage>, Error> {
        let rows = sqlx::query!(
            r#"WITH first AS (
                SELECT fence_generation || '.' || fence_number AS fence FROM run_effects
                WHERE tenant = $1 AND run_id = $2 ORDER BY fence_generation, fence_number LIMIT 1
            ), began AS (
                SELECT e.seq FROM run_events e, first f
                WHERE e.tenant = $1 AND e.run_id = $2 AND e.kind = 'run.started' AND e.body ->> 'fence' = f.fence
            ), kept AS (
                -- What a turn said before it waited stands in its conversation.
                SELECT coalesce(max(e.seq), 0) AS seq FROM agent_runs a
                JOIN run_events e ON e.tenant = a.tenant AND e.run_id = a.run_id AND e.kind = 'run.waiting'
                WHERE a.tenant = $1 AND a.run_id = $2 AND a.conversation_id IS NOT NULL
            )
            SELECT body AS "body!" FROM (
                SELECT e.seq, e.body, sum(octet_length(e.body::text)) OVER (ORDER BY e.seq) AS bytes
                FROM run_events e, began b, kept k
                WHERE e.tenant = $1 AND e.run_id = $2 AND e.seq > greatest(b.seq, k.seq) AND e.kind = 'message.completed') m
            WHERE bytes <= $3 ORDER BY seq"#,
            self.key(),
            run.as_uuid(),
            EARLIER_MAX_BYTES,
        )
        .fetch_all(self.pool())
        .await?;
        // A worker writes what it likes into its events; what is no message is not one of ours.
        Ok(rows
            .into_iter()
            .filter_map(|row| strict::from_value(row.body).ok())
            .collect())
    }
}
