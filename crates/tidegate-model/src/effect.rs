//! The journal of effects (R4.5): what an attempt was about to change, and what came of it.

use std::{fmt, str::FromStr};

use crate::{ids::InvalidId, text_enum, text_form::text_form};

text_enum! {
    /// What is known of an effect that was intended.
    pub enum EffectOutcome: "effect outcome" {
        /// The tool was called and says that it did it.
        Done = "done",
        /// The tool was called and answered with an error.
        Failed = "failed",
        /// A person found out that it did not happen.
        NotDone = "notDone",
    }
}

text_enum! {
    /// Who said so.
    pub enum EffectSource: "effect source" {
        /// The attempt that made the call.
        Attempt = "attempt",
        /// A person who resolved the run's review.
        Person = "person",
    }
}

text_enum! {
    /// How a person resolves a review.
    pub enum ReviewVerdict: "verdict" {
        /// The effect is in place: the run goes on and does not call again.
        ConfirmDone = "confirmDone",
        /// The effect is not in place: the run goes on and knows it.
        ConfirmNotDone = "confirmNotDone",
        /// The run fails.
        Abandon = "abandon",
    }
}

/// Names one call of a tool within its run; a repeat of the call carries the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(String);

impl CallId {
    /// The most bytes it may have.
    pub const MAX_BYTES: usize = 100;

    /// The text form, stored and sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for CallId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
        // "." and ".." would be taken out of a path.
        let dots = text.bytes().all(|b| b == b'.');
        if (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(letter) && !dots {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId {
                kind: "call id",
                expected: "1 to 100 of letters, digits, '-', '_', '.' and ':'",
            })
        }
    }
}

text_form!(CallId, "^[A-Za-z0-9._:-]{1,100}$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_id_fits_into_a_path() {
        for good in ["call_1", "toolu_01AbC", "functions.look:0", "a", "x..y"] {
            assert_eq!(good.parse::<CallId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "a b", "a%2f", "é", &"x".repeat(101)] {
            assert!(bad.parse::<CallId>().is_err(), "{bad}");
        }
    }
}
