//! Ourselves over HTTP: a server in this process, and the typed client over loopback.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::future::join_all;
use tidegate_client::{Client, WorkerApi};
use tidegate_engine::keys;
use tidegate_model::{
    PoolId,
    api::{CreateKey, KeyGrants},
    limits,
    principal::{KeyScope, Role},
};
use tidegate_server::{Local, ServerParts, Shutdown, serve};

use super::{
    Driver,
    ours::{Running, claim_request, completion, operator, run_of, set_up, tenant},
    payload,
    progress::Progress,
};

/// Callers that submit at once when a queue is filled.
const LOADERS: usize = 64;

pub(super) struct OursHttp {
    url: String,
}

/// A server and keys for it.
struct Served {
    running: Running,
    shutdown: Shutdown,
    address: SocketAddr,
}

impl Served {
    async fn start(url: &str) -> Self {
        let running = Running::start(url, |settings| {
            settings.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        })
        .await;
        let shutdown = Shutdown::new();
        let local = Local::take(running.engine.settings()).expect("a free port");
        let parts =
            ServerParts::new(local, running.engine.clone(), shutdown.clone()).expect("a server");
        let address = parts.address().expect("an address");
        tokio::spawn(serve(parts));
        Self {
            running,
            shutdown,
            address,
        }
    }

    async fn client(&self, role: Role, of: Option<usize>) -> Client {
        let request = CreateKey {
            role,
            tenant: of.map(tenant),
            pool: (role == Role::Worker).then(PoolId::builtin),
            user: None,
            scopes: if role == Role::Member {
                vec![KeyScope::RunsBusiness]
            } else {
                Vec::new()
            },
            grants: KeyGrants::default(),
            name: None,
            expires_at: None,
        };
        let created = keys::create(&self.running.engine, &operator(), request)
            .await
            .expect("a key");
        let secret = created.secret.expect("shown once");
        Client::new(&format!("http://{}", self.address), secret).expect("a client")
    }

    async fn stop(self) {
        self.shutdown.end();
        self.running.stop().await;
    }
}

impl OursHttp {
    pub(super) const fn new(url: String) -> Self {
        Self { url }
    }

    async fn submit_all(&self, runs: usize, callers: usize, tenants: usize) -> Duration {
        let served = Served::start(&self.url).await;
        let members =
            Arc::new(join_all((0..tenants).map(|t| served.client(Role::Member, Some(t)))).await);
        let started = Instant::now();
        let tasks = (0..callers).map(|caller| {
            let members = Arc::clone(&members);
            tokio::spawn(async move {
                for number in (caller..runs).step_by(callers) {
                    let tenant = number % members.len();
                    let request = run_of(payload(tenant, number, 0));
                    members[tenant]
                        .submit_run(&request, None)
                        .await
                        .expect("submit");
                }
            })
        });
        for task in join_all(tasks).await {
            task.expect("a caller");
        }
        let took = started.elapsed();
        served.stop().await;
        took
    }
}

async fn work(client: Client, number: usize, progress: Progress) {
    while !progress.all_started() {
        let answer = client
            .claim(claim_request(number, limits::CLAIM_MAX))
            .await
            .expect("claim");
        for lease in &answer.leases {
            progress.start(&lease.run.input);
        }
        join_all(answer.leases.iter().map(|lease| async {
            client
                .complete(lease.run.run_id, completion(lease))
                .await
                .expect("complete");
        }))
        .await;
        progress.finish(answer.leases.len());
    }
}

#[async_trait]
impl Driver for OursHttp {
    async fn setup(&self, tenants: usize) {
        set_up(&self.url, tenants).await;
    }

    async fn load(&self, runs: usize, tenants: usize) -> Duration {
        self.submit_all(runs, LOADERS, tenants).await
    }

    async fn submit(&self, runs: usize, clients: usize) -> Duration {
        self.submit_all(runs, clients, 1).await
    }

    async fn drain(&self, runs: usize, workers: usize) -> Duration {
        let served = Served::start(&self.url).await;
        let client = served.client(Role::Worker, None).await;
        let progress = Progress::new(runs);
        let started = Instant::now();
        let tasks =
            (0..workers).map(|number| tokio::spawn(work(client.clone(), number, progress.clone())));
        for task in join_all(tasks).await {
            task.expect("a worker");
        }
        let took = started.elapsed();
        assert!(progress.is_done(), "a run was not completed");
        served.stop().await;
        took
    }

    async fn latency(&self, rate: usize, seconds: usize) -> Vec<f64> {
        let served = Served::start(&self.url).await;
        let worker = served.client(Role::Worker, None).await;
        let member = served.client(Role::Member, Some(0)).await;
        let progress = Progress::new(rate * seconds);
        for number in 0..4 {
            tokio::spawn(work(worker.clone(), number, progress.clone()));
        }
        let mut ticks =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).expect("a rate"));
        for number in 0..rate * seconds {
            ticks.tick().await;
            let member = member.clone();
            let request = run_of(payload(0, number, progress.now_us()));
            tokio::spawn(async move { member.submit_run(&request, None).await.expect("submit") });
        }
        progress.waits_after(rate).await
    }
}
