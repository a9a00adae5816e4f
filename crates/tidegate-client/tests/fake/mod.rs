//! A server's side of the worker protocol in memory, on tokio's clock: leases, fences, numbered events, ends. Also used
//! by the tests of the built-in executor.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use chrono::DateTime;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_client::{Error, Result, WorkerApi};
use tidegate_model::{
    Capability, Code, Fence, RunId,
    api::*,
    effect::{CallId, EffectSource},
    event::EventKind,
    run::{QuotaBucket, RunKind, RunState},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

/// What a fault does to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails before it does anything.
    Refuse,
    /// The call never answers and does nothing.
    Hang,
    /// The call works and its answer is lost.
    LoseAnswer,
}

/// How a run ended, or was given back.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Completed(CompleteRun),
    Failed(FailRun),
    Released(ReleaseRun),
    Waiting(WaitRun),
}

#[derive(Debug)]
pub struct Run {
    pub leased: LeasedRun,
    pub lease: Option<(Fence, Instant)>,
    pub attempts: i32,
    pub events: Vec<NewEvent>,
    pub ends: Vec<End>,
    pub cancel: bool,
    pub messages: Vec<MessageView>,
    /// Tokens that renewals named.
    pub used: i64,
    /// The journal, with the results that were kept.
    pub effects: Vec<(EffectView, Value)>,
    pub inputs: Vec<InputView>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<RunId>,
    runs: HashMap<RunId, Run>,
    faults: BTreeMap<&'static str, VecDeque<Fault>>,
    always: BTreeMap<&'static str, Fault>,
    renewals: Vec<(Instant, usize)>,
    claims: Vec<ClaimRequest>,
    stale: u64,
}

#[derive(Debug)]
pub struct FakeServer {
    pub lease: Duration,
    /// How long an answer to a claim takes on its way.
    pub claim_delay: Mutex<Duration>,
    state: Mutex<State>,
    queued: Notify,
    changed: Notify,
    fences: AtomicU64,
}

impl FakeServer {
    pub fn new(lease: Duration) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            lease,
            claim_delay: Mutex::default(),
            state: Mutex::default(),
            queued: Notify::new(),
            changed: Notify::new(),
            fences: AtomicU64::new(1),
        })
    }

    pub fn submit(&self, edit: impl FnOnce(&mut LeasedRun)) -> RunId {
        let run_id = RunId::new();
        let mut leased = LeasedRun {
            run_id,
            tenant: "acme".parse().unwrap(),
            kind: RunKind::ConversationTurn,
            quota_bucket: QuotaBucket::Foreground,
            capability: Capability::chat(),
            service_class: RunKind::ConversationTurn.default_service_class(),
            conversation_id: None,
            input: json!("hello"),
            created_at: DateTime::UNIX_EPOCH,
            deadline: None,
            deadline_in_ms: None,
            budget_left: RunBudget::default(),
            parent_run_id: None,
            schedule: None,
            of_background: false,
        };
        edit(&mut leased);
        let run = Run {
            leased,
            lease: None,
            attempts: 0,
            events: Vec::new(),
            ends: Vec::new(),
            cancel: false,
            messages: Vec::new(),
            used: 0,
            effects: Vec::new(),
            inputs: Vec::new(),
        };
        let mut state = self.state.lock();
        state.runs.insert(run_id, run);
        state.queue.push_back(run_id);
        drop(state);
        self.queued.notify_waiters();
        run_id
    }

    pub fn set_messages(&self, run_id: RunId, messages: Vec<MessageView>) {
        self.with(run_id, |run| run.messages = messages);
    }

    pub fn set_inputs(&self, run_id: RunId, inputs: Vec<InputView>) {
        self.with(run_id, |run| run.inputs = inputs);
    }

    pub fn with<T>(&self, run_id: RunId, read: impl FnOnce(&mut Run) -> T) -> T {
        read(self.state.lock().runs.get_mut(&run_id).unwrap())
    }

    /// The next calls of this kind meet these faults.
    pub fn fault(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.state
            .lock()
            .faults
            .entry(call)
            .or_default()
            .extend(faults);
    }

    /// All calls of this kind meet the fault, until it is lifted.
    pub fn always(&self, call: &'static str, fault: Option<Fault>) {
        let mut state = self.state.lock();
        match fault {
            Some(fault) => state.always.insert(call, fault),
            None => state.always.remove(call),
        };
    }

    pub fn cancel(&self, run_id: RunId) {
        self.with(run_id, |run| run.cancel = true);
    }

    /// Takes the lease away and puts the run back, as a takeover does.
    pub fn take_over(&self, run_id: RunId) {
        let mut state = self.state.lock();
        state.runs.get_mut(&run_id).unwrap().lease = None;
        state.queue.push_back(run_id);
        drop(state);
        self.queued.notify_waiters();
    }

    pub fn renewals(&self) -> Vec<(Instant, usize)> {
        self.state.lock().renewals.clone()
    }

    pub fn claims(&self) -> Vec<ClaimRequest> {
        self.state.lock().claims.clone()
    }

    /// Writes with a stale fence so far.
    pub fn stale_writes(&self) -> u64 {
        self.state.lock().stale
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if holds(self) {
                    return;
                }
                tokio::select! { () = changed => {}, () = sleep(Duration::from_millis(20)) => {} }
            }
        };
        timeout(Duration::from_mins(10), wait)
            .await
            .unwrap_or_else(|_| panic!("never: {what}"));
    }

    pub async fn ended(&self, run_id: RunId) -> End {
        self.until("the run ends", |server| {
            server.with(run_id, |run| !run.ends.is_empty())
        })
        .await;
        self.with(run_id, |run| run.ends[0].clone())
    }

    pub fn kinds(&self, run_id: RunId) -> Vec<EventKind> {
        self.with(run_id, |run| {
            run.events.iter().map(|event| event.kind).collect()
        })
    }

    async fn meet(&self, call: &'static str) -> Result<bool> {
        let fault = {
            let mut state = self.state.lock();
            let queued = state.faults.get_mut(call).and_then(VecDeque::pop_front);
            queued.or_else(|| state.always.get(call).copied())
        };
        match fault {
            None => Ok(false),
            Some(Fault::LoseAnswer) => Ok(true),
            Some(Fault::Refuse) => Err(Problem::new(Code::DatabaseUnavailable, "scripted").into()),
            Some(Fault::Hang) => std::future::pending().await,
        }
    }

    fn try_claim(&self, max: u32, max_background: u32) -> Vec<Lease> {
        let mut state = self.state.lock();
        let mut leases = Vec::new();
        let mut background = 0;
        let mut kept = VecDeque::new();
        while let Some(run_id) = state.queue.pop_front() {
            let is_background = state.runs[&run_id].leased.is_background_work();
            if leases.len() == max as usize || (is_background && background == max_background) {
                kept.push_back(run_id);
                continue;
            }
            background += u32::from(is_background);
            let number = self.fences.fetch_add(1, Ordering::Relaxed);
            let fence = Fence {
                generation: 1,
                number: i64::try_from(number).unwrap(),
            };
            let until = Instant::now() + self.lease;
            let run = state.runs.get_mut(&run_id).unwrap();
            run.attempts += 1;
            run.lease = Some((fence, until));
            leases.push(Lease {
                run: run.leased.clone(),
                attempt: run.attempts,
                fence,
                expires_at: DateTime::UNIX_EPOCH,
                lease_ms: i64::try_from(self.lease.as_millis()).unwrap(),
                next_seq: i64::try_from(run.events.len()).unwrap() + 1,
            });
        }
        state.queue = kept;
        leases
    }

    fn fenced<T>(
        &self,
        run_id: RunId,
        fence: Fence,
        write: impl FnOnce(&mut Run) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.state.lock();
        let run = state.runs.get_mut(&run_id).unwrap();
        match run.lease {
            Some((held, until)) if held == fence && Instant::now() < until => {
                let result = write(run);
                drop(state);
                self.changed.notify_waiters();
                result
            }
            _ => {
                state.stale += 1;
                Err(Problem::new(Code::LeaseLost, "stale fence").into())
            }
        }
    }

    async fn end(
        &self,
        call: &'static str,
        run_id: RunId,
        fence: Fence,
        end: End,
    ) -> Result<AttemptAnswer> {
        let lost = self.meet(call).await?;
        let state = match end {
            End::Completed(_) => RunState::Succeeded,
            End::Failed(_) => RunState::Failed,
            End::Released(_) => RunState::Queued,
            End::Waiting(_) => RunState::Waiting,
        };
        self.fenced(run_id, fence, |run| {
            run.lease = None;
            run.ends.push(end);
            Ok(())
        })?;
        if lost {
            return Err(lost_answer());
        }
        Ok(AttemptAnswer {
            state,
            retry_in_ms: None,
        })
    }
}

fn lost_answer() -> Error {
    Error::Transport {
        base_url: "fake".to_owned(),
        reason: "answer lost".to_owned(),
    }
}

#[async_trait]
impl WorkerApi for FakeServer {
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer> {
        self.state.lock().claims.push(request.clone());
        self.meet("claim").await?;
        let until = Instant::now() + Duration::from_millis(request.wait_ms);
        let max_background = request.max_background.unwrap_or(request.max);
        loop {
            let queued = self.queued.notified();
            let leases = self.try_claim(request.max, max_background);
            if !leases.is_empty() || Instant::now() >= until {
                let delay = *self.claim_delay.lock();
                sleep(delay).await;
                return Ok(ClaimAnswer { leases });
            }
            tokio::select! { () = queued => {}, () = sleep_until(until) => {} }
        }
    }

    async fn renew(&self, request: RenewRequest) -> Result<RenewAnswer> {
        let lost_answer_fault = self.meet("renew").await?;
        let mut state = self.state.lock();
        state.renewals.push((Instant::now(), request.leases.len()));
        let mut answer = RenewAnswer {
            lease_ms: i64::try_from(self.lease.as_millis()).unwrap(),
            ..RenewAnswer::default()
        };
        for lease in request.leases {
            let run = state.runs.get_mut(&lease.run_id).unwrap();
            match &mut run.lease {
                Some((fence, until)) if *fence == lease.fence && Instant::now() < *until => {
                    *until = Instant::now() + self.lease;
                    run.used = lease.usage.map_or(run.used, |usage| usage.tokens);
                    let lease = lease.lease();
                    answer.renewed.push(lease);
                    if run.cancel {
                        answer.cancel.push(lease);
                    }
                }
                _ => answer.lost.push(lease.lease()),
            }
        }
        if lost_answer_fault {
            Err(lost_answer())
        } else {
            Ok(answer)
        }
    }

    async fn append_events(&self, run_id: RunId, request: AppendEvents) -> Result<()> {
        let lost = self.meet("events").await?;
        self.fenced(run_id, request.fence, |run| {
            for event in request.events {
                let known = i64::try_from(run.events.len()).unwrap();
                assert!(event.seq <= known + 1, "a gap before event {}", event.seq);
                assert!(event.kind.may_worker_append(), "{}", event.kind);
                if event.seq == known + 1 {
                    run.events.push(event);
                } else {
                    assert_eq!(
                        run.events[usize::try_from(event.seq - 1).unwrap()],
                        event,
                        "repeated as it was"
                    );
                }
            }
            Ok(())
        })?;
        if lost { Err(lost_answer()) } else { Ok(()) }
    }

    async fn context(&self, run_id: RunId, request: ContextRequest) -> Result<ContextAnswer> {
        self.meet("context").await?;
        self.fenced(run_id, request.fence, |run| {
            Ok(ContextAnswer {
                messages: run.messages.clone(),
                effects: run
                    .effects
                    .iter()
                    .map(|(effect, _)| effect.clone())
                    .collect(),
                earlier: if run.effects.is_empty() {
                    Vec::new()
                } else {
                    earlier(&run.events)
                },
                inputs: run.inputs.clone(),
                children: Vec::new(),
            })
        })
    }

    async fn record_intent(&self, run_id: RunId, request: RecordIntent) -> Result<IntentAnswer> {
        let lost = self.meet("intent").await?;
        let answer = self.fenced(run_id, request.fence, |run| {
            let same = |(effect, _): &&(EffectView, Value)| effect.call_id == request.call_id;
            let known = run.effects.iter().find(same);
            if let Some((effect, result)) = known {
                let recorded = effect.outcome.map(|outcome| RecordedOutcome {
                    outcome,
                    source: effect.source.unwrap(),
                    result: result.clone(),
                    note: effect.note.clone(),
                    recorded_at: DateTime::UNIX_EPOCH,
                });
                if recorded.is_none() && effect.attempt != run.attempts && !effect.idempotent {
                    return Err(Problem::new(Code::EffectUnknown, "scripted").into());
                }
                return Ok(IntentAnswer { recorded });
            }
            let effect = EffectView {
                call_id: request.call_id,
                tool: request.tool,
                idempotent: request.idempotent,
                attempt: run.attempts,
                intended_at: DateTime::UNIX_EPOCH,
                outcome: None,
                source: None,
                note: None,
                recorded_at: None,
            };
            run.effects.push((effect, Value::Null));
            Ok(IntentAnswer::default())
        })?;
        if lost { Err(lost_answer()) } else { Ok(answer) }
    }

    async fn record_outcome(
        &self,
        run_id: RunId,
        call_id: CallId,
        request: RecordOutcome,
    ) -> Result<()> {
        let lost = self.meet("outcome").await?;
        self.fenced(run_id, request.fence, |run| {
            let same = |(effect, _): &&mut (EffectView, Value)| effect.call_id == call_id;
            let (effect, result) = run.effects.iter_mut().find(same).unwrap();
            effect.outcome = Some(request.outcome);
            effect.source = Some(EffectSource::Attempt);
            *result = request.result;
            Ok(())
        })?;
        if lost { Err(lost_answer()) } else { Ok(()) }
    }

    async fn complete(&self, run_id: RunId, request: CompleteRun) -> Result<AttemptAnswer> {
        if request.result == json!("refuse me") {
            return Err(Problem::new(Code::PayloadTooLarge, "scripted").into());
        }
        self.end("complete", run_id, request.fence, End::Completed(request))
            .await
    }

    async fn fail(&self, run_id: RunId, request: FailRun) -> Result<AttemptAnswer> {
        self.end("fail", run_id, request.fence, End::Failed(request))
            .await
    }

    async fn release(&self, run_id: RunId, request: ReleaseRun) -> Result<AttemptAnswer> {
        self.end("release", run_id, request.fence, End::Released(request))
            .await
    }

    async fn submit_child(&self, run_id: RunId, request: SubmitChild) -> Result<ChildAccepted> {
        self.meet("submit_child").await?;
        self.fenced(run_id, request.fence, |_| {
            Ok(ChildAccepted {
                run_id: RunId::new(),
                repeated: false,
            })
        })
    }

    async fn wait(&self, run_id: RunId, request: WaitRun) -> Result<AttemptAnswer> {
        self.end("wait", run_id, request.fence, End::Waiting(request))
            .await
    }
}

/// The messages among events, as a later attempt is told them.
fn earlier(events: &[NewEvent]) -> Vec<NewMessage> {
    let messages = events.iter();
    let messages = messages.filter(|event| event.kind == EventKind::MessageCompleted);
    messages
        .map(|event| serde_json::from_value(event.body.clone()).unwrap())
        .collect()
}

/// A message as the server stores it.
pub fn message(seq: i64, role: MessageRole, content: Value) -> MessageView {
    MessageView {
        seq,
        role,
        content,
        run_id: None,
        created_at: DateTime::UNIX_EPOCH,
    }
}
