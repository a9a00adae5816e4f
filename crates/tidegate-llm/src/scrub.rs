//! Takes a provider's key out of everything the provider says (O-25), and what was asked out of its errors.
//!
//! A key is recognised as it is, URL-encoded, JSON-escaped and in base64, also as a part of something longer that was
//! encoded as a whole, such as `Basic` credentials. In an answer that arrives in pieces it is recognised across them.
//!
//! Not here: keys of other providers, or secrets a model made up.

use std::{collections::HashSet, fmt};

use base64::{Engine as _, engine::general_purpose};
use secrecy::{ExposeSecret, SecretString};

use crate::limits::ERROR_TEXT_MAX_CHARS;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// Keys shorter than this protect nothing, and taking them out would tear ordinary words apart.
const KEY_MIN_BYTES: usize = 6;
/// As many bytes in common with what was asked are a quotation.
const QUOTE_MIN_BYTES: usize = 20;

/// Removes the forms of one key.
#[derive(Clone, Default)]
pub(crate) struct Scrubber {
    /// Longest first, so that a form is not torn by a shorter one inside it.
    forms: Vec<String>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.forms.len())
    }
}

impl Scrubber {
    /// Learns the forms of a key.
    pub(crate) fn new(key: Option<&SecretString>) -> Self {
        let Some(key) = key
            .map(ExposeSecret::expose_secret)
            .filter(|key| key.len() >= KEY_MIN_BYTES)
        else {
            return Self::default();
        };
        let mut forms = vec![
            key.to_owned(),
            url_encoded(key, true),
            url_encoded(key, false),
        ];
        let json = serde_json::Value::from(key).to_string();
        let json = json.trim_matches('"');
        forms.extend([json.to_owned(), json.replace('/', "\\/")]);
        for skipped in 0..3 {
            forms.push(base64_core(key, skipped, &general_purpose::STANDARD_NO_PAD));
            forms.push(base64_core(key, skipped, &general_purpose::URL_SAFE_NO_PAD));
        }
        forms.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text without the key.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| {
            if text.contains(form.as_str()) {
                text.replace(form.as_str(), REDACTED)
            } else {
                text
            }
        })
    }

    /// An error text that may be logged: without the key, without quotations of what was asked, on one line, short.
    pub(crate) fn clean_error<'a>(
        &self,
        text: &str,
        asked: impl Iterator<Item = &'a str>,
    ) -> String {
        // Quotations first: a redacted key would break one up.
        let unquoted = mask_quotations(text, asked);
        let clean = self.clean(&unquoted);
        let line: String = clean
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        shorten(line.trim(), ERROR_TEXT_MAX_CHARS)
    }

    /// How many bytes at the end may be the beginning of a form.
    fn open_end(&self, text: &str) -> usize {
        let longest = |form: &String| {
            let most = (form.len() - 1).min(text.len());
            (1..=most)
                .rev()
                .find(|n| text.as_bytes().ends_with(&form.as_bytes()[..*n]))
                .unwrap_or(0)
        };
        self.forms.iter().map(longest).max().unwrap_or(0)
    }
}

/// Cleans a text that arrives in pieces: what may be the beginning of a key is held back until it is decided.
#[derive(Debug)]
pub(crate) struct StreamScrubber {
    scrubber: Scrubber,
    held: String,
}

impl StreamScrubber {
    pub(crate) fn new(scrubber: Scrubber) -> Self {
        Self {
            scrubber,
            held: String::new(),
        }
    }

    /// Takes a piece and gives what can be shown by now; may be empty.
    pub(crate) fn feed(&mut self, piece: &str) -> String {
        if self.scrubber.forms.is_empty() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        let mut clean = self.scrubber.clean(&self.held);
        let cut = clean.floor_char_boundary(clean.len() - self.scrubber.open_end(&clean));
        self.held = clean.split_off(cut);
        clean
    }

    /// The rest, at the end.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

fn url_encoded(key: &str, upper: bool) -> String {
    use fmt::Write as _;
    key.bytes().fold(String::new(), |mut out, byte| {
        let written = match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte as char);
                Ok(())
            }
            _ if upper => write!(out, "%{byte:02X}"),
            _ => write!(out, "%{byte:02x}"),
        };
        debug_assert!(written.is_ok(), "a String takes any text");
        out
    })
}

/// The characters of the key's base64 that do not depend on what stands around it, where `skipped` bytes of the first
/// group of three come before the key.
fn base64_core(key: &str, skipped: usize, engine: &general_purpose::GeneralPurpose) -> String {
    let bytes: Vec<u8> = std::iter::repeat_n(0, skipped).chain(key.bytes()).collect();
    let encoded = engine.encode(&bytes);
    let from = (skipped * 8).div_ceil(6);
    let to = bytes.len() * 8 / 6;
    encoded[from..to].to_owned()
}

/// Puts an ellipsis in the place of everything that was also part of what was asked.
fn mask_quotations<'a>(text: &str, asked: impl Iterator<Item = &'a str>) -> String {
    let bytes = text.as_bytes();
    let windows: HashSet<&[u8]> = bytes.windows(QUOTE_MIN_BYTES).collect();
    if windows.is_empty() {
        return text.to_owned();
    }
    let quoted: HashSet<&[u8]> = asked
        .flat_map(|content| content.as_bytes().windows(QUOTE_MIN_BYTES))
        .filter_map(|window| windows.get(window).copied())
        .collect();
    let mut masked = vec![false; bytes.len()];
    for (at, window) in bytes.windows(QUOTE_MIN_BYTES).enumerate() {
        if quoted.contains(window) {
            masked[at..at + QUOTE_MIN_BYTES].fill(true);
        }
    }
    let mut out = String::new();
    for (at, c) in text.char_indices() {
        match (masked[at], out.ends_with('…')) {
            (false, _) => out.push(c),
            (true, false) => out.push('…'),
            (true, true) => {}
        }
    }
    out
}

fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrubber(key: &str) -> Scrubber {
        Scrubber::new(Some(&SecretString::from(key)))
    }

    /// O-25: the forms in which providers repeat a key.
    #[test]
    fn every_form_of_the_key_is_taken_out() {
        let key = "sk-Canary/42+x\"y=";
        let scrubber = scrubber(key);
        let forms = [
            key.to_owned(),
            "sk-Canary%2F42%2Bx%22y%3D".to_owned(),
            "sk-Canary%2f42%2bx%22y%3d".to_owned(),
            "sk-Canary/42+x\\\"y=".to_owned(),
            general_purpose::STANDARD.encode(key),
            general_purpose::URL_SAFE.encode(key),
            general_purpose::STANDARD.encode(format!("user:{key}")),
            general_purpose::STANDARD.encode(format!("u:{key}!")),
            format!("'https://api.example/v1?key={}'", url_encoded(key, true)),
        ];
        for form in forms {
            let clean = scrubber.clean(&format!("wrong key {form} given"));
            assert!(clean.contains(REDACTED), "{form}");
            assert!(
                !clean.contains("Canary") && clean.starts_with("wrong key "),
                "{clean}"
            );
        }
    }

    #[test]
    fn a_missing_or_tiny_key_changes_nothing() {
        assert_eq!(Scrubber::new(None).clean("plain"), "plain");
        assert_eq!(scrubber("in").clean("plain inn"), "plain inn");
    }

    #[test]
    fn an_error_text_is_short_and_quotes_nobody() {
        let asked = ["my secret diary entry of last tuesday"];
        let text = "bad value 'secret diary entry of last tuesday'\n for sk-canary-1";
        let clean = scrubber("sk-canary-1").clean_error(text, asked.into_iter());
        assert_eq!(clean, "bad value '…'  for [redacted]");
        let long = scrubber("sk-canary-1").clean_error(&"é".repeat(1_000), std::iter::empty());
        assert_eq!(long.chars().count(), ERROR_TEXT_MAX_CHARS + 1);
    }

    proptest! {
        /// O-25: wherever the pieces are cut, the key is found, and everything else arrives unchanged.
        #[test]
        fn pieces_are_cleaned_as_the_whole(before in ".{0,12}", after in ".{0,12}", encoded in any::<bool>(), cuts in proptest::collection::vec(0usize..60, 0..6)) {
            let key = "sk-canary-0123";
            let form = if encoded { general_purpose::STANDARD.encode(key) } else { key.to_owned() };
            let text = format!("{before}{form}{after}");
            let whole = scrubber(key).clean(&text);
            let mut stream = StreamScrubber::new(scrubber(key));
            let mut out = String::new();
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut) && *cut <= text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                out.push_str(&stream.feed(&text[pair[0]..pair[1]]));
            }
            out.push_str(&stream.finish());
            prop_assert!(!out.contains("canary"));
            prop_assert_eq!(out, whole);
        }

        #[test]
        fn texts_without_the_key_pass_unchanged(pieces in proptest::collection::vec(".{0,20}", 0..10)) {
            let mut stream = StreamScrubber::new(scrubber("sk-canary-0123"));
            let mut out: String = pieces.iter().map(|piece| stream.feed(piece)).collect();
            out.push_str(&stream.finish());
            prop_assert_eq!(out, pieces.concat());
        }

        #[test]
        fn quotations_never_survive(asked in "[a-z ]{20,60}", before in "[A-Z]{0,10}", after in "[A-Z]{0,10}") {
            let masked = mask_quotations(&format!("{before}{asked}{after}"), std::iter::once(asked.as_str()));
            prop_assert_eq!(masked, format!("{before}…{after}"));
        }
    }
}
