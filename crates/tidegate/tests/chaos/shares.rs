//! Shares of worker time in a short real run; the long ones are played on a virtual clock
//! (`crates/tidegate-engine/src/claims/book/simulation.rs`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use secrecy::SecretString;
use serde_json::json;
use tidegate_engine::{
    Engine, Principal, loops, runs, secrets::Keyring, settings::Settings, tenants, worker,
};
use tidegate_model::{
    Capability, InstanceId, KeyId, PoolId,
    api::{AttemptUsage, ClaimRequest, CompleteRun, CreateTenant, KeyGrants, SubmitRun},
    principal::{KeyScope, Role},
};
use tidegate_store::Store;
use tidegate_testkit::TestDb;
use tokio_util::sync::CancellationToken;

use crate::rig::ENC_KEY;

/// What a run of each tenant takes: 34 to 1.
const TENANTS: [(&str, Duration); 3] = [
    ("acme", Duration::from_millis(340)),
    ("globex", Duration::from_millis(10)),
    ("initech", Duration::from_millis(10)),
];
const WORKERS: usize = 4;
const LASTS: Duration = Duration::from_secs(20);

fn principal(role: Role, tenant: Option<&str>) -> Principal {
    Principal {
        key_id: KeyId::new(),
        role,
        tenant: tenant.map(|name| name.parse().expect("tenant")),
        pool: None,
        user: None,
        scopes: vec![KeyScope::RunsBusiness],
        expires_at: None,
        request_id: None,
        intent: None,
        grants: KeyGrants::default(),
    }
}

async fn submit(engine: &Engine, tenant: &str, count: usize) {
    let member = principal(Role::Member, Some(tenant));
    let run = SubmitRun {
        capability: Capability::chat(),
        requirements: None,
        input: json!({"text": "hello"}),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
        user: None,
    };
    let submit = || runs::submit::submit(engine, &member, run.clone(), None);
    for submitted in join_all((0..count).map(|_| submit())).await {
        submitted.expect("submit");
    }
}

/// A worker with one slot.
async fn work(engine: Engine, number: usize, stop: CancellationToken) {
    let principal = Principal::built_in_worker(PoolId::builtin());
    let takes: HashMap<&str, Duration> = TENANTS.into_iter().collect();
    while !stop.is_cancelled() {
        let request = ClaimRequest {
            worker_id: format!("worker-{number}").parse().expect("worker"),
            incarnation: 1,
            protocol_version: 1,
            max: 1,
            max_background: None,
            wait_ms: 1_000,
        };
        let answer = worker::claim::claim(&engine, &principal, request).await;
        for lease in answer.expect("claim").leases {
            tokio::time::sleep(takes[lease.run.tenant.as_str()]).await;
            let complete = CompleteRun {
                fence: lease.fence,
                result: json!({}),
                messages: Vec::new(),
                usage: AttemptUsage::default(),
            };
            worker::close::complete(&engine, &principal, lease.run.run_id, complete)
                .await
                .expect("complete");
        }
    }
}

/// R3.12: with equal weights and runs of which one tenant's take 34 times as long, each tenant has its third of the worker
/// time within a tenth, by what the database wrote down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_and_short_runs_get_the_same_worker_time() {
    let db = TestDb::new().await;
    let keyring = Keyring::new(&SecretString::from(ENC_KEY), None).expect("keyring");
    let store = Store::new(db.pool().clone());
    let engine = Engine::start(
        Arc::new(Settings::default()),
        store,
        keyring,
        InstanceId::new(),
    )
    .await
    .expect("engine");
    let stop = CancellationToken::new();
    let mut loops = loops::spawn(&engine, &stop);
    for (name, takes) in TENANTS {
        let request = CreateTenant {
            tenant: name.parse().expect("tenant"),
            display_name: None,
        };
        tenants::create(&engine, &principal(Role::SuperAdmin, None), request)
            .await
            .expect("tenant");
        // More than its share of what workers could do in the time.
        let takes = takes + Duration::from_millis(10);
        let most = LASTS.as_millis() * WORKERS as u128 / 2 / takes.as_millis();
        submit(&engine, name, usize::try_from(most).expect("few")).await;
    }
    let workers = (0..WORKERS).map(|n| tokio::spawn(work(engine.clone(), n, stop.clone())));
    let workers: Vec<_> = workers.collect();
    tokio::time::sleep(LASTS).await;
    stop.cancel();
    for worker in workers {
        worker.await.expect("worker");
    }
    while loops.join_next().await.is_some() {}
    let worked: Vec<(String, f64)> = sqlx::query_as(
        "SELECT tenant, sum(extract(epoch FROM ended_at - started_at))::float8 FROM run_attempts
         GROUP BY tenant ORDER BY tenant",
    )
    .fetch_all(db.pool())
    .await
    .expect("attempts");
    let all: f64 = worked.iter().map(|(_, seconds)| seconds).sum();
    let asking: i64 = sqlx::query_scalar("SELECT count(DISTINCT tenant) FROM run_queue")
        .fetch_one(db.pool())
        .await
        .expect("queue");
    assert_eq!(asking, 3, "everybody has more to do");
    println!("worker time in seconds: {worked:?}");
    assert_eq!(worked.len(), 3);
    for (tenant, seconds) in &worked {
        let share = seconds / all * 3.0;
        assert!(
            (0.9..=1.1).contains(&share),
            "{tenant} had {share:.3} of its share"
        );
    }
}
