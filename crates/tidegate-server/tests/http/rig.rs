//! A server on a free port over a database of its own, with keys of every role.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tidegate_engine::{
    Engine, Principal, keys,
    secrets::Keyring,
    settings::{Roles, Settings},
    tenants,
};
use tidegate_model::{
    InstanceId, KeyId, TenantId,
    api::{CreateKey, CreateTenant, KeyGrants, Problem},
    contracts::CapabilityDescriptor,
    principal::{KeyScope, Role},
};
use tidegate_server::{Local, ServerParts, Shutdown, serve};
use tidegate_store::{Store, migrate};
use tidegate_testkit::{TestDb, lasting_health};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take on a loaded machine before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub struct Rig {
    pub db: TestDb,
    pub engine: Engine,
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub shutdown: Shutdown,
    pub http: reqwest::Client,
    served: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

/// An answer that is read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as a problem, after checking what all problems have in common.
    pub fn problem(&self) -> Problem {
        let media = self
            .headers
            .get("content-type")
            .map(|value| value.to_str().unwrap());
        assert_eq!(media, Some("application/problem+json"), "{self:?}");
        let problem: Problem = serde_json::from_str(&self.body).expect(&self.body);
        assert_eq!(problem.status, self.status.as_u16());
        assert_eq!(
            problem.kind,
            format!("https://tidegate.dev/codes/{}", problem.code)
        );
        let id = self.headers["x-request-id"].to_str().unwrap();
        assert_eq!(problem.request_id.as_deref(), Some(id));
        assert_eq!(
            self.headers.contains_key("retry-after"),
            problem.retry_after_ms.is_some()
        );
        problem
    }

    /// `CODE field`, or `CODE` where no field is named.
    pub fn refusal(&self) -> String {
        let problem = self.problem();
        match problem.field {
            Some(field) => format!("{} {field}", problem.code),
            None => problem.code.to_string(),
        }
    }
}

impl Rig {
    /// A server with all roles.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A server with other settings.
    pub async fn with(adjust: impl FnOnce(&mut Settings)) -> Self {
        let db = TestDb::new().await;
        let store = Store::new(db.pool().clone());
        Self::over(db, store, adjust).await
    }

    /// A server whose own connections go where the caller says.
    pub async fn over(db: TestDb, store: Store, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..Settings::default()
        };
        adjust(&mut settings);
        let (keyring, _) = Keyring::generate().expect("a key");
        let local = Local::take(&settings).expect("a free port");
        let engine = Engine::start(Arc::new(settings), store, keyring, InstanceId::new())
            .await
            .expect("an engine on a migrated database");
        let shutdown = Shutdown::new();
        let parts = ServerParts::new(local, engine.clone(), shutdown.clone())
            .expect("listening on the port");
        let address = parts.address().unwrap();
        let metrics = parts.metrics_address().map(Result::unwrap);
        let served = tokio::spawn(async move { serve(parts).await.expect("served to the end") });
        let stop = CancellationToken::new();
        // Detached: they end with the token, which the rig cancels when it is dropped.
        let mut loops = tidegate_engine::loops::spawn(&engine, &stop);
        tokio::spawn(async move { while loops.join_next().await.is_some() {} });
        Self {
            db,
            engine,
            address,
            metrics,
            shutdown,
            http: client(),
            served: Some(served),
            stop,
        }
    }

    /// A key with this role and all scopes; tenant and pool where the role is bound to one.
    pub async fn key(&self, role: Role, tenant: &str, pool: &str) -> String {
        self.key_with(role, tenant, pool, KeyScope::ALL.to_vec())
            .await
    }

    /// The same with these scopes.
    pub async fn key_with(
        &self,
        role: Role,
        tenant: &str,
        pool: &str,
        scopes: Vec<KeyScope>,
    ) -> String {
        let request = CreateKey {
            role,
            tenant: role.needs_tenant().then(|| tenant.parse().unwrap()),
            pool: role.needs_pool().then(|| pool.parse().unwrap()),
            user: None,
            scopes,
            name: None,
            expires_at: None,
            grants: KeyGrants::default(),
        };
        keys::create(&self.engine, &root(), request)
            .await
            .expect("a key")
            .secret
            .expect("shown once")
    }

    /// A tenant with the key of a member.
    pub async fn tenant(&self, name: &str) -> String {
        let request = CreateTenant {
            tenant: name.parse::<TenantId>().unwrap(),
            display_name: None,
        };
        tenants::create(&self.engine, &root(), request)
            .await
            .expect("a tenant");
        self.key(Role::Member, name, "").await
    }

    /// Adds the optional tables of tiers.
    pub async fn with_tiers(&self) {
        let applicant = migrate::Applicant {
            by: "test".to_owned(),
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        migrate::migrate_with(self.db.pool(), &applicant, &migrate::OPTIONAL_SETS)
            .await
            .expect("tables of tiers");
    }

    /// A request to the server.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    /// Sends a request with a key and, unless null, a JSON body.
    pub async fn call(&self, method: &str, path: &str, key: &str, body: Value) -> Answer {
        let request = self.request(method, path).bearer_auth(key);
        let request = if body.is_null() {
            request
        } else {
            request.json(&body)
        };
        answer(request).await
    }

    /// A read.
    pub async fn get(&self, path: &str, key: &str) -> Answer {
        self.call("GET", path, key, Value::Null).await
    }

    /// A write.
    pub async fn post(&self, path: &str, key: &str, body: Value) -> Answer {
        self.call("POST", path, key, body).await
    }

    /// A business task of the key's tenant.
    pub async fn submit(&self, key: &str) -> String {
        let answer = self
            .post(
                "/v1/runs",
                key,
                json!({"capability": "chat", "input": "hello"}),
            )
            .await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["runId"].as_str().unwrap().to_owned()
    }

    /// A conversation of the key's tenant.
    pub async fn conversation(&self, key: &str) -> String {
        let answer = self.post("/v1/conversations", key, json!({})).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json()["conversationId"].as_str().unwrap().to_owned()
    }

    /// Claims one run, waiting for it; the lease.
    pub async fn claim(&self, worker: &str) -> Value {
        let answer = self
            .post("/v1/worker/claim", worker, claim_body(10_000))
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let leases = answer.json();
        assert_eq!(leases["leases"].as_array().unwrap().len(), 1, "{leases}");
        leases["leases"][0].clone()
    }

    /// Ends the server and waits for it.
    pub async fn ended(&mut self) {
        let served = self.served.take().expect("still served");
        tokio::time::timeout(PATIENCE, served)
            .await
            .expect("ends in time")
            .unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.end();
        self.stop.cancel();
    }
}

/// Reads an answer to its end.
pub async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.expect("a whole body");
    Answer {
        status,
        headers,
        body,
    }
}

/// The operator of a test, who needs no key.
pub fn root() -> Principal {
    Principal {
        key_id: KeyId::new(),
        role: Role::SuperAdmin,
        tenant: None,
        pool: None,
        user: None,
        scopes: Vec::new(),
        expires_at: None,
        request_id: None,
        intent: None,
        grants: KeyGrants::default(),
    }
}

/// What a worker asks for.
/// A descriptor of epoch 1.
pub fn descriptor(pool: &str, capability: &str) -> Value {
    let named = CapabilityDescriptor::new(
        pool.parse().expect("pool"),
        1,
        vec![capability.parse().expect("capability")],
        lasting_health(),
    );
    serde_json::to_value(named).expect("JSON")
}

pub fn claim_body(wait_ms: u64) -> Value {
    json!({"workerId": "w1", "incarnation": 1, "protocolVersion": 1, "max": 1, "waitMs": wait_ms})
}

/// A client that gives up before a test hangs.
pub fn client() -> reqwest::Client {
    install_crypto();
    reqwest::Client::builder()
        .timeout(PATIENCE)
        .build()
        .unwrap()
}

/// The process's crypto provider, which the binary installs outside tests.
pub fn install_crypto() {
    // A second install is refused and changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Only the role `chat`.
pub const CHAT: Roles = Roles {
    chat: true,
    admin: false,
};

/// Polls until `check` gives a value.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let poll = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, poll)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}
