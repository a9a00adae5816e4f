//! Readiness (R21.4): whether traffic should come here. Liveness is no business of this module and never asks the
//! database.

use std::time::{Duration, Instant};

use tidegate_model::api::{Readiness, ReadinessCheck};

use crate::{Engine, redis_link::RedisState, secrets::SecretError};

/// The longest wait for the database's answer to a probe.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// Probes within this share one answer, so that they cost the same however often they come.
const ANSWER_AGE_MAX: Duration = Duration::from_millis(500);

/// The last answer of the database.
#[derive(Debug, Default)]
pub(crate) struct Probed(Option<(Instant, ReadinessCheck)>);

/// Whether this instance should get traffic, and each check with what it found. Redis and the listener are shown but
/// never decide: without them the instance works, a little slower to learn of changes.
pub async fn readiness(engine: &Engine) -> Readiness {
    let draining = ReadinessCheck {
        name: "intake".to_owned(),
        ok: !engine.is_draining(),
        detail: if engine.is_draining() {
            "drains: takes no new work; send it elsewhere".to_owned()
        } else {
            "takes work".to_owned()
        },
    };
    let database = database(engine).await;
    let key = key(engine);
    let ready = draining.ok && database.ok && key.ok;
    let mut checks = vec![draining, database, key, listener(engine)];
    if let RedisState::Known { ok, detail } = &*engine.platform().redis.lock() {
        checks.push(ReadinessCheck {
            name: "redis".to_owned(),
            ok: *ok,
            detail: detail.clone(),
        });
    }
    Readiness { ready, checks }
}

/// A short write. One at a time: probes that come while one is under way wait for its answer.
async fn database(engine: &Engine) -> ReadinessCheck {
    let mut probed = engine.platform().probed.lock().await;
    if let Some((at, check)) = &probed.0
        && at.elapsed() < ANSWER_AGE_MAX
    {
        return check.clone();
    }
    let asked_at = Instant::now();
    let write = engine.store().probe_write(engine.instance());
    let (ok, detail) = match tokio::time::timeout(WRITE_MAX, write).await {
        Ok(Ok(_)) => (
            true,
            format!("wrote in {} ms", asked_at.elapsed().as_millis()),
        ),
        Ok(Err(error)) => (false, error.to_string()),
        Err(_) => (
            false,
            format!("did not answer within {} ms", WRITE_MAX.as_millis()),
        ),
    };
    let check = ReadinessCheck {
        name: "database".to_owned(),
        ok,
        detail,
    };
    probed.0 = Some((Instant::now(), check.clone()));
    check
}

/// Whether this instance has the key that secrets are sealed with, as of its last heartbeat (R1.8).
fn key(engine: &Engine) -> ReadinessCheck {
    let platform = engine.platform();
    let missing = platform
        .key_in_force
        .lock()
        .clone()
        .filter(|in_force| !platform.keyring.has(in_force));
    ReadinessCheck {
        name: "key".to_owned(),
        ok: missing.is_none(),
        detail: missing.map_or_else(
            || "opens the secrets of this database".to_owned(),
            |in_force| SecretError::KeyReplaced { in_force }.to_string(),
        ),
    }
}

fn listener(engine: &Engine) -> ReadinessCheck {
    let bus = engine.platform().bus();
    let ok = bus.is_listening();
    ReadinessCheck {
        name: "notifications".to_owned(),
        ok,
        detail: if ok {
            format!("arrive; serving config revision {}", bus.served())
        } else {
            format!(
                "do not arrive; polling every {} ms, serving config revision {}",
                engine.settings().config_poll_ms,
                bus.served()
            )
        },
    }
}
