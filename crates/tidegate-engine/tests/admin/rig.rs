//! Instances on one database: engines with their loops, and people with keys.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use secrecy::SecretString;
use tidegate_engine::{
    Engine, Error, Principal, auth, cluster, config_bus, instances, keys, secrets::Keyring,
    settings::Settings, tenants,
};
use tidegate_model::{
    Code, InstanceId, KeyId, PoolId, TenantId,
    api::{CreateKey, CreateTenant, CreatedKey, KeyGrants},
    principal::{KeyScope, Role},
};
use tidegate_store::{ConnectOptions, Store, connect};
use tidegate_testkit::TestDb;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// A database and the key that seals its secrets.
pub struct World {
    pub db: TestDb,
    pub keyring: Keyring,
    pub enc_key: SecretString,
}

/// One instance: its engine and the loops of this part.
pub struct Node {
    pub engine: Engine,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Node {
    /// Stops the loops and waits for them.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.loops.join_next().await.is_some() {}
    }
}

impl World {
    pub async fn new() -> Self {
        Self::on(TestDb::new().await)
    }

    pub fn on(db: TestDb) -> Self {
        let (keyring, enc_key) = Keyring::generate().expect("a key");
        Self {
            db,
            keyring,
            enc_key,
        }
    }

    /// Settings with times that suit a test.
    pub fn settings() -> Settings {
        Settings {
            config_poll_ms: 5_000,
            cache_ttl_ms: 60_000,
            listener_heartbeat_ms: 200,
            listener_dead_ms: 1_500,
            instance_heartbeat_ms: 200,
            ..Settings::default()
        }
    }

    pub fn store(&self) -> Store {
        store_at(&self.db.url())
    }

    pub async fn engine(&self, settings: Settings) -> Engine {
        self.engine_at(&self.db.url(), settings).await
    }

    pub async fn engine_at(&self, url: &str, settings: Settings) -> Engine {
        Engine::start(
            Arc::new(settings),
            store_at(url),
            self.keyring.clone(),
            InstanceId::new(),
        )
        .await
        .expect("an engine")
    }

    pub async fn node(&self) -> Node {
        self.node_at(&self.db.url(), Self::settings()).await
    }

    pub async fn node_at(&self, url: &str, settings: Settings) -> Node {
        let engine = self.engine_at(url, settings).await;
        let stop = CancellationToken::new();
        let mut loops = JoinSet::new();
        loops.spawn(config_bus::run(engine.clone(), stop.clone()));
        loops.spawn(config_bus::listen(engine.clone(), stop.clone()));
        loops.spawn(cluster::run(engine.clone(), stop.clone()));
        loops.spawn(instances::heartbeat::run(engine.clone(), stop.clone()));
        loops.spawn(keys::last_used::run(engine.clone(), stop.clone()));
        Node {
            engine,
            stop,
            loops,
        }
    }
}

pub fn store_at(url: &str) -> Store {
    let options = ConnectOptions {
        max_connections: 6,
        ..ConnectOptions::new(url)
    };
    Store::new(connect(&options).expect("a pool"))
}

/// A caller that never went through a key.
pub fn as_role(role: Role, tenant: Option<&str>) -> Principal {
    Principal {
        key_id: KeyId::new(),
        role,
        tenant: tenant.map(id),
        pool: role.needs_pool().then(|| id::<PoolId>("gpu")),
        user: None,
        scopes: Vec::new(),
        expires_at: None,
        request_id: Some("req_test".to_owned()),
        intent: None,
        grants: KeyGrants::default(),
    }
}

pub fn operator() -> Principal {
    as_role(Role::SuperAdmin, None)
}

pub fn id<T: std::str::FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("an id")
}

pub async fn tenant(engine: &Engine, name: &str) -> TenantId {
    let request = CreateTenant {
        tenant: id(name),
        display_name: Some(format!("{name} GmbH")),
    };
    tenants::create(engine, &operator(), request)
        .await
        .expect("a tenant")
        .tenant
}

pub fn key_request(role: Role, tenant: Option<&str>) -> CreateKey {
    CreateKey {
        role,
        tenant: tenant.map(id),
        pool: role.needs_pool().then(|| id("gpu")),
        user: None,
        scopes: Vec::new(),
        name: None,
        expires_at: None,
        grants: KeyGrants::default(),
    }
}

pub async fn key(engine: &Engine, role: Role, tenant: Option<&str>) -> CreatedKey {
    keys::create(engine, &operator(), key_request(role, tenant))
        .await
        .expect("a key")
}

/// The secret of a key that was just made.
pub fn shown(made: &CreatedKey) -> &str {
    made.secret.as_deref().expect("shown once")
}

/// A caller with a real key.
pub async fn caller(
    engine: &Engine,
    role: Role,
    tenant: Option<&str>,
    scopes: &[KeyScope],
) -> Principal {
    let request = CreateKey {
        scopes: scopes.to_vec(),
        ..key_request(role, tenant)
    };
    let made = keys::create(engine, &operator(), request)
        .await
        .expect("a key");
    auth::authenticate(engine, shown(&made))
        .await
        .expect("a caller")
}

/// The code of what must be refused.
pub fn refused<T: Debug>(outcome: Result<T, Error>) -> Code {
    outcome.expect_err("must be refused").code()
}

/// Polls until `check` holds; fails after `within`. Returns how long it took.
pub async fn eventually<F, C>(what: &str, within: Duration, mut check: C) -> Duration
where
    C: FnMut() -> F,
    F: Future<Output = bool>,
{
    let began = Instant::now();
    loop {
        if check().await {
            return began.elapsed();
        }
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Everything in every table as text, for canaries.
pub async fn whole_database(db: &TestDb) -> Vec<(String, String)> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_class c
         WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1",
    )
    .fetch_all(db.pool())
    .await
    .expect("tables");
    let mut rows = Vec::new();
    for table in tables {
        let select = format!("SELECT t::text FROM {table} t");
        let found: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(select))
            .fetch_all(db.pool())
            .await
            .expect("rows");
        rows.extend(found.into_iter().map(|row| (table.clone(), row)));
    }
    rows
}
