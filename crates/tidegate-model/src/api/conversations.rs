//! Conversations, their messages and turns.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Capability, ConversationId, RunId, TenantId,
    contracts::Needs,
    run::{RunState, ServiceClass},
    text_enum,
};

/// `POST /v1/conversations`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateConversation {
    /// A title for lists, at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The user it is for, at most 200 characters: the key's own unless given; another one needs a key with the scope
    /// `act_for_users` (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its first turn, accepted together with it or not at all; for the same user unless it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<SubmitTurn>,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConversationView {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The user it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it began.
    pub created_at: DateTime<Utc>,
    /// The turn that it was begun with; only where it is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnAccepted>,
}

text_enum! {
    /// Who speaks.
    pub enum MessageRole: "message role" {
        /// The person.
        User = "user",
        /// The agent.
        Assistant = "assistant",
        /// A tool's answer.
        Tool = "tool",
        /// The platform, for example the report of background work.
        System = "system",
    }
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// Its number, from 1, as it was written; lists stand in the order of turns.
    pub seq: i64,
    /// Who speaks.
    pub role: MessageRole,
    /// What is said; for tool calls `{text, toolCalls}`, for tool answers `{callId, text}`.
    pub content: Value,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
}

/// `POST /v1/conversations/{id}/turns`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitTurn {
    /// What the person says.
    pub input: String,
    /// `chat` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// What else the pool must have (R6.1); nothing unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Needs>,
    /// Only lower protection than `interactive` can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_class: Option<ServiceClass>,
    /// The turn ends as expired when this passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// The user it is for, at most 200 characters: the key's own unless given; another one needs a key with the scope
    /// `act_for_users` (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The answer to a submitted turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TurnAccepted {
    /// The run of the turn.
    pub run_id: RunId,
    /// Where it is.
    pub state: RunState,
    /// Whether this answer repeats an earlier submission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}
