//! The heartbeat of an instance: that it lives, what it serves, how far its clock is off (R4.1).

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use serde_json::json;
use tidegate_store::instances::Heartbeat;
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, clock, config_bus};

/// A wall clock that is further off than this is reported (it decides nothing).
const SKEW_WARN_MS: u64 = 500;
/// A measurement that took longer than this says nothing about the clock.
const MEASURE_MAX: Duration = Duration::from_millis(250);
/// Every so many beats the rows of instances that are long gone are removed.
const FORGET_EVERY: u64 = 300;

/// Beats every `instance_heartbeat_ms` until stopped, then takes the row away.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let every = Duration::from_millis(u64::from(engine.settings().instance_heartbeat_ms));
    let mut beats = 0_u64;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(every) => {}
        }
        if let Err(error) = beat(&engine).await {
            tracing::debug!(%error, "the heartbeat was not written");
        }
        beats += 1;
        if beats % FORGET_EVERY == 1
            && let Err(error) = engine.store().forget_instances().await
        {
            tracing::debug!(%error, "rows of old instances were not removed");
        }
    }
    if let Err(error) = engine.store().leave(engine.instance()).await {
        tracing::debug!(%error, "the instance's row was not removed; others see it die");
    }
}

/// One beat.
pub async fn beat(engine: &Engine) -> Result<(), Error> {
    measure_skew(engine).await?;
    let settings = engine.settings();
    let waiting = engine.claims().waiting();
    let heartbeat = Heartbeat {
        instance: engine.instance(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        roles: settings.roles.names(),
        draining: engine.is_draining(),
        revision: engine.platform().bus.in_force(),
        clock_skew_ms: engine.platform().clock_skew_ms(),
        concurrency: i32::try_from(settings.run_execution_concurrency).unwrap_or(i32::MAX),
        background_concurrency: i32::try_from(settings.run_execution_background_concurrency)
            .unwrap_or(i32::MAX),
        listening: engine.platform().bus.is_listening(),
        waiting_claims: json!(
            waiting
                .iter()
                .map(|(pool, slots)| (pool.as_str(), slots))
                .collect::<std::collections::BTreeMap<_, _>>()
        ),
    };
    engine.store().beat(&heartbeat).await?;
    let dead_after = config_bus::dead_after_ms(engine);
    engine.store().note_in_force(dead_after).await?;
    Ok(())
}

/// Compares the wall clock, half-way between question and answer, with the database's.
async fn measure_skew(engine: &Engine) -> Result<(), Error> {
    let (asked_at, wall) = (Instant::now(), clock::now());
    let database = engine.store().clock_ms().await?;
    let took = asked_at.elapsed();
    if took > MEASURE_MAX {
        return Ok(());
    }
    let half = i64::try_from(took.as_millis() / 2).unwrap_or(0);
    let skew = wall.timestamp_millis() + half - database;
    let before = engine
        .platform()
        .clock_skew_ms
        .swap(skew, Ordering::Relaxed);
    #[expect(clippy::cast_precision_loss, reason = "a gauge for people")]
    metrics::gauge!("tidegate_clock_skew_seconds").set(skew as f64 / 1_000.0);
    if skew.unsigned_abs() >= SKEW_WARN_MS && before.unsigned_abs() < SKEW_WARN_MS {
        tracing::warn!(
            skew_ms = skew,
            "this machine's clock is off by half a second or more against the database's; leases are not affected, \
             but times in logs are: check its time service"
        );
    }
    Ok(())
}
