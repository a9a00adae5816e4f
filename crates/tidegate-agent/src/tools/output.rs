//! What a tool answered, as bounded text for a model.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::limits::TOOL_TEXT_MAX_BYTES;
use tidegate_llm::Scrubber;

/// The text of an answer: without the secrets its server was given, without NUL, at most 32 KiB.
pub(super) fn text(result: &CallToolResult, scrubber: &Scrubber) -> String {
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    if parts.is_empty()
        && let Some(value) = &result.structured_content
    {
        parts.push(value.to_string());
    }
    bounded(&scrubber.clean(&parts.join("\n")), TOOL_TEXT_MAX_BYTES)
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => omitted("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => omitted("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents {
                mime_type, blob, ..
            } => omitted(
                "resource",
                mime_type.as_deref().unwrap_or("unknown type"),
                blob.len(),
            ),
            _ => "[resource omitted]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[link to {}]", link.uri),
        _ => "[content of an unknown kind omitted]".to_owned(),
    }
}

fn omitted(what: &str, mime_type: &str, base64_bytes: usize) -> String {
    format!(
        "[{what} omitted: {mime_type}, {} bytes]",
        base64_bytes / 4 * 3
    )
}

/// At most `max` bytes, with a note where something was left out; without NUL, which PostgreSQL cannot store.
pub(crate) fn bounded(text: &str, max: usize) -> String {
    let text = text.replace('\0', "");
    if text.len() <= max {
        return text;
    }
    let cut = text.floor_char_boundary(max);
    format!(
        "{}\n[cut: {cut} of {} bytes shown]",
        &text[..cut],
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("a\0b", 10), "ab");
        let cut = bounded(&"é".repeat(10), 5);
        assert_eq!(cut, "éé\n[cut: 4 of 20 bytes shown]");
    }

    #[test]
    fn every_kind_of_content_becomes_text() {
        let mut result = CallToolResult::success(vec![
            ContentBlock::text("hello"),
            ContentBlock::image("AAAA", "image/png"),
        ]);
        let scrubber = Scrubber::default();
        assert_eq!(
            text(&result, &scrubber),
            "hello\n[image omitted: image/png, 3 bytes]"
        );
        result.content.clear();
        result.structured_content = Some(serde_json::json!({"n": 1}));
        assert_eq!(text(&result, &scrubber), r#"{"n":1}"#);
    }
}
