//! Where jitter comes from: a handle, so that tests can hand in their own numbers.

use std::{fmt, sync::Arc};

/// A source of numbers in [0, 1).
#[derive(Clone)]
pub struct Dice(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Dice {
    /// The process's random numbers.
    pub fn ambient() -> Self {
        Self(Arc::new(ambient_unit))
    }

    /// Numbers handed in.
    pub fn from_fn(unit: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(unit))
    }

    /// The next number.
    pub fn unit(&self) -> f64 {
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
    reason = "the one source of jitter in this crate; everything else takes a Dice"
)]
fn ambient_unit() -> f64 {
    rand::random()
}
