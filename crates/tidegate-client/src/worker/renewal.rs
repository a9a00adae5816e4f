//! Renewals: one request for all leases, in a task apart from the work (R4.3, O-02).

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_model::{
    api::{AttemptUsage, RenewLease, RenewRequest},
    lasting::Lasting,
    limits::BUDGET_MAX,
};
use tokio::time::{Instant, sleep_until, timeout};

use super::held::{Held, Leases};
use crate::{RetryPolicy, WorkerApi, ambient::Dice};

/// The most leases that one renewal may name.
const LEASES_PER_RENEWAL: usize = 1_000;

/// Sends renewals until it is dropped.
#[derive(Debug)]
pub(super) struct Renewals {
    pub(super) api: Arc<dyn WorkerApi>,
    pub(super) leases: Arc<Leases>,
    pub(super) every: Option<Duration>,
    pub(super) dice: Dice,
    pub(super) failing: Mutex<Lasting>,
}

impl Renewals {
    pub(super) async fn run(self) {
        let mut failures = 0;
        let mut last = Instant::now();
        loop {
            self.wait(failures, last).await;
            last = Instant::now();
            let open = self.leases.open();
            let mut failed = false;
            for part in open.chunks(LEASES_PER_RENEWAL) {
                failed |= !self.renew(part).await;
            }
            failures = if failed { failures + 1 } else { 0 };
        }
    }

    /// Until the next renewal is due; a failed one is repeated sooner than that. Whatever the answer to the `last` one
    /// said or left out, there is a pause after it.
    async fn wait(&self, failures: u32, last: Instant) {
        loop {
            let added = self.leases.added.notified();
            let Some(due) = self.leases.next_due(self.every) else {
                added.await;
                continue;
            };
            let at = due.max(last + self.backoff(failures));
            tokio::select! {
                () = sleep_until(at) => return,
                () = added => {}
            }
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let shortest = self.patience();
        let policy = RetryPolicy {
            max_tries: u32::MAX,
            base: shortest / 10,
            max: shortest / 2,
        };
        // Half of it is certain: an unlucky row of small numbers must not become a storm of renewals.
        policy.max.min(policy.base) / 2 + policy.backoff(failures, self.dice.unit()) / 2
    }

    /// How long one renewal may take: there must be time for another one after it.
    fn patience(&self) -> Duration {
        let leases = self.leases.open();
        let shortest = leases.iter().map(|held| held.validity().lease).min();
        shortest.unwrap_or(Duration::from_secs(30)) / 4
    }

    /// Renews some leases; whether there was an answer.
    pub(super) async fn renew(&self, leases: &[Arc<Held>]) -> bool {
        let request = RenewRequest {
            leases: leases.iter().map(|held| with_usage(held)).collect(),
        };
        let sent = Instant::now();
        match timeout(self.patience(), self.api.renew(request)).await {
            Ok(Ok(answer)) => {
                self.leases.apply(sent, &answer);
                if let Some(said) = self.failing.lock().over(Instant::now().into_std()) {
                    tracing::warn!(
                        times = said.times,
                        seconds = said.lasts.as_secs(),
                        "leases are renewed again"
                    );
                }
                true
            }
            Ok(Err(error)) => {
                self.failed(leases.len(), &error.in_short());
                false
            }
            Err(_) => {
                self.failed(leases.len(), "no answer in time");
                false
            }
        }
    }

    fn failed(&self, leases: usize, error: &str) {
        let met = self.failing.lock().met(Instant::now().into_std(), error);
        if let Some(said) = met {
            tracing::warn!(
                leases,
                times = said.times,
                error,
                "cannot renew leases; trying again"
            );
        }
    }
}

/// A lease with what its attempt has used so far, at most what a renewal may name: one that is refused would lose them
/// all.
fn with_usage(held: &Held) -> RenewLease {
    let used = held.usage.read();
    let tokens = used.tokens.min(BUDGET_MAX);
    RenewLease {
        usage: (tokens > 0).then_some(AttemptUsage { tokens }),
        ..held.lease.into()
    }
}
