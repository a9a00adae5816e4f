//! The exit code of `run watch` over a failure and a requeue.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_client::{Client, WorkerApi as _};
use tidegate_model::{
    Code, RunId, TenantId,
    api::{
        AttemptUsage, ClaimRequest, CompleteRun, CreateKey, CreateTenant, FailRun, KeyGrants,
        Lease, PROTOCOL_VERSION, SubmitRun,
    },
    principal::{KeyScope, Role},
};
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, PATIENCE, ready, run, serve, with_database};

struct World {
    _db: TestDb,
    _server: Running,
    url: String,
    key: String,
    tenant: Client,
    worker: Client,
}

impl World {
    /// A server that executes nothing itself.
    async fn new() -> Self {
        let db = TestDb::new().await;
        let made = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
        let admin = made.succeeded().json()["secret"]
            .as_str()
            .expect("a secret")
            .to_owned();
        let mut server = serve(&db).env("RUN_EXECUTION_CONCURRENCY", "0").start();
        let url = ready(&mut server).await["url"]
            .as_str()
            .expect("url")
            .to_owned();
        let admin = Client::new(&url, admin).expect("client");
        let acme: TenantId = "acme".parse().expect("tenant");
        let create = CreateTenant {
            tenant: acme.clone(),
            display_name: None,
        };
        admin.create_tenant(&create).await.expect("tenant");
        let key = |role, tenant, pool: Option<&str>, scopes| CreateKey {
            role,
            tenant,
            pool: pool.map(|pool| pool.parse().expect("pool")),
            user: None,
            scopes,
            grants: KeyGrants::default(),
            name: None,
            expires_at: None,
        };
        let business = vec![KeyScope::RunsBusiness];
        let member = key(Role::Member, Some(acme), None, business);
        let member = admin.create_key(&member).await.expect("key").secret;
        let member = member.expect("shown once");
        let worker = key(Role::Worker, None, Some("builtin"), Vec::new());
        let worker = admin.create_key(&worker).await.expect("key").secret;
        let worker = worker.expect("shown once");
        Self {
            _db: db,
            _server: server,
            tenant: Client::new(&url, member.clone()).expect("client"),
            worker: Client::new(&url, worker).expect("client"),
            key: member,
            url,
        }
    }

    fn watch(&self, run_id: RunId) -> Proc {
        Proc::tidegate(&["run", "watch", "--json", &run_id.to_string()])
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", &self.key)
    }

    async fn watched(&self, run_id: RunId) -> Ended {
        run(self.watch(run_id)).await
    }

    async fn claim(&self) -> Lease {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let claim = ClaimRequest {
                worker_id: "watcher".parse().expect("a name"),
                incarnation: 1,
                protocol_version: PROTOCOL_VERSION,
                max: 1,
                max_background: None,
                wait_ms: 500,
            };
            if let Some(lease) = self.worker.claim(claim).await.expect("claim").leases.pop() {
                return lease;
            }
            assert!(Instant::now() < deadline, "nothing to claim");
        }
    }

    async fn fail(&self, lease: &Lease) {
        let fail = FailRun {
            fence: lease.fence,
            code: Code::WorkerFailed,
            detail: Some("the parts were missing".to_owned()),
            retryable: true,
            retry_after_ms: None,
            usage: AttemptUsage::default(),
        };
        self.worker
            .fail(lease.run.run_id, fail)
            .await
            .expect("failed");
    }

    async fn complete(&self, lease: &Lease) {
        let complete = CompleteRun {
            fence: lease.fence,
            result: json!({"done": true}),
            messages: Vec::new(),
            usage: AttemptUsage::default(),
        };
        self.worker
            .complete(lease.run.run_id, complete)
            .await
            .expect("completed");
    }
}

/// R22.2: 4 after the failure that made a dead letter; after a requeue the exit code is of the last end, for those who
/// begin to watch then and for those who watched all along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_a_requeued_run_ends_with_its_last_end() {
    let world = World::new().await;
    let submit = SubmitRun {
        capability: "chat".parse().expect("capability"),
        requirements: None,
        input: json!("hello"),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: Some(1),
        budget: None,
        user: None,
    };
    let run_id = world
        .tenant
        .submit_run(&submit, None)
        .await
        .expect("run")
        .run_id;
    world.fail(&world.claim().await).await;
    let failed = world.watched(run_id).await.failed_with(4);
    assert!(
        failed.stdout.contains("ATTEMPTS_EXHAUSTED"),
        "{}",
        failed.stdout
    );
    // And says why, where only the run has it.
    let said: Value = serde_json::from_str(&failed.stderr).expect("one JSON document");
    let error = &said["error"];
    assert_eq!(error["code"], "ATTEMPTS_EXHAUSTED", "{said}");
    let message = error["messages"][0].as_str().expect("a message");
    assert!(message.contains("the parts were missing"), "{said}");
    let remedy = error["remedy"].as_str().expect("a remedy");
    assert!(remedy.contains("run explain"), "{said}");

    world.tenant.requeue_run(run_id).await.expect("requeued");
    let mut watching = world.watch(run_id).start();
    watching.line_with("run.requeued").await;
    tokio::time::timeout(Duration::from_millis(300), watching.wait(PATIENCE))
        .await
        .expect_err("the run goes on after its first end, and so does who watches it");
    world.complete(&world.claim().await).await;
    let status = watching.wait(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{}", watching.output());
    let after = world.watched(run_id).await.succeeded();
    assert_eq!(
        after.stdout.matches("\"run.ended\"").count(),
        2,
        "{}",
        after.stdout
    );
}
