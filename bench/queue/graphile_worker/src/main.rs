//! graphile_worker (Rust) with the verbs of the benchmark's drivers: `setup`, `load RUNS TENANTS`, `submit RUNS CLIENTS`,
//! `drain RUNS WORKERS`, `latency RATE SECONDS`; one line of JSON each. The worker is set up as the crate's own benchmark
//! does: a local queue of 5,000 jobs, 500 at once, completions batched over 5 ms.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone)]
struct Seen(Arc<Inner>);

struct Inner {
    since: Instant,
    started: AtomicUsize,
    waits_ms: Mutex<Vec<f64>>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seen")
    }
}

impl Seen {
    fn new() -> Self {
        Self(Arc::new(Inner {
            since: Instant::now(),
            started: AtomicUsize::new(0),
            waits_ms: Mutex::default(),
        }))
    }

    fn now_us(&self) -> u64 {
        self.0.since.elapsed().as_micros() as u64
    }

    fn start(&self, payload: &Value) {
        let at = payload["at"].as_u64().unwrap_or(0);
        if at > 0 {
            let waited = self.now_us().saturating_sub(at) as f64 / 1_000.0;
            self.0.waits_ms.lock().expect("waits").push(waited);
        }
        self.0.started.fetch_add(1, Ordering::Relaxed);
    }

    async fn until(&self, runs: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.0.started.load(Ordering::Relaxed) < runs {
            assert!(Instant::now() < deadline, "not every job was started");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Noop(Value);

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(seen) = context.get_ext::<Seen>() {
            seen.start(&self.0);
        }
        Ok::<(), String>(())
    }
}

async fn worker(seen: &Seen) -> Worker {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    WorkerOptions::default()
        .database_url(&url)
        .define_job::<Noop>()
        .add_extension(seen.clone())
        .listen_os_shutdown_signals(false)
        .max_pg_conn(20)
        .concurrency(500)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(Duration::from_millis(5))
        .local_queue(LocalQueueConfig::default().with_size(5_000))
        .init()
        .await
        .expect("a worker")
}

fn payload(tenant: usize, number: usize, at_us: u64) -> Value {
    json!({"tenant": tenant, "number": number, "at": at_us, "text": "x".repeat(240)})
}

fn rate(runs: usize, took: Duration) -> Value {
    json!({"runs": runs, "seconds": took.as_secs_f64(), "rate": runs as f64 / took.as_secs_f64()})
}

async fn load(worker: &Worker, runs: usize, tenants: usize) -> Value {
    const LOADERS: usize = 4;
    let utils = Arc::new(worker.create_utils());
    let started = Instant::now();
    let tasks: Vec<_> = (0..LOADERS)
        .map(|loader| {
            let utils = Arc::clone(&utils);
            tokio::spawn(async move {
                let mine: Vec<usize> = (loader..runs).step_by(LOADERS).collect();
                for numbers in mine.chunks(1_000) {
                    let specs: Vec<RawJobSpec> = numbers
                        .iter()
                        .map(|number| RawJobSpec {
                            identifier: "noop".into(),
                            payload: payload(number % tenants, *number, 0),
                            spec: JobSpec::default(),
                        })
                        .collect();
                    utils.add_raw_jobs(&specs).await.expect("jobs");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a loader");
    }
    rate(runs, started.elapsed())
}

async fn submit(worker: &Worker, runs: usize, clients: usize) -> Value {
    let utils = Arc::new(worker.create_utils());
    let started = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let utils = Arc::clone(&utils);
            tokio::spawn(async move {
                for number in 0..runs / clients {
                    utils.add_job(Noop(payload(0, number, 0)), JobSpec::default()).await.expect("a job");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client");
    }
    rate(runs, started.elapsed())
}

async fn drain(worker: Arc<Worker>, seen: &Seen, runs: usize) -> Value {
    let started = Instant::now();
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    seen.until(runs).await;
    // Its orderly end writes the completions that are still batched.
    worker.request_shutdown();
    let _ = running.await;
    rate(runs, started.elapsed())
}

async fn latency(worker: Arc<Worker>, seen: &Seen, per_second: usize, seconds: usize) -> Value {
    let utils = Arc::new(worker.create_utils());
    let running = Arc::clone(&worker);
    tokio::spawn(async move { running.run().await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second as u32);
    for number in 0..per_second * seconds {
        ticks.tick().await;
        let utils = Arc::clone(&utils);
        let job = Noop(payload(0, number, seen.now_us()));
        tokio::spawn(async move { utils.add_job(job, JobSpec::default()).await.expect("a job") });
    }
    seen.until(per_second * seconds).await;
    let mut ms = seen.0.waits_ms.lock().expect("waits").split_off(per_second);
    ms.sort_by(f64::total_cmp);
    let at = |share: f64| ms[((ms.len() - 1) as f64 * share) as usize];
    json!({"count": ms.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)})
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).and_then(|text| text.parse().ok()).unwrap_or(0);
    let seen = Seen::new();
    let worker = Arc::new(worker(&seen).await);
    let line = match args.first().map(String::as_str) {
        Some("setup") => {
            worker.create_utils().migrate().await.expect("migrated");
            json!({})
        }
        Some("load") => load(&worker, number(1), number(2).max(1)).await,
        Some("submit") => submit(&worker, number(1), number(2).max(1)).await,
        Some("drain") => drain(worker, &seen, number(1)).await,
        Some("latency") => latency(worker, &seen, number(1), number(2)).await,
        other => panic!("no verb {other:?}"),
    };
    println!("{line}");
    // Connections that are still busy with shutting down are not waited for.
    std::process::exit(0);
}
