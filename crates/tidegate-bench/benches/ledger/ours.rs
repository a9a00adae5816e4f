//! Ourselves in process: the use cases as shipped, on engines with their loops.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde_json::json;
use tidegate_bench::{
    drivers::ENC_KEY,
    postgres::{Postgres, connect, quiesce},
};
use tidegate_engine::{Engine, Principal, admissions, loops, secrets::Keyring, settings::Settings};
use tidegate_model::{
    AdmissionId, InstanceId, KeyId, TenantId,
    api::{AdmitRequest, KeyGrants, PutResource, ReleaseAdmission},
    principal::Role,
};
use tidegate_store::{
    ConnectOptions, Store,
    migrate::{Applicant, migrate},
};
use tokio_util::sync::CancellationToken;

use super::Measured;

const TENANTS: usize = 1_000;
const CAPACITY: i64 = 1_000_000_000;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) instances: usize,
    pub(crate) callers: usize,
    /// Whether each is given back at once.
    pub(crate) release: bool,
    /// Admissions that are over.
    pub(crate) history: i64,
    /// Resources besides those that are taken.
    pub(crate) resources: i64,
}

fn principal(role: Role, tenant: Option<TenantId>) -> Principal {
    Principal {
        key_id: KeyId::new(),
        role,
        tenant,
        pool: None,
        user: None,
        scopes: Vec::new(),
        grants: KeyGrants::default(),
        expires_at: None,
        request_id: None,
        intent: None,
    }
}

async fn engine(url: &str) -> Engine {
    let settings = Settings {
        builtin_capabilities: vec!["bench.noop".parse().expect("a capability")],
        ..Settings::default()
    };
    let mut options = ConnectOptions::new(url);
    options.max_connections = settings.db_pool_size;
    options.acquire_timeout = Duration::from_mins(1);
    let store = Store::new(tidegate_store::connect(&options).expect("a pool"));
    let keyring = Keyring::new(&ENC_KEY.into(), None).expect("a key");
    Engine::start(Arc::new(settings), store, keyring, InstanceId::new())
        .await
        .expect("an engine")
}

async fn set_up(url: &str, plan: Plan) -> Vec<Engine> {
    let pool = tidegate_store::connect(&ConnectOptions::new(url)).expect("a pool");
    let applicant = Applicant {
        by: "bench".into(),
        server_version: env!("CARGO_PKG_VERSION").into(),
    };
    migrate(&pool, &applicant).await.expect("migrated");
    let mut engines = Vec::new();
    for _ in 0..plan.instances {
        engines.push(engine(url).await);
    }
    let first = engines.first().expect("an instance");
    let operator = principal(Role::SuperAdmin, None);
    let mut names = vec!["pool/builtin".to_owned(), "model/hot".to_owned()];
    names.extend((0..10).map(|tool| format!("tool/bench/t{tool}")));
    for name in names {
        let name = name.parse().expect("a resource");
        let body = PutResource { capacity: CAPACITY };
        admissions::put_resource(first, &operator, name, body)
            .await
            .expect("a resource");
    }
    let client = connect(url).await;
    let filled = client
        .batch_execute(&format!(
            "INSERT INTO tenants (tenant) SELECT 't' || n FROM generate_series(0, {TENANTS} - 1) AS n;
             INSERT INTO resources (scope, name, capacity)
                 SELECT 'main', 'tenant/t' || n || '/tokens', {CAPACITY} FROM generate_series(0, {TENANTS} - 1) AS n;
             INSERT INTO resources (scope, name, capacity)
                 SELECT 'main', 'shared/r' || n, {CAPACITY} FROM generate_series(1, {}) AS n;
             INSERT INTO admissions_done (tenant, admission_id, scope, digest, state, reason, pool, descriptor_epoch,
                     policy_generation, fence_generation, fence_number, created_at, ended_at, resources, granted, settled)
                 SELECT 't0', gen_random_uuid(), 'main', decode(repeat('00', 32), 'hex'), 'RELEASED', 'RELEASED_BY_HOLDER',
                     'builtin', 1, 1, 1, 1, now(), now(), '{{1,2,3,4}}', '{{1,1,1,500}}', '{{-1,-1,-1,-1}}'
                 FROM generate_series(1, {}) AS n",
            plan.resources, plan.history
        ))
        .await;
    filled.expect("tenants and history");
    quiesce(url).await;
    engines
}

pub(crate) async fn measure(
    server: &Postgres,
    url: &str,
    plan: Plan,
    length: Duration,
) -> Measured {
    let engines = Arc::new(set_up(url, plan).await);
    let stop = CancellationToken::new();
    let mut running: Vec<_> = engines
        .iter()
        .map(|engine| loops::spawn(engine, &stop))
        .collect();
    let before = server.cpu_s();
    let started = Instant::now();
    let tasks = (0..plan.callers).map(|caller| {
        let engine = engines[caller % engines.len()].clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut number = caller;
            while started.elapsed() < length {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                latencies.push(admit(&engine, number, plan.release).await);
            }
            latencies
        })
    });
    let latencies = join_all(tasks).await;
    let measured = Measured {
        elapsed_s: started.elapsed().as_secs_f64(),
        server_cpu_s: server.cpu_s() - before,
        latencies: latencies
            .into_iter()
            .flat_map(|own| own.expect("a caller"))
            .collect(),
    };
    stop.cancel();
    for loops in &mut running {
        while loops.join_next().await.is_some() {}
    }
    let audit = engines[0]
        .store()
        .audit_ledger("main")
        .await
        .expect("audit");
    assert!(audit.balanced, "{audit:?}");
    measured
}

/// One admission of four resources; how long it took, in milliseconds.
async fn admit(engine: &Engine, number: usize, release: bool) -> f64 {
    let tenant = format!("t{}", number % TENANTS).parse().expect("a tenant");
    let coordinator = principal(Role::Coordinator, Some(tenant));
    let requirements = json!({
        "capability": "bench.noop",
        "estimates": {"tokens": 500},
        "resources": [
            {"resource": "model/hot", "amount": 1},
            {"resource": format!("tool/bench/t{}", (number >> 20) % 10), "amount": 1},
        ],
    });
    let request = AdmitRequest {
        admission_id: AdmissionId::new(),
        requirements: serde_json::from_value(requirements).expect("requirements"),
        ttl_ms: None,
        if_ledger_version: None,
    };
    let called = Instant::now();
    let view = admissions::admit(engine, &coordinator, request)
        .await
        .expect("admitted");
    assert_eq!(view.grants.len(), 4);
    if release {
        let back = ReleaseAdmission {
            fence: view.fence,
            settle: Vec::new(),
        };
        admissions::release(engine, &coordinator, view.admission_id, back)
            .await
            .expect("released");
    }
    called.elapsed().as_secs_f64() * 1_000.0
}
