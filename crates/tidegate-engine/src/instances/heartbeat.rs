//! The heartbeat of an instance: that it lives, what it serves, how far its clock is off (R4.1).

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use serde_json::json;
use tidegate_model::lasting::Lasting;
use tidegate_store::instances::Heartbeat;
use tokio_util::sync::CancellationToken;

use crate::{
    Engine, Error, clock, config_bus,
    secrets::SecretError,
    trouble::{Trouble, cause, chain, is_database_away},
};

/// A wall clock that is further off than this is reported (it decides nothing).
const SKEW_WARN_MS: u64 = 500;
/// A measurement that took longer than this says nothing about the clock.
const MEASURE_MAX: Duration = Duration::from_millis(250);
/// Every so many beats the rows of instances that are long gone are removed.
const FORGET_EVERY: u64 = 300;

/// A database that has not answered a beat for this long does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Beats every `instance_heartbeat_ms` until stopped, then takes the row away. Speaks for all loops where the database
/// cannot be reached: each of them fails then, and one line says more than twelve.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let every = Duration::from_millis(u64::from(engine.settings().instance_heartbeat_ms));
    let mut beats = 0_u64;
    let mut outage = Outage::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(every) => {}
        }
        outage.watch(&engine).await;
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

/// What is known of the database by beats that fail.
#[derive(Debug)]
struct Outage {
    lasting: Lasting,
    /// A beat has failed although the database can be reached.
    broken: bool,
    other: Trouble,
}

impl Default for Outage {
    fn default() -> Self {
        Self {
            lasting: Lasting::default(),
            broken: false,
            other: Trouble::new("the heartbeat of this instance"),
        }
    }
}

impl Outage {
    /// One beat. It is not given up when it takes long: a statement that was dropped half-way would cost its connection.
    async fn watch(&mut self, engine: &Engine) {
        let beat = beat(engine);
        tokio::pin!(beat);
        let done = loop {
            tokio::select! {
                done = &mut beat => break done,
                () = tokio::time::sleep(ANSWER_MAX) => self.met("it does not answer"),
            }
        };
        match done {
            Ok(()) => self.over(),
            Err(error) if is_database_away(&error) => self.look(engine, &error).await,
            Err(error) => self.other.met(&error),
        }
    }

    /// Asks for the cause apart from the pool, which hides it. After a restart of the database the pool is full of dead
    /// connections, each of which fails once: that is no outage.
    async fn look(&mut self, engine: &Engine, error: &Error) {
        match engine.store().reach().await {
            Err(error) => self.met(&cause(&error)),
            Ok(()) if !self.broken => {
                self.broken = true;
                tracing::debug!(
                    error = chain(error),
                    "a connection to the database was broken"
                );
            }
            Ok(()) => self.met(&chain(error)),
        }
    }

    fn met(&mut self, cause: &str) {
        if let Some(said) = self.lasting.met(Instant::now(), cause) {
            tracing::warn!(
                cause,
                seconds = said.lasts.as_secs(),
                "the database cannot be used; requests are answered DATABASE_UNAVAILABLE, running work goes on while its \
                 leases last"
            );
        }
    }

    fn over(&mut self) {
        self.broken = false;
        self.other.over();
        if let Some(said) = self.lasting.over(Instant::now()) {
            tracing::warn!(
                seconds = said.lasts.as_secs(),
                "the database can be used again"
            );
        }
    }
}

/// One beat.
pub async fn beat(engine: &Engine) -> Result<(), Error> {
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
        key_ids: engine.platform().keyring.ids(),
    };
    let (asked_at, wall) = (Instant::now(), clock::now());
    let beaten = engine.store().beat(&heartbeat).await?;
    measure_skew(engine, asked_at.elapsed(), wall, beaten.now_ms);
    notice_key(engine, beaten.key_in_force);
    if beaten.ahead {
        let dead_after = config_bus::dead_after_ms(engine);
        engine.store().note_in_force(dead_after).await?;
    }
    Ok(())
}

/// Follows the key that secrets are sealed with (R1.8). One that this instance does not have makes it unready.
fn notice_key(engine: &Engine, in_force: Option<String>) {
    let mut known = engine.platform().key_in_force.lock();
    if *known == in_force {
        return;
    }
    if let Some(key) = &in_force
        && !engine.platform().keyring.has(key)
    {
        let error = SecretError::KeyReplaced {
            in_force: key.clone(),
        };
        tracing::error!(%error, "this server cannot open secrets any more and takes itself out of service");
    }
    *known = in_force;
}

/// Compares the wall clock, half-way between question and answer, with the database's. The next beat publishes it.
fn measure_skew(engine: &Engine, took: Duration, wall: DateTime<Utc>, database: i64) {
    if took > MEASURE_MAX {
        return;
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
}
