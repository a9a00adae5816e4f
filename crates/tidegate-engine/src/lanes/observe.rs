//! The lane observer: one instance at a time writes down what blocks each lane, and ends what no pool could ever serve
//! (R3.9).

use std::time::{Duration, Instant};

use tidegate_store::{
    duties::Duty,
    lanes::waits::{SeenCause, WaitChanges},
};
use tokio_util::sync::CancellationToken;

use super::causes::PoolsSeen;
use crate::{Engine, Error, trouble::Trouble};

/// The name of the duty.
const DUTY: &str = "lane_waits";
/// How long the duty is held after a round.
const DUTY_MS: i64 = 5_000;
/// Between two rounds, at least.
const PAUSE: Duration = Duration::from_millis(500);
/// And at least this many times as long as a round took, so that observing ten thousand lanes stays a small load.
const PAUSE_PER_ROUND: u32 = 8;
/// Where nothing waits the next round is so much later, unless work comes.
const REST: Duration = Duration::from_millis(1_500);
/// Between two rounds of forgetting.
const FORGET_EVERY: Duration = Duration::from_mins(10);
/// Intervals are kept for this long after they ended; a run that is explained later shows that time as waiting for a
/// worker.
const KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// The most runs that one round ends.
const BATCH: i64 = 500;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether this instance held the duty.
    pub on_duty: bool,
    /// Intervals that began or went on.
    pub opened: i64,
    /// Intervals that ended.
    pub closed: i64,
    /// Runs that ended as `UNSATISFIABLE`.
    pub unsatisfiable: usize,
    /// Whether anything waits; else nothing more was looked at.
    pub any: bool,
}

/// Observes until told to stop, then hands the duty back.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut forgotten_at: Option<Instant> = None;
    let mut pause = PAUSE;
    let mut nothing = false;
    let mut trouble = Trouble::new("observing why lanes wait");
    let mut forgetting = Trouble::new("removing old waits of lanes");
    loop {
        let stirred = engine.claims().stirred();
        let rest = async {
            if nothing {
                let _until = tokio::time::timeout(REST, stirred).await;
            }
            tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * crate::clock::jitter())).await;
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = rest => {}
        }
        let started = Instant::now();
        let observed = observe(&engine).await;
        pause = PAUSE.max(started.elapsed() * PAUSE_PER_ROUND);
        match observed {
            Ok(observed) => {
                trouble.over();
                nothing = !observed.any;
                let due = forgotten_at.is_none_or(|at| at.elapsed() >= FORGET_EVERY);
                if observed.on_duty && due {
                    forgotten_at = Some(Instant::now());
                    match engine.store().fleet().forget_waits(KEPT_MS).await {
                        Ok(_) => forgetting.over(),
                        Err(error) => forgetting.met(&error.into()),
                    }
                }
            }
            Err(error) => trouble.met(&error),
        }
    }
    hand_back(&engine).await;
}

async fn hand_back(engine: &Engine) {
    let fleet = engine.store().fleet();
    if let Ok(Some(duty)) = fleet.hold_duty(DUTY, engine.instance(), DUTY_MS).await
        && let Err(error) = fleet.leave_duty(duty).await
    {
        tracing::debug!(%error, "the lane observer's duty ends by itself");
    }
}

/// One round; does nothing while another instance holds the duty.
pub async fn observe(engine: &Engine) -> Result<Observed, Error> {
    let fleet = engine.store().fleet();
    let Some(duty) = fleet.hold_duty(DUTY, engine.instance(), DUTY_MS).await? else {
        // Only the instance on duty counts lanes, so that the sum over all instances is right.
        metrics::gauge!("tidegate_lanes").set(0.0);
        return Ok(Observed::default());
    };
    if !fleet
        .has_lanes_to_observe(&engine.settings().execution_scope)
        .await?
    {
        metrics::gauge!("tidegate_lanes").set(0.0);
        return Ok(Observed {
            on_duty: true,
            ..Observed::default()
        });
    }
    let Some(changes) = look_and_record(engine, duty).await? else {
        return Ok(Observed::default());
    };
    let unsatisfiable = end_unroutable(engine).await?;
    Ok(Observed {
        on_duty: true,
        opened: changes.opened,
        closed: changes.closed,
        unsatisfiable,
        any: true,
    })
}

async fn look_and_record(engine: &Engine, duty: Duty) -> Result<Option<WaitChanges>, Error> {
    let scope = &engine.settings().execution_scope;
    let fleet = engine.store().fleet();
    let pools = PoolsSeen::look(engine).await?;
    let states = fleet.lane_states(scope).await?;
    metrics::gauge!("tidegate_lanes")
        .set(f64::from(u32::try_from(states.len()).unwrap_or(u32::MAX)));
    let causes = pools.causes(&states).await?;
    let seen: Vec<SeenCause> = states
        .iter()
        .zip(causes)
        .flat_map(|(state, causes)| {
            let lane = &state.lane;
            causes.into_iter().map(move |cause| SeenCause {
                lane: lane.clone(),
                cause,
            })
        })
        .collect();
    Ok(fleet.record_waits(duty, scope, &seen).await?)
}

async fn end_unroutable(engine: &Engine) -> Result<usize, Error> {
    let fleet = engine.store().fleet();
    let settings = engine.settings();
    let grace_ms = i64::from(settings.unroutable_grace_ms);
    let ends = fleet
        .unroutable(&settings.execution_scope, grace_ms, BATCH)
        .await?;
    if ends.is_empty() {
        return Ok(0);
    }
    let ended = fleet.end_queued(ends, engine.queue_max_age_ms()).await?;
    for (tenant, run) in &ended {
        engine.events().nudge(tenant, *run);
    }
    if !ended.is_empty() {
        // The next turns of their conversations may have come up.
        engine.work_changed();
    }
    Ok(ended.len())
}
