//! The fence of a lease: (generation, number), compared as a pair of integers (R4.1, R4.7).

use std::{fmt, str::FromStr};

use crate::text_form::text_form;

/// Raised by every claim of a run; the generation rises at each promotion or restore of the database, so that a fence
/// of a lost history is refused, not taken for newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    /// The history of the database that gave it.
    pub generation: i32,
    /// Strictly increasing per run within a generation and across them.
    pub number: i64,
}

/// A text that is not `generation.number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fence: expected generation.number, for example 1.42")]
pub struct InvalidFence;

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.number)
    }
}

impl FromStr for Fence {
    type Err = InvalidFence;

    fn from_str(text: &str) -> Result<Self, InvalidFence> {
        // As it is written: no sign, no leading zero.
        let digits = |part: &str| {
            part.bytes().all(|b| b.is_ascii_digit())
                && (part == "0" || !part.is_empty() && !part.starts_with('0'))
        };
        let (generation, number) = text.split_once('.').ok_or(InvalidFence)?;
        if !digits(generation) || !digits(number) {
            return Err(InvalidFence);
        }
        Ok(Self {
            generation: generation.parse().map_err(|_| InvalidFence)?,
            number: number.parse().map_err(|_| InvalidFence)?,
        })
    }
}

text_form!(Fence, "^(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)$");

#[cfg(test)]
mod tests {
    use super::*;

    /// R4.7: compared as integers, never as text.
    #[test]
    fn a_later_generation_beats_any_number() {
        let old: Fence = "9.1000".parse().unwrap();
        let new: Fence = "10.1".parse().unwrap();
        assert!(new > old);
        assert_eq!(new.to_string(), "10.1");
        for bad in [
            "",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "+1.2",
            "01.2",
            "1.02",
            "1.00",
            "1.-2",
            "1.99999999999999999999",
        ] {
            assert!(bad.parse::<Fence>().is_err(), "{bad}");
        }
    }
}
