//! The one place where this crate asks the machine for time and chance. A wall clock decides nothing (R4.1): it only bounds
//! what callers may ask for, and is measured against the database's.

use chrono::{DateTime, Utc};

/// The wall clock of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Uniform in `[0, 1)`, for jitter.
#[expect(clippy::disallowed_methods, reason = "the one place that draws chance")]
pub fn jitter() -> f64 {
    rand::random::<f64>()
}
