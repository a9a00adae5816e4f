//! What loops say when their rounds fail: at the beginning, when the cause changes, at most once a minute while it lasts,
//! and once more when it is over.
//!
//! A database that cannot be reached fails the rounds of every loop at once. One of them speaks for all: the heartbeat
//! ([`crate::instances::heartbeat`]), which also looks why.

use std::time::Instant;

use tidegate_model::lasting::Lasting;

use crate::Error;

/// The trouble of one loop.
#[derive(Debug)]
pub struct Trouble {
    what: &'static str,
    lasting: Lasting,
}

impl Trouble {
    /// None yet; `what` names what is done, for example `looking for expired leases`.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            lasting: Lasting::default(),
        }
    }

    /// A round failed.
    pub fn met(&mut self, error: &Error) {
        let cause = chain(error);
        if is_database_away(error) {
            tracing::debug!(error = cause, "{} does not work", self.what);
        } else {
            self.caused(&cause);
        }
    }

    /// A round failed for this cause.
    pub fn caused(&mut self, cause: &str) {
        if let Some(said) = self.lasting.met(Instant::now(), cause) {
            tracing::warn!(
                error = cause,
                times = said.times,
                seconds = said.lasts.as_secs(),
                "{} does not work; it is tried again",
                self.what
            );
        }
    }

    /// A round succeeded.
    pub fn over(&mut self) {
        if let Some(said) = self.lasting.over(Instant::now()) {
            let seconds = said.lasts.as_secs();
            tracing::warn!(times = said.times, seconds, "{} works again", self.what);
        }
    }
}

/// Whether it is the database as a whole that does not work.
pub fn is_database_away(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.is_unavailable())
}

/// What an operator can do about it, where that is known.
pub fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::Store(error) => error.remedy(),
        _ => None,
    }
}

/// What caused an error, without what the error itself says; the error where it names no cause.
pub fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), chain)
}

/// An error with all its causes on one line. Some errors repeat their cause in their own text.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}
