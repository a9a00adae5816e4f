//! Takes secrets out of what comes back from those who were given them (O-25): a provider's key out of everything the
//! provider says, and for the executor what a tool server was given; and what was asked out of a provider's errors.
//!
//! A secret is recognised as it is, URL-encoded, JSON-escaped and in base64, also as a part of something longer that was
//! encoded as a whole, such as `Basic` credentials: then the characters it shares with what stands around it go too. In
//! an answer that arrives in pieces it is recognised across them.
//!
//! Not here: secrets of others, or such that a model made up.

mod forms;

use std::{collections::HashSet, fmt, ops::Range};

use secrecy::{ExposeSecret, SecretString};

use self::forms::Form;
use crate::limits::ERROR_TEXT_MAX_CHARS;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// Secrets shorter than this protect nothing, and taking them out would tear ordinary words apart.
const SECRET_MIN_BYTES: usize = 6;
/// As many bytes in common with what was asked are a quotation.
const QUOTE_MIN_BYTES: usize = 20;

/// Removes the forms of some secrets.
#[derive(Clone, Default)]
pub struct Scrubber {
    forms: Vec<Form>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.forms.len())
    }
}

impl Scrubber {
    /// Learns the forms of secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let forms = secrets
            .into_iter()
            .map(ExposeSecret::expose_secret)
            .filter(|secret| secret.len() >= SECRET_MIN_BYTES)
            .flat_map(forms::of)
            .collect();
        Self { forms }
    }

    /// The text without the secrets.
    pub fn clean(&self, text: &str) -> String {
        cut_out(text, &self.ranges(text))
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

    /// Where secrets are, in order. What overlaps is one place: where two forms share characters, taking out one of them
    /// would leave the rest of the other.
    fn ranges(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for form in &self.forms {
            form.find(text, &mut found);
        }
        found.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for range in found {
            match ranges.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// How many bytes at the end may be the beginning of a form.
    fn open_end(&self, text: &str) -> usize {
        let open = self.forms.iter().map(|form| form.open_end(text));
        open.max().unwrap_or(0)
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
        let mut ranges = self.scrubber.ranges(&self.held);
        let mut cut = self.held.len() - self.scrubber.open_end(&self.held);
        // A place that reaches into what is held back may become larger: it is held back as a whole.
        while let Some(last) = ranges.pop_if(|range| range.end > cut) {
            cut = cut.min(last.start);
        }
        let rest = self.held.split_off(cut);
        let shown = std::mem::replace(&mut self.held, rest);
        cut_out(&shown, &ranges)
    }

    /// The rest, at the end.
    pub(crate) fn finish(&mut self) -> String {
        self.scrubber.clean(&std::mem::take(&mut self.held))
    }
}

fn cut_out(text: &str, ranges: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        out.push_str(&text[from..range.start]);
        out.push_str(REDACTED);
        from = range.end;
    }
    out.push_str(&text[from..]);
    out
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
    use base64::{Engine as _, engine::general_purpose};
    use proptest::prelude::*;

    use super::*;

    fn scrubber(key: &str) -> Scrubber {
        Scrubber::new([&SecretString::from(key)])
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
            "'https://api.example/v1?key=sk-Canary%2F42%2Bx%22y%3D'".to_owned(),
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

    /// O-25: a quote at the end of a key is a part of it, in JSON too.
    #[test]
    fn what_json_escapes_at_the_edge_of_a_key_is_taken_out() {
        let text = serde_json::json!({ "key": "\"sk-canary\"" }).to_string();
        let clean = scrubber("\"sk-canary\"").clean(&text);
        assert_eq!(clean, r#"{"key":"[redacted]"}"#);
    }

    /// O-25: forms that share characters go as one; taking out one of them would leave the rest of the other.
    #[test]
    fn secrets_that_overlap_are_taken_out_whole() {
        let keys = ["canary-one-two", "one-two-three"].map(SecretString::from);
        let clean = Scrubber::new(&keys).clean("is canary-one-two-three good");
        assert_eq!(clean, "is [redacted] good");
        assert_eq!(
            scrubber("aaaaaaaa").clean("is aaaaaaaaaaa good"),
            "is [redacted] good"
        );
    }

    #[test]
    fn a_missing_or_tiny_key_changes_nothing() {
        assert_eq!(Scrubber::default().clean("plain"), "plain");
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

    fn encode(bytes: &[u8], padded: bool, url_safe: bool) -> String {
        let engine = match (padded, url_safe) {
            (true, false) => general_purpose::STANDARD,
            (true, true) => general_purpose::URL_SAFE,
            (false, false) => general_purpose::STANDARD_NO_PAD,
            (false, true) => general_purpose::URL_SAFE_NO_PAD,
        };
        engine.encode(bytes)
    }

    proptest! {
        /// O-25: of base64 nothing stays that carries a bit of the key, whatever was encoded around it.
        #[test]
        fn the_edges_of_base64_are_taken_out(
            key in "[ -~]{6,20}",
            before in proptest::collection::vec(any::<u8>(), 0..8),
            after in proptest::collection::vec(any::<u8>(), 0..8),
            padded in any::<bool>(),
            url_safe in any::<bool>(),
        ) {
            let plain = [before.as_slice(), key.as_bytes(), after.as_slice()].concat();
            let encoded = encode(&plain, padded, url_safe);
            let from = before.len() * 8 / 6;
            let to = ((before.len() + key.len()) * 8).div_ceil(6);
            let rest = if after.is_empty() { "" } else { &encoded[to..] };
            prop_assert_eq!(scrubber(&key).clean(&encoded), format!("{}{REDACTED}{rest}", &encoded[..from]));
        }

        /// O-25: wherever the pieces are cut, the key is found, and everything else arrives unchanged.
        #[test]
        fn pieces_are_cleaned_as_the_whole(
            before in ".{0,12}",
            after in ".{0,12}",
            again in 1usize..3,
            form in 0usize..5,
            cuts in proptest::collection::vec(0usize..100, 0..8),
        ) {
            let key = "sk-canary-0123";
            let form = match form {
                0 => key.to_owned(),
                1 => encode(format!("{before}{key}{after}").as_bytes(), true, true),
                lead => encode(format!("{}{key}", "x".repeat(lead - 2)).as_bytes(), again == 1, false),
            };
            let text = format!("{before}{}{after}", form.repeat(again));
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

        /// O-25: character by character, which is how models answer, with keys that overlap themselves and each other.
        #[test]
        fn characters_are_cleaned_as_the_whole(text in "[abc=]{0,60}", key in "[ab]{6,7}", other in "(ab){3,4}c?") {
            let keys = [key, other].map(SecretString::from);
            let whole = Scrubber::new(&keys).clean(&text);
            let mut stream = StreamScrubber::new(Scrubber::new(&keys));
            let mut out: String = text.chars().map(|c| stream.feed(&c.to_string())).collect();
            out.push_str(&stream.finish());
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
