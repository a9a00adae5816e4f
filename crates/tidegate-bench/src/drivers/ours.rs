//! Ourselves in process: the use cases as shipped, with an engine whose loops run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::future::join_all;
use serde_json::{Value, json};
use tidegate_engine::{
    Engine, Principal, loops, runs, secrets::Keyring, settings::Settings, tenants, worker,
};
use tidegate_model::{
    Capability, InstanceId, KeyId, PoolId, TenantId,
    api::{AttemptUsage, ClaimRequest, CompleteRun, CreateTenant, KeyGrants, Lease, SubmitRun},
    limits,
    principal::{KeyScope, Role},
};
use tidegate_store::{
    ConnectOptions, Store,
    migrate::{Applicant, migrate},
};
use tokio_util::sync::CancellationToken;

use super::{Driver, payload, progress::Progress};

/// 32 bytes, base64: for benchmarks only.
pub const ENC_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// What the runs ask for and the built-in pool offers here.
const CAPABILITY: &str = "bench.noop";
/// Callers that submit at once when a queue is filled.
const LOADERS: usize = 128;
/// How long a worker waits in one claim.
const WAIT_MS: u64 = 1_000;

/// An engine with its loops, on a database that is set up.
pub(super) struct Running {
    pub(super) engine: Engine,
    stop: CancellationToken,
    loops: tokio::task::JoinSet<()>,
}

impl Running {
    /// Starts it.
    pub(super) async fn start(url: &str, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            builtin_capabilities: vec![capability()],
            run_fairness: std::env::var("BENCH_FAIRNESS").as_deref() != Ok("off"),
            ..Settings::default()
        };
        adjust(&mut settings);
        let mut options = ConnectOptions::new(url);
        options.max_connections = settings.db_pool_size;
        // A loaded machine must make it slow, not fail.
        options.acquire_timeout = Duration::from_mins(1);
        let store = Store::new(tidegate_store::connect(&options).expect("a pool"));
        let keyring = Keyring::new(&ENC_KEY.into(), None).expect("a key");
        let engine = Engine::start(Arc::new(settings), store, keyring, InstanceId::new())
            .await
            .expect("an engine");
        let stop = CancellationToken::new();
        let loops = loops::spawn(&engine, &stop);
        Self {
            engine,
            stop,
            loops,
        }
    }

    /// Stops its loops.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        while self.loops.join_next().await.is_some() {}
    }
}

pub(super) fn capability() -> Capability {
    CAPABILITY.parse().expect("a capability")
}

pub(super) fn tenant(number: usize) -> TenantId {
    format!("tenant-{number}").parse().expect("a tenant")
}

pub(super) fn operator() -> Principal {
    principal(Role::SuperAdmin, None)
}

pub(super) fn principal(role: Role, tenant: Option<TenantId>) -> Principal {
    Principal {
        key_id: KeyId::new(),
        role,
        tenant,
        pool: None,
        user: None,
        scopes: vec![KeyScope::RunsBusiness],
        grants: KeyGrants::default(),
        expires_at: None,
        request_id: None,
        intent: None,
    }
}

pub(super) fn run_of(input: Value) -> SubmitRun {
    SubmitRun {
        capability: capability(),
        requirements: None,
        input,
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
        user: None,
    }
}

pub(super) fn claim_request(worker: usize, max: u32) -> ClaimRequest {
    ClaimRequest {
        worker_id: format!("worker-{worker}").parse().expect("a worker"),
        incarnation: 1,
        protocol_version: tidegate_model::api::PROTOCOL_VERSION,
        max,
        max_background: None,
        wait_ms: WAIT_MS,
    }
}

pub(super) fn completion(lease: &Lease) -> CompleteRun {
    CompleteRun {
        fence: lease.fence,
        result: json!({"ok": true}),
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    }
}

pub(super) struct Ours {
    url: String,
}

impl Ours {
    pub(super) const fn new(url: String) -> Self {
        Self { url }
    }
}

/// Claims a batch at a time and completes each of its runs, as a worker with so many slots does.
async fn work(engine: Engine, number: usize, progress: Progress) {
    let principal = Principal::built_in_worker(PoolId::builtin());
    while !progress.all_started() {
        let request = claim_request(number, limits::CLAIM_MAX);
        let answer = worker::claim::claim(&engine, &principal, request)
            .await
            .expect("claim");
        for lease in &answer.leases {
            progress.start(&lease.run.input);
        }
        let runs = answer.leases.len();
        join_all(answer.leases.iter().map(|lease| async {
            worker::close::complete(&engine, &principal, lease.run.run_id, completion(lease))
                .await
                .expect("complete");
        }))
        .await;
        progress.finish(runs);
    }
}

/// `callers` submit at once, each one run after the other.
async fn submit_all(engine: &Engine, runs: usize, callers: usize, tenants: usize) -> Duration {
    let members: Arc<Vec<Principal>> = Arc::new(
        (0..tenants)
            .map(|t| principal(Role::Member, Some(tenant(t))))
            .collect(),
    );
    let started = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let (engine, members) = (engine.clone(), Arc::clone(&members));
        tokio::spawn(async move {
            for number in (caller..runs).step_by(callers) {
                let tenant = number % members.len();
                let request = run_of(payload(tenant, number, 0));
                runs::submit::submit(&engine, &members[tenant], request, None)
                    .await
                    .expect("submit");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("a caller");
    }
    started.elapsed()
}

/// Makes tables and tenants.
pub(super) async fn set_up(url: &str, count: usize) {
    let pool = tidegate_store::connect(&ConnectOptions::new(url)).expect("a pool");
    let applicant = Applicant {
        by: "bench".into(),
        server_version: env!("CARGO_PKG_VERSION").into(),
    };
    migrate(&pool, &applicant).await.expect("migrated");
    pool.close().await;
    let running = Running::start(url, |_| {}).await;
    for number in 0..count {
        let request = CreateTenant {
            tenant: tenant(number),
            display_name: None,
        };
        tenants::create(&running.engine, &operator(), request)
            .await
            .expect("tenant");
    }
    running.stop().await;
}

#[async_trait]
impl Driver for Ours {
    async fn setup(&self, tenants: usize) {
        set_up(&self.url, tenants).await;
    }

    async fn load(&self, runs: usize, tenants: usize) -> Duration {
        let running = Running::start(&self.url, |_| {}).await;
        let took = submit_all(&running.engine, runs, LOADERS, tenants).await;
        running.stop().await;
        took
    }

    async fn submit(&self, runs: usize, clients: usize) -> Duration {
        let running = Running::start(&self.url, |_| {}).await;
        let took = submit_all(&running.engine, runs, clients, 1).await;
        running.stop().await;
        took
    }

    async fn drain(&self, runs: usize, workers: usize) -> Duration {
        let running = Running::start(&self.url, |_| {}).await;
        let progress = Progress::new(runs);
        let started = Instant::now();
        let tasks = (0..workers)
            .map(|number| tokio::spawn(work(running.engine.clone(), number, progress.clone())));
        for task in join_all(tasks).await {
            task.expect("a worker");
        }
        let took = started.elapsed();
        assert!(progress.is_done(), "a run was not completed");
        running.stop().await;
        took
    }

    async fn latency(&self, rate: usize, seconds: usize) -> Vec<f64> {
        let running = Running::start(&self.url, |_| {}).await;
        let progress = Progress::new(rate * seconds);
        for number in 0..4 {
            tokio::spawn(work(running.engine.clone(), number, progress.clone()));
        }
        let member = Arc::new(principal(Role::Member, Some(tenant(0))));
        let mut ticks =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).expect("a rate"));
        for number in 0..rate * seconds {
            ticks.tick().await;
            let (engine, member) = (running.engine.clone(), Arc::clone(&member));
            let request = run_of(payload(0, number, progress.now_us()));
            tokio::spawn(async move {
                runs::submit::submit(&engine, &member, request, None)
                    .await
                    .expect("submit");
            });
        }
        progress.waits_after(rate).await
    }
}
