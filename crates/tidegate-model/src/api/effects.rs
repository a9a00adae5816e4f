//! The journal of effects as workers write it and as people see it (R4.5).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Fence,
    digest::Digest,
    effect::{CallId, EffectOutcome, EffectSource, ReviewVerdict},
};

/// `POST /v1/worker/runs/{runId}/effects`: recorded before a tool is called that may change something.
///
/// An attempt that was told to stop makes no new call: it is refused with the code of what stopped it (`CANCELLED`,
/// `DEADLINE_EXCEEDED`, `BUDGET_EXHAUSTED`, `PARENT_ENDED` or `EPOCH_WITHDRAWN`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordIntent {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// Names the call within the run; a later attempt that repeats the call names it the same.
    pub call_id: CallId,
    /// What is called, `server/tool`, at most 200 characters.
    pub tool: String,
    /// `sha256:` and the digest of the arguments' canonical JSON; never shown again.
    pub arguments_digest: Digest,
    /// Whether the same call may be made twice with the effect of one.
    pub idempotent: bool,
}

/// The answer to an intent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct IntentAnswer {
    /// What is known already: go on with it and do not call. Absent: call the tool now, and record the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedOutcome>,
}

/// What came of an effect, as the journal has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordedOutcome {
    /// What is known.
    pub outcome: EffectOutcome,
    /// Who said so.
    pub source: EffectSource,
    /// What the attempt kept of the tool's answer.
    #[serde(default)]
    pub result: Value,
    /// What the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was recorded.
    pub recorded_at: DateTime<Utc>,
}

/// `POST /v1/worker/runs/{runId}/effects/{callId}`: recorded when the tool has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordOutcome {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// `done` or `failed`. Where it is not known, record nothing and fail the attempt.
    pub outcome: EffectOutcome,
    /// What a later attempt needs to go on with, at most 64 KiB.
    #[serde(default)]
    pub result: Value,
}

/// An effect of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EffectView {
    /// Names the call within the run.
    pub call_id: CallId,
    /// What was called.
    pub tool: String,
    /// Whether a takeover may call it again.
    pub idempotent: bool,
    /// The attempt that was about to call it first.
    pub attempt: i32,
    /// When.
    pub intended_at: DateTime<Utc>,
    /// What came of it; absent while nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<EffectOutcome>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<EffectSource>,
    /// What the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<DateTime<Utc>>,
}

/// Why a run is in review: effects of which nobody knows whether they happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReviewView {
    /// Since when.
    pub since: DateTime<Utc>,
    /// The effects in question.
    pub effects: Vec<EffectView>,
    /// What to do, as an instruction.
    pub remedy: String,
}

/// `POST /v1/runs/{runId}/resolve`: what a person found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveRun {
    /// What to do with the run.
    pub verdict: ReviewVerdict,
    /// The effect that the verdict is about; all that are in question unless given. The run goes on once none is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// For the record and for the next attempt, at most 2,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
