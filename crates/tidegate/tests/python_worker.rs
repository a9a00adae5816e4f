//! `examples/worker.py` and `examples/tree.py`, workers over bare HTTP, against a real server.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

#[path = "chaos/rig.rs"]
#[expect(
    dead_code,
    reason = "the rig of the chaos tests; a part of it is enough here"
)]
mod rig;

use std::{path::Path, process::Command, time::Duration};

use rig::World;
use serde_json::json;
use tidegate_client::Client;
use tidegate_model::{
    Code, RunId,
    api::{AnswerInput, CreateKey, KeyGrants, RunEvent, RunView, SetEpoch, SubmitRun},
    contracts::CapabilityDescriptor,
    event::EventKind,
    principal::{KeyScope, Role},
    run::{AttemptOutcome, RunState},
};
use tidegate_testkit::{Proc, Running, TestDb};

/// The longest any wait of a test may take.
const PATIENCE: Duration = Duration::from_mins(1);

struct Rig {
    world: World,
    acme: Client,
    worker_key: String,
}

fn key(role: Role) -> CreateKey {
    CreateKey {
        role,
        tenant: None,
        pool: None,
        user: None,
        scopes: Vec::new(),
        name: None,
        expires_at: None,
        grants: KeyGrants::default(),
    }
}

impl Rig {
    /// A server, a pool `python` that offers `demo.words`, keys for its worker and for a tenant.
    async fn new() -> Self {
        let world = World::new(TestDb::new().await, 1, 1, 1, Duration::from_secs(1)).await;
        let admin = &world.admin;
        let pool: tidegate_model::PoolId = "python".parse().expect("pool");
        let controller = admin
            .create_key(&key(Role::PoolController))
            .await
            .expect("key");
        let controller =
            Client::new(admin.base_url(), controller.secret.expect("shown once")).expect("client");
        let descriptor = CapabilityDescriptor::new(
            pool.clone(),
            1,
            ["demo.words", "demo.count", "demo.line"]
                .map(|name| name.parse().expect("capability"))
                .to_vec(),
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
        let member = CreateKey {
            tenant: Some(world.tenants[0].0.clone()),
            scopes: vec![KeyScope::RunsBusiness],
            ..key(Role::Member)
        };
        let worker_key = admin.create_key(&worker).await.expect("key").secret;
        let worker_key = worker_key.expect("shown once");
        let member = admin.create_key(&member).await.expect("key").secret;
        let acme = Client::new(admin.base_url(), member.expect("shown once")).expect("client");
        Self {
            world,
            acme,
            worker_key,
        }
    }

    /// Starts the example under a name.
    fn worker(&self, name: &str) -> Running {
        self.example("worker.py", name, 2)
    }

    /// Starts an example under a name, with so many slots.
    fn example(&self, script: &str, name: &str, slots: u32) -> Running {
        let found = Command::new("python3").arg("--version").output();
        assert!(
            found.is_ok(),
            "python3 is missing; install it: apt-get install python3"
        );
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(script);
        Proc::new("python3")
            .args([script])
            .env("TIDEGATE_URL", self.world.admin.base_url())
            .env("TIDEGATE_KEY", &self.worker_key)
            .env("WORKER_ID", name)
            .env("WORKER_SLOTS", slots.to_string())
            .start()
    }

    async fn submit(&self, words: usize, delay_ms: u64) -> RunId {
        let text = (1..=words)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let input = json!({"text": text, "delayMs": delay_ms});
        self.submit_to("demo.words", input).await
    }

    async fn submit_to(&self, capability: &str, input: serde_json::Value) -> RunId {
        let submit = SubmitRun {
            capability: capability.parse().expect("capability"),
            requirements: None,
            input,
            service_class: None,
            priority: None,
            deadline: None,
            run_at: None,
            max_attempts: None,
            budget: None,
            user: None,
        };
        self.acme
            .submit_run(&submit, None)
            .await
            .expect("accepted")
            .run_id
    }

    /// Follows a run to its end: its events, which are numbered without a gap, and its last view.
    async fn end_of(&self, run_id: RunId) -> (Vec<RunEvent>, RunView) {
        let mut stream = self.acme.run_events(run_id, 0);
        let read = async {
            let mut events = Vec::new();
            while let Some(event) = stream.next().await {
                events.push(event.expect("an event"));
            }
            events
        };
        let events = tokio::time::timeout(PATIENCE, read).await;
        let events =
            events.unwrap_or_else(|_| panic!("{run_id} does not end\n{}", self.world.logs()));
        assert!((1..).zip(&events).all(|(seq, event)| event.seq == seq));
        (events, self.acme.run(run_id).await.expect("view"))
    }

    /// Waits until the running attempt has said something.
    async fn speaks(&self, run_id: RunId) {
        let mut stream = self.acme.run_events(run_id, 0);
        let read = async {
            while let Some(event) = stream.next().await {
                if event.expect("an event").kind == EventKind::MessageDelta {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("it speaks");
    }
}

fn said(events: &[RunEvent]) -> String {
    let deltas = events
        .iter()
        .filter(|event| event.kind == EventKind::MessageDelta);
    deltas
        .filter_map(|event| event.body["text"].as_str())
        .collect()
}

/// R4.1, R4.3: claims, renews apart from its work over several leases, streams, completes; obeys a cancel (R3.10).
#[tokio::test]
async fn it_works_and_obeys() {
    let rig = Rig::new().await;
    let worker = rig.worker("py-1");
    let long = rig.submit(50, 100).await;
    let cancelled = rig.submit(10_000, 100).await;
    let (events, view) = rig.end_of(long).await;
    assert_eq!(
        (view.state, view.attempts),
        (RunState::Succeeded, 1),
        "{}",
        worker.output()
    );
    assert_eq!(view.result, Some(json!({"words": 50, "by": "py-1"})));
    assert!(said(&events).ends_with("49 50 "), "{}", said(&events));
    rig.speaks(cancelled).await;
    rig.acme.cancel_run(cancelled).await.expect("asked");
    let (_, view) = rig.end_of(cancelled).await;
    assert_eq!(
        (view.state, view.code),
        (RunState::Cancelled, Some(Code::Cancelled))
    );
    assert_eq!(view.attempts, 1);
}

/// R4.2, R4.3, R4.4: a worker that stood still loses its run to another, and nothing it does afterwards counts.
#[tokio::test]
async fn it_survives_a_takeover_by_another() {
    let rig = Rig::new().await;
    let mut first = rig.worker("py-1");
    let run_id = rig.submit(30, 100).await;
    rig.speaks(run_id).await;
    first.freeze();
    let second = rig.worker("py-2");
    let (events, view) = rig.end_of(run_id).await;
    first.thaw();
    first.line_with("LEASE_LOST").await;
    assert_eq!(
        (view.state, view.attempts),
        (RunState::Succeeded, 2),
        "{}",
        second.output()
    );
    assert_eq!(view.result, Some(json!({"words": 30, "by": "py-2"})));
    let attempts = rig
        .acme
        .explain_run(run_id)
        .await
        .expect("explain")
        .attempts;
    assert_eq!(attempts[0].outcome, Some(AttemptOutcome::LeaseLost));
    let again = events
        .iter()
        .rposition(|event| event.kind == EventKind::RunStarted);
    let told: String = said(&events[again.expect("started")..]);
    assert!(
        told.starts_with("1 2 ") && told.ends_with("29 30 "),
        "{told}"
    );
    assert_eq!(
        rig.end_of(run_id).await.0,
        events,
        "the first worker changed nothing"
    );
    let next = rig.submit(2, 10).await;
    let (_, view) = rig.end_of(next).await;
    assert_eq!(view.state, RunState::Succeeded, "both go on");
}

/// R1.7, R3.11: told to stop, it hands its run back, which costs no attempt.
#[tokio::test]
async fn it_hands_its_run_back() {
    let rig = Rig::new().await;
    let mut first = rig.worker("py-1");
    let run_id = rig.submit(30, 100).await;
    rig.speaks(run_id).await;
    first.term();
    assert!(first.wait(PATIENCE).await.success(), "{}", first.output());
    let _second = rig.worker("py-2");
    let (_, view) = rig.end_of(run_id).await;
    assert_eq!((view.state, view.attempts), (RunState::Succeeded, 1));
}

/// R3.13, R3.15, O-08: a parent asks, starts children and waits for them, all in one slot of a worker over bare HTTP.
#[tokio::test]
async fn a_tree_finishes_in_one_slot() {
    let rig = Rig::new().await;
    let worker = rig.example("tree.py", "py-tree", 1);
    let text = "one\ntwo words\nthree more words\nx\ny\nz";
    let run_id = rig.submit_to("demo.count", json!({"text": text})).await;
    let asked = async {
        loop {
            let view = rig.acme.run(run_id).await.expect("view");
            if let Some(ask) = view.waiting_for.and_then(|wait| wait.ask) {
                return ask;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ask = tokio::time::timeout(PATIENCE, asked).await.expect("asks");
    assert_eq!(ask.prompt, "Count 6 lines?", "{}", worker.output());
    let yes = AnswerInput {
        confirmed: Some(true),
        ..AnswerInput::default()
    };
    rig.acme.answer_input(run_id, &yes).await.expect("answered");
    let (events, view) = rig.end_of(run_id).await;
    assert_eq!(view.state, RunState::Succeeded, "{}", worker.output());
    assert_eq!(view.result, Some(json!({"words": 9, "lost": {}})));
    assert_eq!(view.attempts, 1, "waiting costs no attempt");
    let waits = events
        .iter()
        .filter(|event| event.kind == EventKind::RunWaiting);
    assert_eq!(waits.count(), 2);
    let tree = rig.acme.run_children(run_id).await.expect("tree").items;
    assert_eq!(tree.len(), 6);
    assert!(tree.iter().all(|run| run.state == RunState::Succeeded));
}
