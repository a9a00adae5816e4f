//! Tenants that submit turns, background work and business tasks, and workers that complete, fail and vanish, start
//! children and wait for them.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::{join_all, try_join_all};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use sqlx::PgPool;
use tidegate_client::{Client, WorkerApi};
use tidegate_model::{
    Capability, Code, PoolId, RunId,
    api::{
        AttemptUsage, ClaimRequest, CompleteRun, ContextRequest, CreateConversation, CreateKey,
        FailRun, KeyGrants, Lease, PROTOCOL_VERSION, SetEpoch, SubmitChild, SubmitRun, SubmitTurn,
        WaitForChildren, WaitRun,
    },
    contracts::CapabilityDescriptor,
    principal::{KeyScope, Role},
    run::WaitMode,
};
use tokio::task::JoinHandle;

use crate::{
    caps::submit_background,
    rig::{LEASE, World},
};

const WORKERS: usize = 4;
/// A server that stands still is given up after this.
const CALL: Duration = Duration::from_secs(5);
/// How long nothing may be accepted.
const PATIENCE: Duration = Duration::from_secs(90);
/// While more than these are queued, nobody submits.
const QUEUED_MAX: i64 = 1_000;

fn capability() -> Capability {
    "soak.noop".parse().expect("capability")
}

/// What all tasks of the load share.
struct Shared {
    /// Addresses of the servers of this moment.
    urls: Mutex<Vec<String>>,
    accepted: Mutex<HashSet<RunId>>,
    /// No more submissions.
    full: AtomicBool,
    /// No more submissions for the moment.
    crowded: AtomicBool,
    /// No more claims.
    over: AtomicBool,
}

impl Shared {
    fn client(&self, rng: &mut StdRng, secret: &str) -> Client {
        let urls = self.urls.lock().expect("urls");
        let url = &urls[rng.random_range(0..urls.len())];
        Client::new(url, secret.to_owned())
            .expect("client")
            .with_deadline(CALL)
    }
}

pub struct Load {
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    pub async fn start(world: &World, seed: u64) -> Self {
        let worker_key = publish_pool(world).await;
        let shared = Arc::new(Shared {
            urls: Mutex::default(),
            accepted: Mutex::default(),
            full: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let mut load = Self {
            shared,
            producers: Vec::new(),
            workers: Vec::new(),
        };
        load.serve(world);
        load.workers.push(tokio::spawn(watch_the_queue(
            Arc::clone(&load.shared),
            world.db.pool().clone(),
        )));
        submit_background(world, 10).await;
        for (index, (tenant, _)) in world.tenants.iter().enumerate() {
            let key = CreateKey {
                tenant: Some(tenant.clone()),
                scopes: vec![KeyScope::RunsBusiness],
                ..key(Role::Member)
            };
            let made = world.admin.create_key(&key).await.expect("key");
            let secret = made.secret.expect("shown once");
            let rng = StdRng::seed_from_u64(seed ^ (index as u64 + 1));
            load.producers
                .push(tokio::spawn(produce(Arc::clone(&load.shared), secret, rng)));
        }
        for number in 0..WORKERS {
            let rng = StdRng::seed_from_u64(seed ^ (number as u64 + 1_000));
            load.workers.push(tokio::spawn(work(
                Arc::clone(&load.shared),
                worker_key.clone(),
                number,
                rng,
            )));
        }
        load
    }

    /// Learns which servers there are now.
    pub fn serve(&self, world: &World) {
        let urls = world
            .servers
            .iter()
            .map(|server| server.url.clone())
            .collect();
        *self.shared.urls.lock().expect("urls") = urls;
    }

    pub fn accepted(&self) -> usize {
        self.shared.accepted.lock().expect("accepted").len()
    }

    /// Waits until so many runs have been accepted: work goes on after what went wrong.
    pub async fn until_accepted(&self, wanted: usize, world: &World) {
        let deadline = Instant::now() + PATIENCE;
        while self.accepted() < wanted {
            assert!(
                Instant::now() < deadline,
                "nothing is accepted any more\n{}",
                world.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Submits no more, lets everything end, and says what was accepted.
    pub async fn stop(self) -> Vec<RunId> {
        self.shared.full.store(true, Ordering::Relaxed);
        for producer in self.producers {
            producer.await.expect("producer");
        }
        let accepted = self
            .shared
            .accepted
            .lock()
            .expect("accepted")
            .iter()
            .copied()
            .collect();
        // Workers go on until the judge has seen all runs ended; they go with the test.
        drop(self.workers);
        accepted
    }
}

fn key(role: Role) -> CreateKey {
    CreateKey {
        role,
        tenant: None,
        pool: None,
        user: None,
        scopes: Vec::new(),
        grants: KeyGrants::default(),
        name: None,
        expires_at: None,
    }
}

/// A pool for the tasks, and the key of its workers.
async fn publish_pool(world: &World) -> String {
    let pool: PoolId = "soak".parse().expect("pool");
    let admin = &world.admin;
    let controller = admin
        .create_key(&key(Role::PoolController))
        .await
        .expect("key");
    let secret = controller.secret.expect("shown once");
    let controller = Client::new(admin.base_url(), secret).expect("client");
    let descriptor = CapabilityDescriptor::new(
        pool.clone(),
        1,
        vec![capability()],
        tidegate_testkit::lasting_health(),
    );
    controller
        .publish_descriptor(&descriptor)
        .await
        .expect("published");
    let epoch = SetEpoch {
        expected: None,
        active: 1,
        draining: None,
    };
    controller
        .set_pool_epoch(&pool, &epoch)
        .await
        .expect("activated");
    let worker = CreateKey {
        pool: Some(pool),
        ..key(Role::Worker)
    };
    let made = admin.create_key(&worker).await.expect("key");
    made.secret.expect("shown once")
}

/// Keeps the queue from growing without end.
async fn watch_the_queue(shared: Arc<Shared>, pool: PgPool) {
    let queued = "SELECT count(*) FROM (SELECT FROM run_queue LIMIT $1) q";
    while !shared.over.load(Ordering::Relaxed) {
        let found = sqlx::query_scalar(queued)
            .bind(QUEUED_MAX)
            .fetch_one(&pool)
            .await;
        // While the database is down nobody submits either.
        let crowded = found.is_ok_and(|found: i64| found >= QUEUED_MAX);
        shared.crowded.store(crowded, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A tenant: turns in conversations of their own and in one, and tasks; what was not answered may exist all the same.
async fn produce(shared: Arc<Shared>, secret: String, mut rng: StdRng) {
    while !shared.full.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(30)).await;
        if shared.crowded.load(Ordering::Relaxed) {
            continue;
        }
        let client = shared.client(&mut rng, &secret);
        let accepted = if rng.random_bool(0.2) {
            turn(&client).await
        } else {
            let children = if rng.random_bool(0.1) {
                rng.random_range(1..=4)
            } else {
                0
            };
            task(&client, rng.random_range(1..=10), children).await
        };
        if let Ok(runs) = accepted {
            shared.accepted.lock().expect("accepted").extend(runs);
        }
    }
}

async fn turn(client: &Client) -> Result<Vec<RunId>, tidegate_client::Error> {
    let conversation = client
        .create_conversation(&CreateConversation::default())
        .await?;
    let turn = SubmitTurn {
        input: "hello".to_owned(),
        capability: None,
        requirements: None,
        service_class: None,
        deadline: None,
        user: None,
    };
    // The second waits for the first.
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(
            client
                .submit_turn(conversation.conversation_id, &turn, None)
                .await?
                .run_id,
        );
    }
    Ok(runs)
}

/// Tasks that have so many children each.
async fn task(
    client: &Client,
    count: usize,
    children: u64,
) -> Result<Vec<RunId>, tidegate_client::Error> {
    let run = SubmitRun {
        capability: capability(),
        requirements: None,
        input: json!({"children": children}),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: Some(50),
        budget: None,
        user: None,
    };
    let submitted = try_join_all((0..count).map(|_| client.submit_run(&run, None))).await?;
    Ok(submitted.iter().map(|run| run.run_id).collect())
}

/// A worker that completes most runs, fails some, and forgets others, whose leases then run out.
async fn work(shared: Arc<Shared>, secret: String, number: usize, mut rng: StdRng) {
    while !shared.over.load(Ordering::Relaxed) {
        let client = shared.client(&mut rng, &secret);
        let request = ClaimRequest {
            worker_id: format!("soak-{number}").parse().expect("worker"),
            incarnation: 1,
            protocol_version: PROTOCOL_VERSION,
            max: 25,
            max_background: None,
            wait_ms: 500,
        };
        let Ok(answer) = client.claim(request).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut endings = Vec::new();
        for lease in answer.leases {
            let draw: f64 = rng.random();
            let client = client.clone();
            if LATE.contains(&draw) {
                // Late: another one holds it by then. Nobody waits for that.
                tokio::spawn(async move {
                    tokio::time::sleep(LEASE + Duration::from_millis(500)).await;
                    end(&client, &lease, draw).await;
                });
            } else {
                endings.push(async move { end(&client, &lease, draw).await });
            }
        }
        join_all(endings).await;
    }
}

/// Draws that make an ending late.
const LATE: std::ops::Range<f64> = 0.07..0.075;

async fn end(client: &Client, lease: &Lease, draw: f64) {
    let children = lease.run.input["children"].as_u64().unwrap_or(0);
    // What is said too late, or to a server that is gone, is refused or lost; the run goes on elsewhere.
    if draw < 0.02 {
        // Forgotten.
    } else if draw < 0.07 {
        let failed = FailRun {
            fence: lease.fence,
            code: Code::WorkerFailed,
            detail: None,
            retryable: true,
            retry_after_ms: None,
            usage: AttemptUsage::default(),
        };
        let _ = client.fail(lease.run.run_id, failed).await;
    } else if children == 0 || matches!(has_all_children(client, lease, children).await, Ok(true)) {
        let completed = CompleteRun {
            fence: lease.fence,
            result: json!({"fence": lease.fence}),
            messages: Vec::new(),
            usage: AttemptUsage::default(),
        };
        let _ = client.complete(lease.run.run_id, completed).await;
    }
}

/// Whether all children of a run have ended; else starts what there is to start and waits for all of them.
async fn has_all_children(
    client: &Client,
    lease: &Lease,
    children: u64,
) -> Result<bool, tidegate_client::Error> {
    let run_id = lease.run.run_id;
    let request = ContextRequest {
        fence: lease.fence,
        limit: 1,
        children: None,
    };
    let known = client.context(run_id, request).await?.children;
    let all = known.len() as u64 >= children;
    if all && known.iter().all(|child| child.state.is_ended()) {
        return Ok(true);
    }
    for number in known.len() as u64..children {
        let child = SubmitChild {
            fence: lease.fence,
            key: format!("child-{number}"),
            capability: capability(),
            requirements: None,
            // The first one has children of its own.
            input: json!({"children": if number == 0 { children / 2 } else { 0 }}),
            service_class: None,
            priority: None,
            deadline: None,
            run_at: None,
            max_attempts: Some(50),
            budget: None,
        };
        client.submit_child(run_id, child).await?;
    }
    let wait = WaitRun {
        fence: lease.fence,
        children: Some(WaitForChildren {
            runs: None,
            mode: Some(WaitMode::All),
        }),
        input: None,
        until: None,
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    };
    client.wait(run_id, wait).await?;
    Ok(false)
}
