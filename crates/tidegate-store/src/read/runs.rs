//! Runs of a tenant with their place.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tidegate_model::{
    Capability, Code, ConversationId, Fence, PoolId, RunId,
    api::{Ask, DueTime},
    run::{
        ParkReason, PrioritySource, QuotaBucket, RunKind, RunState, ServiceClass, WaitMode, WaitOn,
    },
    strict,
};
use uuid::Uuid;

use super::queued::QueueRow;
use crate::{Error, TenantStore, error::stored, lanes::LaneKey, schedules::due_time};

/// How often a run that moved between two statements is read again.
const READS_MAX: u32 = 4;

/// A run and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// Its execution scope.
    pub scope: String,
    /// Its lane, while it is queued.
    pub lane: LaneKey,
    /// How it came to be.
    pub kind: RunKind,
    /// What it asks for.
    pub capability: Capability,
    /// What gives way first.
    pub service_class: ServiceClass,
    /// Order within the tenant.
    pub priority: i16,
    /// Who gave it that.
    pub priority_source: PrioritySource,
    /// The user it is for.
    pub user: Option<String>,
    /// Its conversation, if it is a turn.
    pub conversation_id: Option<ConversationId>,
    /// Its parent, if it is a child.
    pub parent_run_id: Option<RunId>,
    /// The root of its tree; itself, if it has no parent.
    pub root_run_id: RunId,
    /// The due time that it was fired for, if a schedule did.
    pub schedule: Option<DueTime>,
    /// The most attempts.
    pub max_attempts: i32,
    /// Bound over all attempts.
    pub budget_tokens: Option<i64>,
    /// Bound over all attempts.
    pub budget_ms: Option<i64>,
    /// Not before.
    pub run_at: Option<DateTime<Utc>>,
    /// Must have ended by.
    pub deadline: Option<DateTime<Utc>>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// Attempts that count, the running one included.
    pub attempts: i32,
    /// Tokens used by ended attempts, and by the running one as far as its holder has said.
    pub spent_tokens: i64,
    /// Time under a lease of ended attempts.
    pub spent_ms: i64,
    /// Where it is.
    pub place: RunPlace,
    /// The database's clock when it was read.
    pub read_at: DateTime<Utc>,
}

/// Where a run is in its life.
#[derive(Debug, Clone, PartialEq)]
pub enum RunPlace {
    /// May be claimed.
    Queued(Queued),
    /// Under a lease.
    Running(Running),
    /// Neither.
    Parked(Parked),
    /// Over.
    Ended(Ended),
}

/// In the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Since when.
    pub queued_at: DateTime<Utc>,
    /// Its place in the lane.
    pub rank: i16,
    /// Its place in the lane.
    pub urgency: i16,
    /// Its place in the lane.
    pub position: i64,
}

/// Under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The number of the attempt.
    pub attempt: i32,
    /// The fence of the lease.
    pub fence: Fence,
    /// The worker.
    pub holder: String,
    /// Which start of that worker.
    pub incarnation: i64,
    /// Its pool.
    pub pool: PoolId,
    /// Since when it had been queued.
    pub queued_at: DateTime<Utc>,
    /// When the lease was granted.
    pub started_at: DateTime<Utc>,
    /// When it runs out unless renewed.
    pub lease_until: DateTime<Utc>,
    /// Whether a cancel was asked for.
    pub cancel_requested: bool,
    /// Tokens it has used, as far as its holder has said.
    pub used_tokens: i64,
}

/// Parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Why.
    pub why: ParkReason,
    /// When it is over by itself.
    pub due: Option<DateTime<Utc>>,
    /// Since when.
    pub parked_at: DateTime<Utc>,
    /// The turn of its conversation that is not over.
    pub active_run: Option<RunId>,
    /// Why that one is parked, if it is.
    pub active_parked: Option<ParkReason>,
    /// What it waits for, if it waits.
    pub wait: Option<Waiting>,
    /// Why its last attempt failed.
    pub last_code: Option<Code>,
}

/// What a waiting run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What it waits on.
    pub on: WaitOn,
    /// How many of the children must end; only where it waits on children.
    pub mode: Option<WaitMode>,
    /// The awaited children that have not ended.
    pub open: Vec<RunId>,
    /// The question.
    pub ask: Option<Ask>,
    /// The number of the question.
    pub ask_no: i64,
}

/// Over.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How.
    pub state: RunState,
    /// Why, where it did not succeed.
    pub code: Option<Code>,
    /// For people.
    pub detail: Option<String>,
    /// What it gave back.
    pub result: Option<Value>,
    /// When.
    pub ended_at: DateTime<Utc>,
}

impl RunRow {
    /// The derived state (R3.1).
    pub const fn state(&self) -> RunState {
        match &self.place {
            RunPlace::Queued(_) => RunState::Queued,
            RunPlace::Running(_) => RunState::Running,
            RunPlace::Ended(ended) => ended.state,
            RunPlace::Parked(parked) => match parked.why {
                ParkReason::Waiting => RunState::Waiting,
                ParkReason::Review => RunState::Review,
                ParkReason::ConversationBusy | ParkReason::Scheduled | ParkReason::RetryBackoff => {
                    RunState::Queued
                }
            },
        }
    }
}

impl TenantStore {
    /// A run of the tenant; `None` where it has no such run.
    pub async fn run(&self, run: RunId) -> Result<Option<RunRow>, Error> {
        Ok(self.runs(&[run]).await?.pop())
    }

    /// Runs of the tenant in the order given; those it does not have are left out.
    ///
    /// Looks for queued ones in their lanes, once for all of them: the narrow queue has no index by run, so that every
    /// claim and submission pays for one index less. Results of ended runs are large and only read where one run is
    /// asked for.
    pub async fn runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, Error> {
        let mut found: HashMap<RunId, RunRow> = HashMap::new();
        let mut missing: Vec<RunId> = runs.to_vec();
        for _ in 0..READS_MAX {
            let (placed, in_queue) = self.placed(&missing, runs.len() == 1).await?;
            found.extend(placed.into_iter().map(|row| (row.run_id, row)));
            if in_queue.is_empty() {
                break;
            }
            let mut queued = self.queued(&in_queue).await?;
            missing.clear();
            for (id, row) in in_queue {
                match queued.remove(&id) {
                    Some(place) => {
                        found.insert(id, with_place(row, &place));
                    }
                    // Claimed, ended or parked since the first statement.
                    None => missing.push(id),
                }
            }
            if missing.is_empty() {
                break;
            }
        }
        Ok(runs.iter().filter_map(|run| found.remove(run)).collect())
    }

    /// Runs that are ended, leased or parked, and apart from them those that must be in the queue.
    async fn placed(
        &self,
        runs: &[RunId],
        with_result: bool,
    ) -> Result<(Vec<RunRow>, HashMap<RunId, RunRow>), Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT r.run_id, r.scope, r.kind, r.quota_bucket, r.class, r.capability, r.service_class, r.priority,
                      r.priority_source, r.user_name,
                      r.conversation_id, r.parent_run_id, r.root_run_id, r.schedule, r.due_at, r.max_attempts, r.budget_tokens, r.budget_ms, r.run_at, r.deadline, r.created_at,
                      clock_timestamp() AS "read_at!",
                      e.state AS "end_state?", e.code AS end_code, e.detail AS end_detail,
                      CASE WHEN $3 THEN e.result END AS end_result,
                      e.attempts AS "end_attempts?", e.spent_tokens AS "end_tokens?", e.spent_ms AS "end_ms?",
                      e.ended_at AS "ended_at?",
                      l.attempt AS "attempt?", l.fence_generation AS "fence_generation?",
                      l.fence_number AS "fence_number?", l.holder AS "holder?", l.incarnation AS "incarnation?",
                      l.pool AS "pool?", l.queued_at AS "lease_queued_at?", l.started_at AS "started_at?",
                      l.lease_until AS "lease_until?", l.stop_reason = 'cancel' AS cancel_requested,
                      l.spent_tokens AS "lease_tokens?", l.used_tokens AS "used_tokens?", l.spent_ms AS "lease_ms?",
                      p.why AS "why?", p.due, p.parked_at AS "parked_at?", p.attempts AS "park_attempts?",
                      p.spent_tokens AS "park_tokens?", p.spent_ms AS "park_ms?",
                      CASE WHEN p.why = 'conversation_busy' THEN (SELECT c.active_run FROM conversations c
                          WHERE c.tenant = r.tenant AND c.conversation_id = r.conversation_id) END AS active_run,
                      CASE WHEN p.why = 'conversation_busy' THEN (SELECT o.why FROM conversations c
                          JOIN run_parked o ON o.tenant = c.tenant AND o.run_id = c.active_run
                          WHERE c.tenant = r.tenant AND c.conversation_id = r.conversation_id) END AS active_why,
                      p.waits_on, p.wait_mode, p.wait_ask, p.fence_number AS "ask_no?",
                      CASE WHEN p.waits_on = 'children' THEN ARRAY (SELECT w.run FROM unnest(p.wait_runs) AS w(run)
                          WHERE NOT EXISTS (SELECT FROM run_ends o WHERE o.tenant = r.tenant AND o.run_id = w.run))
                          END AS "wait_open: Vec<Uuid>",
                      CASE WHEN p.why = 'retry_backoff' THEN (SELECT t.code FROM run_attempts t
                          WHERE t.tenant = r.tenant AND t.run_id = r.run_id
                          ORDER BY t.fence_generation DESC, t.fence_number DESC LIMIT 1) END AS last_code
               FROM agent_runs r
               LEFT JOIN run_ends e ON e.tenant = r.tenant AND e.run_id = r.run_id
               LEFT JOIN run_leases l ON l.scope = r.scope AND l.tenant = r.tenant AND l.run_id = r.run_id
                AND l.bucket = CASE r.quota_bucket WHEN 'foreground' THEN 0 WHEN 'background' THEN 1 ELSE 2 END
               LEFT JOIN run_parked p ON p.tenant = r.tenant AND p.run_id = r.run_id
               WHERE r.tenant = $1 AND r.run_id = ANY ($2)"#,
            self.key(),
            &ids,
            with_result,
        )
        .fetch_all(self.pool())
        .await?;
        let mut placed = Vec::with_capacity(rows.len());
        let mut in_queue = HashMap::new();
        for row in rows {
            let (row, known) = row.into_run(self)?;
            if known {
                placed.push(row);
            } else {
                in_queue.insert(row.run_id, row);
            }
        }
        Ok((placed, in_queue))
    }
}

fn with_place(row: RunRow, queue: &QueueRow) -> RunRow {
    RunRow {
        attempts: queue.attempts,
        spent_tokens: queue.spent_tokens,
        spent_ms: queue.spent_ms,
        place: RunPlace::Queued(Queued {
            queued_at: queue.queued_at,
            rank: queue.rank,
            urgency: queue.urgency,
            position: queue.position,
        }),
        ..row
    }
}

struct Row {
    run_id: Uuid,
    scope: String,
    kind: String,
    quota_bucket: String,
    class: i32,
    capability: String,
    service_class: String,
    priority: i16,
    priority_source: String,
    user_name: Option<String>,
    conversation_id: Option<Uuid>,
    parent_run_id: Option<Uuid>,
    root_run_id: Uuid,
    schedule: Option<String>,
    due_at: Option<DateTime<Utc>>,
    max_attempts: i32,
    budget_tokens: Option<i64>,
    budget_ms: Option<i64>,
    run_at: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    read_at: DateTime<Utc>,
    end_state: Option<String>,
    end_code: Option<String>,
    end_detail: Option<String>,
    end_result: Option<Value>,
    end_attempts: Option<i32>,
    end_tokens: Option<i64>,
    end_ms: Option<i64>,
    ended_at: Option<DateTime<Utc>>,
    attempt: Option<i32>,
    fence_generation: Option<i32>,
    fence_number: Option<i64>,
    holder: Option<String>,
    incarnation: Option<i64>,
    pool: Option<String>,
    lease_queued_at: Option<DateTime<Utc>>,
    started_at: Option<DateTime<Utc>>,
    lease_until: Option<DateTime<Utc>>,
    cancel_requested: Option<bool>,
    lease_tokens: Option<i64>,
    used_tokens: Option<i64>,
    lease_ms: Option<i64>,
    why: Option<String>,
    due: Option<DateTime<Utc>>,
    parked_at: Option<DateTime<Utc>>,
    park_attempts: Option<i32>,
    park_tokens: Option<i64>,
    park_ms: Option<i64>,
    active_run: Option<Uuid>,
    active_why: Option<String>,
    waits_on: Option<String>,
    wait_mode: Option<String>,
    wait_ask: Option<Value>,
    ask_no: Option<i64>,
    wait_open: Option<Vec<Uuid>>,
    last_code: Option<String>,
}

/// The place of a run with what it has used: attempts, tokens, time.
type PlaceAndUse = (RunPlace, i32, i64, i64);

impl Row {
    /// The run, and whether its place is known; if not it must be in the queue.
    fn into_run(self, store: &TenantStore) -> Result<(RunRow, bool), Error> {
        let place = match (self.ended()?, self.running()?, self.parked()?) {
            (Some(place), ..) | (None, Some(place), _) | (None, None, Some(place)) => Some(place),
            (None, None, None) => None,
        };
        let known = place.is_some();
        let (place, attempts, spent_tokens, spent_ms) = place.unwrap_or((
            RunPlace::Queued(Queued {
                queued_at: self.created_at,
                rank: 1,
                urgency: 0,
                position: 0,
            }),
            0,
            0,
            0,
        ));
        let bucket: QuotaBucket = stored(&self.quota_bucket, "agent_runs.quota_bucket")?;
        let row = RunRow {
            run_id: RunId::from_uuid(self.run_id),
            lane: LaneKey {
                bucket,
                tenant: store.tenant().clone(),
                class: self.class,
            },
            scope: self.scope,
            kind: stored(&self.kind, "agent_runs.kind")?,
            capability: stored(&self.capability, "agent_runs.capability")?,
            service_class: stored(&self.service_class, "agent_runs.service_class")?,
            priority: self.priority,
            priority_source: stored(&self.priority_source, "agent_runs.priority_source")?,
            user: self.user_name,
            conversation_id: self.conversation_id.map(ConversationId::from_uuid),
            parent_run_id: self.parent_run_id.map(RunId::from_uuid),
            root_run_id: RunId::from_uuid(self.root_run_id),
            schedule: due_time(self.schedule.as_deref(), self.due_at)?,
            max_attempts: self.max_attempts,
            budget_tokens: self.budget_tokens,
            budget_ms: self.budget_ms,
            run_at: self.run_at,
            deadline: self.deadline,
            created_at: self.created_at,
            read_at: self.read_at,
            attempts,
            spent_tokens,
            spent_ms,
            place,
        };
        Ok((row, known))
    }

    fn ended(&self) -> Result<Option<PlaceAndUse>, Error> {
        let (Some(state), Some(ended_at)) = (&self.end_state, self.ended_at) else {
            return Ok(None);
        };
        let ended = Ended {
            state: stored(state, "run_ends.state")?,
            code: code(self.end_code.as_deref(), "run_ends.code")?,
            detail: self.end_detail.clone(),
            result: self.end_result.clone(),
            ended_at,
        };
        Ok(Some((
            RunPlace::Ended(ended),
            self.end_attempts.unwrap_or(0),
            self.end_tokens.unwrap_or(0),
            self.end_ms.unwrap_or(0),
        )))
    }

    fn running(&self) -> Result<Option<PlaceAndUse>, Error> {
        let (Some(attempt), Some(generation), Some(number), Some(holder), Some(pool)) = (
            self.attempt,
            self.fence_generation,
            self.fence_number,
            &self.holder,
            &self.pool,
        ) else {
            return Ok(None);
        };
        let running = Running {
            attempt,
            fence: Fence { generation, number },
            holder: holder.clone(),
            incarnation: self.incarnation.unwrap_or(0),
            pool: stored(pool, "run_leases.pool")?,
            queued_at: self.lease_queued_at.unwrap_or(self.created_at),
            started_at: self.started_at.unwrap_or(self.created_at),
            lease_until: self.lease_until.unwrap_or(self.created_at),
            cancel_requested: self.cancel_requested.unwrap_or(false),
            used_tokens: self.used_tokens.unwrap_or(0),
        };
        Ok(Some((
            RunPlace::Running(running),
            attempt,
            self.lease_tokens.unwrap_or(0) + self.used_tokens.unwrap_or(0),
            self.lease_ms.unwrap_or(0),
        )))
    }

    fn parked(&self) -> Result<Option<PlaceAndUse>, Error> {
        let (Some(why), Some(parked_at)) = (&self.why, self.parked_at) else {
            return Ok(None);
        };
        let parked = Parked {
            why: stored(why, "run_parked.why")?,
            due: self.due,
            parked_at,
            active_run: self.active_run.map(RunId::from_uuid),
            active_parked: self
                .active_why
                .as_deref()
                .map(|why| stored(why, "run_parked.why"))
                .transpose()?,
            wait: self.waiting()?,
            last_code: code(self.last_code.as_deref(), "run_attempts.code")?,
        };
        Ok(Some((
            RunPlace::Parked(parked),
            self.park_attempts.unwrap_or(0),
            self.park_tokens.unwrap_or(0),
            self.park_ms.unwrap_or(0),
        )))
    }
}

impl Row {
    fn waiting(&self) -> Result<Option<Waiting>, Error> {
        let Some(on) = &self.waits_on else {
            return Ok(None);
        };
        let ask = self.wait_ask.clone().map(strict::from_value);
        Ok(Some(Waiting {
            on: stored(on, "run_parked.waits_on")?,
            mode: self
                .wait_mode
                .as_deref()
                .map(|mode| stored(mode, "run_parked.wait_mode"))
                .transpose()?,
            open: self
                .wait_open
                .iter()
                .flatten()
                .map(|run| RunId::from_uuid(*run))
                .collect(),
            ask: ask.transpose().map_err(|_| Error::Corrupt {
                what: "run_parked.wait_ask",
            })?,
            ask_no: self.ask_no.unwrap_or(0),
        }))
    }
}

pub(super) fn code(text: Option<&str>, what: &'static str) -> Result<Option<Code>, Error> {
    text.map(|text| stored(text, what)).transpose()
}
