//! Storing what tenants were charged: summed per instance, in a statement of its own (R3.12).

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Engine, Error};

/// How often passes are written, at most.
const WRITE_EVERY: Duration = Duration::from_millis(200);

/// Writes changed passes until `stop`, and once more then.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut failing = false;
    loop {
        let stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(WRITE_EVERY) => false,
        };
        let written = write(&engine).await;
        if let Err(error) = &written
            && !failing
        {
            tracing::warn!(%error, "passes could not be stored; kept and tried again");
        }
        failing = written.is_err();
        if stopped {
            return;
        }
    }
}

/// Writes what has changed since the last time; nothing where nothing has.
pub async fn write(engine: &Engine) -> Result<(), Error> {
    let (floor, changes) = {
        let mut book = engine.claims().book.lock();
        let passes = book.passes();
        (passes.floor(), passes.take_pending())
    };
    if changes.is_empty() {
        return Ok(());
    }
    let stored = engine
        .store()
        .fleet()
        .add_passes(&engine.settings().execution_scope, floor, &changes)
        .await;
    let mut book = engine.claims().book.lock();
    let passes = book.passes();
    match stored {
        Ok(stored) => {
            passes.absorb_floor(stored.floor);
            for (tenant, pass) in stored.passes {
                passes.absorb(&tenant, pass);
            }
            Ok(())
        }
        Err(error) => {
            passes.give_back(changes);
            Err(error.into())
        }
    }
}
