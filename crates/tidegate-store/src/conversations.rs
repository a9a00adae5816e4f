//! Conversations and their messages.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{ConversationId, RunId, api::MessageRole};

use crate::{Error, Intent, TenantStore, error::stored, repeats::Outcome, written::Written};

/// A conversation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRow {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Its title.
    pub title: Option<String>,
    /// The user it is for.
    pub user: Option<String>,
    /// When it began.
    pub created_at: DateTime<Utc>,
}

impl Outcome for ConversationRow {}

struct RawConversation {
    conversation_id: uuid::Uuid,
    title: Option<String>,
    user_name: Option<String>,
    created_at: DateTime<Utc>,
}

impl From<RawConversation> for ConversationRow {
    fn from(row: RawConversation) -> Self {
        Self {
            conversation_id: ConversationId::from_uuid(row.conversation_id),
            title: row.title,
            user: row.user_name,
            created_at: row.created_at,
        }
    }
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// Its number.
    pub seq: i64,
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub content: Value,
    /// Its turn.
    pub run_id: Option<RunId>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
}

struct RawMessage {
    seq: i64,
    role: String,
    content: Value,
    run_id: Option<uuid::Uuid>,
    created_at: DateTime<Utc>,
}

impl TryFrom<RawMessage> for MessageRow {
    type Error = Error;

    fn try_from(row: RawMessage) -> Result<Self, Error> {
        Ok(Self {
            seq: row.seq,
            role: stored(&row.role, "messages.role")?,
            content: row.content,
            run_id: row.run_id.map(RunId::from_uuid),
            created_at: row.created_at,
        })
    }
}

/// Begins a conversation; nothing where the tenant may not start anything new.
pub(crate) async fn begin(
    tx: &mut PgConnection,
    tenant: &str,
    conversation: ConversationId,
    title: Option<String>,
    user: Option<String>,
) -> Result<Option<ConversationRow>, Error> {
    let row = sqlx::query!(
        r#"INSERT INTO conversations (tenant, conversation_id, title, user_name)
           SELECT tenant, $2, $3, $4 FROM tenants WHERE tenant = $1 AND state = 'active'
           RETURNING created_at"#,
        tenant,
        conversation.as_uuid(),
        title,
        user,
    )
    .fetch_optional(tx)
    .await?;
    Ok(row.map(|row| ConversationRow {
        conversation_id: conversation,
        title,
        user,
        created_at: row.created_at,
    }))
}

impl TenantStore {
    /// Begins a conversation; nothing where the tenant may not start anything new.
    pub async fn create_conversation(
        &self,
        conversation: ConversationId,
        title: Option<String>,
        user: Option<String>,
        intent: Option<&Intent>,
    ) -> Result<Option<ConversationRow>, Error> {
        let tenant = self.key().to_owned();
        let created = self
            .store()
            .once("create_conversation", intent, move |tx| {
                let (tenant, title, user) = (tenant.clone(), title.clone(), user.clone());
                Box::pin(async move {
                    let begun = begin(tx, &tenant, conversation, title, user).await?;
                    Ok(Written::unchanged(begun))
                })
            })
            .await?;
        Ok(created.value)
    }

    /// Conversations, newest first: by their ids, which are made in the order of time. Those before one, where one is given.
    pub async fn conversations(
        &self,
        before: Option<ConversationId>,
        limit: i64,
    ) -> Result<Vec<ConversationRow>, Error> {
        let before = before.map_or(uuid::Uuid::max(), ConversationId::as_uuid);
        let rows = sqlx::query_as!(
            RawConversation,
            "SELECT conversation_id, title, user_name, created_at FROM conversations
             WHERE tenant = $1 AND conversation_id < $2 ORDER BY conversation_id DESC LIMIT $3",
            self.key(),
            before,
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(ConversationRow::from).collect())
    }

    /// A conversation; nothing where the tenant has none of that id.
    pub async fn conversation(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<ConversationRow>, Error> {
        let row = sqlx::query_as!(
            RawConversation,
            "SELECT conversation_id, title, user_name, created_at FROM conversations
             WHERE tenant = $1 AND conversation_id = $2",
            self.key(),
            conversation.as_uuid(),
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(row.map(ConversationRow::from))
    }

    /// Messages after the one with a number (0 for all), in the order of turns and within each as they were written: an
    /// answer stands behind its own question, also where the next ones were asked meanwhile (R3.7). Nothing where the
    /// tenant has no such conversation.
    pub async fn messages_after(
        &self,
        conversation: ConversationId,
        after: i64,
        limit: i64,
    ) -> Result<Option<Vec<MessageRow>>, Error> {
        let known = sqlx::query_scalar!(
            r#"SELECT true AS "known!" FROM conversations WHERE tenant = $1 AND conversation_id = $2"#,
            self.key(),
            conversation.as_uuid(),
        )
        .fetch_optional(self.pool())
        .await?;
        if known.is_none() {
            return Ok(None);
        }
        sqlx::query_as!(
            RawMessage,
            r#"SELECT m.seq, m.role, m.content, m.run_id, m.created_at FROM messages m
               WHERE m.tenant = $1 AND m.conversation_id = $2 AND (m.turn_no, m.seq) > (coalesce((
                   SELECT l.turn_no FROM messages l
                   WHERE l.tenant = $1 AND l.conversation_id = $2 AND l.seq = $3), 0), $3)
               ORDER BY m.turn_no, m.seq LIMIT $4"#,
            self.key(),
            conversation.as_uuid(),
            after,
            limit,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(MessageRow::try_from)
        .collect::<Result<_, _>>()
        .map(Some)
    }

    /// What the executor of a turn is told: the latest messages of earlier turns and of its own, oldest first. Turns that
    /// were submitted later are not its business.
    pub async fn turn_context(&self, run: RunId, limit: i64) -> Result<Vec<MessageRow>, Error> {
        let mut rows = sqlx::query_as!(
            RawMessage,
            r#"SELECT m.seq, m.role, m.content, m.run_id, m.created_at
               FROM agent_runs a
               JOIN messages m ON m.tenant = a.tenant AND m.conversation_id = a.conversation_id
                AND m.turn_no <= a.turn_no
               WHERE a.tenant = $1 AND a.run_id = $2
               ORDER BY m.turn_no DESC, m.seq DESC LIMIT $3"#,
            self.key(),
            run.as_uuid(),
            limit,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(MessageRow::try_from)
        .collect::<Result<Vec<_>, _>>()?;
        rows.reverse();
        Ok(rows)
    }
}
