//! The worker loop against a server in memory, with the clock held.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod fake;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fake::{End, FakeServer, Fault};
use serde_json::json;
use tidegate_client::worker::{Failure, Handler, Job, Outcome, Stop, WorkerLoop, WorkerSettings};
use tidegate_model::{Code, event::EventKind, run::QuotaBucket};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

const LEASE: Duration = Duration::from_secs(30);

/// A handler that does what its run's input says.
#[derive(Debug, Default)]
struct Scripted {
    started: AtomicU32,
    finished: AtomicU32,
}

#[async_trait]
impl Handler for Scripted {
    async fn run(&self, job: &Job) -> Outcome {
        self.started.fetch_add(1, Ordering::Relaxed);
        job.usage().add_tokens(7);
        let input = &job.run().input;
        if let Some(ms) = input["sleepMs"].as_u64() {
            sleep(Duration::from_millis(ms)).await;
        }
        if input["obey"] == json!(true) {
            job.stop().wait(Stop::Cancel).await;
            return Outcome::Failed(Failure::cancelled());
        }
        if input["stubborn"] == json!(true) {
            std::future::pending::<()>().await;
        }
        assert!(input["panic"] != json!(true), "as asked");
        for n in 0..input["deltas"].as_u64().unwrap_or(0) {
            job.events().delta(format!("{n} ")).await;
            if let Some(ms) = input["deltaMs"].as_u64() {
                sleep(Duration::from_millis(ms)).await;
            }
        }
        if input["note"] == json!(true) {
            job.events()
                .send(EventKind::WorkerNote, json!({"n": 1}))
                .await;
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        let result = if input["bad"] == json!(true) {
            json!("refuse me")
        } else {
            json!("ok")
        };
        Outcome::Completed {
            result,
            messages: Vec::new(),
        }
    }
}

struct Worker {
    handler: Arc<Scripted>,
    stop: CancellationToken,
    task: JoinHandle<tidegate_client::Result<()>>,
}

fn start(server: &Arc<FakeServer>, edit: impl FnOnce(&mut WorkerSettings)) -> Worker {
    let mut settings = WorkerSettings::new("w-1".parse().unwrap(), 1, 4);
    edit(&mut settings);
    let (handler, stop) = (Arc::new(Scripted::default()), CancellationToken::new());
    let work = WorkerLoop::new(Arc::clone(server) as _, Arc::clone(&handler) as _, settings);
    let task = tokio::spawn(work.run(stop.clone()));
    Worker {
        handler,
        stop,
        task,
    }
}

impl Worker {
    async fn stop(self) -> tidegate_client::Result<()> {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// R4.3, O-02: work that lasts many leases keeps its one lease; renewals name all leases at once.
#[tokio::test(start_paused = true)]
async fn long_work_keeps_its_lease_by_batched_renewals() {
    let server = FakeServer::new(LEASE);
    let runs: Vec<_> = (0..4)
        .map(|_| server.submit(|run| run.input = json!({"sleepMs": 200_000})))
        .collect();
    let worker = start(&server, |_| ());
    for run_id in runs {
        let End::Completed(done) = server.ended(run_id).await else {
            panic!("must complete")
        };
        assert_eq!(done.usage.tokens, 7);
        assert_eq!(server.with(run_id, |run| run.attempts), 1);
    }
    let renewals = server.renewals();
    assert!(renewals.len() <= 200 / 9 + 2, "{} renewals", renewals.len());
    assert!(
        renewals[..20].iter().all(|(_, leases)| *leases == 4),
        "{renewals:?}"
    );
    assert_eq!(server.stale_writes(), 0);
    worker.stop().await.unwrap();
}

/// R4.3: a holder whose renewals get no answer stops before the lease can expire elsewhere, and writes nothing.
#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_fences_itself() {
    for fault in [Fault::Refuse, Fault::Hang] {
        let server = FakeServer::new(LEASE);
        server.always("renew", Some(fault));
        let run_id = server.submit(|run| run.input = json!({"sleepMs": 29_500, "note": true}));
        let claimed = Instant::now();
        let worker = start(&server, |_| ());
        server
            .until("it starts", |_| {
                worker.handler.started.load(Ordering::Relaxed) == 1
            })
            .await;
        sleep(Duration::from_secs(40)).await;
        assert!(claimed.elapsed() >= LEASE);
        assert_eq!(
            worker.handler.finished.load(Ordering::Relaxed),
            0,
            "dropped before 29.5 s"
        );
        assert_eq!(
            server.with(run_id, |run| (run.events.len(), run.ends.len())),
            (0, 0)
        );
        assert_eq!(server.stale_writes(), 0, "it did not even try");
        worker.stop().await.unwrap();
    }
}

/// R4.3: the answers of renewals that were accepted but lost do not prolong what the holder believes.
#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_last_accepted_renewal() {
    let server = FakeServer::new(LEASE);
    server.fault("renew", [Fault::LoseAnswer, Fault::Refuse]);
    let run_id = server.submit(|run| run.input = json!({"sleepMs": 120_000}));
    let worker = start(&server, |_| ());
    assert!(
        matches!(server.ended(run_id).await, End::Completed(_)),
        "two bad renewals are survived"
    );
    worker.stop().await.unwrap();
}

/// R4.1: a lease that arrives late is renewed before work begins.
#[tokio::test(start_paused = true)]
async fn late_leases_are_renewed_first() {
    let server = FakeServer::new(LEASE);
    *server.claim_delay.lock() = Duration::from_secs(20);
    let run_id = server.submit(|run| run.input = json!({"sleepMs": 1}));
    let worker = start(&server, |_| ());
    assert!(matches!(server.ended(run_id).await, End::Completed(_)));
    assert_eq!(server.renewals().len(), 1);
    worker.stop().await.unwrap();
}

/// R4.1, R4.2: a lease that was lost on its way is not worked on.
#[tokio::test(start_paused = true)]
async fn a_lease_that_arrives_dead_is_not_worked_on() {
    let server = FakeServer::new(LEASE);
    *server.claim_delay.lock() = Duration::from_secs(31);
    server.submit(|_| ());
    let worker = start(&server, |_| ());
    server
        .until("a renewal", |server| !server.renewals().is_empty())
        .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(worker.handler.started.load(Ordering::Relaxed), 0);
    worker.stop().await.unwrap();
}

/// R4.2: after a takeover elsewhere the attempt is dropped at the next renewal.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_attempt() {
    let server = FakeServer::new(LEASE);
    let run_id = server.submit(|run| run.input = json!({"stubborn": true}));
    let worker = start(&server, |settings| settings.concurrency = 1);
    server
        .until("it starts", |_| {
            worker.handler.started.load(Ordering::Relaxed) == 1
        })
        .await;
    server.with(run_id, |run| run.leased.input = json!("ok"));
    server.take_over(run_id);
    assert!(matches!(server.ended(run_id).await, End::Completed(_)));
    assert_eq!(
        server.with(run_id, |run| (run.attempts, run.ends.len())),
        (2, 1)
    );
    worker.stop().await.unwrap();
}

/// R3.10: a cancel reaches the handler with the next renewal; one that does not obey is cut after the grace.
#[tokio::test(start_paused = true)]
async fn cancel_is_obeyed_or_enforced() {
    for (input, within) in [(json!({"obey": true}), 10), (json!({"stubborn": true}), 20)] {
        let server = FakeServer::new(LEASE);
        let run_id = server.submit(|run| run.input = input);
        let worker = start(&server, |_| ());
        server
            .until("it starts", |_| {
                worker.handler.started.load(Ordering::Relaxed) == 1
            })
            .await;
        server.cancel(run_id);
        let asked = Instant::now();
        let End::Failed(failed) = server.ended(run_id).await else {
            panic!("must fail")
        };
        assert_eq!(
            (failed.code, failed.retryable, failed.usage.tokens),
            (Code::Cancelled, false, 7)
        );
        assert!(
            asked.elapsed() <= Duration::from_secs(within),
            "{:?}",
            asked.elapsed()
        );
        worker.stop().await.unwrap();
    }
}

/// R1.7: draining lets short work finish and hands long work back; nothing is left to expire.
#[tokio::test(start_paused = true)]
async fn draining_finishes_or_hands_back() {
    let server = FakeServer::new(LEASE);
    let short = server.submit(|run| run.input = json!({"sleepMs": 5_000}));
    let long = server.submit(|run| run.input = json!({"sleepMs": 500_000}));
    let worker = start(&server, |_| ());
    server
        .until("both start", |_| {
            worker.handler.started.load(Ordering::Relaxed) == 2
        })
        .await;
    let asked = Instant::now();
    worker.stop().await.unwrap();
    assert!(
        asked.elapsed() <= Duration::from_secs(13),
        "{:?}",
        asked.elapsed()
    );
    assert!(matches!(server.ended(short).await, End::Completed(_)));
    let End::Released(released) = server.ended(long).await else {
        panic!("must be handed back")
    };
    assert_eq!(released.usage.tokens, 7);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_fails_its_run_only() {
    let server = FakeServer::new(LEASE);
    let bad = server.submit(|run| run.input = json!({"panic": true}));
    let good = server.submit(|_| ());
    let worker = start(&server, |_| ());
    let End::Failed(failed) = server.ended(bad).await else {
        panic!("must fail")
    };
    assert_eq!((failed.code, failed.retryable), (Code::WorkerFailed, true));
    assert!(matches!(server.ended(good).await, End::Completed(_)));
    worker.stop().await.unwrap();
}

/// R4.6: events are numbered without a gap, batched, and written once although answers are lost.
#[tokio::test(start_paused = true)]
async fn deltas_are_batched_and_repeated_as_they_were() {
    let server = FakeServer::new(LEASE);
    server.fault(
        "events",
        [Fault::LoseAnswer, Fault::Refuse, Fault::LoseAnswer],
    );
    let run_id =
        server.submit(|run| run.input = json!({"deltas": 100, "deltaMs": 10, "note": true}));
    let worker = start(&server, |_| ());
    assert!(matches!(server.ended(run_id).await, End::Completed(_)));
    let text: String = server.with(run_id, |run| {
        run.events
            .iter()
            .filter_map(|event| event.body["text"].as_str())
            .collect()
    });
    let expected = (0..100).map(|n| n.to_string() + " ").collect::<String>();
    assert_eq!(text, expected);
    let kinds = server.kinds(run_id);
    assert!(
        (4..=13).contains(&kinds.len()),
        "{} events for 1 s of text",
        kinds.len()
    );
    assert_eq!(
        kinds.last(),
        Some(&EventKind::WorkerNote),
        "in the order given"
    );
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_is_repeated_until_it_is_taken() {
    let server = FakeServer::new(LEASE);
    server.fault("complete", [Fault::Refuse, Fault::Refuse]);
    let run_id = server.submit(|_| ());
    let worker = start(&server, |_| ());
    assert!(matches!(server.ended(run_id).await, End::Completed(_)));
    let refused = server.submit(|run| run.input = json!({"bad": true}));
    let End::Failed(failed) = server.ended(refused).await else {
        panic!("must fail")
    };
    assert_eq!((failed.code, failed.retryable), (Code::WorkerFailed, false));
    assert!(failed.detail.unwrap().contains("PAYLOAD_TOO_LARGE"));
    worker.stop().await.unwrap();
}

/// R3.6: never more than its slots, never more background than its background slots.
#[tokio::test(start_paused = true)]
async fn claims_ask_for_free_slots_only() {
    let server = FakeServer::new(LEASE);
    for n in 0..12 {
        server.submit(|run| {
            run.input = json!({"sleepMs": 3_000});
            if n % 2 == 0 {
                run.quota_bucket = QuotaBucket::Background;
            }
        });
    }
    let worker = start(&server, |settings| {
        settings.concurrency = 3;
        settings.background_concurrency = Some(1);
    });
    server
        .until("all end", |_| {
            worker.handler.finished.load(Ordering::Relaxed) == 12
        })
        .await;
    for claim in server.claims() {
        assert!(
            claim.max <= 3 && claim.max_background <= Some(1),
            "{claim:?}"
        );
    }
    worker.stop().await.unwrap();
}

/// A key that is refused ends the loop with the reason; a server that is away does not.
#[tokio::test(start_paused = true)]
async fn only_a_final_refusal_ends_the_loop() {
    let server = FakeServer::new(LEASE);
    server.fault("claim", [Fault::Refuse, Fault::Refuse, Fault::Refuse]);
    let run_id = server.submit(|_| ());
    let worker = start(&server, |_| ());
    assert!(matches!(server.ended(run_id).await, End::Completed(_)));
    worker.stop().await.unwrap();
}

/// O-02: a handler that blocks its thread for three leases loses nothing when it has a runtime of its own.
#[test]
fn a_blocking_handler_does_not_starve_renewals() {
    struct Blocking(AtomicU32);
    #[async_trait]
    impl Handler for Blocking {
        #[expect(
            clippy::disallowed_methods,
            reason = "the test is about a handler that blocks"
        )]
        async fn run(&self, _job: &Job) -> Outcome {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1_800));
            Outcome::Completed {
                result: json!("kept"),
                messages: Vec::new(),
            }
        }
    }
    let work = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let main = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    main.block_on(async {
        let server = FakeServer::new(Duration::from_millis(600));
        let run_id = server.submit(|_| ());
        let handler = Arc::new(Blocking(AtomicU32::new(0)));
        let settings = WorkerSettings::new("w-1".parse().unwrap(), 1, 1);
        let stop = CancellationToken::new();
        let looped = WorkerLoop::new(
            Arc::clone(&server) as _,
            Arc::clone(&handler) as _,
            settings,
        )
        .handlers_on(work.handle().clone());
        let task = tokio::spawn(looped.run(stop.clone()));
        assert!(matches!(server.ended(run_id).await, End::Completed(_)));
        assert_eq!(
            (
                handler.0.load(Ordering::Relaxed),
                server.with(run_id, |run| run.attempts)
            ),
            (1, 1)
        );
        stop.cancel();
        task.await.unwrap().unwrap();
    });
    work.shutdown_background();
}
