//! Following the log of revisions.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, trouble::Trouble};

/// Revisions that are read one by one; behind more than these, everything is dropped at once.
const STEP: i64 = 500;
/// How soon to look whether what was read is applied.
const APPLYING: Duration = Duration::from_millis(50);

/// Looks at the log when told to, and every `config_poll_ms` in any case, until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let poll = Duration::from_millis(u64::from(engine.settings().config_poll_ms));
    let mut published = None;
    let mut trouble =
        Trouble::new("reading the config log (what is in memory is served until its time is over)");
    loop {
        match step(&engine, &mut published).await {
            Ok(()) => trouble.over(),
            Err(error) => trouble.met(&error),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.platform().bus.look.notified() => {}
            () = tokio::time::sleep(pause(&engine, poll)) => {}
        }
    }
}

/// Soon again while somebody here is still applying what was read.
fn pause(engine: &Engine, poll: Duration) -> Duration {
    let bus = &engine.platform().bus;
    if bus.in_force() == bus.served() {
        poll
    } else {
        APPLYING.min(poll)
    }
}

/// Reads on, and publishes what is in force here where that has changed (R17.2).
async fn step(engine: &Engine, published: &mut Option<i64>) -> Result<(), Error> {
    catch_up(engine).await?;
    let in_force = engine.platform().bus.in_force();
    if *published != Some(in_force) {
        engine
            .store()
            .publish_served(engine.instance(), in_force, dead_after_ms(engine))
            .await?;
        *published = Some(in_force);
    }
    Ok(())
}

/// Brings this instance to the end of the log.
async fn catch_up(engine: &Engine) -> Result<(), Error> {
    let bus = &engine.platform().bus;
    let store = engine.store();
    let served = bus.served();
    let last = store.last_revision().await?;
    if last == served {
        return Ok(());
    }
    let caches = &engine.platform().caches;
    let behind = last - served;
    if (1..=STEP).contains(&behind) {
        for revision in store.revisions_after(served, STEP).await? {
            if revision.revision <= last {
                caches.drop_for(revision.kind);
            }
        }
    } else {
        // Far behind, or ahead of a log that was restored from an older state.
        caches.drop_for(None);
    }
    bus.serve(last);
    // A pool or a tenant may be able to do now what it could not before.
    engine.claims().wake();
    Ok(())
}

/// An instance that was not seen for this long does not count any more.
pub(crate) fn dead_after_ms(engine: &Engine) -> i64 {
    engine.settings().instance_dead_after_ms()
}
