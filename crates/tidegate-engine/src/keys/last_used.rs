//! Noting that keys are used: to the minute, gathered, never in the way of a request.

use std::time::Duration;

use tidegate_model::KeyId;
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error};

/// How often what was gathered is written.
const EVERY: Duration = Duration::from_secs(10);
/// Keys that one statement notes.
const BATCH: usize = 1_000;

/// Writes every ten seconds, and once more when stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    loop {
        let stopped = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        if let Err(error) = flush(&engine).await {
            tracing::debug!(%error, "the use of keys was not noted");
        }
        if stopped {
            return;
        }
    }
}

/// Writes what was gathered.
pub async fn flush(engine: &Engine) -> Result<(), Error> {
    let used = std::mem::take(&mut *engine.platform().used_keys.lock());
    // The built-in executor has no stored key.
    let used: Vec<KeyId> = used
        .into_iter()
        .filter(|key| !key.as_uuid().is_nil())
        .collect();
    for batch in used.chunks(BATCH) {
        engine.store().touch_keys(batch).await?;
    }
    Ok(())
}
