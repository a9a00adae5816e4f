//! Accepting a run: the cold row, its place, its first event, all or nothing (R3.1, R3.2).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    Capability, ConversationId, KeyId, RunId,
    run::{PrioritySource, RunKind, ServiceClass},
};
use uuid::Uuid;

use super::submit_many::Submission;
use crate::{
    Error, Intent, TenantStore,
    attempts::{bucket_number, turns::lock_conversations},
    conversations::{self, ConversationRow},
    repeats::Outcome,
    written::Written,
};

/// A run to accept.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Chosen by the engine.
    pub run_id: RunId,
    /// The execution scope.
    pub scope: String,
    /// Granted, never asked for.
    pub kind: RunKind,
    /// What the pool must offer.
    pub capability: Capability,
    /// Its requirement class.
    pub class: i32,
    /// What gives way first.
    pub service_class: ServiceClass,
    /// Order within the tenant.
    pub priority: i16,
    /// Who granted the priority.
    pub priority_source: PrioritySource,
    /// The turn's place, if it is one.
    pub turn: Option<Turn>,
    /// The caller's key for repeats.
    pub idempotency_key: Option<String>,
    /// Keyed digest of what was submitted.
    pub request_digest: [u8; 32],
    /// The most attempts.
    pub max_attempts: i32,
    /// First step of the backoff.
    pub backoff_base_ms: i64,
    /// Largest step of the backoff.
    pub backoff_max_ms: i64,
    /// Bound over all attempts.
    pub budget_tokens: Option<i64>,
    /// Bound over all attempts.
    pub budget_ms: Option<i64>,
    /// Not before.
    pub run_at: Option<DateTime<Utc>>,
    /// Must have ended by.
    pub deadline: Option<DateTime<Utc>>,
    /// The key that submitted it.
    pub created_by: Option<KeyId>,
    /// The user it is for.
    pub user: Option<String>,
    /// Passed on as it is.
    pub input: Value,
}

/// A turn of a conversation.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The message that the person's input adds.
    pub message: Value,
}

/// Where an accepted run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the queue.
    Queued,
    /// Parked: its time has not come, or an earlier turn is not over.
    Parked,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// The run was accepted.
    Accepted {
        /// Where it stands.
        place: Place,
        /// When, by the database's clock.
        created_at: DateTime<Utc>,
    },
    /// The key was used before for the same content: this run.
    Repeated(RunId),
    /// The key was used before for another content.
    Conflict,
    /// The tenant is suspended or deleted.
    TenantInactive,
    /// The tenant has no such conversation.
    NoConversation,
    /// The deadline has passed by the database's clock.
    DeadlinePassed,
}

impl TenantStore {
    /// Accepts a run, or says why not. A key that another transaction is just using is waited for, so that nobody is told
    /// of a run that never came to be (O-33). A run that waits in the queue for longer than `queue_max_age_ms` expires.
    pub async fn submit_run(&self, run: NewRun, queue_max_age_ms: i64) -> Result<Submitted, Error> {
        if run.turn.is_none() {
            let submission = Submission {
                tenant: self.tenant().clone(),
                run,
            };
            let fleet = self.store().fleet();
            let mut outcomes = fleet
                .submit_runs(vec![submission], queue_max_age_ms)
                .await?;
            return outcomes.pop().ok_or(NOT_WRITTEN);
        }
        let tenant = self.key().to_owned();
        self.store()
            .transaction("submit_turn", move |tx| {
                let (tenant, run) = (tenant.clone(), run.clone());
                Box::pin(async move {
                    match &run.turn {
                        Some(turn) => submit_turn(tx, &tenant, &run, turn, queue_max_age_ms).await,
                        None => Err(NOT_WRITTEN),
                    }
                })
            })
            .await
    }
}

/// What became of a conversation that is begun with its first turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begun {
    /// Both are there, and the turn's run is in the queue.
    Begun {
        /// The conversation.
        conversation: ConversationRow,
        /// The run of its first turn.
        run_id: RunId,
        /// When it was accepted, by the database's clock.
        accepted_at: DateTime<Utc>,
    },
    /// The tenant is suspended or deleted.
    TenantInactive,
    /// The deadline has passed by the database's clock.
    DeadlinePassed,
}

impl Outcome for Begun {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Begun { .. })
    }
}

/// A conversation and its first turn.
#[derive(Debug, Clone)]
pub struct FirstTurn {
    /// The conversation's title.
    pub title: Option<String>,
    /// The user it is for.
    pub user: Option<String>,
    /// The turn's run, which carries no key of its own: the intent is that of both.
    pub run: NewRun,
}

impl TenantStore {
    /// Begins a conversation with its first turn, both or neither: where the turn is refused, no empty conversation stays.
    pub async fn begin_with_turn(
        &self,
        first: FirstTurn,
        queue_max_age_ms: i64,
        intent: Option<&Intent>,
    ) -> Result<Begun, Error> {
        let tenant = self.key().to_owned();
        let begun = self
            .store()
            .once("create_conversation", intent, move |tx| {
                let (tenant, first) = (tenant.clone(), first.clone());
                Box::pin(async move {
                    let begun = begin_with_turn(tx, &tenant, first, queue_max_age_ms).await?;
                    Ok(Written::unchanged(begun))
                })
            })
            .await?;
        Ok(begun.value)
    }
}

async fn begin_with_turn(
    tx: &mut PgConnection,
    tenant: &str,
    first: FirstTurn,
    queue_max_age_ms: i64,
) -> Result<Begun, Error> {
    let FirstTurn { title, user, run } = first;
    let turn = run.turn.as_ref().ok_or(NOT_WRITTEN)?;
    // Before anything is written: nothing after it refuses.
    match gate(tx, tenant, run.deadline).await? {
        None => return Ok(Begun::TenantInactive),
        Some(Gate { late: true }) => return Ok(Begun::DeadlinePassed),
        Some(Gate { late: false }) => {}
    }
    let id = turn.conversation_id;
    let Some(conversation) = conversations::begin(tx, tenant, id, title, user).await? else {
        return Ok(Begun::TenantInactive);
    };
    let taken = take_turn(tx, tenant, id.as_uuid(), run.run_id).await?;
    let taken = taken.ok_or(NOT_WRITTEN)?;
    let written = insert(tx, tenant, &run, taken.number).await?;
    let accepted_at = written.ok_or(NOT_WRITTEN)?;
    place(tx, tenant, &run, taken, queue_max_age_ms).await?;
    say(tx, tenant, turn, run.run_id).await?;
    Ok(Begun::Begun {
        conversation,
        run_id: run.run_id,
        accepted_at,
    })
}

pub(super) const NOT_WRITTEN: Error = Error::RowCount {
    statement: "insert run",
    expected: 1,
    changed: 0,
};

/// What stands before a turn of an active tenant.
struct Gate {
    late: bool,
}

/// Nothing where the tenant may not start anything new.
async fn gate(
    tx: &mut PgConnection,
    tenant: &str,
    deadline: Option<DateTime<Utc>>,
) -> Result<Option<Gate>, Error> {
    let row = sqlx::query!(
        r#"SELECT state = 'active' AS "active!", coalesce($2::timestamptz <= clock_timestamp(), false) AS "late!"
           FROM tenants WHERE tenant = $1"#,
        tenant,
        deadline,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row
        .filter(|row| row.active)
        .map(|row| Gate { late: row.late }))
}

/// A turn takes its number under its conversation's lock.
async fn submit_turn(
    tx: &mut PgConnection,
    tenant: &str,
    run: &NewRun,
    turn: &Turn,
    queue_max_age_ms: i64,
) -> Result<Submitted, Error> {
    let Some(Gate { late }) = gate(tx, tenant, run.deadline).await? else {
        return Ok(Submitted::TenantInactive);
    };
    let conversation = turn.conversation_id.as_uuid();
    lock_conversations(tx, &[(tenant.to_owned(), conversation)]).await?;
    if let Some(earlier) = repeated(tx, tenant, run).await? {
        return Ok(earlier);
    }
    if late {
        return Ok(Submitted::DeadlinePassed);
    }
    let Some(taken) = take_turn(tx, tenant, conversation, run.run_id).await? else {
        return Ok(Submitted::NoConversation);
    };
    let Some(created_at) = insert(tx, tenant, run, taken.number).await? else {
        // Somebody else used the key since it was looked up; here the row is visible at last.
        return match repeated(tx, tenant, run).await? {
            Some(earlier) => {
                undo_turn(tx, tenant, conversation, run.run_id).await?;
                Ok(earlier)
            }
            None => Err(NOT_WRITTEN),
        };
    };
    fail::fail_point!("submit_before_place", |_| Err(Error::injected()));
    let place = place(tx, tenant, run, taken, queue_max_age_ms).await?;
    say(tx, tenant, turn, run.run_id).await?;
    fail::fail_point!("submit_before_commit", |_| Err(Error::injected()));
    Ok(Submitted::Accepted { place, created_at })
}

async fn repeated(
    tx: &mut PgConnection,
    tenant: &str,
    run: &NewRun,
) -> Result<Option<Submitted>, Error> {
    let Some(key) = &run.idempotency_key else {
        return Ok(None);
    };
    // A key that another write was sent under (crate::repeats) has no run, and is a conflict.
    let earlier = sqlx::query!(
        r#"SELECT run_id AS "run_id?", request_digest AS "request_digest!"
           FROM agent_runs WHERE tenant = $1 AND idempotency_key = $2
           UNION ALL
           SELECT NULL, request_digest FROM idempotency_records WHERE owner = $1 AND idempotency_key = $2"#,
        tenant,
        key,
    )
    .fetch_optional(tx)
    .await?;
    Ok(earlier.map(|row| match row.run_id {
        Some(id) if row.request_digest == run.request_digest => {
            Submitted::Repeated(RunId::from_uuid(id))
        }
        _ => Submitted::Conflict,
    }))
}

#[derive(Clone, Copy)]
struct TakenTurn {
    number: i64,
    busy: bool,
}

/// Counts a turn and makes it the active one where none is; the conversation is locked.
async fn take_turn(
    tx: &mut PgConnection,
    tenant: &str,
    conversation: Uuid,
    run_id: RunId,
) -> Result<Option<TakenTurn>, Error> {
    Ok(sqlx::query!(
        r#"UPDATE conversations SET next_turn = next_turn + 1, active_run = coalesce(active_run, $3)
           WHERE tenant = $1 AND conversation_id = $2
           RETURNING next_turn - 1 AS "number!", active_run <> $3 AS "busy!""#,
        tenant,
        conversation,
        run_id.as_uuid(),
    )
    .fetch_optional(tx)
    .await?
    .map(|row| TakenTurn {
        number: row.number,
        busy: row.busy,
    }))
}

async fn undo_turn(
    tx: &mut PgConnection,
    tenant: &str,
    conversation: Uuid,
    run_id: RunId,
) -> Result<(), Error> {
    sqlx::query!(
        r#"UPDATE conversations SET next_turn = next_turn - 1, active_run = nullif(active_run, $3)
           WHERE tenant = $1 AND conversation_id = $2"#,
        tenant,
        conversation,
        run_id.as_uuid(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

async fn insert(
    tx: &mut PgConnection,
    tenant: &str,
    run: &NewRun,
    turn_no: i64,
) -> Result<Option<DateTime<Utc>>, Error> {
    Ok(sqlx::query_scalar!(
        r#"INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
               priority_source, conversation_id, turn_no, root_run_id, idempotency_key, request_digest, max_attempts,
               backoff_base_ms, backoff_max_ms, budget_tokens, budget_ms, run_at, deadline, created_by, user_name, input)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $2, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
               $22, $23)
           ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
           RETURNING created_at"#,
        tenant,
        run.run_id.as_uuid(),
        run.scope,
        run.kind.as_str(),
        run.capability.as_str(),
        run.class,
        run.service_class.as_str(),
        run.priority,
        run.priority_source.as_str(),
        run.turn.as_ref().map(|turn| turn.conversation_id.as_uuid()),
        turn_no,
        run.idempotency_key,
        run.request_digest.as_slice(),
        run.max_attempts,
        run.backoff_base_ms,
        run.backoff_max_ms,
        run.budget_tokens,
        run.budget_ms,
        run.run_at,
        run.deadline,
        run.created_by.map(KeyId::as_uuid),
        run.user,
        run.input,
    )
    .fetch_optional(tx)
    .await?)
}

/// Writes the turn's place and its first event.
async fn place(
    tx: &mut PgConnection,
    tenant: &str,
    run: &NewRun,
    taken: TakenTurn,
    queue_max_age_ms: i64,
) -> Result<Place, Error> {
    let conversation = run.turn.as_ref().map(|turn| turn.conversation_id.as_uuid());
    let parked = sqlx::query_scalar!(
        r#"WITH given AS (
            SELECT clock.now, $8::timestamptz > clock.now AS early,
                   least($9::timestamptz, greatest(clock.now, $8::timestamptz)
                         + $10::bigint * interval '1 millisecond') AS expires_at
            FROM (SELECT clock_timestamp() AS now) clock
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, queued_at, expires_at)
            SELECT $1, $2, $3, $4, 1, $5, $6, 2, now, expires_at FROM given WHERE NOT ($7 OR coalesce(early, false))
        ), parked AS (
            INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, conversation_id, turn_no,
                next_seq, parked_at, expires_at)
            SELECT $3, $6, CASE WHEN $7 THEN 'conversation_busy' ELSE 'scheduled' END,
                   CASE WHEN $7 THEN NULL ELSE $8::timestamptz END, $1, $2, $4, $5, $11, $12, 2, now, expires_at
            FROM given WHERE $7 OR coalesce(early, false)
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT $3, $6, 1, now, 'run.queued', $13 FROM given
        )
        SELECT ($7 OR coalesce(early, false)) AS "parked!" FROM given"#,
        run.scope,
        bucket_number(run.kind.quota_bucket()),
        tenant,
        run.class,
        -run.priority,
        run.run_id.as_uuid(),
        taken.busy,
        run.run_at,
        run.deadline,
        queue_max_age_ms,
        conversation,
        taken.number,
        json!({"kind": run.kind, "capability": run.capability}),
    )
    .fetch_one(tx)
    .await?;
    Ok(if parked { Place::Parked } else { Place::Queued })
}

/// Adds the person's message, so that it is read at once and stands before the turn's answer.
async fn say(tx: &mut PgConnection, tenant: &str, turn: &Turn, run_id: RunId) -> Result<(), Error> {
    sqlx::query!(
        r#"WITH numbered AS (
            UPDATE conversations SET next_message = next_message + 1 WHERE tenant = $1 AND conversation_id = $2
            RETURNING next_message - 1 AS seq
        )
        INSERT INTO messages (tenant, conversation_id, seq, turn_no, role, content, run_id)
        SELECT $1, $2, n.seq, a.turn_no, 'user', $4, $3
        FROM numbered n, agent_runs a WHERE a.tenant = $1 AND a.run_id = $3"#,
        tenant,
        turn.conversation_id.as_uuid(),
        run_id.as_uuid(),
        turn.message,
    )
    .execute(tx)
    .await?;
    Ok(())
}
