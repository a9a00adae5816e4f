//! Callers that leave: the slot comes back, the provider is told, the record is written, each exactly once.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use tidegate_llm::{CallOutcome, ChatRequest, TokenCounts, Usage};

use crate::support::{Rig, SOON, foreground, left, one, request, rig};

const SLOW: &str = r#"
[[rule]]
name = "hang before headers"
when = { text_contains = "headers" }
fault = { kind = "stall" }
[[rule]]
name = "hang in the stream"
when = { text_contains = "stream" }
reply = { text = "a b c d" }
fault = { kind = "stall", after_chunks = 2 }
[[rule]]
name = "hang whole"
when = { text_contains = "whole" }
reply = { text = "x", delay_ms = 60000 }
[[rule]]
name = "ok"
reply = { text = "fine" }
"#;

async fn two_slots() -> Arc<Rig> {
    Arc::new(rig(SLOW, |config| config.limits.max_in_flight = one(2)).await)
}

fn start(rig: &Arc<Rig>, request: ChatRequest) -> tokio::task::JoinHandle<()> {
    let rig = Arc::clone(rig);
    tokio::spawn(async move {
        let _answer = rig.ask_with(request, &foreground()).await;
    })
}

/// O-18, R13.2, R13.6: before the first byte, in mid-stream and without streaming.
#[tokio::test]
async fn hanging_up_frees_slot_and_provider_at_once_o_18() {
    for (text, stream) in [
        ("headers", true),
        ("stream", true),
        ("headers", false),
        ("whole", false),
    ] {
        let rig = two_slots().await;
        let callers = [0, 1].map(|_| {
            start(
                &rig,
                ChatRequest {
                    stream,
                    ..request(text)
                },
            )
        });
        assert!(rig.mock.until(SOON, |stats| stats.in_flight == 2).await);
        let waiter = start(&rig, request("never arrives"));
        rig.until("a waiter in the queue", |rig| rig.waiting() == 1)
            .await;
        waiter.abort();
        rig.until("the waiter gone", |rig| rig.waiting() == 0).await;
        if text == "stream" {
            rig.until("both streams begun", |rig| rig.in_flight() == 2)
                .await;
        }

        let begun = tokio::time::Instant::now();
        for caller in &callers {
            caller.abort();
        }
        assert!(
            rig.mock.until(SOON, |stats| stats.aborted == 2).await,
            "{text} {:?}",
            rig.mock.stats()
        );
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(rig.ask("a fourth caller").await.unwrap().text, "fine");

        let stats = rig.mock.stats();
        assert_eq!(
            stats.requests, 3,
            "the one in the queue never reached the provider"
        );
        let mut outcomes = rig.records.outcomes();
        outcomes.sort_unstable();
        assert_eq!(
            outcomes,
            ["answered", "client_closed", "client_closed", "left_queue"]
        );
        assert_eq!(rig.in_flight(), 0);
    }
}

#[tokio::test]
async fn a_stream_dropped_half_read_counts_what_had_arrived() {
    let rig = two_slots().await;
    let mut stream = rig
        .model()
        .chat(request("stream"), &foreground())
        .await
        .unwrap();
    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(rig.in_flight(), 1);
    drop(stream);
    assert_eq!(rig.in_flight(), 0);
    let record = rig.records.only();
    assert_eq!(record.outcome, CallOutcome::ClientClosed);
    assert_eq!(
        record.usage,
        Usage::LowerBound(TokenCounts {
            input: 0,
            output: 2
        })
    );
    assert!(rig.mock.until(SOON, |stats| stats.aborted == 1).await);
}

/// R13.2: a task that panics gives back its slot.
#[tokio::test]
async fn a_panic_in_the_callers_task_gives_back_the_slot() {
    let rig = two_slots().await;
    let task = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            let mut stream = rig
                .model()
                .chat(request("stream"), &foreground())
                .await
                .unwrap();
            stream.next().await.unwrap().unwrap();
            panic!("on purpose");
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(rig.in_flight(), 0);
    assert_eq!(rig.records.only().outcome, CallOutcome::Panicked);
}

/// R13.2: callers that leave at random moments leave nothing behind, and each is recorded once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_any_moment_leave_nothing_behind() {
    let scenario = "[[rule]]\nname = \"a\"\nreply = { text = \"a b c d e f\", first_delay_ms = 2, delay_ms = 1 }\n";
    let rig = Arc::new(
        rig(scenario, |config| {
            config.limits.max_in_flight = one(4);
            config.limits.max_queue = 1_000;
        })
        .await,
    );
    let mut tasks = Vec::new();
    for n in 0..300_u64 {
        let rig = Arc::clone(&rig);
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_micros(n * n * 7 % 60_000);
            let _left = tokio::time::timeout(patience, rig.ask("hi")).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    rig.until("everything given back", |rig| {
        rig.in_flight() == 0 && rig.waiting() == 0
    })
    .await;
    let records = rig.records.all();
    assert_eq!(records.len(), 300);
    assert!(
        records
            .iter()
            .all(|record| left(record) || record.outcome == CallOutcome::Answered)
    );
    assert!(records.iter().any(left) && rig.mock.stats().peak_in_flight <= 5);
    assert!(rig.mock.until(SOON, |stats| stats.in_flight == 0).await);
    let reached = records
        .iter()
        .filter(|record| record.outcome.was_sent())
        .count() as u64;
    assert!(rig.mock.stats().requests <= reached);
}
