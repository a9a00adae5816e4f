//! What a tool server was given and may not repeat (O-25): in its answers, its errors, its last words.

use secrecy::{ExposeSecret, SecretString};
use tidegate_llm::Scrubber;

/// Shorter values are settings as a rule: words that a tool needs for what it has to say.
const SECRET_MIN_BYTES: usize = 8;

/// Takes the values of an environment out. Paths are no secrets, and a tool that works on files must name them.
pub(super) fn scrubber<'a>(values: impl Iterator<Item = &'a SecretString>) -> Scrubber {
    Scrubber::new(values.filter(|value| {
        let value = value.expose_secret();
        value.len() >= SECRET_MIN_BYTES && !value.starts_with(['/', '.', '~'])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-25: what tools were given is taken out of what they say.
    #[test]
    fn secrets_are_taken_out() {
        let values = ["canary-0123", "canary-4567"].map(SecretString::from);
        let scrubber = scrubber(values.iter());
        assert_eq!(
            scrubber.clean("bad token canary-4567 or dTpjYW5hcnktMDEyMzoh"),
            "bad token [redacted] or dT[redacted]oh"
        );
    }

    #[test]
    fn paths_and_short_values_stay() {
        let values = ["/srv/files", "./data", "1", "debug"].map(SecretString::from);
        assert_eq!(
            scrubber(values.iter()).clean("/srv/files/a 1 debug"),
            "/srv/files/a 1 debug"
        );
    }
}
