//! `POST /v1/conversations`.

use tidegate_model::{
    Code, ConversationId,
    api::{ConversationView, CreateConversation},
};

use super::list::view;
use crate::{Engine, Error, Principal};

/// The longest title, in characters.
const TITLE_MAX: usize = 200;

/// Begins a conversation.
pub async fn create_conversation(
    engine: &Engine,
    principal: &Principal,
    request: CreateConversation,
) -> Result<ConversationView, Error> {
    let tenant = principal.require_tenant()?;
    if let Some(title) = &request.title {
        if title.chars().count() > TITLE_MAX {
            return Err(Error::invalid(
                "title",
                format!("at most {TITLE_MAX} characters"),
            ));
        }
        if title.contains('\0') {
            return Err(Error::invalid(
                "title",
                "texts must not contain the NUL character (U+0000)",
            ));
        }
    }
    let user = principal.user_of(request.user)?;
    let row = engine
        .store()
        .tenant(tenant)
        .create_conversation(
            ConversationId::new(),
            request.title,
            user,
            principal.intent.as_ref(),
        )
        .await?
        .ok_or_else(|| {
            Error::refused(
                Code::TenantSuspended,
                "the tenant is suspended; nothing new can be started",
            )
        })?;
    Ok(view(tenant, row))
}
