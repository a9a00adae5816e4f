//! The background cap over real instances that are killed and frozen.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use tidegate_engine::{
    Engine, Principal, runs::submit::submit_as, secrets::Keyring, settings::Settings,
};
use tidegate_model::{
    Capability, InstanceId, KeyId,
    api::{KeyGrants, SubmitRun},
    principal::Role,
    run::RunKind,
};
use tidegate_store::Store;
use tidegate_testkit::TestDb;

use crate::rig::{ENC_KEY, LEASE, World};

/// R3.4, R3.5: no tenant has two background runs at any instant (standard tier: 1), by the database's own history, with
/// four instances that are killed and frozen in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tenant_exceeds_its_background_cap_under_kills() {
    let mut world = World::new(TestDb::new().await, 4, 8, 20, Duration::from_millis(200)).await;
    submit_background(&world, 5).await;
    for round in 0..4_i64 {
        world
            .until_count("SELECT count(*) FROM run_ends", round * 15)
            .await;
        // Whoever holds most: one that holds nothing would lose nothing.
        let (index, _) = world.busiest().await;
        if round % 2 == 0 {
            world.servers.remove(index).process.kill9();
            world.add_server().await;
        } else {
            world.servers[index].process.freeze();
            tokio::time::sleep(LEASE + Duration::from_millis(700)).await;
            world.servers[index].process.thaw();
        }
    }
    world.until_all_succeeded().await;
    judge(&world).await;
    assert!(
        world
            .count("SELECT count(*) FROM run_attempts WHERE outcome = 'lease_lost'")
            .await
            > 0
    );
}

/// Submits background runs of every tenant.
pub async fn submit_background(world: &World, each: usize) {
    let engine = in_process_engine(world).await;
    for (tenant, _) in &world.tenants {
        let principal = Principal {
            key_id: KeyId::new(),
            role: Role::Member,
            tenant: Some(tenant.clone()),
            pool: None,
            user: None,
            scopes: Vec::new(),
            expires_at: None,
            request_id: None,
            intent: None,
            grants: KeyGrants::default(),
        };
        for _ in 0..each {
            let run = SubmitRun {
                capability: Capability::chat(),
                requirements: None,
                input: serde_json::json!({"text": "count"}),
                service_class: None,
                priority: None,
                deadline: None,
                run_at: None,
                max_attempts: Some(50),
                budget: None,
                user: None,
            };
            submit_as(&engine, &principal, RunKind::BackgroundWork, run)
                .await
                .expect("submit");
        }
    }
}

/// Recomputes from the attempts alone whether two ran at once.
async fn judge(world: &World) {
    let attempts: Vec<(String, DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
        "SELECT tenant, started_at, ended_at FROM run_attempts ORDER BY tenant, started_at",
    )
    .fetch_all(world.db.pool())
    .await
    .expect("attempts");
    let mut last: HashMap<&str, DateTime<Utc>> = HashMap::new();
    for (tenant, started, ended) in &attempts {
        if let Some(before) = last.insert(tenant, *ended) {
            assert!(
                before <= *started,
                "{tenant} had two background runs at {started}"
            );
        }
    }
}

/// The kind is granted in process only (R3.2); this is the test kit's way in.
async fn in_process_engine(world: &World) -> Engine {
    let keyring = Keyring::new(&SecretString::from(ENC_KEY), None).expect("keyring");
    let store = Store::new(world.db.pool().clone());
    Engine::start(
        Arc::new(Settings::default()),
        store,
        keyring,
        InstanceId::new(),
    )
    .await
    .expect("engine")
}
