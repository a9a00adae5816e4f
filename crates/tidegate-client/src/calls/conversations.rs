//! Conversations and their turns.

use tidegate_model::{
    ConversationId,
    api::{
        ConversationView, CreateConversation, MessageView, Page, PageQuery, SubmitTurn,
        TurnAccepted,
    },
};

use crate::{Client, Result, RunEvents, request::Call};

impl Client {
    /// `POST /v1/conversations`.
    pub async fn create_conversation(&self, body: &CreateConversation) -> Result<ConversationView> {
        self.json(Call::post("/v1/conversations").body(body)?).await
    }

    /// `GET /v1/conversations`, newest first.
    pub async fn conversations(&self, page: &PageQuery) -> Result<Page<ConversationView>> {
        self.json(Call::get("/v1/conversations").query(page)?).await
    }

    /// `GET /v1/conversations/{id}`.
    pub async fn conversation(&self, conversation: ConversationId) -> Result<ConversationView> {
        let path = format!("/v1/conversations/{conversation}");
        self.json(Call::get(path)).await
    }

    /// `GET /v1/conversations/{id}/messages`, in the order of turns.
    pub async fn messages(
        &self,
        conversation: ConversationId,
        page: &PageQuery,
    ) -> Result<Page<MessageView>> {
        let path = format!("/v1/conversations/{conversation}/messages");
        self.json(Call::get(path).query(page)?).await
    }

    /// `POST /v1/conversations/{id}/turns`. With `key` a caller that starts again repeats the same turn; without one,
    /// only the tries of this call do.
    pub async fn submit_turn(
        &self,
        conversation: ConversationId,
        body: &SubmitTurn,
        key: Option<&str>,
    ) -> Result<TurnAccepted> {
        let path = format!("/v1/conversations/{conversation}/turns");
        self.json(Call::post(path).key(key).body(body)?).await
    }

    /// Submits a turn and follows its run to the end. The turn goes on when the stream is dropped.
    pub async fn stream_turn(
        &self,
        conversation: ConversationId,
        body: &SubmitTurn,
        key: Option<&str>,
    ) -> Result<(TurnAccepted, RunEvents)> {
        let accepted = self.submit_turn(conversation, body, key).await?;
        let events = self.run_events(accepted.run_id, 0);
        Ok((accepted, events))
    }
}
