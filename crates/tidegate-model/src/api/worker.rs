//! The worker protocol (R4). Every write of an attempt carries its fence.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Capability, Code, ConversationId, Fence, RunId, TenantId, WorkerId,
    api::{ChildView, DueTime, EffectView, InputView, MessageView, RunBudget},
    event::EventKind,
    run::{QuotaBucket, RunKind, ServiceClass},
};

/// The protocol version that this release speaks (R18.6).
pub const PROTOCOL_VERSION: i32 = 1;

/// `POST /v1/worker/claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRequest {
    /// The worker's name.
    pub worker_id: WorkerId,
    /// Rises with each start of a worker of this name.
    pub incarnation: i64,
    /// What the worker speaks; 1.
    pub protocol_version: i32,
    /// At most this many leases, 1 to 100.
    pub max: u32,
    /// Of them at most this many of bucket `background` and descendants of such runs (0 = none; all unless given).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_background: Option<u32>,
    /// Wait this long for work, at most 30,000 ms.
    #[serde(default)]
    pub wait_ms: u64,
}

/// The answer to a claim; empty when the wait was over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimAnswer {
    /// What the worker now holds.
    pub leases: Vec<Lease>,
}

/// A run that its holder may work on until the lease ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The run and all that its executor needs.
    pub run: LeasedRun,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// Goes with every write.
    pub fence: Fence,
    /// When the lease ends by the database's clock; for people. A holder counts `leaseMs` from when it sent the claim.
    pub expires_at: DateTime<Utc>,
    /// How long the lease was when it was given.
    pub lease_ms: i64,
    /// The number of the first event that the holder writes.
    pub next_seq: i64,
}

/// What an executor is told about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedRun {
    /// The run.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant: TenantId,
    /// How it came to be.
    pub kind: RunKind,
    /// Its account of claims.
    pub quota_bucket: QuotaBucket,
    /// What it asks for.
    pub capability: Capability,
    /// Its service class.
    pub service_class: ServiceClass,
    /// Its conversation, if it is a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// What was submitted.
    pub input: Value,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// How long until the deadline, by the database's clock, when the lease was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_in_ms: Option<i64>,
    /// What is left of the budget; absent where unbounded.
    pub budget_left: RunBudget,
    /// Its parent, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    /// The due time that it was fired for, if a schedule did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<DueTime>,
    /// Whether a background run is the root of its tree: it then counts against what a worker takes of background
    /// (`maxBackground`), but not against its tenant's cap (R3.6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_background: bool,
}

impl LeasedRun {
    /// Whether it counts against what a worker takes of background (R3.6).
    pub fn is_background_work(&self) -> bool {
        self.of_background || self.quota_bucket == QuotaBucket::Background
    }
}

/// A lease as its holder names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaseRef {
    /// The run.
    pub run_id: RunId,
    /// The fence of the holder's lease.
    pub fence: Fence,
}

/// A lease to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewLease {
    /// The run.
    pub run_id: RunId,
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// What the attempt has used so far; it counts even if the worker is never heard of again (R3.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<AttemptUsage>,
}

impl RenewLease {
    /// The lease alone.
    pub const fn lease(&self) -> LeaseRef {
        LeaseRef {
            run_id: self.run_id,
            fence: self.fence,
        }
    }
}

impl From<LeaseRef> for RenewLease {
    fn from(lease: LeaseRef) -> Self {
        Self {
            run_id: lease.run_id,
            fence: lease.fence,
            usage: None,
        }
    }
}

/// `POST /v1/worker/renew`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewRequest {
    /// All that the worker holds, at most 1,000.
    pub leases: Vec<RenewLease>,
}

/// The answer to a renewal; each lease asked for is in `renewed` or in `lost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewAnswer {
    /// Still held, for another `leaseMs` from when the renewal was sent.
    pub renewed: Vec<LeaseRef>,
    /// No longer held: stop at once and write nothing.
    pub lost: Vec<LeaseRef>,
    /// Held, but to be stopped: make no new model or tool call, then report `fail` with code `CANCELLED`.
    pub cancel: Vec<LeaseRef>,
    /// How long a renewed lease lasts.
    pub lease_ms: i64,
}

/// An event as its writer numbers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEvent {
    /// The holder's own number: `nextSeq` of the lease, then without gaps. The same event sent twice is written once.
    pub seq: i64,
    /// What it says; only kinds that a worker may write.
    pub kind: EventKind,
    /// Depends on the kind, and may say more than its kind asks for. `message.delta`: `text`, a string.
    /// `message.completed`: `role`, and `content`, a string or an object. `model.called`: `model`, a string, and `usage`, an
    /// object whose `inputTokens` and `outputTokens` are whole numbers or null. `tool.called`: `callId` and `tool`,
    /// strings. `tool.finished`: these and `isError`, true or false. `worker.note`: any JSON.
    #[serde(default)]
    pub body: Value,
}

/// `POST /v1/worker/runs/{id}/events`.
///
/// Taken until the lease ends, also of an attempt that was told to stop: events say what happened, and the end of an
/// answer that was under way, its use and the outcomes of its calls happened. What a stopped attempt may not do is begin
/// something new (`…/effects`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppendEvents {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// At most 500, numbered without gaps.
    pub events: Vec<NewEvent>,
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttemptUsage {
    /// Tokens of all model calls of this attempt.
    #[serde(default)]
    pub tokens: i64,
}

/// A message that a turn adds to its conversation when it completes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewMessage {
    /// Who speaks: `assistant` or `tool`.
    pub role: crate::api::MessageRole,
    /// What is said.
    pub content: Value,
}

/// `POST /v1/worker/runs/{id}/complete`.
///
/// Who completes knows what was done: an effect that was intended and never recorded does not send the run to review, but
/// stays unknown in the run's journal. Record outcomes before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteRun {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// What the run gives back, at most 4 MiB.
    #[serde(default)]
    pub result: Value,
    /// Messages for the conversation of a turn, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<NewMessage>,
    /// What the attempt used.
    #[serde(default)]
    pub usage: AttemptUsage,
}

/// `POST /v1/worker/runs/{id}/fail`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailRun {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// Why: `WORKER_FAILED` where nothing says more, `CANCELLED` where the worker obeyed a cancel, `BUDGET_EXHAUSTED` and
    /// `DEADLINE_EXCEEDED` where it met one, `INVALID_ARGUMENT` and `PAYLOAD_TOO_LARGE` of the run's input,
    /// `EFFECT_UNKNOWN`, `TOOL_UNAVAILABLE`, `TOOL_TIMEOUT`, `TOOL_NOT_READ_ONLY`, `PROVIDER_FAILED`, `LLM_BUSY`,
    /// `MODEL_NOT_CONFIGURED`, `AGENT_STEPS_EXHAUSTED` or `SECRET_UNREADABLE`. The other codes are the platform's own and
    /// are refused.
    pub code: Code,
    /// What to tell the run's owner, at most 2,000 characters; no secrets, no message contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether another attempt may help.
    pub retryable: bool,
    /// Not before this, in milliseconds, where the cause said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What the attempt used.
    #[serde(default)]
    pub usage: AttemptUsage,
}

/// `POST /v1/worker/runs/{id}/release`: hands the run back before its first effect; costs no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRun {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// What the attempt used.
    #[serde(default)]
    pub usage: AttemptUsage,
}

/// `POST /v1/worker/runs/{id}/context`: the conversation of a turn, up to and including its own input; the run's children;
/// what people have answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRequest {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// At most this many of the latest messages, 1 to 200.
    pub limit: u32,
    /// Only these children; all unless given. The result of the first one is always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Vec<RunId>>,
}

/// What an executor goes on from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ContextAnswer {
    /// The conversation of a turn, oldest first.
    pub messages: Vec<MessageView>,
    /// The effects of earlier attempts of this run, oldest first; where there are any, an attempt goes on from `earlier`
    /// instead of beginning anew (R4.5).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectView>,
    /// The messages that earlier attempts wrote as events, since the first attempt that had an effect, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<NewMessage>,
    /// The run's children with their states, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildView>,
    /// What people were asked by this run and have answered, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputView>,
}

/// How a write of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttemptAnswer {
    /// Where the run is now.
    pub state: crate::run::RunState,
    /// For a run that will be tried again: not before this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<i64>,
}
