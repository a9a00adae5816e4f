//! One engine on a fresh database, with the callers that tests need.

use std::sync::Arc;

use serde_json::json;
use tidegate_engine::{
    Engine, Error, Principal, conversations, lanes, runs, secrets::Keyring, settings::Settings,
    tenants, worker,
};
use tidegate_model::{
    Code, ConversationId, Fence, InstanceId, KeyId, PoolId, RunId, TenantId,
    api::{
        AttemptAnswer, AttemptUsage, ClaimRequest, CompleteRun, CreateConversation, CreateTenant,
        FailRun, KeyGrants, Lease, QueueReasonView, RunFilter, RunView, SubmitRun, SubmitTurn,
    },
    principal::{KeyScope, Role},
    queue_reason::QueueReason,
    run::RunState,
};
use tidegate_store::Store;
use tidegate_testkit::TestDb;
use tokio_util::sync::CancellationToken;

pub struct World {
    pub db: TestDb,
    pub engine: Engine,
    keyring: Keyring,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn settings() -> Settings {
    Settings {
        view_age_ms: 10,
        claim_poll_ms: 20,
        ..Settings::default()
    }
}

pub fn acme() -> TenantId {
    "acme".parse().expect("tenant")
}

impl World {
    /// An engine with the tenants acme and globex. Loops do not run but for the poller of events; tests take their
    /// rounds themselves.
    pub async fn new(settings: Settings) -> Self {
        let db = TestDb::new().await;
        let (keyring, _) = Keyring::generate().expect("keyring");
        let engine = start(&db, settings, &keyring).await;
        let stop = CancellationToken::new();
        let world = Self {
            db,
            engine,
            keyring,
            stop,
        };
        world.poll_events(&world.engine);
        for name in ["acme", "globex"] {
            let request = CreateTenant {
                tenant: name.parse().expect("tenant"),
                display_name: None,
            };
            tenants::create(&world.engine, &operator(), request)
                .await
                .expect("tenant");
        }
        world
    }

    /// Another instance on the same database.
    pub async fn instance(&self, settings: Settings) -> Engine {
        let engine = start(&self.db, settings, &self.keyring).await;
        self.poll_events(&engine);
        engine
    }

    fn poll_events(&self, engine: &Engine) {
        tokio::spawn(tidegate_engine::events::hub::run(
            engine.clone(),
            self.stop.clone(),
        ));
    }

    /// A round of the lane observer, which must be on duty.
    pub async fn observe(&self) -> lanes::observe::Observed {
        let observed = lanes::observe::observe(&self.engine)
            .await
            .expect("observe");
        assert!(observed.on_duty);
        observed
    }

    /// The database's clock.
    pub async fn now(&self) -> chrono::DateTime<chrono::Utc> {
        sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(self.db.pool())
            .await
            .expect("clock")
    }

    pub async fn get(&self, run: RunId) -> RunView {
        runs::get::get(&self.engine, &member("acme"), run)
            .await
            .expect("run")
    }

    /// The reason of a run that is queued: the same before it was observed and after, alone and in a list. After a
    /// change the observer must have had its round.
    pub async fn reason(&self, run: RunId) -> QueueReasonView {
        let fresh = self.get(run).await;
        assert_eq!(fresh.state, RunState::Queued);
        let fresh = fresh.queue_reason.expect("a queued run has a reason");
        self.observe().await;
        let observed = self.get(run).await.queue_reason.expect("still a reason");
        assert_eq!(fresh.code, observed.code);
        assert_eq!(fresh.remedy, observed.remedy);
        let page = runs::list::list(&self.engine, &member("acme"), RunFilter::default())
            .await
            .expect("list");
        let listed = page
            .items
            .into_iter()
            .find(|item| item.run_id == run)
            .expect("listed");
        assert_eq!(listed.queue_reason.as_ref(), Some(&observed));
        let explained = runs::explain::explain(&self.engine, &member("acme"), run)
            .await
            .expect("explain");
        assert_eq!(explained.reasons.first(), Some(&observed));
        observed
    }

    pub async fn expect_reason(&self, run: RunId, code: QueueReason) -> QueueReasonView {
        let reason = self.reason(run).await;
        assert_eq!(reason.code, code, "{reason:?}");
        reason
    }

    pub async fn conversation(&self) -> ConversationId {
        conversations::create::create_conversation(
            &self.engine,
            &member("acme"),
            CreateConversation::default(),
        )
        .await
        .expect("conversation")
        .conversation_id
    }

    pub async fn turn(&self, conversation: ConversationId) -> RunId {
        let request = SubmitTurn {
            input: "hello".to_owned(),
            capability: None,
            requirements: None,
            service_class: None,
            deadline: None,
            user: None,
        };
        conversations::turn::submit_turn(&self.engine, &member("acme"), conversation, request, None)
            .await
            .expect("turn")
            .run_id
    }

    pub async fn submit(&self, request: SubmitRun) -> RunId {
        runs::submit::submit(&self.engine, &member("acme"), request, None)
            .await
            .expect("submit")
            .run_id
    }

    /// Claims by a worker of a pool; waits a few seconds for something.
    pub async fn claim(&self, pool: &PoolId, max: u32) -> Vec<Lease> {
        claim_on(&self.engine, pool, max, 5_000).await
    }

    /// The run starts: a worker of the pool gets it.
    pub async fn expect_start(&self, pool: &PoolId, run: RunId) -> Lease {
        let lease = self
            .claim(pool, 10)
            .await
            .into_iter()
            .find(|lease| lease.run.run_id == run)
            .expect("the run does not start");
        assert_eq!(self.get(run).await.state, RunState::Running);
        lease
    }

    /// Nothing starts.
    pub async fn expect_no_start(&self, pool: &PoolId) {
        assert!(claim_on(&self.engine, pool, 10, 100).await.is_empty());
    }

    pub async fn complete(&self, lease: &Lease) {
        self.try_complete(lease).await.expect("complete");
    }

    pub async fn try_complete(&self, lease: &Lease) -> Result<AttemptAnswer, Error> {
        let request = CompleteRun {
            fence: lease.fence,
            result: json!({"ok": true}),
            messages: Vec::new(),
            usage: AttemptUsage::default(),
        };
        let worker = Principal::built_in_worker(PoolId::builtin());
        worker::close::complete(&self.engine, &worker, lease.run.run_id, request).await
    }

    pub async fn fail_having_used(&self, lease: &Lease, code: Code, tokens: i64) {
        worker::close::fail(
            &self.engine,
            &Principal::built_in_worker(PoolId::builtin()),
            lease.run.run_id,
            FailRun {
                fence: lease.fence,
                code,
                detail: None,
                retryable: code != Code::Cancelled,
                retry_after_ms: None,
                usage: AttemptUsage { tokens },
            },
        )
        .await
        .expect("fail");
    }

    pub async fn fail(&self, run: RunId, fence: Fence, code: Code, retry_after_ms: u64) {
        let failed = self.try_fail(run, fence, code, retry_after_ms).await;
        failed.expect("fail");
    }

    pub async fn try_fail(
        &self,
        run: RunId,
        fence: Fence,
        code: Code,
        retry_after_ms: u64,
    ) -> Result<AttemptAnswer, Error> {
        let request = FailRun {
            fence,
            code,
            detail: None,
            retryable: code != Code::Cancelled,
            retry_after_ms: Some(retry_after_ms),
            usage: AttemptUsage::default(),
        };
        let worker = Principal::built_in_worker(PoolId::builtin());
        worker::close::fail(&self.engine, &worker, run, request).await
    }
}

async fn start(db: &TestDb, settings: Settings, keyring: &Keyring) -> Engine {
    Engine::start(
        Arc::new(settings),
        Store::new(db.pool().clone()),
        keyring.clone(),
        InstanceId::new(),
    )
    .await
    .expect("start")
}

pub fn ask(max: u32, wait_ms: u64) -> ClaimRequest {
    ClaimRequest {
        worker_id: "w1".parse().expect("worker"),
        incarnation: 1,
        protocol_version: 1,
        max,
        max_background: None,
        wait_ms,
    }
}

pub async fn claim_on(engine: &Engine, pool: &PoolId, max: u32, wait_ms: u64) -> Vec<Lease> {
    let worker = Principal::built_in_worker(pool.clone());
    worker::claim::claim(engine, &worker, ask(max, wait_ms))
        .await
        .expect("claim")
        .leases
}

pub fn principal(role: Role, tenant: Option<&str>) -> Principal {
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

pub fn member(tenant: &str) -> Principal {
    principal(Role::Member, Some(tenant))
}

pub fn operator() -> Principal {
    principal(Role::SuperAdmin, None)
}

/// A business task that asks for a capability.
pub fn task(capability: &str) -> SubmitRun {
    SubmitRun {
        capability: capability.parse().expect("capability"),
        requirements: None,
        input: json!({"text": "hello"}),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
        user: None,
    }
}
