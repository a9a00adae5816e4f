//! One attempt: from a fresh lease to its report.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use tidegate_model::{
    Capability, Code,
    api::{ChildAccepted, ContextAnswer, ContextRequest, Lease, LeasedRun, RunBudget, SubmitChild},
    contracts::Needs,
};
use tokio::time::{Instant, sleep};

use super::{
    events::{EventWriter, may_pass},
    held::{Held, Stop, StopSignal},
    outcome::{Failure, Outcome, Report, UsageMeter},
    run::Shared,
};
use crate::{Result, RetryPolicy, WorkerApi};

/// What a handler works with.
#[derive(Debug)]
pub struct Job {
    lease: Lease,
    began: Instant,
    held: Arc<Held>,
    api: Arc<dyn WorkerApi>,
    events: EventWriter,
}

impl Job {
    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The run.
    pub fn run(&self) -> &LeasedRun {
        &self.lease.run
    }

    /// When the lease arrived; budgets and deadlines of the lease count from here.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Tells when to stop.
    pub fn stop(&self) -> StopSignal {
        self.held.signal()
    }

    /// Where events go.
    pub fn events(&self) -> &EventWriter {
        &self.events
    }

    /// Where use is counted.
    pub fn usage(&self) -> &UsageMeter {
        &self.held.usage
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    pub(super) fn api(&self) -> &dyn WorkerApi {
        &*self.api
    }

    /// What earlier attempts left, and the conversation of a turn: the latest `limit` messages up to and including its own input.
    pub async fn context(&self, limit: u32) -> Result<ContextAnswer> {
        let fence = self.lease.fence;
        let request = ContextRequest {
            fence,
            limit,
            children: None,
        };
        self.api.context(self.lease.run.run_id, request).await
    }

    /// Starts a child of the run. `key` is its name within the run: a later attempt that starts it again finds the same
    /// one. To wait for children end the attempt with [`Outcome::Waiting`]; their results are in [`Job::context`] then.
    pub async fn submit_child(&self, child: NewChild) -> Result<ChildAccepted> {
        let request = SubmitChild {
            fence: self.lease.fence,
            key: child.key,
            capability: child.capability,
            requirements: child.requirements,
            input: child.input,
            service_class: None,
            priority: None,
            deadline: child.deadline,
            run_at: None,
            max_attempts: None,
            budget: child.budget,
        };
        self.api.submit_child(self.lease.run.run_id, request).await
    }
}

/// A child to start.
#[derive(Debug, Clone, PartialEq)]
pub struct NewChild {
    /// Its name within the run.
    pub key: String,
    /// What the pool must offer.
    pub capability: Capability,
    /// What else the pool must have; the run's own labels, regions and sandbox floor hold too.
    pub requirements: Option<Needs>,
    /// Passed to its worker as it is.
    pub input: serde_json::Value,
    /// Must have ended by; the run's own deadline unless given.
    pub deadline: Option<chrono::DateTime<chrono::Utc>>,
    /// Bounds over all its attempts; what the run had left unless given.
    pub budget: Option<RunBudget>,
}

impl NewChild {
    /// A child with the run's own terms.
    pub fn new(key: impl Into<String>, capability: Capability, input: serde_json::Value) -> Self {
        Self {
            key: key.into(),
            capability,
            requirements: None,
            input,
            deadline: None,
            budget: None,
        }
    }
}

/// How the work ended.
enum Work {
    Done(Outcome),
    Lost,
}

impl Shared {
    /// Carries out one attempt. Ends with the run reported, or the lease lost.
    pub(super) async fn attempt(&self, lease: Lease, held: Arc<Held>, began: Instant) {
        if self.start(&held).await {
            let events = EventWriter::start(
                Arc::clone(&self.api),
                Arc::clone(&held),
                lease.next_seq,
                self.dice.clone(),
            );
            let job = Job {
                lease,
                began,
                held: Arc::clone(&held),
                api: Arc::clone(&self.api),
                events,
            };
            match self.work(&job).await {
                Work::Done(outcome) => self.report(&job, outcome).await,
                Work::Lost => {
                    tracing::warn!("lease lost; what the attempt did is dropped");
                }
            }
        } else {
            tracing::warn!("lease lost before work began");
        }
        self.leases.remove(held.lease);
    }

    /// R4.1: renews first where less than half of the lease is left. Whether work may begin.
    async fn start(&self, held: &Arc<Held>) -> bool {
        let received = Instant::now();
        let mut tries = 0;
        loop {
            let validity = held.validity();
            if validity.may_start(Instant::now()) {
                return true;
            }
            // The claim may have waited longer than a lease lasts; the lease itself is no older than its arrival.
            let hopeless = received.elapsed() >= validity.lease;
            if hopeless || held.signal().now() == Stop::Lost {
                return false;
            }
            let renewals = self.renewals();
            if !renewals.renew(std::slice::from_ref(held)).await {
                tries += 1;
                sleep(RetryPolicy::default().backoff(tries, self.dice.unit())).await;
            }
        }
    }

    async fn work(&self, job: &Job) -> Work {
        let handler = AssertUnwindSafe(self.handler.run(job)).catch_unwind();
        tokio::select! {
            biased;
            () = job.held.lost() => Work::Lost,
            outcome = grace_over(job.stop(), self.settings.grace) => Work::Done(outcome),
            reason = job.events.failed() => Work::Done(Outcome::Failed(refused_events(&reason))),
            done = handler => Work::Done(done.unwrap_or_else(|_panic| {
                let text = "the worker's handler panicked; its log says where";
                Outcome::Failed(Failure { retryable: true, ..Failure::new(Code::WorkerFailed, text) })
            })),
        }
    }

    async fn report(&self, job: &Job, outcome: Outcome) {
        let write = async {
            let outcome = match job.events.flush().await {
                Ok(()) => outcome,
                Err(reason) => Outcome::Failed(refused_events(&reason)),
            };
            job.held.close();
            let report = Report::new(outcome, job.lease.fence, job.usage());
            self.write(job, report).await;
        };
        tokio::select! {
            biased;
            () = write => {}
            () = job.held.lost() => tracing::warn!("lease lost while the attempt was being reported"),
        }
    }

    /// Writes the report, again and again while the lease is held.
    async fn write(&self, job: &Job, mut report: Report) {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.send(job, &report).await {
                Ok(answer) => {
                    tracing::info!(report = report.name(), state = %answer.state, "attempt reported");
                    return;
                }
                Err(error) => error,
            };
            if error.is_lease_lost() {
                // Also the answer to a repeated report whose first answer was lost on the way.
                tracing::warn!(report = report.name(), "the lease was not held any more");
                return;
            }
            if may_pass(&error) {
                tracing::warn!(report = report.name(), tries, %error, "repeating the report");
                sleep(RetryPolicy::default().backoff(tries, self.dice.unit())).await;
            } else if matches!(report, Report::Complete(_) | Report::Wait(_)) {
                tracing::warn!(report = report.name(), %error, "the server refuses the outcome");
                let text = format!("the server refused the result: {error}");
                let failure = Failure::new(Code::WorkerFailed, text);
                report = Report::new(Outcome::Failed(failure), job.lease.fence, job.usage());
            } else {
                // The lease runs out and the run is taken over: late, but not lost.
                tracing::error!(report = report.name(), %error, "the server refuses the report");
                return;
            }
        }
    }

    async fn send(&self, job: &Job, report: &Report) -> Result<tidegate_model::api::AttemptAnswer> {
        let run_id = job.lease.run.run_id;
        match report.clone() {
            Report::Complete(body) => self.api.complete(run_id, body).await,
            Report::Fail(body) => self.api.fail(run_id, body).await,
            Report::Release(body) => self.api.release(run_id, body).await,
            Report::Wait(body) => self.api.wait(run_id, body).await,
        }
    }
}

fn refused_events(reason: &str) -> Failure {
    let text = format!("the server refused an event of the attempt: {reason}");
    Failure::new(Code::WorkerFailed, text)
}

/// Waits until an attempt that should stop has had its grace; then says how it ends.
async fn grace_over(mut stop: StopSignal, grace: Duration) -> Outcome {
    let first = stop.wait(Stop::Drain).await;
    if first == Stop::Drain {
        // A cancel that comes while draining has a grace of its own.
        tokio::select! {
            () = sleep(grace) => return Outcome::Released,
            _ = stop.wait(Stop::Cancel) => {}
        }
    }
    sleep(grace).await;
    Outcome::Failed(Failure::cancelled())
}
