//! Ends admissions whose time has run out (R7.5), by every instance, each step safe against all the others.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, trouble::Trouble};

/// How often to look; spread.
const EVERY: Duration = Duration::from_secs(1);
/// How many one transaction ends: others wait for the ledger meanwhile.
const BATCH: i64 = 500;

/// Looks until told to stop.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut trouble = Trouble::new("looking for admissions whose time has run out");
    loop {
        let pause = EVERY.mul_f64(0.75 + 0.5 * crate::clock::jitter());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let looked = async {
            expire(&engine).await?;
            measure(&engine).await
        };
        match looked.await {
            Ok(()) => trouble.over(),
            Err(error) => trouble.met(&error),
        }
    }
}

/// How much of each kind there is and is held. Every instance says the same: take the greatest, not the sum.
async fn measure(engine: &Engine) -> Result<(), Error> {
    if engine.resources().await?.is_empty() {
        return Ok(());
    }
    let scope = &engine.settings().execution_scope;
    for sum in engine.store().ledger_use(scope).await? {
        // Beyond 2^53 a gauge is a little off.
        #[expect(clippy::cast_precision_loss, reason = "a gauge")]
        let (capacity, in_use) = (sum.capacity as f64, sum.in_use as f64);
        let kind = sum.kind.as_str();
        metrics::gauge!("tidegate_ledger_capacity", "kind" => kind).set(capacity);
        metrics::gauge!("tidegate_ledger_in_use", "kind" => kind).set(in_use);
    }
    Ok(())
}

/// Ends all that are late; how many.
pub async fn expire(engine: &Engine) -> Result<u64, Error> {
    let fleet = engine.store().fleet();
    let mut ended = 0;
    if !fleet.has_expired_admissions().await? {
        return Ok(ended);
    }
    loop {
        let scope = &engine.settings().execution_scope;
        let expired = fleet.expire_admissions(scope, BATCH).await?;
        ended += expired.admissions;
        if !expired.more {
            break;
        }
    }
    metrics::counter!("tidegate_admissions_expired_total").increment(ended);
    if ended > 0 {
        engine.resources_changed();
    }
    Ok(ended)
}
