//! Times on the command line.

use chrono::{DateTime, SubsecRound as _, Utc};

/// Reads a time; a refusal shows how one is written, which the parser's own words do not.
pub fn at(text: &str) -> Result<DateTime<Utc>, String> {
    text.parse::<DateTime<Utc>>().map_err(|_| {
        "no time that can be meant; write it as 2030-01-31T00:00:00Z, the year with four digits"
            .to_owned()
    })
}

/// The wall clock of this machine, for what is written down here and judged elsewhere.
#[expect(
    clippy::disallowed_methods,
    reason = "a date for a file that a person looks at; the server's clock decides"
)]
pub fn now() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bad input: whatever is wrong with a time, the refusal shows a good one.
    #[test]
    fn a_wrong_time_is_answered_with_a_right_one() {
        assert!(at("2030-01-31T00:00:00Z").is_ok());
        assert!(at("2030-01-31T00:00:00+02:00").is_ok());
        for bad in [
            "99999-01-01T00:00:00Z",
            "tomorrow",
            "",
            "2030-13-01T00:00:00Z",
        ] {
            let refused = at(bad).unwrap_err();
            assert!(refused.contains("2030-01-31T00:00:00Z"), "{bad}: {refused}");
        }
    }
}
