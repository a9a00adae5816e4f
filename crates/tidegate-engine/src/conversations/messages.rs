//! `GET /v1/conversations/{id}/messages`.

use tidegate_model::{
    ConversationId,
    api::{MessageView, Page, PageQuery},
    limits,
};
use tidegate_store::conversations::MessageRow;

use crate::{Engine, Error, Principal};

/// A page of a conversation's messages, in the order of its turns.
pub async fn list_messages(
    engine: &Engine,
    principal: &Principal,
    conversation: ConversationId,
    query: PageQuery,
) -> Result<Page<MessageView>, Error> {
    let limit = page_limit(query.limit)?;
    let after = match query.cursor.as_deref() {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Error::invalid("cursor", "take nextCursor of the page before"))?,
    };
    let rows = engine
        .store()
        .tenant(principal.require_tenant()?)
        .messages_after(conversation, after, i64::from(limit) + 1)
        .await?
        .ok_or_else(|| Error::not_found("conversation"))?;
    let mut items: Vec<MessageView> = rows.into_iter().map(view).collect();
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next_cursor = items
        .last()
        .filter(|_| more)
        .map(|last| last.seq.to_string());
    Ok(Page { items, next_cursor })
}

/// The size of a page, checked.
pub(crate) fn page_limit(asked: Option<u32>) -> Result<u32, Error> {
    match asked {
        None => Ok(limits::PAGE_DEFAULT),
        Some(limit) if (1..=limits::PAGE_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(Error::invalid(
            "limit",
            format!("1 to {}", limits::PAGE_MAX),
        )),
    }
}

pub(crate) fn view(row: MessageRow) -> MessageView {
    MessageView {
        seq: row.seq,
        role: row.role,
        content: row.content,
        run_id: row.run_id,
        created_at: row.created_at,
    }
}
