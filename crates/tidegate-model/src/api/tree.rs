//! Children, waits and people (R3.13, R3.15): what a run starts, what it waits for, what it is answered.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Capability, Code, Fence, RunId,
    api::{AttemptUsage, NewMessage, RunBudget},
    contracts::Needs,
    run::{AskKind, RunState, ServiceClass, WaitMode, WaitOn},
};

/// `POST /v1/worker/runs/{id}/children`: starts a child of the run. A refusal is the answer, at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitChild {
    /// The fence of the parent's lease.
    pub fence: Fence,
    /// The child's name within its parent, 1 to 200 printable ASCII characters. The same key with the same body is the
    /// same child, also for a later attempt of the parent.
    pub key: String,
    /// What the pool must offer.
    pub capability: Capability,
    /// What else the pool must have (R6.1). The parent's labels, regions and sandbox floor hold for the child too: a region
    /// that the parent may not go to is refused, the others are added (R9.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Needs>,
    /// Passed to the child's worker as it is.
    /// What only the built-in executor serves (`chat` unless configured) needs something to ask a model: a text,
    /// `{"text": "…"}`, or another object or array that is not empty.
    #[serde(default)]
    pub input: Value,
    /// The parent's unless given; only less protection can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_class: Option<ServiceClass>,
    /// The parent's unless given; only a lower one can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// The parent's unless given; only an earlier one can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<DateTime<Utc>>,
    /// 5 unless given (R3.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// What the parent had left when its attempt began unless given; only less can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<RunBudget>,
}

/// A child that was accepted now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChildAccepted {
    /// The child.
    pub run_id: RunId,
    /// Whether this answer repeats an earlier submission (same key, same body).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// `POST /v1/worker/runs/{id}/wait`: ends the attempt and gives back lease, slot and count until what is waited for is
/// there. One of `children`, `input` and `until` at least; `until` beside another one wakes the run whatever came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitRun {
    /// The fence of the holder's lease.
    pub fence: Fence,
    /// Waits for ends of children. Not together with `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<WaitForChildren>,
    /// Asks a person and waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Ask>,
    /// Wakes at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// Messages that the conversation of a turn gets now, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<NewMessage>,
    /// What the attempt used.
    #[serde(default)]
    pub usage: AttemptUsage,
}

/// Which ends of children are waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitForChildren {
    /// These children of the run; unless given all that had not ended when this attempt began. Where they have ended
    /// already the run is queued at once, so that no end is missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<RunId>>,
    /// `any` (the first end wakes) unless given, or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ask {
    /// What is asked for.
    pub kind: AskKind,
    /// The question, at most 4,000 characters.
    pub prompt: String,
    /// For `text`: the answer is one of these, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The tool call that asks, if it was one; comes back with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

/// `POST /v1/runs/{id}/inputs`: answers what a waiting run asked, and queues it at the head of its tenant. One of `text`,
/// `confirmed` and `file`, as the question's kind demands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerInput {
    /// Which question is answered (`askNo` of the run's `waitingFor`); the one that waits unless given. With it the same
    /// answer may be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_no: Option<i64>,
    /// The answer to a `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The answer to a `confirmation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
    /// The answer to a `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileReference>,
}

/// Where a file is; Tidegate passes the reference on and does not read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileReference {
    /// Where the run's worker finds it: an address (`https`, `http`, `s3` or `gs`), or an id without a colon; printable
    /// ASCII of at most 4,000 bytes.
    pub uri: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
}

/// What a waiting run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// What it waits on.
    pub on: WaitOn,
    /// Since when.
    pub since: DateTime<Utc>,
    /// How many of the children must end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
    /// The awaited children that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunId>,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// The number of the question, for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_no: Option<i64>,
    /// It wakes by itself at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// What would wake it, as an instruction.
    pub remedy: String,
}

/// A question with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct InputView {
    /// The number of the question.
    pub ask_no: i64,
    /// The question.
    pub ask: Ask,
    /// The answer.
    pub answer: AnswerInput,
    /// When it was given.
    pub answered_at: DateTime<Utc>,
    /// The user of the key that gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A child as its parent sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChildView {
    /// The child.
    pub run_id: RunId,
    /// Its name within the parent.
    pub key: String,
    /// What it asks for.
    pub capability: Capability,
    /// Where it is in its life.
    pub state: RunState,
    /// Why it ended, where it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Whether submitting the same again may succeed; present where it ended without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// What was said about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What it gave back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Whether there is a result that did not fit into this answer: name the child in `children` to read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_omitted: bool,
}

/// `GET /v1/runs/{id}/children`: all descendants of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunTree {
    /// The run at the top.
    pub run_id: RunId,
    /// Its descendants, each after its parent, oldest first.
    pub items: Vec<TreeRun>,
}

/// A descendant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TreeRun {
    /// The run.
    pub run_id: RunId,
    /// Its parent.
    pub parent_run_id: RunId,
    /// How deep it is below the root of its tree; children of the root are at 1.
    pub depth: i16,
    /// Its name within the parent.
    pub key: String,
    /// What it asks for.
    pub capability: Capability,
    /// Where it is in its life.
    pub state: RunState,
    /// Why it ended, where it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
}
