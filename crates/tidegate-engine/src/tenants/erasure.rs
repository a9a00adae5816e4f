//! Erasing what deleted tenants leave: at once when one is deleted, and again by a duty, because a transaction that was in
//! flight may have added a row after the last pass, and a server may have died half-way.

use std::time::Duration;

use tidegate_model::TenantId;
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, trouble::Trouble};

/// The name of the duty.
const DUTY: &str = "tenant_erasure";
/// How often the duty looks.
const EVERY: Duration = Duration::from_mins(1);
/// How long a holder keeps the duty.
const LEASE_MS: i64 = 180_000;

/// Erases a tenant that is marked as deleted. It runs to its end even if the caller goes away.
pub(crate) async fn erase(engine: &Engine, tenant: &TenantId) -> Result<(), Error> {
    let (fleet, name) = (engine.store().fleet(), tenant.clone());
    let task = tokio::spawn(async move { fleet.erase_tenant(&name).await });
    let erased = task.await.map_err(|_| Error::Internal {
        what: "erasure task",
    })??;
    tracing::info!(%tenant, rows = erased.rows, complete = erased.complete, "a deleted tenant was erased");
    Ok(())
}

/// Looks every minute for what is left, on one instance, until stopped.
pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut trouble = Trouble::new("erasing what deleted tenants left");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        match sweep(&engine).await {
            Ok(()) => trouble.over(),
            Err(error) => trouble.met(&error),
        }
    }
}

/// One pass over deleted tenants of which something may be left.
pub async fn sweep(engine: &Engine) -> Result<(), Error> {
    let fleet = engine.store().fleet();
    let Some(duty) = fleet.hold_duty(DUTY, engine.instance(), LEASE_MS).await? else {
        return Ok(());
    };
    for tenant in fleet.to_erase().await? {
        if !fleet.holds_duty(duty).await? {
            return Ok(());
        }
        let erased = fleet.erase_tenant(&tenant).await?;
        if erased.rows > 0 {
            tracing::info!(%tenant, rows = erased.rows, "leftovers of a deleted tenant were erased");
        }
    }
    fleet.leave_duty(duty).await?;
    Ok(())
}
