//! The three steps in which a server ends (R1.7).

use tokio_util::sync::CancellationToken;

/// Shared by the composition root, which hears the signals, and by all that must obey them. A later step implies the
/// earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    draining: CancellationToken,
    closing: CancellationToken,
    ending: CancellationToken,
}

impl Shutdown {
    /// Nothing asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Step 1: not ready, no claims, streams end with a position to resume from. Requests are still answered, so that
    /// running attempts can be completed here.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Step 2: no new connections; requests that have begun are finished within the grace.
    pub fn close(&self) {
        self.drain();
        self.closing.cancel();
    }

    /// Step 3: at once. Loses nothing, since nothing is acknowledged before it is committed.
    pub fn end(&self) {
        self.close();
        self.ending.cancel();
    }

    /// Whether step 1 was reached.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Step 1.
    pub const fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Step 2.
    pub const fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Step 3.
    pub const fn ending(&self) -> &CancellationToken {
        &self.ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R1.7: each step implies the one before.
    #[test]
    fn a_later_step_implies_the_earlier_ones() {
        let shutdown = Shutdown::new();
        shutdown.close();
        assert!(shutdown.is_draining());
        assert!(shutdown.closing().is_cancelled());
        assert!(!shutdown.ending().is_cancelled());
        shutdown.end();
        assert!(shutdown.ending().is_cancelled());
    }
}
