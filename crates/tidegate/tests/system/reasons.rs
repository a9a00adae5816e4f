//! Each reason for which a run can wait, and its remedy followed with the command line or the API alone (R3.9).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use secrecy::SecretString;
use serde_json::{Value, json};
use tidegate_client::{Client, WorkerApi as _};
use tidegate_engine::{
    Engine, Principal, runs::submit::submit_as, secrets::Keyring, settings::Settings,
};
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_model::{
    InstanceId, KeyId, RunId, TenantId,
    api::{
        ClaimRequest, CreateConversation, CreateKey, CreateTenant, KeyGrants, PROTOCOL_VERSION,
        ProviderKind, PutModel, PutProvider, QueueReasonView, SubmitRun, SubmitTurn,
    },
    contracts::CapabilityDescriptor,
    principal::{KeyScope, Role},
    queue_reason::QueueReason,
    run::{RunKind, RunState},
};
use tidegate_store::Store;
use tidegate_testkit::{Proc, Running, TestDb, lasting_health};

use crate::rig::{KEY, PATIENCE, ready, run, serve, with_database};

/// Long texts take minutes, a first "throttled" is sent away for five, everything else is answered at once.
const SCENARIO: &str = r#"
name = "reasons"
[[rule]]
name = "long"
when = { text_contains = "long" }
reply = { text = "one two three four five six seven eight nine ten", delay_ms = 30000 }
[[rule]]
name = "throttled"
when = { text_contains = "throttled", first = 1 }
fault = { kind = "status", status = 429, code = "rate_limit_exceeded", retry_after_ms = 300000 }
[[rule]]
name = "quick"
reply = { text = "done" }
"#;

struct World {
    db: TestDb,
    servers: Vec<Running>,
    url: String,
    admin_key: String,
    admin: Client,
    acme_key: String,
    acme: Client,
    _provider: MockHandle,
}

impl World {
    async fn new(concurrency: &str, background: &str) -> Self {
        let db = TestDb::new().await;
        let provider = MockProvider::start(Scenario::parse(SCENARIO).expect("scenario"))
            .await
            .expect("provider");
        let made = run(with_database(&db, &["key", "bootstrap", "--json"]))
            .await
            .succeeded()
            .json();
        let admin_key = made["secret"].as_str().expect("secret").to_owned();
        let mut server = start(&db, concurrency, background);
        let url = ready(&mut server).await["url"]
            .as_str()
            .expect("url")
            .to_owned();
        let admin = Client::new(&url, admin_key.clone()).expect("client");
        let name = "scripted".parse().expect("name");
        let put = PutProvider {
            kind: ProviderKind::OpenAiCompatible,
            base_url: provider.url().to_owned(),
            api_key: None,
            max_in_flight: None,
            rpm: None,
            max_queue: None,
            queue_timeout_ms: None,
        };
        admin.put_provider(&name, &put).await.expect("provider");
        let model = PutModel {
            provider: name.clone(),
            upstream_model: "scripted".to_owned(),
            default: true,
        };
        admin.put_model(&name, &model).await.expect("model");
        let tenant: TenantId = "acme".parse().expect("tenant");
        let create = CreateTenant {
            tenant: tenant.clone(),
            display_name: None,
        };
        admin.create_tenant(&create).await.expect("tenant");
        let mut world = Self {
            db,
            servers: vec![server],
            acme: admin.clone(),
            acme_key: String::new(),
            url,
            admin_key,
            admin,
            _provider: provider,
        };
        world.acme_key = world
            .key(
                Role::Member,
                Some(tenant),
                None,
                vec![KeyScope::RunsBusiness],
            )
            .await;
        world.acme = Client::new(&world.url, world.acme_key.clone()).expect("client");
        world
    }

    async fn key(
        &self,
        role: Role,
        tenant: Option<TenantId>,
        pool: Option<&str>,
        scopes: Vec<KeyScope>,
    ) -> String {
        let key = CreateKey {
            role,
            tenant,
            pool: pool.map(|pool| pool.parse().expect("pool")),
            user: None,
            scopes,
            name: None,
            expires_at: None,
            grants: KeyGrants::default(),
        };
        let made = self.admin.create_key(&key).await.expect("key");
        made.secret.expect("shown once")
    }

    async fn say(&self, conversation: tidegate_model::ConversationId, input: &str) -> RunId {
        let turn = SubmitTurn {
            input: input.to_owned(),
            capability: None,
            requirements: None,
            service_class: None,
            deadline: None,
            user: None,
        };
        self.acme
            .submit_turn(conversation, &turn, None)
            .await
            .expect("turn")
            .run_id
    }

    async fn conversation(&self) -> tidegate_model::ConversationId {
        let create = CreateConversation {
            title: None,
            user: None,
            turn: None,
        };
        self.acme
            .create_conversation(&create)
            .await
            .expect("conversation")
            .conversation_id
    }

    async fn turn(&self, input: &str) -> RunId {
        let conversation = self.conversation().await;
        self.say(conversation, input).await
    }

    /// Waits until the run shows this reason; the reason with its remedy.
    async fn until_waits_for(&self, run_id: RunId, wanted: QueueReason) -> QueueReasonView {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let explained = self.acme.explain_run(run_id).await.expect("explain");
            if let Some(reason) = explained.reasons.first()
                && reason.code == wanted
            {
                return reason.clone();
            }
            assert!(
                Instant::now() < deadline,
                "{run_id} never waits for {wanted}: {explained:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_state(&self, run_id: RunId, what: &str, is_it: impl Fn(RunState) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let run = self.acme.run(run_id).await.expect("run");
            if is_it(run.state) {
                return;
            }
            assert!(Instant::now() < deadline, "{run_id} never {what}: {run:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_started(&self, run_id: RunId) {
        self.until_state(run_id, "starts", |state| {
            matches!(state, RunState::Running | RunState::Succeeded)
        })
        .await;
    }

    /// The database's clock.
    async fn now(&self) -> chrono::DateTime<chrono::Utc> {
        sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(self.db.pool())
            .await
            .expect("clock")
    }

    /// Runs a command that a remedy names, as whoever has this key.
    async fn command(&self, key: &str, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        let proc = Proc::tidegate(&args)
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", key);
        run(proc).await.succeeded().json()
    }
}

fn start(db: &TestDb, concurrency: &str, background: &str) -> Running {
    serve(db)
        .env("RUN_EXECUTION_CONCURRENCY", concurrency)
        .env("RUN_EXECUTION_BACKGROUND_CONCURRENCY", background)
        .env("TIDEGATE_GRACE_MS", "500")
        .start()
}

/// R3.9: caps, a busy conversation, a start time, a backoff, a capability that nobody offers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remedies_of_waiting_runs_work() {
    let world = World::new("6", "0").await;
    foreground_cap(&world).await;
    busy_conversation(&world).await;
    start_time(&world).await;
    backoff(&world).await;
    offered_by_nobody(&world).await;
}

async fn foreground_cap(world: &World) {
    let acme = &world.acme_key;
    let first = world.turn("long one").await;
    let second = world.turn("long two").await;
    world.until_started(first).await;
    world.until_started(second).await;
    let third = world.turn("quick").await;
    let reason = world
        .until_waits_for(third, QueueReason::TenantForegroundCap)
        .await;
    assert!(
        reason.remedy.contains("tidegate run list --state running"),
        "{}",
        reason.remedy
    );
    let running = world
        .command(acme, &["run", "list", "--state", "running"])
        .await;
    let one = running["items"][0]["runId"]
        .as_str()
        .expect("run")
        .to_owned();
    world.command(acme, &["run", "cancel", &one]).await;
    world.until_started(third).await;
    world.command(acme, &["run", "cancel", "--all"]).await;
    for run_id in [first, second] {
        world.until_state(run_id, "ends", RunState::is_ended).await;
    }
}

async fn busy_conversation(world: &World) {
    let conversation = world.conversation().await;
    let earlier = world.say(conversation, "long").await;
    let later = world.say(conversation, "quick").await;
    let reason = world
        .until_waits_for(later, QueueReason::ConversationBusy)
        .await;
    assert!(
        reason
            .remedy
            .contains(&format!("tidegate run cancel {earlier}")),
        "{}",
        reason.remedy
    );
    world
        .command(&world.acme_key, &["run", "cancel", &earlier.to_string()])
        .await;
    world.until_started(later).await;
}

async fn start_time(world: &World) {
    let at = world.now().await + chrono::Duration::hours(2);
    let scheduled = world
        .command(
            &world.acme_key,
            &[
                "run",
                "submit",
                "chat",
                "--input",
                r#"{"text":"quick"}"#,
                "--run-at",
                &at.to_rfc3339(),
            ],
        )
        .await;
    let scheduled: RunId = scheduled["runId"]
        .as_str()
        .expect("run")
        .parse()
        .expect("id");
    let reason = world
        .until_waits_for(scheduled, QueueReason::Scheduled)
        .await;
    assert!(
        reason
            .remedy
            .contains(&format!("tidegate run requeue {scheduled}")),
        "{}",
        reason.remedy
    );
    world
        .command(&world.acme_key, &["run", "requeue", &scheduled.to_string()])
        .await;
    world.until_started(scheduled).await;
}

async fn backoff(world: &World) {
    let throttled = world.turn("throttled").await;
    let reason = world
        .until_waits_for(throttled, QueueReason::RetryBackoff)
        .await;
    assert!(
        reason
            .remedy
            .contains(&format!("tidegate run requeue {throttled}")),
        "{}",
        reason.remedy
    );
    world
        .command(&world.acme_key, &["run", "requeue", &throttled.to_string()])
        .await;
    world
        .until_state(throttled, "is tried again", |state| {
            state != RunState::Queued
        })
        .await;
}

/// The remedy of `NO_ELIGIBLE_POOL`: publish and activate a descriptor, and claim with a key of that pool.
async fn offered_by_nobody(world: &World) {
    let submitted = world
        .command(&world.acme_key, &["run", "submit", "report.build"])
        .await;
    let run_id: RunId = submitted["runId"]
        .as_str()
        .expect("run")
        .parse()
        .expect("id");
    let reason = world
        .until_waits_for(run_id, QueueReason::NoEligiblePool)
        .await;
    assert!(
        reason
            .remedy
            .contains("tidegate pool publish FILE --activate"),
        "{}",
        reason.remedy
    );
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("descriptor.json");
    let descriptor = CapabilityDescriptor::new(
        "reports".parse().expect("pool"),
        1,
        vec!["report.build".parse().expect("capability")],
        lasting_health(),
    );
    let descriptor = serde_json::to_string(&descriptor).expect("JSON");
    std::fs::write(&file, descriptor).expect("file");
    let controller = world
        .key(Role::PoolController, None, None, Vec::new())
        .await;
    let file = file.to_str().expect("path");
    world
        .command(&controller, &["pool", "publish", file, "--activate"])
        .await;
    let worker = world
        .key(Role::Worker, None, Some("reports"), Vec::new())
        .await;
    let worker = Client::new(&world.url, worker).expect("client");
    let request = ClaimRequest {
        worker_id: "reporter".parse().expect("worker"),
        incarnation: 1,
        protocol_version: PROTOCOL_VERSION,
        max: 1,
        max_background: None,
        wait_ms: 20_000,
    };
    let claimed = worker.claim(request).await.expect("claim");
    assert_eq!(claimed.leases[0].run.run_id, run_id);
}

/// R3.9: no worker at all, background switched off everywhere, the hard cap of background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remedies_of_missing_workers_work() {
    let mut world = World::new("0", "0").await;
    let waiting = world.turn("quick").await;
    let reason = world
        .until_waits_for(waiting, QueueReason::WaitingForWorker)
        .await;
    assert!(
        reason.remedy.contains("tidegate serve --roles chat"),
        "{}",
        reason.remedy
    );
    let mut more = start(&world.db, "4", "0");
    ready(&mut more).await;
    world.servers.push(more);
    world.until_started(waiting).await;

    let submit = Background::new(&world).await;
    let first = submit.run("long").await;
    let reason = world
        .until_waits_for(first, QueueReason::BackgroundDisabled)
        .await;
    assert!(
        reason
            .remedy
            .contains("RUN_EXECUTION_BACKGROUND_CONCURRENCY"),
        "{}",
        reason.remedy
    );
    let mut more = start(&world.db, "4", "2");
    ready(&mut more).await;
    world.servers.push(more);
    world.until_started(first).await;
    let second = submit.run("quick").await;
    let reason = world
        .until_waits_for(second, QueueReason::TenantBackgroundCap)
        .await;
    assert!(
        reason.remedy.contains("tidegate run cancel"),
        "{}",
        reason.remedy
    );
    world
        .command(&world.acme_key, &["run", "cancel", &first.to_string()])
        .await;
    world.until_started(second).await;
    let listed = world.command(&world.admin_key, &["tenant", "list"]).await;
    assert_eq!(listed["items"][0]["tenant"], "acme");
}

/// Submits background roots in process: no route can name that kind yet (R3.2).
struct Background {
    engine: Engine,
    principal: Principal,
}

impl Background {
    async fn new(world: &World) -> Self {
        let settings = Settings {
            run_execution_concurrency: 0,
            run_execution_background_concurrency: 0,
            ..Settings::default()
        };
        let keyring = Keyring::new(&SecretString::from(KEY), None).expect("keyring");
        let store = Store::new(world.db.pool().clone());
        let engine = Engine::start(Arc::new(settings), store, keyring, InstanceId::new())
            .await
            .expect("engine");
        let principal = Principal {
            key_id: KeyId::new(),
            role: Role::Member,
            tenant: Some("acme".parse().expect("tenant")),
            pool: None,
            user: None,
            scopes: Vec::new(),
            expires_at: None,
            request_id: None,
            intent: None,
            grants: KeyGrants::default(),
        };
        Self { engine, principal }
    }

    async fn run(&self, text: &str) -> RunId {
        let run = SubmitRun {
            capability: tidegate_model::Capability::chat(),
            requirements: None,
            input: json!({ "text": text }),
            service_class: None,
            priority: None,
            deadline: None,
            run_at: None,
            max_attempts: None,
            budget: None,
            user: None,
        };
        submit_as(&self.engine, &self.principal, RunKind::BackgroundWork, run)
            .await
            .expect("submit")
            .run_id
    }
}
