//! Several `tidegate serve` over one database, a scripted provider, tenants with keys.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::AssertSqlSafe;
use tidegate_client::Client;
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_model::{
    ConversationId, InstanceId, RunId, TenantId,
    api::{
        CreateConversation, CreateKey, CreateTenant, KeyGrants, ProviderKind, PutModel,
        PutProvider, SubmitTurn,
    },
    principal::Role,
};
use tidegate_testkit::{Proc, Running, TestCluster, TestDb};
use uuid::Uuid;

/// How long a lease lasts here.
pub const LEASE: Duration = Duration::from_secs(2);
/// 32 bytes, base64: a key for tests only.
pub const ENC_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The longest any wait of a test may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server process.
pub struct Server {
    pub process: Running,
    pub url: String,
    pub instance: InstanceId,
}

/// A database, servers on it, and what they talk to.
pub struct World {
    pub db: TestDb,
    pub servers: Vec<Server>,
    pub admin: Client,
    pub tenants: Vec<(TenantId, Client)>,
    concurrency: String,
    _provider: MockHandle,
}

impl World {
    /// `servers` processes of `concurrency` slots each; every turn takes about `turn`.
    pub async fn new(
        db: TestDb,
        servers: usize,
        concurrency: usize,
        tenants: usize,
        turn: Duration,
    ) -> Self {
        let words = 20;
        let pace = turn.as_millis() / words;
        let text = "word ".repeat(usize::try_from(words).expect("small"));
        let scenario = format!(
            "name = \"load\"\n[[rule]]\nname = \"all\"\nreply = {{ text = \"{text}\", delay_ms = {pace} }}\n"
        );
        Self::with_scenario(db, servers, concurrency, tenants, &scenario).await
    }

    /// The same with models that say what a scenario says.
    pub async fn with_scenario(
        db: TestDb,
        servers: usize,
        concurrency: usize,
        tenants: usize,
        scenario: &str,
    ) -> Self {
        let provider = MockProvider::start(Scenario::parse(scenario).expect("scenario"))
            .await
            .expect("provider");
        let root = bootstrap(&db).await;
        let concurrency = concurrency.to_string();
        let mut running = Vec::new();
        for _ in 0..servers {
            running.push(serve(&db, &concurrency).await);
        }
        let admin = Client::new(&running[0].url, root).expect("client");
        configure(&admin, &provider).await;
        let mut world = Self {
            db,
            servers: running,
            admin,
            tenants: Vec::new(),
            concurrency,
            _provider: provider,
        };
        for index in 0..tenants {
            world.add_tenant(&format!("tenant-{index}")).await;
        }
        world
    }

    async fn add_tenant(&mut self, name: &str) {
        let tenant: TenantId = name.parse().expect("tenant");
        let create = CreateTenant {
            tenant: tenant.clone(),
            display_name: None,
        };
        self.admin.create_tenant(&create).await.expect("tenant");
        let key = CreateKey {
            role: Role::Member,
            tenant: Some(tenant.clone()),
            pool: None,
            user: None,
            scopes: Vec::new(),
            name: None,
            expires_at: None,
            grants: KeyGrants::default(),
        };
        let created = self.admin.create_key(&key).await.expect("key");
        let url = &self.servers[self.tenants.len() % self.servers.len()].url;
        let client = Client::new(url, created.secret.expect("shown once")).expect("client");
        self.tenants.push((tenant, client));
    }

    /// One more server.
    pub async fn add_server(&mut self) {
        let server = serve(&self.db, &self.concurrency).await;
        self.servers.push(server);
    }

    /// Submits a turn in a conversation of its own.
    pub async fn turn(&self, tenant: usize) -> RunId {
        turn(&self.tenants[tenant].1).await
    }

    pub async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(self.db.pool())
            .await
            .expect("count")
    }

    /// Waits until a count is at least `wanted`.
    pub async fn until_count(&self, sql: &str, wanted: i64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.count(sql).await;
            if found >= wanted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{found} of {wanted} after {PATIENCE:?}: {sql}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The runs that an instance holds.
    pub async fn held_by(&self, instance: InstanceId) -> Vec<Uuid> {
        sqlx::query_scalar("SELECT run_id FROM run_leases WHERE instance_id = $1")
            .bind(instance.as_uuid())
            .fetch_all(self.db.pool())
            .await
            .expect("leases")
    }

    /// The server that holds most runs, by its index, with what it holds.
    pub async fn busiest(&self) -> (usize, Vec<Uuid>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut most = (0, Vec::new());
            for (index, server) in self.servers.iter().enumerate() {
                let held = self.held_by(server.instance).await;
                if held.len() > most.1.len() {
                    most = (index, held);
                }
            }
            if !most.1.is_empty() {
                return most;
            }
            assert!(
                Instant::now() < deadline,
                "nobody holds a run\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until none of the runs is held by the instance any more and each runs elsewhere or has ended; how long that
    /// took.
    pub async fn until_elsewhere(&self, runs: &[Uuid], instance: InstanceId) -> Duration {
        let started = Instant::now();
        loop {
            let elsewhere: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM unnest($1::uuid[]) AS r(run_id)
                 WHERE EXISTS (SELECT FROM run_leases l WHERE l.run_id = r.run_id AND l.instance_id <> $2)
                    OR EXISTS (SELECT FROM run_ends e WHERE e.run_id = r.run_id)",
            )
            .bind(runs)
            .bind(instance.as_uuid())
            .fetch_one(self.db.pool())
            .await
            .expect("count");
            if usize::try_from(elsewhere).expect("small") == runs.len() {
                return started.elapsed();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{elsewhere} of {} runs elsewhere\n{}",
                runs.len(),
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Everything ended well, once, and adds up.
    pub async fn until_all_succeeded(&self) {
        let runs = self.count("SELECT count(*) FROM agent_runs").await;
        self.until_count("SELECT count(*) FROM run_ends", runs)
            .await;
        assert_eq!(
            self.count("SELECT count(*) FROM run_ends WHERE state = 'succeeded'")
                .await,
            runs,
            "{}",
            self.logs()
        );
        assert_eq!(
            self.count("SELECT count(*) FROM run_attempts WHERE outcome = 'succeeded'")
                .await,
            runs,
            "each run was completed by one attempt"
        );
        tidegate_testkit::audit(self.db.pool()).await;
    }

    /// The last words of every server.
    pub fn logs(&self) -> String {
        let mut all = Vec::new();
        for server in &self.servers {
            all.push(format!("--- {}", server.instance));
            let output = server.process.output();
            let lines: Vec<&str> = output.lines().collect();
            let from = lines.len().saturating_sub(15);
            all.extend(lines[from..].iter().map(|line| (*line).to_owned()));
        }
        all.join("\n")
    }
}

/// Submits a turn in a conversation of its own.
pub async fn turn(client: &Client) -> RunId {
    let conversation: ConversationId = client
        .create_conversation(&CreateConversation {
            title: None,
            user: None,
            turn: None,
        })
        .await
        .expect("conversation")
        .conversation_id;
    let turn = SubmitTurn {
        input: "hello".to_owned(),
        capability: None,
        requirements: None,
        service_class: None,
        deadline: None,
        user: None,
    };
    client
        .submit_turn(conversation, &turn, None)
        .await
        .expect("turn")
        .run_id
}

async fn bootstrap(db: &TestDb) -> String {
    let mut process = Proc::tidegate(&["key", "bootstrap", "--json"])
        .env("CONFIG_DB_URL", db.url())
        .env("CONFIG_ENC_KEY", ENC_KEY)
        .start();
    let status = process.wait(PATIENCE).await;
    assert!(status.success(), "{}", process.output());
    let answer: serde_json::Value = serde_json::from_str(&process.stdout()).expect("json");
    answer["secret"].as_str().expect("secret").to_owned()
}

async fn configure(admin: &Client, provider: &MockHandle) {
    let name = "scripted".parse().expect("name");
    let put = PutProvider {
        kind: ProviderKind::OpenAiCompatible,
        base_url: provider.url().to_owned(),
        api_key: None,
        max_in_flight: Some(200),
        rpm: None,
        max_queue: Some(1_000),
        queue_timeout_ms: None,
    };
    admin.put_provider(&name, &put).await.expect("provider");
    let model = PutModel {
        provider: name,
        upstream_model: "scripted".to_owned(),
        default: true,
    };
    admin
        .put_model(&"scripted".parse().expect("name"), &model)
        .await
        .expect("model");
}

/// Starts a server and waits until it serves.
pub async fn serve(db: &TestDb, concurrency: &str) -> Server {
    let lease = LEASE.as_millis().to_string();
    let mut process = Proc::tidegate(&["serve", "--json"])
        .env("CONFIG_DB_URL", db.url())
        .env("CONFIG_ENC_KEY", ENC_KEY)
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("TIDEGATE_LEASE_MS", lease)
        .env("TIDEGATE_RENEW_MS", "500")
        .env("TIDEGATE_TAKEOVER_SWEEP_MS", "250")
        .env("TIDEGATE_BACKOFF_MAX_MS", "1000")
        .env("TIDEGATE_MAX_ATTEMPTS", "50")
        .env("TIDEGATE_DB_POOL_SIZE", "10")
        .env("TIDEGATE_LOG_LEVEL", "warn")
        .env("RUN_EXECUTION_CONCURRENCY", concurrency)
        .env("RUN_EXECUTION_BACKGROUND_CONCURRENCY", concurrency)
        .start();
    let line = process.line_with("\"ready\":true").await;
    let ready: serde_json::Value = serde_json::from_str(&line).expect("json");
    Server {
        url: ready["url"].as_str().expect("url").to_owned(),
        instance: ready["instance"]
            .as_str()
            .expect("instance")
            .parse()
            .expect("id"),
        process,
    }
}

/// A database on a PostgreSQL of its own, which a test may kill.
pub async fn own_database() -> (Arc<TestCluster>, TestDb) {
    let cluster = TestCluster::start(|options| options).await;
    let db = cluster.migrated_db().await;
    (cluster, db)
}
