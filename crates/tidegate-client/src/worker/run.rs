//! The loop: claims while there are free slots, and drains when it is told to stop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_model::{
    Code, WorkerId,
    api::{ClaimAnswer, ClaimRequest, Lease, PROTOCOL_VERSION},
    lasting::Lasting,
    limits::CLAIM_MAX,
};
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use super::{Job, Outcome, held::Leases, renewal::Renewals};
use crate::{Error, Result, RetryPolicy, SetupCause, WorkerApi, ambient::Dice, limits};

/// Works on runs. Dropped in the middle when the lease is lost or a grace is over; must not leave anything behind then.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Works on one run until it is done or should stop.
    async fn run(&self, job: &Job) -> Outcome;
}

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name; no proof of anything.
    pub worker_id: WorkerId,
    /// Rises with each start of a worker of this name.
    pub incarnation: i64,
    /// Runs at once.
    pub concurrency: u32,
    /// Of them of bucket `background` and of background descent; 0 takes none, `None` sets no bound of its own (R3.6).
    pub background_concurrency: Option<u32>,
    /// How long a claim waits for work.
    pub claim_wait: Duration,
    /// How often leases are renewed; three tenths of the lease unless given.
    pub renew_every: Option<Duration>,
    /// How long a cancelled or draining attempt may go on.
    pub grace: Duration,
}

impl WorkerSettings {
    /// Defaults for a worker of this name.
    pub fn new(worker_id: WorkerId, incarnation: i64, concurrency: u32) -> Self {
        Self {
            worker_id,
            incarnation,
            concurrency,
            background_concurrency: None,
            claim_wait: limits::CLAIM_WAIT,
            renew_every: None,
            grace: limits::GRACE,
        }
    }
}

/// Claims runs and has them worked on.
pub struct WorkerLoop {
    shared: Arc<Shared>,
    handlers: Option<Handle>,
}

/// What the parts of the loop share.
pub(super) struct Shared {
    pub(super) api: Arc<dyn WorkerApi>,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) settings: WorkerSettings,
    pub(super) leases: Arc<Leases>,
    pub(super) dice: Dice,
    /// The shortest lease seen, in milliseconds; 0 before the first.
    lease_ms: AtomicU64,
}

impl std::fmt::Debug for WorkerLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerLoop")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn renewals(&self) -> Renewals {
        Renewals {
            api: Arc::clone(&self.api),
            leases: Arc::clone(&self.leases),
            every: self.settings.renew_every,
            dice: self.dice.clone(),
            failing: Mutex::default(),
        }
    }
}

/// Attempts under way. Each tells whether it is of bucket `background`.
type Attempts = JoinSet<bool>;

impl WorkerLoop {
    /// A loop that has not begun.
    pub fn new(
        api: Arc<dyn WorkerApi>,
        handler: Arc<dyn Handler>,
        settings: WorkerSettings,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                api,
                handler,
                settings,
                leases: Arc::new(Leases::default()),
                dice: Dice::ambient(),
                lease_ms: AtomicU64::new(0),
            }),
            handlers: None,
        }
    }

    /// Runs attempts on another runtime, so that handlers that block their thread cannot hold up renewals (O-02).
    #[must_use]
    pub fn handlers_on(mut self, runtime: Handle) -> Self {
        self.handlers = Some(runtime);
        self
    }

    /// Works until `stop`, then lets attempts finish within the grace and hands back the rest (R1.7). An error is one
    /// that no repetition can cure: a bad key, a protocol that is too old.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let _renewals = AbortOnDropHandle::new(tokio::spawn(self.shared.renewals().run()));
        let mut attempts = Attempts::new();
        let mut background = 0;
        let result = self
            .claim_until(&stop, &mut attempts, &mut background)
            .await;
        self.shared.leases.drain();
        while attempts.join_next().await.is_some() {}
        result
    }

    async fn claim_until(
        &self,
        stop: &CancellationToken,
        attempts: &mut Attempts,
        background: &mut u32,
    ) -> Result<()> {
        let (mut failures, mut reached) = (0, false);
        let mut failing = Lasting::default();
        if self.shared.settings.concurrency == 0 {
            stop.cancelled().await;
        }
        while !stop.is_cancelled() {
            while let Some(ended) = attempts.try_join_next() {
                *background -= u32::from(ended.unwrap_or(false));
            }
            let Some(request) = self.next_claim(attempts.len(), *background) else {
                tokio::select! {
                    ended = attempts.join_next() => {
                        *background -= u32::from(matches!(ended, Some(Ok(true))));
                    }
                    () = stop.cancelled() => {}
                }
                continue;
            };
            let sent = Instant::now();
            let Some(answer) = self.claim(request, stop).await else {
                return Ok(());
            };
            match answer {
                Ok(answer) => {
                    (failures, reached) = (0, true);
                    if let Some(said) = failing.over(Instant::now().into_std()) {
                        tracing::warn!(
                            times = said.times,
                            seconds = said.lasts.as_secs(),
                            "claims get through again"
                        );
                    }
                    for lease in answer.leases {
                        *background += u32::from(is_background(&lease));
                        self.begin(lease, sent, attempts, stop);
                    }
                }
                Err(error) if is_final(&error, reached) => return Err(error),
                Err(error) => {
                    failures += 1;
                    let cause = error.in_short();
                    if let Some(said) = failing.met(Instant::now().into_std(), &cause) {
                        tracing::warn!(
                            times = said.times,
                            error = cause,
                            "cannot claim; trying again"
                        );
                    }
                    let wait = RetryPolicy::default().backoff(failures, self.shared.dice.unit());
                    let wait = wait + error.retry_after().unwrap_or_default();
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// What to claim next; nothing while every slot is taken.
    fn next_claim(&self, running: usize, background: u32) -> Option<ClaimRequest> {
        let settings = &self.shared.settings;
        let running = u32::try_from(running).unwrap_or(u32::MAX);
        let max = settings.concurrency.saturating_sub(running).min(CLAIM_MAX);
        if max == 0 {
            return None;
        }
        let bound = settings.background_concurrency;
        let max_background = bound.map(|most| most.saturating_sub(background).min(max));
        let mut wait = settings.claim_wait;
        if max_background == Some(0) && bound != Some(0) {
            // A background slot may come free while this claim waits, and it could not take the work.
            wait = wait.min(limits::CLAIM_WAIT_LIMITED);
        }
        let lease_ms = self.shared.lease_ms.load(Ordering::Relaxed);
        if lease_ms > 0 {
            wait = wait.min(Duration::from_millis(lease_ms).mul_f64(0.4));
        }
        Some(ClaimRequest {
            worker_id: settings.worker_id.clone(),
            incarnation: settings.incarnation,
            protocol_version: PROTOCOL_VERSION,
            max,
            max_background,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0),
        })
    }

    /// `None` when the loop should stop and the claim did not end in time: the server hands back what it took for a
    /// client that hung up.
    async fn claim(
        &self,
        request: ClaimRequest,
        stop: &CancellationToken,
    ) -> Option<Result<ClaimAnswer>> {
        let mut claim = self.shared.api.claim(request);
        tokio::select! {
            answer = &mut claim => return Some(answer),
            () = stop.cancelled() => {}
        }
        timeout(limits::CLAIM_HANGUP, claim).await.ok()
    }

    fn begin(
        &self,
        lease: Lease,
        sent: Instant,
        attempts: &mut Attempts,
        stop: &CancellationToken,
    ) {
        let shared = Arc::clone(&self.shared);
        let lease_ms = u64::try_from(lease.lease_ms).unwrap_or(0);
        shared.lease_ms.store(lease_ms, Ordering::Relaxed);
        let held = shared.leases.add(&lease, sent);
        if stop.is_cancelled() {
            held.raise(super::Stop::Drain);
        }
        let background = is_background(&lease);
        let span = tracing::info_span!("attempt", run_id = %lease.run.run_id, attempt = lease.attempt, tenant = %lease.run.tenant);
        let began = Instant::now();
        let work = async move {
            shared.attempt(lease, held, began).await;
            background
        };
        match &self.handlers {
            Some(runtime) => attempts.spawn_on(work.instrument(span), runtime),
            None => attempts.spawn(work.instrument(span)),
        };
    }
}

fn is_background(lease: &Lease) -> bool {
    lease.run.is_background_work()
}

/// Whether claiming again cannot help. What was once `reached` is set up rightly: a certificate that is being changed
/// comes back; and a name may be entered after the worker that asks for it has started.
fn is_final(error: &Error, reached: bool) -> bool {
    matches!(error, Error::Configuration { .. })
        || matches!(error, Error::Setup { cause, .. } if !reached && *cause != SetupCause::NoSuchName)
        || matches!(
            error.code(),
            Some(
                Code::Unauthenticated
                    | Code::Forbidden
                    | Code::NotFound
                    | Code::InvalidArgument
                    | Code::UnknownField
                    | Code::ProtocolTooOld
            )
        )
}
