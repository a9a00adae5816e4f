//! `GET /v1/conversations` and `GET /v1/conversations/{id}`.

use tidegate_model::{
    ConversationId, TenantId,
    api::{ConversationView, Page, PageQuery},
};
use tidegate_store::conversations::ConversationRow;

use super::messages::page_limit;
use crate::{Engine, Error, Principal};

/// A page of the tenant's conversations, newest first.
pub async fn list_conversations(
    engine: &Engine,
    principal: &Principal,
    query: PageQuery,
) -> Result<Page<ConversationView>, Error> {
    let tenant = principal.require_tenant()?;
    let limit = page_limit(query.limit)?;
    let before = query
        .cursor
        .as_deref()
        .map(|cursor| {
            cursor.parse::<ConversationId>().map_err(|_| {
                Error::invalid(
                    "cursor",
                    "not a cursor of this list; pass the nextCursor of the page before",
                )
            })
        })
        .transpose()?;
    // One more than the page tells whether another one follows.
    let mut rows = engine
        .store()
        .tenant(tenant)
        .conversations(before, i64::from(limit) + 1)
        .await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows
        .last()
        .filter(|_| more)
        .map(|last| last.conversation_id.to_string());
    let items = rows.into_iter().map(|row| view(tenant, row)).collect();
    Ok(Page { items, next_cursor })
}

/// One conversation of the tenant.
pub async fn get_conversation(
    engine: &Engine,
    principal: &Principal,
    conversation: ConversationId,
) -> Result<ConversationView, Error> {
    let tenant = principal.require_tenant()?;
    let row = engine
        .store()
        .tenant(tenant)
        .conversation(conversation)
        .await?
        .ok_or_else(|| Error::not_found("conversation"))?;
    Ok(view(tenant, row))
}

pub(super) fn view(tenant: &TenantId, row: ConversationRow) -> ConversationView {
    ConversationView {
        conversation_id: row.conversation_id,
        tenant: tenant.clone(),
        title: row.title,
        user: row.user,
        created_at: row.created_at,
        turn: None,
    }
}
