//! The forms in which a secret comes back, and where a text shows one.

use std::ops::Range;

use base64::{Engine as _, engine::general_purpose};

/// A character and two of padding.
const EDGE_MAX_BYTES: usize = 3;

/// One form of a secret: a text, and for base64 the characters beside it that carry bits of the secret too.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    core: String,
    /// What the character before shares with the secret.
    before: Option<Edge>,
    /// What the character behind shares with it; padding may follow.
    after: Option<Edge>,
}

/// Some bits of a base64 character: which ones, and what they are where it carries a part of the secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    mask: u8,
    bits: u8,
}

impl Edge {
    fn is(self, character: u8) -> bool {
        sextet(character).is_some_and(|value| value & self.mask == self.bits)
    }
}

/// Every form of a secret.
pub(super) fn of(secret: &str) -> Vec<Form> {
    let json = serde_json::Value::from(secret).to_string();
    // Without the two quotes, and with those of the secret.
    let json = json[1..json.len() - 1].to_owned();
    let mut forms: Vec<Form> = [
        secret.to_owned(),
        url_encoded(secret, true),
        url_encoded(secret, false),
        json.replace('/', "\\/"),
        json,
    ]
    .map(Form::exact)
    .into();
    for skipped in 0..3 {
        for engine in [
            &general_purpose::STANDARD_NO_PAD,
            &general_purpose::URL_SAFE_NO_PAD,
        ] {
            forms.push(Form::base64(secret.as_bytes(), skipped, engine));
        }
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

impl Form {
    fn exact(core: String) -> Self {
        Self {
            core,
            before: None,
            after: None,
        }
    }

    /// The secret's base64 where `skipped` bytes of the first group of three come before it. The core is what does not
    /// depend on what stands around it; a character that the secret shares with that is an edge.
    fn base64(secret: &[u8], skipped: usize, engine: &general_purpose::GeneralPurpose) -> Self {
        let bytes: Vec<u8> = std::iter::repeat_n(0, skipped)
            .chain(secret.iter().copied())
            .collect();
        let encoded = engine.encode(&bytes);
        let (from, to) = ((skipped * 8).div_ceil(6), bytes.len() * 8 / 6);
        // The bytes around are zeros here, so that the edges' own bits are the secret's.
        let edge = |at: usize, mask: u8| {
            let value = encoded.as_bytes().get(at).copied().and_then(sextet)?;
            Some(Edge {
                mask,
                bits: value & mask,
            })
        };
        let before = match skipped {
            1 => edge(from - 1, 0b00_1111),
            2 => edge(from - 1, 0b00_0011),
            _ => None,
        };
        let after = match bytes.len() * 8 % 6 {
            2 => edge(to, 0b11_0000),
            4 => edge(to, 0b11_1100),
            _ => None,
        };
        Self {
            core: encoded[from..to].to_owned(),
            before,
            after,
        }
    }

    /// Where the text shows this form, overlapping ones too.
    pub(super) fn find(&self, text: &str, found: &mut Vec<Range<usize>>) {
        let step = self.core.chars().next().map_or(1, char::len_utf8);
        let mut from = 0;
        while let Some(at) = text[from..].find(&self.core) {
            let start = from + at;
            let end = start + self.core.len();
            found.push(self.start(text, start)..self.end(text, end));
            from = start + step;
        }
    }

    /// How many bytes at the end may be the beginning of this form, or one whose edge or padding is still to come.
    pub(super) fn open_end(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let most = (self.core.len() - 1).min(text.len());
        // Nothing of the core yet is a beginning too, where the last character may be the edge before it.
        let begun = (0..=most)
            .rev()
            .find(|n| bytes.ends_with(&self.core.as_bytes()[..*n]))
            .unwrap_or(0);
        let whole = (0..=EDGE_MAX_BYTES.min(text.len()))
            .map(|behind| text.len() - behind)
            .filter(|_| self.after.is_some())
            .find(|end| {
                bytes[..*end].ends_with(self.core.as_bytes()) && self.end(text, *end) == text.len()
            })
            .map_or(0, |end| text.len() - (end - self.core.len()));
        let start = text.len() - begun.max(whole);
        text.len() - self.start(text, start)
    }

    fn start(&self, text: &str, core: usize) -> usize {
        let before = text.as_bytes()[..core].last();
        let shared = self
            .before
            .is_some_and(|edge| before.is_some_and(|c| edge.is(*c)));
        core - usize::from(shared)
    }

    fn end(&self, text: &str, core: usize) -> usize {
        let behind = &text.as_bytes()[core..];
        let Some(edge) = self.after else {
            return core;
        };
        if !behind.first().is_some_and(|c| edge.is(*c)) {
            return core;
        }
        let padding = behind[1..]
            .iter()
            .take(EDGE_MAX_BYTES - 1)
            .take_while(|c| **c == b'=');
        core + 1 + padding.count()
    }
}

/// The six bits of a character of either base64 alphabet.
fn sextet(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

fn url_encoded(secret: &str, upper: bool) -> String {
    let mut out = String::new();
    for byte in secret.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
            continue;
        }
        let code = format!("%{byte:02x}");
        out.push_str(&if upper {
            code.to_ascii_uppercase()
        } else {
            code
        });
    }
    out
}
