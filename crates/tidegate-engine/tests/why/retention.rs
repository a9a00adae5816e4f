//! Retention: what ended goes after its time, whole and in batches, and nothing else does.

use serde_json::json;
use tidegate_engine::{
    Principal,
    events::tail::tail,
    retention::prune::{self, Keep, Pruned},
    runs, worker,
};
use tidegate_model::{
    Code, PoolId, RunId,
    api::{AppendEvents, Lease, NewEvent, RecordIntent, SubmitChild},
    event::EventKind,
    run::RunState,
};
use tidegate_store::attempts::prune::Position;

use crate::rig::{World, member, settings, task};

/// Everything that has ended is old enough.
const AT_ONCE: Keep = Keep {
    runs_ms: Some(0),
    events_ms: None,
    runs_per_batch: 5,
    events_per_batch: 4,
};

fn builtin() -> Principal {
    Principal::built_in_worker(PoolId::builtin())
}

impl World {
    async fn prune(&self, keep: Keep) -> Pruned {
        prune::pass(&self.engine, keep).await.expect("prune")
    }

    async fn done(&self, capability: &str) -> RunId {
        let run = self.submit(task(capability)).await;
        let lease = self.expect_start(&PoolId::builtin(), run).await;
        self.complete(&lease).await;
        run
    }

    async fn is_gone(&self, run: RunId) -> bool {
        match runs::get::get(&self.engine, &member("acme"), run).await {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.code(), Code::NotFound);
                true
            }
        }
    }

    /// How many rows each table has.
    async fn rows(&self, table: &'static str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .fetch_one(self.db.pool())
            .await
            .expect("count")
    }

    /// The run has not ended long enough ago.
    async fn is_young(&self, run: RunId) {
        sqlx::query("UPDATE run_ends SET ended_at = ended_at + interval '1 day' WHERE run_id = $1")
            .bind(run.as_uuid())
            .execute(self.db.pool())
            .await
            .expect("age");
    }

    /// The holder of a lease writes events.
    async fn say(&self, lease: &Lease, count: i64) {
        let events = (lease.next_seq..lease.next_seq + count)
            .map(|seq| NewEvent {
                seq,
                kind: EventKind::MessageDelta,
                body: json!({"text": "x"}),
            })
            .collect();
        let append = AppendEvents {
            fence: lease.fence,
            events,
        };
        worker::events::append(&self.engine, &builtin(), lease.run.run_id, append)
            .await
            .expect("append");
    }

    async fn child_of(&self, lease: &Lease, key: &str) -> RunId {
        let request = SubmitChild {
            fence: lease.fence,
            key: key.to_owned(),
            capability: "chat".parse().expect("capability"),
            requirements: None,
            input: json!({"n": 1}),
            service_class: None,
            priority: None,
            deadline: None,
            run_at: None,
            max_attempts: None,
            budget: None,
        };
        worker::children::submit_child(&self.engine, &builtin(), lease.run.run_id, request)
            .await
            .expect("child")
            .run_id
    }
}

const OF_RUNS: [&str; 6] = [
    "agent_runs",
    "run_attempts",
    "run_ends",
    "run_events",
    "run_effects",
    "run_inputs",
];

/// R24.3: what has ended goes in bounded batches with all that is known of it; messages, the audit log and what is open stay.
#[tokio::test]
async fn ended_runs_go_in_batches_and_nothing_else_does() {
    let world = World::new(settings()).await;
    let conversation = world.conversation().await;
    let turn = world.turn(conversation).await;
    let lease = world.expect_start(&PoolId::builtin(), turn).await;
    world.complete(&lease).await;
    let mut ended = vec![turn];
    for _ in 0..11 {
        ended.push(world.done("chat").await);
    }
    let young = world.done("chat").await;
    world.is_young(young).await;
    let open = world.submit(task("chat")).await;
    let (messages, audited) = (world.rows("messages").await, world.rows("audit_log").await);
    let pruned = world.prune(AT_ONCE).await;
    assert_eq!((pruned.runs, pruned.largest_batch), (12, 5));
    for run in ended {
        assert!(world.is_gone(run).await);
    }
    for run in [young, open] {
        assert!(!world.is_gone(run).await);
    }
    for (table, left) in OF_RUNS.iter().zip([2, 1, 1, 4, 0, 0]) {
        assert_eq!(world.rows(table).await, left, "{table}");
    }
    assert_eq!(world.rows("messages").await, messages);
    assert_eq!(world.rows("audit_log").await, audited);
    assert_eq!(world.prune(AT_ONCE).await, Pruned::default());
    // The conversation goes on with its next turn.
    let next = world.turn(conversation).await;
    world.expect_start(&PoolId::builtin(), next).await;
}

/// R24.3, R3.13: a tree goes as a whole or not at all: not while anything of it is open or young, then leaves first.
#[tokio::test]
async fn a_tree_goes_as_a_whole() {
    let world = World::new(settings()).await;
    let root = world.submit(task("chat")).await;
    let parent = world.expect_start(&PoolId::builtin(), root).await;
    let one = world.child_of(&parent, "one").await;
    let two = world.child_of(&parent, "two").await;
    let lease = world.claim(&PoolId::builtin(), 1).await.remove(0);
    assert_eq!(lease.run.run_id, one);
    world.complete(&lease).await;
    assert_eq!(world.prune(AT_ONCE).await.runs, 0, "the root is open");
    world.complete(&parent).await;
    assert_eq!(world.prune(AT_ONCE).await.runs, 0, "a child is open");
    let lease = world.claim(&PoolId::builtin(), 1).await.remove(0);
    assert_eq!(lease.run.run_id, two);
    world.complete(&lease).await;
    world.is_young(two).await;
    let keep = Keep {
        events_ms: Some(0),
        ..AT_ONCE
    };
    assert_eq!(
        world.prune(keep).await,
        Pruned::default(),
        "a child is young"
    );
    sqlx::query("UPDATE run_ends SET ended_at = ended_at - interval '1 day' WHERE run_id = $1")
        .bind(two.as_uuid())
        .execute(world.db.pool())
        .await
        .expect("age");
    let one_by_one = Keep {
        runs_per_batch: 1,
        ..AT_ONCE
    };
    let pruned = world.prune(one_by_one).await;
    assert_eq!((pruned.runs, pruned.largest_batch), (3, 1));
    for table in OF_RUNS {
        assert_eq!(world.rows(table).await, 0, "{table}");
    }
}

/// R24.3, R4.5: the journal of a run in review is what a person decides by; it stays.
#[tokio::test]
async fn a_run_in_review_keeps_its_journal() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    let intent = RecordIntent {
        fence: lease.fence,
        call_id: "c1".parse().expect("call"),
        tool: "files/write".to_owned(),
        arguments_digest: format!("sha256:{}", "0".repeat(64))
            .parse()
            .expect("digest"),
        idempotent: false,
    };
    worker::effects::intend(&world.engine, &builtin(), run, intent)
        .await
        .expect("intent");
    world.fail(run, lease.fence, Code::WorkerFailed, 0).await;
    assert_eq!(world.get(run).await.state, RunState::Review);
    let keep = Keep {
        events_ms: Some(0),
        ..AT_ONCE
    };
    assert_eq!(world.prune(keep).await, Pruned::default());
    let view = world.get(run).await;
    assert_eq!(view.review.expect("review").effects.len(), 1);
}

/// R4.6, R24.3: events go before their run, in batches; a reader is told the first one kept, and a dead letter that is put
/// back goes on counting.
#[tokio::test]
async fn events_go_first_and_their_numbers_are_not_given_again() {
    let world = World::new(settings()).await;
    let mut request = task("chat");
    request.max_attempts = Some(1);
    let run = world.submit(request).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world.say(&lease, 10).await;
    world.fail(run, lease.fence, Code::WorkerFailed, 0).await;
    let refused = async |after: i64| {
        let tail = tail(&world.engine, &member("acme"), run, after).await;
        let problem = tail.err().expect("pruned").problem();
        assert_eq!((problem.code, problem.status), (Code::EventsPruned, 410));
        problem.detail.expect("detail")
    };
    let fleet = world.engine.store().fleet();
    let batch = fleet
        .prune_events(0, &Position::default(), 4)
        .await
        .expect("batch");
    assert_eq!(batch.gone, 4);
    let detail = refused(0).await;
    assert!(detail.contains("before 5 "), "{detail}");
    let events_only = Keep {
        runs_ms: None,
        events_ms: Some(0),
        ..AT_ONCE
    };
    let pruned = world.prune(events_only).await;
    assert_eq!(
        (pruned.runs, pruned.events, pruned.largest_batch),
        (0, 9, 4)
    );
    let detail = refused(0).await;
    assert!(detail.contains("before 14 "), "{detail}");
    assert_eq!(world.get(run).await.state, RunState::Failed);
    runs::requeue::requeue(&world.engine, &member("acme"), run)
        .await
        .expect("requeue");
    let first: i64 = sqlx::query_scalar("SELECT min(seq) FROM run_events")
        .fetch_one(world.db.pool())
        .await
        .expect("seq");
    assert_eq!(first, 14);
    assert_eq!(
        world.prune(AT_ONCE).await,
        Pruned::default(),
        "it is open again"
    );
}

/// R24.3: two instances that prune at the same time delete each run once, and wait for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_prune_one_at_a_time() {
    let world = World::new(settings()).await;
    let other = world.instance(settings()).await;
    for _ in 0..12 {
        world.done("chat").await;
    }
    let both = tokio::join!(
        prune::pass(&world.engine, AT_ONCE),
        prune::pass(&other, AT_ONCE)
    );
    let (one, two) = (both.0.expect("one"), both.1.expect("two"));
    assert_eq!(one.runs + two.runs, 12);
    assert_eq!(world.rows("agent_runs").await, 0);
}

/// R3.12, R24.3: the account of a tenant that stands where a newcomer starts says nothing and goes.
#[tokio::test]
async fn accounts_that_say_nothing_go() {
    let world = World::new(settings()).await;
    sqlx::raw_sql(
        "INSERT INTO run_pass_floors (scope, pass) VALUES ('main', 100) ON CONFLICT (scope) DO UPDATE SET pass = 100;
         INSERT INTO run_passes (scope, tenant, pass) VALUES ('main', 'acme', 100), ('main', 'globex', 101);",
    )
    .execute(world.db.pool())
    .await
    .expect("passes");
    world.prune(AT_ONCE).await;
    let left: Vec<String> = sqlx::query_scalar("SELECT tenant FROM run_passes")
        .fetch_all(world.db.pool())
        .await
        .expect("passes");
    assert_eq!(left, ["globex"]);
}
