//! Firing what is due (R3.14): about once a second, by every instance; each due time is fired by one of them.

use std::time::Duration;

use tidegate_model::run::QuotaBucket;
use tidegate_store::{
    lanes::LaneKey,
    schedules::fire::{FireFailure, FireTerms, Fired, FiredRun},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Engine, Error,
    claims::LaneHint,
    trouble::{Trouble, chain},
};

/// How often an instance looks; cron knows minutes.
const EVERY: Duration = Duration::from_secs(1);
/// Schedules that one transaction fires.
const BATCH: i64 = 25;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Runs that came of due times.
    pub runs: usize,
    /// Schedules that skipped a due time.
    pub skipped: usize,
    /// Runs that gave way to later ones.
    pub replaced: usize,
    /// Schedules whose run was refused.
    pub refused: usize,
}

/// Fires until told to stop.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut trouble = Trouble::new("firing schedules");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            // Spread, so that instances that started together do not look together.
            () = tokio::time::sleep(EVERY.mul_f64(0.75 + 0.25 * crate::clock::jitter())) => {}
        }
        match round(&engine).await {
            Ok(_) => trouble.over(),
            Err(error) => trouble.met(&error),
        }
    }
}

/// One round: everything that is due now and that nobody else is firing.
pub async fn round(engine: &Engine) -> Result<Round, Error> {
    let mut round = Round::default();
    loop {
        let fleet = engine.store().fleet();
        let fired = fleet.fire_schedules(terms(engine), BATCH).await?;
        tell(engine, &fired);
        round.runs += fired.runs.len();
        round.skipped += fired.skipped;
        round.replaced += fired.replaced.len();
        round.refused += fired.failures.len();
        if i64::try_from(fired.due).unwrap_or(0) < BATCH {
            return Ok(round);
        }
    }
}

fn terms(engine: &Engine) -> FireTerms {
    let settings = engine.settings();
    FireTerms {
        scope: settings.execution_scope.clone(),
        max_attempts: i32::try_from(settings.max_attempts).unwrap_or(i32::MAX),
        backoff_base_ms: i64::from(settings.backoff_base_ms),
        backoff_max_ms: i64::from(settings.backoff_max_ms),
        queue_max_age_ms: engine.queue_max_age_ms(),
    }
}

/// Says what was fired: to claims, streams, metrics and the log.
fn tell(engine: &Engine, fired: &Fired) {
    let hints: Vec<LaneHint> = fired.runs.iter().map(hint).collect();
    if !hints.is_empty() {
        engine.work_moved(&hints, &[]);
    }
    for (tenant, run) in &fired.replaced {
        engine.events().nudge(tenant, *run);
    }
    for (outcome, count) in [
        ("run", fired.runs.len()),
        ("skipped", fired.skipped),
        ("refused", fired.failures.len()),
    ] {
        metrics::counter!("tidegate_schedule_due_total", "outcome" => outcome)
            .increment(count as u64);
    }
    for failure in &fired.failures {
        let FireFailure {
            tenant,
            schedule,
            detail,
            cause,
        } = failure;
        let cause = cause.as_ref().map(|error| chain(error));
        tracing::warn!(%tenant, %schedule, detail, cause, "a schedule could not be fired; its next due time is tried");
    }
}

fn hint(run: &FiredRun) -> LaneHint {
    LaneHint {
        lane: LaneKey {
            bucket: QuotaBucket::Uncounted,
            tenant: run.tenant.clone(),
            class: run.class,
        },
        capability: run.capability.clone(),
        place: (1, -run.priority),
        created_ms: crate::clock::now().timestamp_millis(),
    }
}
