//! The leases that a worker holds, and how long it may believe so.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tidegate_model::api::{Lease, LeaseRef, RenewAnswer};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::outcome::UsageMeter;
use crate::limits;

/// Why an attempt should stop, from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It should not.
    No,
    /// The worker is shutting down: finish within the grace, or the run is handed back.
    Drain,
    /// Somebody cancelled the run: make no new model or tool call, and fail with `CANCELLED` (R3.10).
    Cancel,
    /// The lease is not held any more: nothing that is still done counts (R4.2).
    Lost,
}

/// Tells a handler when to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<Stop>);

impl StopSignal {
    /// What holds now.
    pub fn now(&self) -> Stop {
        *self.0.borrow()
    }

    /// Waits until the attempt should stop for `at_least` this reason.
    pub async fn wait(&mut self, at_least: Stop) -> Stop {
        match self.0.wait_for(|stop| *stop >= at_least).await {
            Ok(stop) => *stop,
            // The lease is gone together with its sender.
            Err(_) => Stop::Lost,
        }
    }
}

/// One lease as its holder sees it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: LeaseRef,
    /// What the attempt has used so far; goes with each renewal.
    pub(super) usage: UsageMeter,
    validity: watch::Sender<Validity>,
    stop: watch::Sender<Stop>,
    /// The attempt is being reported; the answer to that says the truth about the lease.
    closing: AtomicBool,
}

/// Until when a lease is believed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    /// When the last accepted renewal, or the claim, was sent.
    pub(super) sent: Instant,
    pub(super) lease: Duration,
}

impl Validity {
    /// When the attempt stops by itself: a little before the lease can expire elsewhere.
    pub(super) fn ends(self) -> Instant {
        self.sent + self.lease.mul_f64(1.0 - limits::FENCE_MARGIN_PART)
    }

    /// R4.1: at least half of the lease is left.
    pub(super) fn may_start(self, now: Instant) -> bool {
        now <= self.sent + self.lease / 2
    }
}

impl Held {
    pub(super) fn signal(&self) -> StopSignal {
        StopSignal(self.stop.subscribe())
    }

    pub(super) fn validity(&self) -> Validity {
        *self.validity.borrow()
    }

    /// Raises the reason to stop; a weaker one changes nothing.
    pub(super) fn raise(&self, stop: Stop) {
        self.stop.send_if_modified(|now| {
            let stronger = stop > *now;
            *now = stop.max(*now);
            stronger
        });
    }

    /// Whether the attempt may still write.
    pub(super) fn is_held(&self) -> bool {
        *self.stop.borrow() < Stop::Lost && Instant::now() < self.validity().ends()
    }

    /// From now on the answer to the report decides, not renewals.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn renewed(&self, sent: Instant, lease: Duration) {
        self.validity.send_if_modified(|now| {
            let newer = sent > now.sent;
            if newer {
                *now = Validity { sent, lease };
            }
            newer
        });
    }

    /// Waits until the lease is not held any more, by the server's word or by the clock.
    pub(super) async fn lost(&self) {
        let mut validity = self.validity.subscribe();
        let mut signal = self.signal();
        loop {
            let ends = validity.borrow_and_update().ends();
            tokio::select! {
                _ = signal.wait(Stop::Lost) => return,
                () = sleep_until(ends) => {
                    if self.validity().ends() <= Instant::now() {
                        self.raise(Stop::Lost);
                        return;
                    }
                }
                _ = validity.changed() => {}
            }
        }
    }
}

/// All leases of a worker.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<LeaseRef, Arc<Held>>>,
    /// Rung when there is a lease that the renewals do not know yet.
    pub(super) added: Notify,
}

impl Leases {
    /// Takes a lease whose claim was sent at `sent`.
    pub(super) fn add(&self, lease: &Lease, sent: Instant) -> Arc<Held> {
        let validity = Validity {
            sent,
            lease: Duration::from_millis(u64::try_from(lease.lease_ms).unwrap_or(0)),
        };
        let held = Arc::new(Held {
            lease: LeaseRef {
                run_id: lease.run.run_id,
                fence: lease.fence,
            },
            usage: UsageMeter::default(),
            validity: watch::Sender::new(validity),
            stop: watch::Sender::new(Stop::No),
            closing: AtomicBool::new(false),
        });
        self.held.lock().insert(held.lease, Arc::clone(&held));
        self.added.notify_one();
        held
    }

    pub(super) fn remove(&self, lease: LeaseRef) {
        self.held.lock().remove(&lease);
    }

    /// Those whose validity should be prolonged.
    pub(super) fn open(&self) -> Vec<Arc<Held>> {
        let held = self.held.lock();
        let open = held
            .values()
            .filter(|held| *held.signal().0.borrow() < Stop::Lost);
        open.cloned().collect()
    }

    /// When the next renewal is due, where there is anything to renew.
    pub(super) fn next_due(&self, every: Option<Duration>) -> Option<Instant> {
        let due = |held: &Arc<Held>| {
            let validity = held.validity();
            let every = every.unwrap_or_else(|| validity.lease.mul_f64(limits::RENEW_PART));
            validity.sent + every
        };
        self.open().iter().map(due).min()
    }

    /// Takes the answer to a renewal that was sent at `sent`.
    pub(super) fn apply(&self, sent: Instant, answer: &RenewAnswer) {
        let lease = Duration::from_millis(u64::try_from(answer.lease_ms).unwrap_or(0));
        let held = self.held.lock();
        for renewed in answer.renewed.iter().filter_map(|lease| held.get(lease)) {
            renewed.renewed(sent, lease);
        }
        for cancelled in answer.cancel.iter().filter_map(|lease| held.get(lease)) {
            cancelled.raise(Stop::Cancel);
        }
        for lost in answer.lost.iter().filter_map(|lease| held.get(lease)) {
            if !lost.is_closing() {
                lost.raise(Stop::Lost);
            }
        }
    }

    /// Asks every attempt to come to an end.
    pub(super) fn drain(&self) {
        for held in self.held.lock().values() {
            held.raise(Stop::Drain);
        }
    }
}
