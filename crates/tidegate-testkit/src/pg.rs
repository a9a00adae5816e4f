//! One PostgreSQL per test process, one database per test.
//!
//! The first test that asks starts the server and migrates a template; every test then gets a
//! copy of it, which costs a few tens of milliseconds. Tests that stop or kill the server start
//! their own with [`TestCluster::start`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use sqlx::{ConnectOptions as _, Connection as _, PgPool, postgres::PgConnectOptions};
use tidegate_embedded::{Cluster, Options};
use tidegate_store::{
    ConnectOptions,
    migrate::{Applicant, migrate},
};
use tokio::sync::OnceCell;

use crate::proxy::Target;
use crate::scratch;

/// Connections of the pool that comes with a test database.
const POOL_SIZE: u32 = 10;

/// A throwaway PostgreSQL that ends with this process.
#[derive(Debug)]
pub struct TestCluster {
    cluster: Cluster,
    templates: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
    next: AtomicU64,
}

impl TestCluster {
    /// The server that the tests of this process share.
    pub async fn shared() -> Arc<Self> {
        static SHARED: OnceCell<Arc<TestCluster>> = OnceCell::const_new();
        Arc::clone(SHARED.get_or_init(|| Self::start(|options| options)).await)
    }

    /// A server of one's own, for a test that stops it, or that needs other options.
    pub async fn start(adjust: impl FnOnce(Options) -> Options) -> Arc<Self> {
        let dir = scratch::directory("pg").join("pg");
        Self::launch(adjust(tuned(Options::throwaway(dir)))).await
    }

    pub(crate) async fn launch(options: Options) -> Arc<Self> {
        let cluster = Cluster::start(options).await;
        Arc::new(Self {
            cluster: cluster.unwrap_or_else(|error| panic!("no test database: {error}")),
            templates: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// The server itself: `restart`, `kill9`, `stop`, addresses.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A database without tables.
    pub async fn empty_db(self: &Arc<Self>) -> TestDb {
        let name = self.new_name();
        self.cluster
            .create_database(&name)
            .await
            .unwrap_or_else(|error| panic!("no test database: {error}"));
        TestDb::open(self, name)
    }

    /// A database with the schema of this version, which refuses rows that must not be.
    pub async fn migrated_db(self: &Arc<Self>) -> TestDb {
        self.db_from("migrated", async |pool| {
            let applicant = Applicant {
                by: "testkit".into(),
                server_version: env!("CARGO_PKG_VERSION").into(),
            };
            migrate(&pool, &applicant)
                .await
                .unwrap_or_else(|error| panic!("the template does not migrate: {error:?}"));
            // Not through the pool: its connections tell the template that it is a cluster, and copies of it that they
            // are another one.
            if let Err(error) = add_checks(pool.connect_options().as_ref()).await {
                panic!("checks.sql: {error}");
            }
        })
        .await
    }

    /// A copy of the template `name`, which `fill` makes when it is first asked for.
    pub async fn db_from<F>(self: &Arc<Self>, template: &str, fill: F) -> TestDb
    where
        F: AsyncFnOnce(PgPool),
    {
        let template = self.template(template, fill).await;
        let name = self.new_name();
        self.cluster
            .clone_database(&template, &name)
            .await
            .unwrap_or_else(|error| panic!("the template {template} cannot be copied: {error}"));
        TestDb::open(self, name)
    }

    async fn template<F>(&self, name: &str, fill: F) -> String
    where
        F: AsyncFnOnce(PgPool),
    {
        let made = {
            let mut templates = self.templates.lock().expect("templates");
            Arc::clone(templates.entry(name.to_owned()).or_default())
        };
        let database = format!("template_{name}");
        made.get_or_init(async || {
            // A test that was cancelled half-way may have left a part of it.
            let fresh = async {
                self.cluster.drop_database(&database).await?;
                self.cluster.create_database(&database).await
            };
            fresh
                .await
                .unwrap_or_else(|error| panic!("no template database: {error}"));
            let pool = pool(&self.cluster.url(&database));
            fill(pool.clone()).await;
            // A database with sessions cannot be copied.
            pool.close().await;
        })
        .await;
        database
    }

    fn new_name(&self) -> String {
        format!("test_{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Room for many pools, and no checkpoints in the middle of a test.
pub(crate) fn tuned(options: Options) -> Options {
    options
        .setting("max_connections", "400")
        .setting("shared_buffers", "64MB")
        .setting("max_wal_size", "4GB")
}

/// A database of one test, dropped with this handle.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    pool: PgPool,
    cluster: Arc<TestCluster>,
}

impl TestDb {
    /// A migrated database on the shared server.
    pub async fn new() -> Self {
        TestCluster::shared().await.migrated_db().await
    }

    /// A database without tables on the shared server.
    pub async fn empty() -> Self {
        TestCluster::shared().await.empty_db().await
    }

    /// The handle of a database that is there.
    pub(crate) fn open(cluster: &Arc<TestCluster>, name: String) -> Self {
        Self {
            pool: pool(&cluster.cluster.url(&name)),
            name,
            cluster: Arc::clone(cluster),
        }
    }

    /// Its address, for pools of one's own and for child processes.
    pub fn url(&self) -> String {
        self.cluster.cluster.url(&self.name)
    }

    /// Its name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A pool that connects when it is first used.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The server's socket, for a [`crate::Proxy`] or a [`crate::TlsFront`] before it.
    pub fn target(&self) -> Target {
        let cluster = &self.cluster.cluster;
        let socket = format!(".s.PGSQL.{}", cluster.port());
        Target::Unix(cluster.socket_dir().join(socket))
    }

    /// Its address through a front that stands before [`Self::target`].
    pub fn url_at(&self, front: SocketAddr) -> String {
        format!(
            "postgres://tidegate@localhost:{}/{}",
            front.port(),
            self.name
        )
    }

    /// The server it is on.
    pub fn server(&self) -> &Arc<TestCluster> {
        &self.cluster
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let job = (Arc::clone(&self.cluster), std::mem::take(&mut self.name));
        // Without the janitor the database stays until the server's directory goes.
        let _ = janitor().send(job);
    }
}

type Job = (Arc<TestCluster>, String);

/// Drops databases on a thread of its own, since the runtime of a test ends with the test.
fn janitor() -> &'static mpsc::Sender<Job> {
    static JANITOR: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    JANITOR.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("tidegate-test-janitor".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime for dropping databases");
                for (cluster, name) in inbox {
                    // A test may have stopped its server on purpose.
                    if let Err(error) = runtime.block_on(cluster.cluster.drop_database(&name)) {
                        tracing::debug!(%error, name, "a test database was not dropped");
                    }
                }
            })
            .expect("a thread for dropping databases");
        jobs
    })
}

async fn add_checks(template: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut connection = template.connect().await?;
    sqlx::raw_sql(include_str!("checks.sql"))
        .execute(&mut connection)
        .await?;
    connection.close().await
}

/// Connects as the server does, so that tests see its plans.
fn pool(url: &str) -> PgPool {
    let options = ConnectOptions {
        max_connections: POOL_SIZE,
        ..ConnectOptions::new(url)
    };
    tidegate_store::connect(&options)
        .unwrap_or_else(|error| panic!("the address of a test database is malformed: {error}"))
}
