//! Claims over the ledger: reservation and lease are one transaction, and whatever ends the lease gives back (R7.7).

use serde_json::{Value, json};
use tidegate_engine::{Principal, admissions, leases, runs, worker};
use tidegate_model::{
    PoolId, RunId,
    api::{ReleaseRun, SubmitRun},
    queue_reason::QueueReason,
    run::RunState,
};

use crate::{
    admissions::{bound, expect_held},
    rig::{World, claim_on, member, operator, settings, task},
};

fn taking(resource: &str, amount: i64) -> SubmitRun {
    let written: Value = json!({"resources": [{"resource": resource, "amount": amount}]});
    SubmitRun {
        requirements: Some(serde_json::from_value(written).expect("requirements")),
        ..task("chat")
    }
}

fn ids(leases: &[tidegate_model::api::Lease]) -> Vec<RunId> {
    leases.iter().map(|lease| lease.run.run_id).collect()
}

/// R7.7, R3.9: a claim takes as many runs as their vectors fit, what fits behind them is served, and the reason of the rest
/// names what is short.
#[tokio::test]
async fn a_claim_takes_what_fits() {
    let world = World::new(settings()).await;
    let pool = PoolId::builtin();
    bound(&world.engine, "shared/licence", 5).await;
    let mut bounded = Vec::new();
    for _ in 0..4 {
        bounded.push(world.submit(taking("shared/licence", 2)).await);
    }
    let plain = world.submit(task("chat")).await;
    let mut started = Vec::new();
    while started.len() < 3 {
        started.extend(world.claim(&pool, 10).await);
    }
    let running = ids(&started);
    assert!(
        running.contains(&plain),
        "what takes nothing is served behind it"
    );
    assert_eq!(
        running.iter().filter(|run| bounded.contains(run)).count(),
        2
    );
    expect_held(&world.engine, &[("shared/licence", 4)]).await;
    world.expect_no_start(&pool).await;
    let waits = bounded
        .iter()
        .find(|run| !running.contains(run))
        .expect("one waits");
    let reason = world
        .expect_reason(*waits, QueueReason::ResourceExhausted)
        .await;
    let facts = reason.facts.to_string();
    assert!(
        facts.contains("shared/licence") && facts.contains("\"free\":1"),
        "{facts}"
    );
    assert!(
        reason.remedy.contains("tidegate ledger get shared/licence"),
        "{}",
        reason.remedy
    );

    let ended = started
        .iter()
        .find(|lease| bounded.contains(&lease.run.run_id))
        .expect("bounded");
    world.complete(ended).await;
    expect_held(&world.engine, &[("shared/licence", 2)]).await;
    assert_eq!(
        world.claim(&pool, 10).await.len(),
        1,
        "its end let one more in"
    );
    expect_held(&world.engine, &[("shared/licence", 4)]).await;
}

/// R7.4, R4.4: every way out of a lease gives back what it held: an end, a failure, a release, a takeover, a cancel after
/// its grace.
#[tokio::test]
async fn whatever_ends_an_attempt_gives_back() {
    let quick = tidegate_engine::settings::Settings {
        lease_ms: 400,
        grace_ms: 0,
        ..settings()
    };
    let world = World::new(quick).await;
    let pool = PoolId::builtin();
    bound(&world.engine, "pool/builtin", 8).await;
    for _ in 0..5 {
        world.submit(task("chat")).await;
    }
    let mut held = world.claim(&pool, 10).await;
    assert_eq!(held.len(), 5);
    expect_held(&world.engine, &[("pool/builtin", 5)]).await;
    let mut next = || held.pop().expect("lease");
    world.complete(&next()).await;
    let failed = next();
    world
        .fail(
            failed.run.run_id,
            failed.fence,
            tidegate_model::Code::WorkerFailed,
            60_000,
        )
        .await;
    let back = next();
    let worker = Principal::built_in_worker(pool.clone());
    let release = ReleaseRun {
        fence: back.fence,
        usage: tidegate_model::api::AttemptUsage::default(),
    };
    worker::close::release(&world.engine, &worker, back.run.run_id, release)
        .await
        .expect("released");
    let cancelled = next();
    runs::cancel::cancel(&world.engine, &member("acme"), cancelled.run.run_id)
        .await
        .expect("cancel");
    expect_held(&world.engine, &[("pool/builtin", 2)]).await;
    tokio::time::sleep(std::time::Duration::from_millis(450)).await;
    leases::sweep::sweep(&world.engine).await.expect("sweep");
    expect_held(&world.engine, &[("pool/builtin", 0)]).await;
    assert_eq!(world.get(next().run.run_id).await.state, RunState::Queued);
}

/// R7.3: two instances that claim at once hold no more than there is.
#[tokio::test]
async fn racing_claims_share_what_there_is() {
    let world = World::new(settings()).await;
    let other = world.instance(settings()).await;
    let pool = PoolId::builtin();
    bound(&world.engine, "pool/builtin", 7).await;
    for _ in 0..30 {
        world.submit(task("chat")).await;
    }
    let mut racing = tokio::task::JoinSet::new();
    for at in 0..6 {
        let engine = if at % 2 == 0 {
            world.engine.clone()
        } else {
            other.clone()
        };
        let pool = pool.clone();
        racing.spawn(async move { claim_on(&engine, &pool, 5, 700).await });
    }
    let mut started = 0;
    while let Some(leases) = racing.join_next().await {
        started += leases.expect("no panic").len();
    }
    // An instance may learn of a bound by its configuration bus only; both had read it before.
    assert!(started >= 7, "{started}");
    let audit = admissions::audit_ledger(&world.engine, &operator())
        .await
        .expect("audit");
    assert!(audit.balanced, "{audit:?}");
    assert!(audit.over_capacity.is_empty(), "{audit:?}");
}

/// R3.9, R7.3: more than there is in all is no wait: the run ends as unsatisfiable after the grace, others are not held up.
#[tokio::test]
async fn what_never_fits_is_unsatisfiable() {
    let impatient = tidegate_engine::settings::Settings {
        unroutable_grace_ms: 1,
        ..settings()
    };
    let world = World::new(impatient).await;
    bound(&world.engine, "shared/licence", 1).await;
    let never = world.submit(taking("shared/licence", 2)).await;
    let plain = world.submit(task("chat")).await;
    world.expect_start(&PoolId::builtin(), plain).await;
    world.observe().await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    world.observe().await;
    let view = world.get(never).await;
    assert_eq!(view.state, RunState::Failed);
    assert_eq!(
        view.code,
        Some(tidegate_model::Code::Unsatisfiable),
        "{view:?}"
    );
}

/// R7.8: a large vector that has waited too long gets what comes free, before smaller ones that are asked for meanwhile.
#[tokio::test]
async fn a_large_vector_does_not_starve() {
    let impatient = tidegate_engine::settings::Settings {
        set_aside_ms: 0,
        ..settings()
    };
    let world = World::new(impatient).await;
    let pool = PoolId::builtin();
    bound(&world.engine, "shared/licence", 3).await;
    let mut small = Vec::new();
    for _ in 0..2 {
        small.push(world.submit(taking("shared/licence", 1)).await);
    }
    let mut running = world.claim(&pool, 10).await;
    assert_eq!(running.len(), 2);
    let large = world.submit(taking("shared/licence", 3)).await;
    world.expect_no_start(&pool).await;
    // One is free and set aside: a small one that comes now does not get it, nor does what comes free next.
    let later = world.submit(taking("shared/licence", 1)).await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    world.expect_no_start(&pool).await;
    for lease in running.drain(..) {
        world.complete(&lease).await;
    }
    let started = ids(&world.claim(&pool, 10).await);
    assert_eq!(started, [large]);
    expect_held(&world.engine, &[("shared/licence", 3)]).await;
    assert_eq!(world.get(later).await.state, RunState::Queued);
}
