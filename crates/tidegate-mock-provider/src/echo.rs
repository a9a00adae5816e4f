//! Repeats the key of a request in all the ways that providers were seen to.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use crate::{plan::Step, scenario::KeyForm};

/// The message with the key in a form.
pub(crate) fn echo(message: &str, form: Option<KeyForm>, key: &str) -> String {
    let Some(form) = form else {
        return message.to_owned();
    };
    let shown = match form {
        KeyForm::Plain | KeyForm::Split => key.to_owned(),
        KeyForm::Url => url_encoded(key),
        KeyForm::Base64 => STANDARD.encode(key),
        KeyForm::Basic => STANDARD.encode(format!("user:{key}")),
        KeyForm::QuotedUrl => format!("\"https://api.example/v1?api_key={}\"", url_encoded(key)),
    };
    format!("{message} (key: {shown})")
}

fn url_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Sends a body in two parts, cut in the middle of the key.
pub(crate) fn split_inside(body: &[Step], key: &str) -> Vec<Step> {
    let [Step::Send(bytes)] = body else {
        return body.to_vec();
    };
    let text = String::from_utf8_lossy(bytes);
    let at = text
        .find(key)
        .map_or(text.len() / 2, |at| at + key.len() / 2);
    let at = text.floor_char_boundary(at);
    let part = |part: &str| Step::Send(Bytes::from(part.to_owned()));
    vec![
        part(&text[..at]),
        Step::Wait(Duration::from_millis(20)),
        part(&text[at..]),
    ]
}
