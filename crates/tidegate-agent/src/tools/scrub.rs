//! Takes the secrets that a tool server was given out of what it says (O-25): its answers, its errors, its last words.

use std::fmt;

use base64::{Engine as _, engine::general_purpose};
use secrecy::{ExposeSecret, SecretString};

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// Shorter values protect nothing, and taking them out would tear ordinary words apart.
const SECRET_MIN_BYTES: usize = 8;

/// Removes the forms of some secrets.
#[derive(Clone, Default)]
pub(super) struct Scrubber {
    /// Longest first, so that a form is not torn by a shorter one inside it.
    forms: Vec<String>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.forms.len())
    }
}

impl Scrubber {
    /// Learns the values of an environment. Paths are no secrets, and a tool that works on files must name them.
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a SecretString>) -> Self {
        let mut forms = Vec::new();
        for value in values.map(ExposeSecret::expose_secret) {
            let is_path = value.starts_with(['/', '.', '~']);
            if value.len() < SECRET_MIN_BYTES || is_path {
                continue;
            }
            forms.extend([
                value.to_owned(),
                url_encoded(value, true),
                url_encoded(value, false),
            ]);
            let json = serde_json::Value::from(value).to_string();
            let json = json.trim_matches('"');
            forms.extend([json.to_owned(), json.replace('/', "\\/")]);
            for before in 0..3 {
                forms.push(base64_core(
                    value,
                    before,
                    &general_purpose::STANDARD_NO_PAD,
                ));
                forms.push(base64_core(
                    value,
                    before,
                    &general_purpose::URL_SAFE_NO_PAD,
                ));
            }
        }
        forms.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text without the secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| {
            if text.contains(form.as_str()) {
                text.replace(form.as_str(), REDACTED)
            } else {
                text
            }
        })
    }
}

fn url_encoded(value: &str, upper: bool) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let code = format!("%{byte:02x}");
            out.push_str(&if upper {
                code.to_ascii_uppercase()
            } else {
                code
            });
        }
    }
    out
}

/// The characters of the value's base64 that do not depend on what stands around it, where `before` bytes of the first
/// group of three come before it.
fn base64_core(value: &str, before: usize, engine: &general_purpose::GeneralPurpose) -> String {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before)
        .chain(value.bytes())
        .collect();
    let encoded = engine.encode(&bytes);
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    encoded[from..to].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-25: the forms in which tools repeat what they were given.
    #[test]
    fn every_form_of_a_secret_is_taken_out() {
        let secret = "canary/42+x\"y=";
        let scrubber = Scrubber::new([SecretString::from(secret)].iter());
        for form in [
            secret.to_owned(),
            "canary%2F42%2Bx%22y%3D".to_owned(),
            "canary%2f42%2bx%22y%3d".to_owned(),
            "canary/42+x\\\"y=".to_owned(),
            general_purpose::STANDARD.encode(secret),
            general_purpose::STANDARD.encode(format!("user:{secret}!")),
        ] {
            let clean = scrubber.clean(&format!("bad token {form} given"));
            assert!(
                clean.starts_with("bad token ") && clean.contains(REDACTED),
                "{clean}"
            );
            assert!(
                !clean.contains("anary") && !clean.contains("Y2FuYXJ5"),
                "{clean}"
            );
        }
    }

    #[test]
    fn paths_and_short_values_stay() {
        let values = ["/srv/files", "./data", "1", "debug"].map(SecretString::from);
        let scrubber = Scrubber::new(values.iter());
        assert_eq!(
            scrubber.clean("/srv/files/a 1 debug"),
            "/srv/files/a 1 debug"
        );
    }
}
