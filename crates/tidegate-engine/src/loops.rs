//! Everything an instance does without being asked, started in one place.
//!
//! Each loop is safe beside the same loop of any other instance. One that panics is a defect, logged and counted, and is
//! started again: an instance that answers requests must not have stopped taking over lost leases.

use std::{future::Future, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// How long to wait before a loop that panicked is started again.
const RESTART: Duration = Duration::from_secs(1);

/// Starts all loops; they end soon after `stop`.
pub fn spawn(engine: &Engine, stop: &CancellationToken) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    let mut keep = |name: &'static str, spawned: SpawnLoop| {
        loops.spawn(keep(name, engine.clone(), stop.clone(), spawned));
    };
    keep("generation", |e, s| Box::pin(crate::cluster::run(e, s)));
    keep("heartbeat", |e, s| {
        Box::pin(crate::instances::heartbeat::run(e, s))
    });
    keep("config listener", |e, s| {
        Box::pin(crate::config_bus::listen(e, s))
    });
    keep("config follower", |e, s| {
        Box::pin(crate::config_bus::run(e, s))
    });
    keep("key use", |e, s| {
        Box::pin(crate::keys::last_used::run(e, s))
    });
    keep("tenant erasure", |e, s| {
        Box::pin(crate::tenants::erasure::run(e, s))
    });
    keep("idempotency keys", |e, s| {
        Box::pin(crate::repeats::forget::run(e, s))
    });
    keep("retention", |e, s| {
        Box::pin(crate::retention::prune::run(e, s))
    });
    keep("vitals", |e, s| Box::pin(crate::vitals::run(e, s)));
    keep("redis", |e, s| Box::pin(crate::redis_link::run(e, s)));
    keep("sweep", |e, s| Box::pin(crate::leases::sweep::run(e, s)));
    keep("admissions", |e, s| {
        Box::pin(crate::admissions::expire::run(e, s))
    });
    keep("schedules", |e, s| {
        Box::pin(crate::schedules::fire::run(e, s))
    });
    keep("lane observer", |e, s| {
        Box::pin(crate::lanes::observe::run(e, s))
    });
    keep("event streams", |e, s| {
        Box::pin(crate::events::hub::run(e, s))
    });
    keep("passes", |e, s| Box::pin(crate::claims::passes::run(e, s)));
    keep("work hints out", |e, s| {
        Box::pin(crate::claims::wake::publish(e, s))
    });
    keep("work hints in", |e, s| {
        Box::pin(crate::claims::wake::listen(e, s))
    });
    loops
}

type SpawnLoop =
    fn(Engine, CancellationToken) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

async fn keep(name: &'static str, engine: Engine, stop: CancellationToken, run: SpawnLoop) {
    loop {
        let ended = tokio::spawn(run(engine.clone(), stop.clone())).await;
        if stop.is_cancelled() {
            return;
        }
        if ended.is_ok() {
            // Some loops have nothing to do with these settings.
            return;
        }
        metrics::counter!("tidegate_loop_restarts_total", "loop" => name).increment(1);
        tracing::error!(name, "a loop panicked and is started again");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RESTART) => {}
        }
    }
}
