//! Waiting for something outside of this process, on a thread that may block.

use std::time::{Duration, Instant};

/// Looks every `interval` until `done` says so, or until `patience` is over. Tells which.
#[expect(
    clippy::disallowed_methods,
    reason = "only called on threads of our own, which no runtime needs"
)]
pub(crate) fn until<E>(
    patience: Duration,
    interval: Duration,
    mut done: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let deadline = Instant::now() + patience;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(interval);
    }
}
