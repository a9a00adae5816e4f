//! The listener, and the test that it hears (O-23): behind a pooler in transaction mode, or on a standby, LISTEN
//! succeeds or fails quietly and nothing ever arrives. So the instance sends itself a beat through an ordinary
//! connection and demands to hear it.

use std::time::Duration;

use tidegate_store::notify::{Listener, Notification};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::CHANNEL;
use crate::{
    Engine, Error, clock,
    trouble::{chain, is_database_away, remedy},
};

/// The first beat after a connection must be heard within this.
const FIRST_BEAT: Duration = Duration::from_secs(2);
/// Instances that lost their listener together do not come back together.
const RECONNECT_SPREAD: Duration = Duration::from_secs(1);

/// Listens until stopped, connecting again whenever nothing is heard.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut told = false;
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = session(&engine, &mut told) => ended,
        };
        let lost = engine.platform().bus.set_listening(false);
        if lost {
            metrics::counter!("tidegate_config_listener_losses_total").increment(1);
        }
        if !told && !ended.with_the_database(&engine).await {
            told = true;
            match &ended {
                // It did hear, so nothing is wrong with how the database is reached; a restart ends every connection.
                Ended::Broken(error) if lost => lost_connection(&engine, error),
                Ended::Unsent(error) => lost_connection(&engine, error),
                _ => warn(&engine, &ended),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RECONNECT_SPREAD.mul_f64(clock::jitter())) => {}
        }
    }
}

/// Why a session ended.
enum Ended {
    /// The connection could not be made, or broke.
    Broken(Error),
    /// A beat could not be sent, by another connection: this one of the pool was broken, or none was free. That says
    /// nothing of whether notifications arrive.
    Unsent(Error),
    /// It stands, but what is sent does not arrive.
    Silent,
}

impl Ended {
    /// The database as a whole cannot be reached: nothing is wrong with notifications, and the heartbeat says so.
    async fn with_the_database(&self, engine: &Engine) -> bool {
        let away =
            matches!(self, Self::Broken(error) | Self::Unsent(error) if is_database_away(error));
        away && engine.store().reach().await.is_err()
    }
}

fn lost_connection(engine: &Engine, error: &Error) {
    tracing::warn!(
        cause = chain(error),
        remedy = remedy(error),
        poll_ms = engine.settings().config_poll_ms,
        "the connection for notifications of the database was lost and is made anew; until then config changes and \
         queued runs are found by polling"
    );
}

fn warn(engine: &Engine, ended: &Ended) {
    let cause = match ended {
        Ended::Broken(error) | Ended::Unsent(error) => chain(error),
        Ended::Silent => "a test notification did not come back".to_owned(),
    };
    tracing::warn!(
        cause,
        poll_ms = engine.settings().config_poll_ms,
        "notifications of the database do not arrive here; config changes and queued runs are found by polling: \
         connect CONFIG_DB_URL to the primary directly, not through a pooler in transaction mode"
    );
}

/// The channel that only this instance listens on.
fn own_channel(engine: &Engine) -> String {
    format!("tidegate_beat_{}", engine.instance().as_uuid().simple())
}

async fn session(engine: &Engine, told: &mut bool) -> Ended {
    let own = own_channel(engine);
    let mut listener = match engine.store().listen(&[CHANNEL, &own]).await {
        Ok(listener) => listener,
        Err(error) => return Ended::Broken(error.into()),
    };
    // Listening now; whatever was changed before is read anew after this line.
    engine.platform().caches.drop_for(None);
    engine.platform().bus.look_now();
    hear(engine, &own, &mut listener, told).await
}

/// Hears until the beats stay away.
async fn hear(engine: &Engine, own: &str, listener: &mut Listener, told: &mut bool) -> Ended {
    let settings = engine.settings();
    let every = Duration::from_millis(u64::from(settings.listener_heartbeat_ms));
    let dead_after = Duration::from_millis(u64::from(settings.listener_dead_ms));
    let bus = &engine.platform().bus;
    let mut beat = 0;
    let mut next_beat = Instant::now();
    let mut dead_at = Instant::now() + FIRST_BEAT.min(dead_after);
    loop {
        tokio::select! {
            heard = listener.next() => match heard {
                Err(error) => return Ended::Broken(error.into()),
                Ok(Notification { channel, .. }) if channel == own => {
                    dead_at = Instant::now() + dead_after;
                    if !bus.set_listening(true) && *told {
                        *told = false;
                        tracing::info!("notifications of the database arrive again");
                    }
                }
                Ok(_) => bus.look_now(),
            },
            () = tokio::time::sleep_until(next_beat) => {
                beat += 1;
                next_beat += every;
                let asked = Instant::now();
                if let Err(error) = engine.store().notify_listener(own, beat).await {
                    return Ended::Unsent(error.into());
                }
                // What was not sent yet cannot be heard: a pool that is in use says nothing of the listener.
                dead_at += asked.elapsed();
            }
            () = tokio::time::sleep_until(dead_at) => return Ended::Silent,
        }
    }
}
