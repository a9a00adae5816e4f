//! The one place that reads randomness of the process. Time is tokio's monotonic clock everywhere, so that tests can
//! hold it; the wall clock decides nothing in a client.

use std::{fmt, sync::Arc};

/// A source of numbers in [0, 1).
#[derive(Clone)]
pub(crate) struct Dice(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Dice {
    /// The process's random numbers.
    pub(crate) fn ambient() -> Self {
        Self(Arc::new(unit))
    }

    /// The next number.
    pub(crate) fn unit(&self) -> f64 {
        (self.0)()
    }
}

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dice")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one source of randomness of this crate"
)]
fn unit() -> f64 {
    rand::random::<f64>()
}

/// A key under which a write may be repeated.
#[expect(
    clippy::disallowed_methods,
    reason = "an idempotency key is no id of the model: it has no prefix and is never stored as one"
)]
pub(crate) fn idempotency_key() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
