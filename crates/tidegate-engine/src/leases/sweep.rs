//! The sweep (R4.4, R3.9, R3.10): once a `takeover_sweep_ms`, by every instance, each step safe against all the others.

use std::time::{Duration, Instant};

use tidegate_policy::retry::Report;
use tidegate_store::attempts::{
    HeldLease,
    close::{CloseReport, Closer},
    sweep::ToSweep,
};
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, trouble::Trouble, worker::close::close_all};

/// The most rows that one step handles; more are left to the next round.
const BATCH: i64 = 500;
/// Where there is nothing to sweep the next look is so many times later, unless work comes.
const REST: u32 = 3;
/// Looking for late runs reads the whole queue, where an index would cost every claim; it takes this part of the time at
/// most. A run that is late is not claimed meanwhile.
const LATE_PART: u32 = 50;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Leases that were lost and taken over.
    pub taken_over: usize,
    /// Leases that were fenced off after their grace.
    pub fenced_off: usize,
    /// Leases that were told to stop by deadline, budget or the end of the parent.
    pub stopped: u64,
    /// Parked runs that came into the queue.
    pub woken: u64,
    /// Runs that waited too long.
    pub expired: usize,
}

/// Sweeps until told to stop.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let pause = Duration::from_millis(u64::from(engine.settings().takeover_sweep_ms));
    let mut trouble = Trouble::new("looking for expired leases and late runs");
    let mut nothing = false;
    let mut late_from = Instant::now();
    loop {
        let stirred = engine.claims().stirred();
        // Spread, so that instances that started together do not sweep together.
        let pause = pause.mul_f64(0.75 + 0.25 * crate::clock::jitter());
        let rest = async {
            if nothing {
                let _until = tokio::time::timeout(pause * (REST - 1), stirred).await;
            }
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = rest => {}
        }
        let started = Instant::now();
        let in_queue = started >= late_from;
        match sweep_what_there_is(&engine, in_queue).await {
            Ok((to_sweep, took, swept)) => {
                trouble.over();
                if in_queue {
                    late_from = started + took * LATE_PART;
                }
                nothing = to_sweep.is_nothing();
                if swept != Swept::default() {
                    tracing::debug!(?swept, "swept");
                }
            }
            Err(error) => trouble.met(&error),
        }
    }
}

/// One round.
pub async fn sweep(engine: &Engine) -> Result<Swept, Error> {
    Ok(sweep_what_there_is(engine, true).await?.2)
}

/// What there was, how long it took to look, and what was done.
async fn sweep_what_there_is(
    engine: &Engine,
    in_queue: bool,
) -> Result<(ToSweep, Duration, Swept), Error> {
    let fleet = engine.store().fleet();
    let scope = &engine.settings().execution_scope;
    let started = Instant::now();
    let to_sweep = fleet.to_sweep(scope, in_queue).await?;
    let took = started.elapsed();
    let mut swept = Swept::default();
    if to_sweep.leases {
        sweep_leases(engine, &mut swept).await?;
    }
    if to_sweep.due {
        let max_age_ms = engine.queue_max_age_ms();
        swept.woken = fleet.wake_due(scope, max_age_ms, BATCH).await?
            + fleet.wake_waits_due(scope, max_age_ms, BATCH).await?;
    }
    if to_sweep.late {
        let late = fleet.expired_in_queue(BATCH).await?;
        let late = fleet.end_queued(late, engine.queue_max_age_ms()).await?;
        swept.expired = late.len();
        for (tenant, run) in &late {
            engine.events().nudge(tenant, *run);
        }
    }
    if swept.woken > 0 || swept.expired > 0 {
        engine.work_changed();
    }
    Ok((to_sweep, took, swept))
}

async fn sweep_leases(engine: &Engine, swept: &mut Swept) -> Result<(), Error> {
    let fleet = engine.store().fleet();
    let scope = &engine.settings().execution_scope;
    let grace_ms = i64::from(engine.settings().grace_ms);
    swept.stopped = fleet.stop_overdue(scope).await?
        + fleet.stop_orphans(scope).await?
        + fleet.stop_withdrawn(scope).await?;

    let past_grace = fleet.leases_past_grace(scope, grace_ms, BATCH).await?;
    swept.fenced_off = close(
        engine,
        past_grace,
        Report::FencedOff,
        Closer::Grace { grace_ms },
    )
    .await?;

    let lost = fleet.expired_leases(scope, BATCH).await?;
    swept.taken_over = close(engine, lost, Report::LeaseLost, Closer::Takeover).await?;
    metrics::counter!("tidegate_takeovers_total").increment(swept.taken_over as u64);
    Ok(())
}

async fn close(
    engine: &Engine,
    leases: Vec<HeldLease>,
    report: Report,
    closer: Closer,
) -> Result<usize, Error> {
    let reports: Vec<CloseReport> = leases
        .into_iter()
        .map(|lease| CloseReport {
            lease,
            report,
            detail: None,
            tokens: 0,
            result: None,
            messages: Vec::new(),
            wait: None,
        })
        .collect();
    Ok(close_all(engine, reports, closer).await?.len())
}
