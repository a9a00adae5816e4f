//! What the workers of a driver have started and finished.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long a driver waits for the last run of a latency measurement.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts over all workers of a driver.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    since: Instant,
    wanted: usize,
    started: AtomicUsize,
    finished: AtomicUsize,
    waits_ms: Mutex<Vec<f64>>,
}

impl Progress {
    /// Nothing yet of `wanted` runs.
    pub fn new(wanted: usize) -> Self {
        Self(Arc::new(Inner {
            since: Instant::now(),
            wanted,
            started: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            waits_ms: Mutex::default(),
        }))
    }

    /// Now, as payloads carry it.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.0.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A handler was called with this payload.
    pub fn start(&self, payload: &Value) {
        self.0.started.fetch_add(1, Ordering::Relaxed);
        let at = payload.get("at").and_then(Value::as_u64).unwrap_or(0);
        if at > 0 {
            let waited = self.now_us().saturating_sub(at) as f64 / 1000.0;
            self.0.waits_ms.lock().expect("waits").push(waited);
        }
    }

    /// So many runs are completed.
    pub fn finish(&self, runs: usize) {
        self.0.finished.fetch_add(runs, Ordering::Relaxed);
    }

    /// Whether all are completed.
    pub fn is_done(&self) -> bool {
        self.0.finished.load(Ordering::Relaxed) >= self.0.wanted
    }

    /// Whether all have started, so that asking for more is in vain.
    pub fn all_started(&self) -> bool {
        self.0.started.load(Ordering::Relaxed) >= self.0.wanted
    }

    /// Waits until all have started, then their waits without those of the first second.
    pub async fn waits_after(&self, skipped: usize) -> Vec<f64> {
        let deadline = Instant::now() + PATIENCE;
        while !self.all_started() {
            assert!(Instant::now() < deadline, "not every run was started");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.0.waits_ms.lock().expect("waits").split_off(skipped)
    }
}
