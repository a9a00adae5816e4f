//! `close_attempt`: from a lease to the run's end or its next place, by arrays.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    Capability, Fence, RunId,
    api::MessageRole,
    event::EventKind,
    run::{ParkReason, RunState},
};
use tidegate_policy::ledger::Book;
use tidegate_policy::retry::{AttemptFacts, Disposition, Report, Verdict};
use uuid::Uuid;

use super::{
    HeldLease, LeaseKey,
    effects::unknown_effects,
    locked::{Locked, lock_leases},
    trees::{Family, lock_trees_of_leases, settle},
    turns::{EndedTurn, QueuedTurn, append_messages, end_turns, lock_conversations},
    waits::Wait,
};
use crate::{
    Error, Fleet,
    lanes::LaneKey,
    ledger::{apply_changes, lock_book},
};

/// What is said about one attempt when it is closed.
#[derive(Debug, Clone, PartialEq)]
pub struct CloseReport {
    /// Whose lease.
    pub lease: HeldLease,
    /// How it came to its end.
    pub report: Report,
    /// For people; no secrets, no message contents.
    pub detail: Option<String>,
    /// Tokens that this attempt used.
    pub tokens: i64,
    /// What the run gives back, if it completed.
    pub result: Option<Value>,
    /// Messages for the conversation of a turn that completed, or that waits.
    pub messages: Vec<(MessageRole, Value)>,
    /// What the run waits for, if it is to wait.
    pub wait: Option<Wait>,
}

/// Who closes: decides which leases may be closed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closer {
    /// Its holder, whose lease must be open and not expired.
    Holder,
    /// A takeover: the lease must still be expired, or of a lost history (O-01).
    Takeover,
    /// The end of the grace after a stop.
    Grace {
        /// How long the grace is, in milliseconds.
        grace_ms: i64,
    },
}

/// What became of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Where the lease stood.
    pub key: LeaseKey,
    /// Under which fence it was held.
    pub fence: Fence,
    /// What was decided.
    pub verdict: Verdict,
    /// From the stop mark to this release, in milliseconds.
    pub stop_to_release_ms: Option<i64>,
    /// The lane that it stands in where it is queued again.
    pub lane: LaneKey,
    /// What it asks for.
    pub capability: Capability,
    /// What the tenant was charged by estimate (R3.12).
    pub charged: u64,
    /// Time under this lease, in milliseconds.
    pub attempt_ms: i64,
    /// Tokens that this attempt used.
    pub tokens: i64,
    /// The next turn of its conversation, where its end let one into the queue.
    pub next_turn: Option<QueuedTurn>,
    /// Whether a run that was to wait found what it waits for, and stands in the queue.
    pub woken: bool,
    /// Whether it has a parent or children: others of its tree may have been moved with it.
    pub in_tree: bool,
    /// Whether it held something of the ledger.
    pub gave_back: bool,
}

impl Closed {
    /// Where the run is now.
    pub const fn state(&self) -> RunState {
        match self.verdict.next {
            Disposition::End { state, .. } => state,
            Disposition::Wait if !self.woken => RunState::Waiting,
            Disposition::Wait | Disposition::QueueAtHead | Disposition::BackOff { .. } => {
                RunState::Queued
            }
            Disposition::Review => RunState::Review,
        }
    }
}

/// Decides what follows an attempt; the policy function with its jitter.
pub type Decide = Arc<dyn Fn(&AttemptFacts, Report) -> Verdict + Send + Sync>;

/// By what attempts are closed.
#[derive(Clone)]
pub struct Rules {
    /// The execution scope of their leases.
    pub scope: String,
    /// The policy.
    pub decide: Decide,
    /// How long a run that goes back may be queued, in milliseconds.
    pub queue_max_age_ms: i64,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("scope", &self.scope)
            .field("queue_max_age_ms", &self.queue_max_age_ms)
            .finish_non_exhaustive()
    }
}

/// The steps in which attempts are closed, each all or nothing; what one leaves is the next one's matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Attempts of which nothing has to be decided.
    Plain,
    /// Runs without a parent and without children, which pay nothing for the lock of a tree.
    Alone,
    /// All others, with the ends of their descendants and the wake-ups of their parents.
    InTrees,
}

impl Step {
    /// In their order.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Alone, Self::InTrees];
}

impl Fleet {
    /// Closes attempts: attempt row, end or next place, event, slot, messages, next turn; step by step, so that an error may
    /// come after some are closed.
    ///
    /// Reports whose lease is not held as `closer` demands are left out of the answer and change nothing (R4.2); so is the
    /// second of two about the same lease.
    pub async fn close_attempts(
        &self,
        reports: impl Into<Arc<[CloseReport]>>,
        closer: Closer,
        rules: &Rules,
    ) -> Result<Vec<Closed>, Error> {
        let reports = reports.into();
        let mut outcomes = Vec::new();
        for step in Step::ALL {
            let rest = left_open(&reports, &outcomes);
            if rest.is_empty() {
                break;
            }
            outcomes.extend(self.close_step(step, rest, closer, rules).await?);
        }
        Ok(outcomes)
    }

    /// One step of closing attempts, all of its own or none; the others are left out of the answer.
    pub async fn close_step(
        &self,
        step: Step,
        reports: Arc<[CloseReport]>,
        closer: Closer,
        rules: &Rules,
    ) -> Result<Vec<Closed>, Error> {
        let name = match (step, closer) {
            (Step::Plain, Closer::Holder) => return self.close_plain(reports, rules).await,
            (Step::Plain, _) => return Ok(Vec::new()),
            (Step::Alone, _) => "close_attempts",
            (Step::InTrees, _) => "close_attempts_in_trees",
        };
        let rules = rules.clone();
        self.store()
            .transaction(name, move |tx| {
                let reports = Arc::clone(&reports);
                let rules = rules.clone();
                Box::pin(async move { close(tx, &reports, step, closer, &rules).await })
            })
            .await
    }
}

/// The reports about attempts that are not closed yet.
fn left_open(reports: &Arc<[CloseReport]>, closed: &[Closed]) -> Arc<[CloseReport]> {
    if closed.is_empty() {
        return Arc::clone(reports);
    }
    if closed.len() == reports.len() {
        return Arc::default();
    }
    let done: HashSet<(RunId, Fence)> = closed
        .iter()
        .map(|one| (one.key.run_id, one.fence))
        .collect();
    let open =
        |report: &&CloseReport| !done.contains(&(report.lease.key.run_id, report.lease.fence));
    reports.iter().filter(open).cloned().collect()
}

async fn close(
    tx: &mut PgConnection,
    reports: &[CloseReport],
    step: Step,
    closer: Closer,
    rules: &Rules,
) -> Result<Vec<Closed>, Error> {
    let queue_max_age_ms = rules.queue_max_age_ms;
    lock_conversations(tx, &conversations_of(reports)).await?;
    if step == Step::InTrees && !lock_trees_of_leases(tx, reports).await? {
        return Ok(Vec::new());
    }
    let locked = lock_leases(tx, reports, step, closer).await?;
    let unknown = unknown_effects(tx, &locked).await?;
    let mut first: HashMap<(RunId, Fence), &CloseReport> = HashMap::new();
    for report in reports {
        first
            .entry((report.lease.key.run_id, report.lease.fence))
            .or_insert(report);
    }
    let mut outcomes = Vec::with_capacity(locked.len());
    let mut batch = Batch::default();
    let mut turns = Turns::default();
    let mut family = Family::default();
    let mut back = Book::default();
    for lease in locked {
        let Some(report) = first.remove(&(lease.lease.key.run_id, lease.lease.fence)) else {
            continue;
        };
        let mut facts = lease.facts;
        // A holder that is gone has said with its renewals what it used.
        let tokens = report.tokens.max(lease.used_tokens);
        facts.spent_tokens = facts.spent_tokens.saturating_add(tokens);
        let effects = unknown.get(&lease.lease.key.run_id.as_uuid());
        facts.unknown_effects = effects.is_some();
        let verdict = (rules.decide)(&facts, report.report);
        batch.push(&lease, report, tokens, &facts, &verdict);
        if let (Disposition::Review, Some(body), Some(effects)) =
            (verdict.next, batch.event_bodies.last_mut(), effects)
        {
            body["effects"] = json!(effects);
        }
        for (resource, held) in &lease.held {
            back.change(*resource, -held);
        }
        family.note(&lease.lease.key, verdict.next, report.wait.as_ref());
        turns.note(&lease, report, verdict.next);
        outcomes.push(Closed::of(lease, verdict, tokens, step));
    }
    fail::fail_point!("close_before_write", |_| Err(Error::injected()));
    batch.write(tx, queue_max_age_ms).await?;
    append_messages(tx, &turns.said).await?;
    let mut next_turns = end_turns(tx, &turns.ended, queue_max_age_ms).await?;
    let woken = settle(tx, family, step, queue_max_age_ms).await?;
    for outcome in &mut outcomes {
        outcome.next_turn = next_turns.remove(&outcome.key.run_id.as_uuid());
        outcome.woken = woken.contains(&outcome.key.run_id);
    }
    // The last of all locks, and held for the shortest time.
    if back.changes().next().is_some() {
        lock_book(tx, &rules.scope).await?;
        apply_changes(tx, &rules.scope, back.changes()).await?;
    }
    fail::fail_point!("close_before_commit", |_| Err(Error::injected()));
    Ok(outcomes)
}

fn conversations_of(reports: &[CloseReport]) -> Vec<(String, Uuid)> {
    let keys = reports.iter().map(|report| &report.lease.key);
    keys.filter_map(|key| {
        let conversation = key.conversation_id?.as_uuid();
        Some((key.tenant.as_str().to_owned(), conversation))
    })
    .collect()
}

impl Closed {
    fn of(lease: Locked, verdict: Verdict, tokens: i64, step: Step) -> Self {
        Self {
            lane: LaneKey {
                bucket: lease.lease.key.bucket,
                tenant: lease.lease.key.tenant.clone(),
                class: lease.class,
            },
            fence: lease.lease.fence,
            key: lease.lease.key,
            verdict,
            stop_to_release_ms: lease.stop_to_release_ms,
            capability: lease.capability,
            charged: u64::try_from(lease.charged).unwrap_or(0),
            attempt_ms: lease.attempt_ms,
            tokens,
            next_turn: None,
            woken: false,
            in_tree: step == Step::InTrees,
            gave_back: !lease.held.is_empty(),
        }
    }
}

/// Where a run goes, with the code of its end, the delay, and the event that says so.
fn following(
    lease: &Locked,
    report: &CloseReport,
    facts: &AttemptFacts,
    verdict: &Verdict,
) -> (&'static str, Option<String>, i64, EventKind, Value) {
    match verdict.next {
        Disposition::End { state, code } => (
            state.as_str(),
            code.map(|code| code.as_str().to_owned()),
            0,
            EventKind::RunEnded,
            json!({"state": state, "code": code}),
        ),
        Disposition::QueueAtHead => (
            "queue",
            None,
            0,
            EventKind::AttemptClosed,
            goes_on(facts, verdict, 0),
        ),
        Disposition::BackOff { delay_ms } => (
            ParkReason::RetryBackoff.as_str(),
            None,
            delay_ms,
            EventKind::AttemptClosed,
            goes_on(facts, verdict, delay_ms),
        ),
        Disposition::Wait => (
            ParkReason::Waiting.as_str(),
            None,
            0,
            EventKind::RunWaiting,
            report.wait.as_ref().map_or(Value::Null, |wait| {
                wait.event(facts.attempt, lease.lease.fence.number)
            }),
        ),
        Disposition::Review => (
            ParkReason::Review.as_str(),
            None,
            0,
            EventKind::RunReview,
            json!({"attempt": facts.attempt, "outcome": verdict.outcome, "code": verdict.code}),
        ),
    }
}

/// The event of an attempt that ended without its run.
fn goes_on(facts: &AttemptFacts, verdict: &Verdict, retry_in_ms: i64) -> Value {
    json!({
        "attempt": facts.attempt,
        "outcome": verdict.outcome,
        "code": verdict.code,
        "retryInMs": retry_in_ms,
    })
}

/// What the closed attempts of turns mean for their conversations.
#[derive(Default)]
struct Turns {
    ended: Vec<EndedTurn>,
    /// Turns that wait, with what they have said so far.
    said: Vec<EndedTurn>,
}

impl Turns {
    fn note(&mut self, lease: &Locked, report: &CloseReport, next: Disposition) {
        let Some(conversation) = lease.conversation else {
            return;
        };
        let speaks = match next {
            Disposition::End { state, .. } => state == RunState::Succeeded,
            Disposition::Wait => true,
            Disposition::QueueAtHead | Disposition::BackOff { .. } | Disposition::Review => return,
        };
        let messages = report.messages.iter().filter(|_| speaks);
        let turn = EndedTurn {
            tenant: lease.lease.key.tenant.as_str().to_owned(),
            conversation,
            run_id: lease.lease.key.run_id.as_uuid(),
            messages: messages
                .map(|(role, content)| (role.as_str(), content.clone()))
                .collect(),
        };
        if next == Disposition::Wait {
            self.said.push(turn);
        } else {
            self.ended.push(turn);
        }
    }
}

/// What one closing statement writes, as arrays.
#[derive(Default)]
struct Batch {
    places: Vec<String>,
    deadlines: Vec<Option<DateTime<Utc>>>,
    tenants: Vec<String>,
    runs: Vec<Uuid>,
    outcomes: Vec<String>,
    codes: Vec<Option<String>>,
    details: Vec<Option<String>>,
    tokens: Vec<i64>,
    next: Vec<String>,
    end_codes: Vec<Option<String>>,
    delays: Vec<i64>,
    attempts: Vec<i32>,
    lost: Vec<i32>,
    spent_ms: Vec<i64>,
    results: Vec<Option<Value>>,
    event_kinds: Vec<String>,
    event_bodies: Vec<Value>,
    waits: Vec<Option<Value>>,
}

impl Batch {
    fn push(
        &mut self,
        lease: &Locked,
        report: &CloseReport,
        tokens: i64,
        facts: &AttemptFacts,
        verdict: &Verdict,
    ) {
        let key = &lease.lease.key;
        self.places.push(lease.at.clone());
        self.deadlines.push(lease.deadline);

        self.tenants.push(key.tenant.as_str().to_owned());
        self.runs.push(key.run_id.as_uuid());
        self.outcomes.push(verdict.outcome.as_str().to_owned());
        self.codes
            .push(verdict.code.map(|code| code.as_str().to_owned()));
        self.details.push(report.detail.clone());
        self.tokens.push(tokens);
        self.attempts
            .push(facts.attempt - i32::from(!verdict.counts));
        self.lost.push(facts.leases_lost + i32::from(verdict.lost));
        self.spent_ms.push(facts.spent_ms);
        let (next, end_code, delay, kind, body) = following(lease, report, facts, verdict);
        let waits = verdict.next == Disposition::Wait;
        self.waits
            .push(report.wait.as_ref().filter(|_| waits).map(Wait::columns));
        self.next.push(next.to_owned());
        self.end_codes.push(end_code);
        self.delays.push(delay);
        let succeeded = next == RunState::Succeeded.as_str();
        self.results
            .push(report.result.clone().filter(|_| succeeded));
        self.event_kinds.push(kind.as_str().to_owned());
        self.event_bodies.push(body);
    }

    async fn write(self, tx: &mut PgConnection, queue_max_age_ms: i64) -> Result<(), Error> {
        if self.runs.is_empty() {
            return Ok(());
        }
        let expected = self.runs.len() as u64;
        let changed = sqlx::query!(
            r#"/* attempt:close */
            WITH given AS (
                SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[],
                    $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::integer[], $12::integer[], $13::bigint[],
                    $14::jsonb[], $15::text[], $16::jsonb[], $18::timestamptz[], $19::jsonb[])
                AS g(at, tenant, run_id, outcome, code, detail, tokens, next, end_code, delay_ms, attempts_after,
                    lost_after, spent_after, result, event_kind, event_body, deadline, wait)
            ), gone AS (
                -- Locked in this transaction, so that each is where it was found.
                DELETE FROM run_leases WHERE ctid = ANY (ARRAY (SELECT at::tid FROM given)) RETURNING *
            ), slots AS (
                DELETE FROM background_slots s USING gone l
                WHERE l.bucket = 1 AND s.scope = l.scope AND s.tenant = l.tenant AND s.run_id = l.run_id
                RETURNING s.run_id, s.slot
            ), closed AS MATERIALIZED (
                SELECT l.*, g.outcome, g.code, g.detail, g.tokens, g.next, g.end_code, g.delay_ms, g.attempts_after,
                       g.lost_after, g.spent_after, g.result, g.event_kind, g.event_body, g.deadline, g.wait, s.slot, clock.now,
                       (SELECT coalesce(max(e.seq), 0) + 1 FROM run_events e
                        WHERE e.tenant = l.tenant AND e.run_id = l.run_id) AS seq
                FROM gone l JOIN given g ON g.tenant = l.tenant AND g.run_id = l.run_id
                LEFT JOIN slots s ON s.run_id = l.run_id
                CROSS JOIN (SELECT clock_timestamp() AS now) clock
            ), attempts AS (
                INSERT INTO run_attempts (tenant, run_id, fence_generation, fence_number, attempt, pool, holder,
                    incarnation, queued_at, started_at, ended_at, outcome, code, detail, tokens, background_slot)
                SELECT tenant, run_id, fence_generation, fence_number, attempt, pool, holder, incarnation, queued_at,
                    started_at, greatest(now, started_at), outcome, code, detail, tokens, slot FROM closed
            ), ends AS (
                INSERT INTO run_ends (tenant, run_id, state, code, detail, result, attempts, fence_number, spent_tokens,
                    spent_ms, next_seq, ended_at)
                SELECT tenant, run_id, next, end_code, detail, result, attempts_after, fence_number,
                    spent_tokens + tokens, spent_after, seq + 1, now
                FROM closed WHERE next IN ('succeeded', 'failed', 'cancelled', 'expired')
            ), queued AS (
                INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
                    leases_lost, spent_tokens, spent_ms, next_seq, queued_at, expires_at)
                SELECT scope, bucket, tenant, class, 0, urgency, run_id, attempts_after, fence_number, lost_after,
                    spent_tokens + tokens, spent_after, seq + 1, now,
                    least(deadline, now + $17::bigint * interval '1 millisecond')
                FROM closed WHERE next = 'queue'
            ), parked AS (
                INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, conversation_id, turn_no,
                    attempts, fence_number, leases_lost, spent_tokens, spent_ms, next_seq, parked_at, expires_at,
                    waits_on, wait_mode, wait_runs, wait_ask)
                SELECT c.tenant, c.run_id, c.next,
                    CASE c.next WHEN 'retry_backoff' THEN c.now + c.delay_ms * interval '1 millisecond'
                         WHEN 'waiting' THEN (c.wait ->> 'until')::timestamptz END,
                    c.scope, c.bucket, c.class, c.urgency, c.conversation_id, a.turn_no, c.attempts_after,
                    c.fence_number, c.lost_after, c.spent_tokens + c.tokens, c.spent_after, c.seq + 1, c.now,
                    -- R3.1: a review ends by a person's word only. Who waits is not queued: only its deadline ends it.
                    CASE c.next WHEN 'review' THEN 'infinity' WHEN 'waiting' THEN coalesce(c.deadline, 'infinity')
                         ELSE least(c.deadline, c.now + (c.delay_ms + $17::bigint) * interval '1 millisecond') END,
                    c.wait ->> 'on', c.wait ->> 'mode',
                    CASE WHEN c.wait ? 'runs' THEN ARRAY (
                        SELECT r::uuid FROM jsonb_array_elements_text(c.wait -> 'runs') AS r) END,
                    c.wait -> 'ask'
                FROM closed c JOIN agent_runs a ON a.tenant = c.tenant AND a.run_id = c.run_id
                WHERE c.next IN ('retry_backoff', 'waiting', 'review')
            ), told AS (
                INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
                SELECT tenant, run_id, seq, now, event_kind, event_body FROM closed
            )
            SELECT count(*) AS "count!" FROM closed"#,
            &self.places,
            &self.tenants,
            &self.runs,
            &self.outcomes,
            &self.codes as &[Option<String>],
            &self.details as &[Option<String>],
            &self.tokens,
            &self.next,
            &self.end_codes as &[Option<String>],
            &self.delays,
            &self.attempts,
            &self.lost,
            &self.spent_ms,
            &self.results as &[Option<Value>],
            &self.event_kinds,
            &self.event_bodies,
            queue_max_age_ms,
            &self.deadlines as &[Option<DateTime<Utc>>],
            &self.waits as &[Option<Value>],
        )
        .fetch_one(tx)
        .await?
        .count;
        if u64::try_from(changed).ok() == Some(expected) {
            Ok(())
        } else {
            Err(Error::RowCount {
                statement: "close attempts",
                expected,
                changed: u64::try_from(changed).unwrap_or(0),
            })
        }
    }
}
