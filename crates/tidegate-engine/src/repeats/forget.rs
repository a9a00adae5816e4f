//! Forgetting idempotency keys after their time, in batches, on one instance.
//!
//! Keys of runs are not forgotten here: they stand in the rows of the runs and are remembered as long as these.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Engine, Error};

/// How long a key is remembered at least.
const KEEP_MS: i64 = 24 * 3_600_000;
/// The name of the duty.
const DUTY: &str = "forget_repeats";
/// How often the duty looks.
const EVERY: Duration = Duration::from_mins(10);
/// How long a holder keeps the duty.
const LEASE_MS: i64 = 60_000;
/// Keys that one statement forgets.
const BATCH: i64 = 5_000;

/// Looks every ten minutes until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = pass(&engine).await {
            tracing::warn!(%error, "old idempotency keys could not be forgotten; trying again later");
        }
    }
}

/// One pass; nothing while another instance does it.
pub async fn pass(engine: &Engine) -> Result<u64, Error> {
    let fleet = engine.store().fleet();
    let mut forgotten = 0;
    while let Some(duty) = fleet.hold_duty(DUTY, engine.instance(), LEASE_MS).await? {
        let batch = fleet.forget_repeats(KEEP_MS, BATCH).await?;
        forgotten += batch;
        if batch == 0 {
            fleet.leave_duty(duty).await?;
            break;
        }
    }
    Ok(forgotten)
}
