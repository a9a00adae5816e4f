//! Event streams: no gap, resumable, one poller for all.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _};
use serde_json::json;
use tidegate_engine::{Engine, Error, Principal, events::tail::tail, runs, worker};
use tidegate_model::{
    Code, PoolId, RunId,
    api::{AppendEvents, Lease, NewEvent, RunEvent},
    event::EventKind,
};
use tidegate_store::read::events::{Followed, StreamPosition};

use crate::rig::{World, member, settings, task};

type Events = Pin<Box<dyn Stream<Item = Result<RunEvent, Error>> + Send>>;

async fn follow(engine: &Engine, run: RunId, after: i64) -> Events {
    Box::pin(
        tail(engine, &member("acme"), run, after)
            .await
            .expect("tail"),
    )
}

async fn next(events: &mut Events) -> Option<RunEvent> {
    tokio::time::timeout(Duration::from_secs(20), events.next())
        .await
        .expect("an event in time")
        .map(|event| event.expect("event"))
}

/// Reads to the end; the numbers must follow `after` without a gap.
async fn drain(mut events: Events, after: i64) -> Vec<RunEvent> {
    let mut all: Vec<RunEvent> = Vec::new();
    while let Some(event) = next(&mut events).await {
        let before = all.last().map_or(after, |last| last.seq);
        assert_eq!(event.seq, before + 1, "a gap or a repeat");
        all.push(event);
    }
    all
}

async fn append(engine: &Engine, lease: &Lease, first: i64, count: i64) {
    let events = (first..first + count)
        .map(|seq| NewEvent {
            seq,
            kind: EventKind::MessageDelta,
            body: json!({"text": seq.to_string()}),
        })
        .collect();
    let request = AppendEvents {
        fence: lease.fence,
        events,
    };
    let worker = Principal::built_in_worker(PoolId::builtin());
    worker::events::append(engine, &worker, lease.run.run_id, request)
        .await
        .expect("append");
}

/// Appends a note of about so many bytes.
async fn note(engine: &Engine, lease: &Lease, seq: i64, bytes: usize) {
    let note = NewEvent {
        seq,
        kind: EventKind::WorkerNote,
        body: json!({"text": "x".repeat(bytes)}),
    };
    let request = AppendEvents {
        fence: lease.fence,
        events: vec![note],
    };
    let worker = Principal::built_in_worker(PoolId::builtin());
    worker::events::append(engine, &worker, lease.run.run_id, request)
        .await
        .expect("append");
}

/// R4.6: events of every size arrive whole, in order and at once, from the history and live: neither the bytes of a page
/// nor what is handed on leaves one out.
#[tokio::test]
async fn events_of_every_size_arrive() {
    const SIZES: [usize; 9] = [
        10, 4_070, 4_090, 65_000, 65_600, 900_000, 10, 900_000, 30_000,
    ];
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    let mut live = follow(&world.engine, run, lease.next_seq - 1).await;
    for (seq, size) in (lease.next_seq..).zip(SIZES) {
        let mut coming = Box::pin(next(&mut live));
        // It waits for what is handed on: asked for after it was written, each would be read from the history.
        let early = tokio::time::timeout(Duration::from_millis(100), &mut coming).await;
        assert!(early.is_err(), "{early:?}");
        note(&world.engine, &lease, seq, size).await;
        let event = tokio::time::timeout(Duration::from_secs(3), coming)
            .await
            .expect("before the stream looks again by itself")
            .expect("the note");
        let text = event.body["text"].as_str().map(str::len);
        assert_eq!((event.seq, text), (seq, Some(size)));
    }
    world.complete(&lease).await;
    let all = drain(follow(&world.engine, run, 0).await, 0).await;
    let sizes = all.iter().filter_map(|event| event.body["text"].as_str());
    assert_eq!(sizes.map(str::len).collect::<Vec<_>>(), SIZES);
    assert_eq!(all.last().expect("an end").kind, EventKind::RunEnded);
}

/// R4.6: what waits for slow readers has no large events in it, however well they could be packed: those are read by who
/// wants them.
#[tokio::test]
async fn large_events_are_not_held_for_slow_readers() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    for (seq, size) in (lease.next_seq..).zip([10, 900, 65_000, 900_000]) {
        note(&world.engine, &lease, seq, size).await;
    }
    let from = StreamPosition {
        tenant: lease.run.tenant.clone(),
        run_id: run,
        after: lease.next_seq - 1,
    };
    let fleet = world.engine.store().fleet();
    let found = fleet.events_after(&[from], 10, 1_000).await.expect("read");
    let large = found
        .iter()
        .map(|(_, _, event)| matches!(event, Followed::Large(_)));
    assert_eq!(large.collect::<Vec<_>>(), [false, false, true, true]);
    assert!(found.iter().map(|(.., event)| event.seq()).is_sorted());
}

/// R4.6: from the start to the end, live, resumed in the middle, and again after all is over.
#[tokio::test]
async fn a_stream_runs_to_the_end_and_can_be_resumed() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let mut live = follow(&world.engine, run, 0).await;
    assert_eq!(
        next(&mut live).await.expect("queued").kind,
        EventKind::RunQueued
    );
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    assert_eq!(
        next(&mut live).await.expect("started").kind,
        EventKind::RunStarted
    );
    append(&world.engine, &lease, lease.next_seq, 3).await;
    for n in 0..3 {
        assert_eq!(
            next(&mut live).await.expect("delta").seq,
            lease.next_seq + n
        );
    }
    drop(live);
    let resumed = follow(&world.engine, run, lease.next_seq).await;
    append(&world.engine, &lease, lease.next_seq + 3, 2).await;
    world.complete(&lease).await;
    let rest = drain(resumed, lease.next_seq).await;
    assert_eq!(rest.len(), 5);
    assert_eq!(rest.last().expect("end").kind, EventKind::RunEnded);

    let last = rest.last().expect("end").seq;
    assert!(
        drain(follow(&world.engine, run, last).await, last)
            .await
            .is_empty()
    );
    let whole = drain(follow(&world.engine, run, 0).await, 0).await;
    assert_eq!(whole.len(), usize::try_from(last).expect("small"));
}

/// R4.6: many streams, written in batches through another instance, each without a gap; when all are read nothing is
/// followed any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_streams_of_another_instance_have_no_gap() {
    const RUNS: usize = 20;
    const BATCHES: i64 = 12;
    let world = World::new(settings()).await;
    let writer = world.instance(settings()).await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..RUNS {
        let run = world.submit(task("chat")).await;
        for after in [0, 1] {
            let events = follow(&world.engine, run, after).await;
            readers.spawn(async move { drain(events, after).await.len() });
        }
    }
    let mut writers = tokio::task::JoinSet::new();
    for lease in world.claim(&PoolId::builtin(), 100).await {
        let (writer, world_engine) = (writer.clone(), world.engine.clone());
        writers.spawn(async move {
            let mut seq = lease.next_seq;
            for batch in 0..BATCHES {
                // The holder may reach any instance.
                let engine = if batch % 3 == 0 {
                    &world_engine
                } else {
                    &writer
                };
                append(engine, &lease, seq, 100).await;
                seq += 100;
            }
            lease
        });
    }
    let mut written = 0;
    while let Some(lease) = writers.join_next().await {
        world.complete(&lease.expect("writer")).await;
        written += 1;
    }
    assert_eq!(written, RUNS);
    let events = usize::try_from(BATCHES * 100).expect("small") + 3;
    let mut read = Vec::new();
    while let Some(count) = readers.join_next().await {
        read.push(count.expect("reader"));
    }
    read.sort_unstable();
    let mut expected = vec![events - 1; RUNS];
    expected.extend(vec![events; RUNS]);
    assert_eq!(read, expected);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while world.engine.events().followed() > 0 {
        assert!(std::time::Instant::now() < deadline, "streams are kept");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// R4.6: a position already pruned answers `EVENTS_PRUNED` with the first one kept, at the start and in the stream.
#[tokio::test]
async fn pruned_positions_are_refused_with_the_first_one_kept() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    append(&world.engine, &lease, lease.next_seq, 10).await;
    sqlx::query("DELETE FROM run_events WHERE seq <= 5")
        .execute(world.db.pool())
        .await
        .expect("prune");
    for after in [0, 4] {
        let refused = tail(&world.engine, &member("acme"), run, after).await;
        let problem = refused.err().expect("pruned").problem();
        assert_eq!(problem.code, Code::EventsPruned);
        assert_eq!(problem.status, 410);
        assert!(problem.detail.expect("detail").contains("before 6 "));
    }
    let mut kept = follow(&world.engine, run, 5).await;
    assert_eq!(next(&mut kept).await.expect("kept").seq, 6);
    let beyond = tail(&world.engine, &member("acme"), run, 99).await;
    let problem = beyond.err().expect("beyond").problem();
    assert_eq!(problem.code, Code::InvalidArgument);
    assert_eq!(problem.field.as_deref(), Some("Last-Event-ID"));
}

/// R3.11, R4.6: the stream of a dead letter that was put back goes on behind its first end.
#[tokio::test]
async fn a_dead_letter_that_is_put_back_goes_on_in_its_stream() {
    let world = World::new(settings()).await;
    let mut request = task("chat");
    request.max_attempts = Some(1);
    let run = world.submit(request).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world.fail(run, lease.fence, Code::WorkerFailed, 0).await;
    assert_eq!(drain(follow(&world.engine, run, 0).await, 0).await.len(), 3);
    runs::requeue::requeue(&world.engine, &member("acme"), run)
        .await
        .expect("requeue");
    let events = follow(&world.engine, run, 0).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world.complete(&lease).await;
    let kinds: Vec<_> = drain(events, 0)
        .await
        .iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            EventKind::RunQueued,
            EventKind::RunStarted,
            EventKind::RunEnded,
            EventKind::RunRequeued,
            EventKind::RunStarted,
            EventKind::RunEnded
        ]
    );
}
