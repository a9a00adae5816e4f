//! One tenant has flooded the queue, nine others ask for a little: how long do these wait? Ourselves, in process.

use std::{sync::Arc, time::Duration};

use tidegate_engine::{Engine, Principal, runs, tenants, worker};
use tidegate_model::{PoolId, api::CreateTenant, principal::Role};

use super::{
    ours::{Running, claim_request, completion, operator, principal, run_of, tenant},
    payload,
    progress::Progress,
};

/// Tenants that ask for a little.
const SMALL: usize = 9;
/// Runs of each of them.
const EACH: usize = 50;
/// How far apart their runs come, all tenants together: a quarter of what four workers can do with runs of 20 ms.
const APART: Duration = Duration::from_millis(20);

/// How long each small run waited, in milliseconds, beside whatever is queued already. The database has the tenants that
/// `setup` makes.
pub(super) async fn flood(url: String, workers: usize, takes_ms: usize) -> Vec<f64> {
    let running = Running::start(&url, |_| {}).await;
    let takes = Duration::from_millis(takes_ms as u64);
    let progress = Progress::new(SMALL * EACH);
    for number in 0..workers {
        tokio::spawn(work(
            running.engine.clone(),
            number,
            takes,
            progress.clone(),
        ));
    }
    let mut members = Vec::new();
    for number in 1..=SMALL {
        let name = tenant(number);
        let request = CreateTenant {
            tenant: name.clone(),
            display_name: None,
        };
        tenants::create(&running.engine, &operator(), request)
            .await
            .expect("tenant");
        members.push(Arc::new(principal(Role::Member, Some(name))));
    }
    // Everybody is at work when the first one asks.
    tokio::time::sleep(takes * 10).await;
    let mut ticks = tokio::time::interval(APART);
    for number in 0..SMALL * EACH {
        ticks.tick().await;
        let (engine, member) = (running.engine.clone(), Arc::clone(&members[number % SMALL]));
        let request = run_of(payload(number % SMALL, number, progress.now_us()));
        tokio::spawn(async move {
            runs::submit::submit(&engine, &member, request, None)
                .await
                .expect("submit");
        });
    }
    progress.waits_after(0).await
}

/// A worker with one slot. Only runs that say when they were submitted are looked at.
async fn work(engine: Engine, number: usize, takes: Duration, progress: Progress) {
    let principal = Principal::built_in_worker(PoolId::builtin());
    loop {
        let answer = worker::claim::claim(&engine, &principal, claim_request(number, 1))
            .await
            .expect("claim");
        for lease in &answer.leases {
            if lease.run.input["at"].as_u64().is_some_and(|at| at > 0) {
                progress.start(&lease.run.input);
            }
            tokio::time::sleep(takes).await;
            worker::close::complete(&engine, &principal, lease.run.run_id, completion(lease))
                .await
                .expect("complete");
        }
    }
}
