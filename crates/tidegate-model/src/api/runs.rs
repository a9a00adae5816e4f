//! Runs as their tenant sees them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Capability, Code, ConversationId, Fence, PoolId, RunId, TenantId,
    api::{DueTime, EffectView, ReviewView, WaitView},
    contracts::Needs,
    event::EventKind,
    ids::ScheduleName,
    queue_reason::QueueReason,
    run::{AttemptOutcome, PrioritySource, QuotaBucket, RunKind, RunState, ServiceClass},
};

/// Bounds of a run over all its attempts (R3.11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunBudget {
    /// Tokens of all model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<i64>,
    /// Time under a lease, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_ms: Option<i64>,
}

/// `POST /v1/runs`: a business task. The kind is never in a body (R3.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitRun {
    /// What the pool must offer.
    pub capability: Capability,
    /// What else the pool must have (R6.1); nothing unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Needs>,
    /// Passed to the worker as it is. Numbers are 64-bit integers or doubles (RFC 7493); send others as texts.
    /// What only the built-in executor serves (`chat` unless configured) needs something to ask a model: a text,
    /// `{"text": "…"}`, or another object or array that is not empty.
    #[serde(default)]
    pub input: Value,
    /// Only lower protection than the kind's default can be asked for (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_class: Option<ServiceClass>,
    /// Lower starts later within the tenant; 0 unless given, and never above what policy grants (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// The run ends as expired when this passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<DateTime<Utc>>,
    /// 5 unless given (R3.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// Unbounded unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<RunBudget>,
    /// The user it is for, at most 200 characters: the key's own unless given; another one needs a key with the scope
    /// `act_for_users` (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant: TenantId,
    /// How it came to be.
    pub kind: RunKind,
    /// Which account of claims it counts in.
    pub quota_bucket: QuotaBucket,
    /// What it asks for.
    pub capability: Capability,
    /// What else its pool must have; absent where nothing is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Needs>,
    /// What gives way first.
    pub service_class: ServiceClass,
    /// Order within the tenant.
    pub priority: i16,
    /// Who gave it that.
    #[serde(default)]
    pub priority_source: PrioritySource,
    /// The user it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its conversation, if it is a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Where it is in its life.
    pub state: RunState,
    /// Why it ended, where it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// What was said about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What the worker gave back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Attempts that count, the running one included.
    pub attempts: i32,
    /// The most attempts.
    pub max_attempts: i32,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Bounds over all attempts.
    pub budget: RunBudget,
    /// Tokens used so far: by ended attempts, and by the running one as far as it has said.
    pub spent_tokens: i64,
    /// Time under a lease so far by ended attempts.
    pub spent_ms: i64,
    /// Why it waits; present while queued, save in the answer that accepts the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_reason: Option<QueueReasonView>,
    /// What a person has to decide; present while in review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewView>,
    /// What it waits for; present while waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitView>,
    /// Its parent, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The root of its tree, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_run_id: Option<RunId>,
    /// The due time that it was fired for, if a schedule did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<DueTime>,
    /// Whether a cancel has been asked for and the attempt has not ended yet.
    #[serde(default)]
    pub cancel_requested: bool,
    /// Whether this answer repeats an earlier submission (same key, same body).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Why a run waits and what would unblock it (R3.9).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueReasonView {
    /// The cause.
    pub code: QueueReason,
    /// Numbers and ids that the deciding statement returned.
    pub facts: Value,
    /// Since when this cause has held.
    pub since: DateTime<Utc>,
    /// What would unblock it, as an instruction.
    pub remedy: String,
}

/// Time spent in the queue by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WaitByCause {
    /// The cause.
    pub code: QueueReason,
    /// How long, in milliseconds.
    pub waited_ms: i64,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// Its number, from 1.
    pub attempt: i32,
    /// The fence of its lease.
    pub fence: Fence,
    /// Who held it: worker id and incarnation.
    pub holder: String,
    /// The pool it ran in.
    pub pool: PoolId,
    /// When the lease was granted.
    pub started_at: DateTime<Utc>,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    /// The code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The lease runs out at this time unless renewed; absent once ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<DateTime<Utc>>,
    /// Tokens it used; of a running one, as far as its worker has said.
    pub tokens: i64,
}

/// `GET /v1/runs/{id}/explain`: why a run is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunExplain {
    /// The run.
    pub run: RunView,
    /// Every cause that holds now, the shown one first.
    pub reasons: Vec<QueueReasonView>,
    /// Queueing time by cause.
    pub waits: Vec<WaitByCause>,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptView>,
    /// Its effects as the journal has them, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectView>,
    /// How many runs stand before it in its tenant's lane, at most 1,000 counted; absent unless queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_in_lane: Option<i64>,
}

/// An event of a run's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Its number, from 1, without gaps.
    pub seq: i64,
    /// When it was written.
    pub at: DateTime<Utc>,
    /// What it says.
    pub kind: EventKind,
    /// Depends on the kind.
    pub body: Value,
}

/// Filters of `GET /v1/runs` and of the bulk calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams, utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunFilter {
    /// Only runs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// Only runs that ask for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// Only turns of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Only runs of this schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    /// Only failed runs whose attempts were exhausted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<bool>,
    /// At most this many items (1 to 200; 50 unless given). A bulk call acts on the runs that the list would show for the
    /// same filter and limit; on all that the filter selects where it has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The answer to a bulk cancel or requeue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BulkOutcome {
    /// Runs that were changed.
    pub changed: u64,
    /// Running ones that will obey within the grace.
    pub requested: u64,
}
