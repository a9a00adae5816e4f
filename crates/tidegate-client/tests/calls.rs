//! The client against a scripted server over real HTTP.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Response, StatusCode, header},
};
use futures::StreamExt;
use serde_json::{Value, json};
use tidegate_client::{Client, Error, RetryPolicy};
use tidegate_model::{
    Code, RunId,
    api::{PageQuery, Problem, SubmitRun},
    event::EventKind,
    run::RunState,
};
use tokio::{net::TcpListener, time::sleep};

/// What the server does with one request.
#[derive(Debug, Clone)]
enum Step {
    Answer(u16, Value),
    Refuse(Problem),
    /// A page that is no answer of ours, with headers.
    Foreign(u16, &'static str, Vec<(&'static str, &'static str)>),
    /// Takes the request and never answers.
    Silence,
    /// Takes the request and breaks the connection off.
    Cut,
    /// Streams these frames, then ends cleanly or breaks off.
    Stream(Vec<String>, bool),
}

#[derive(Debug, Clone)]
struct Seen {
    path: String,
    headers: HeaderMap,
}

#[derive(Clone)]
struct Scripted {
    url: String,
    steps: Arc<Mutex<VecDeque<Step>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Scripted {
    async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            steps: Arc::new(Mutex::new(steps.into_iter().collect())),
            seen: Arc::default(),
        };
        let router = Router::new().fallback(handle).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    fn client(&self) -> Client {
        Client::builder(&self.url)
            .key("tg_canary")
            .deadline(Duration::from_secs(5))
            .try_timeout(Duration::from_millis(300))
            .stream_idle_timeout(Duration::from_millis(400))
            .retry(RetryPolicy {
                base: Duration::from_millis(1),
                ..RetryPolicy::default()
            })
            .build()
            .unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn keys(&self) -> Vec<String> {
        let key = |seen: &Seen| seen.headers["idempotency-key"].to_str().unwrap().to_owned();
        self.seen().iter().map(key).collect()
    }
}

async fn handle(State(server): State<Scripted>, request: Request) -> Response<Body> {
    let path = request.uri().to_string();
    server.seen.lock().unwrap().push(Seen {
        path,
        headers: request.headers().clone(),
    });
    let step = server.steps.lock().unwrap().pop_front();
    let respond = |status: u16, body: Body| Response::builder().status(status).body(body).unwrap();
    match step.unwrap_or_else(|| panic!("one request too many")) {
        Step::Answer(status, body) => respond(status, body.to_string().into()),
        Step::Refuse(problem) => {
            respond(problem.status, serde_json::to_vec(&problem).unwrap().into())
        }
        Step::Foreign(status, body, headers) => {
            let mut response = respond(status, body.into());
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Step::Silence => {
            sleep(Duration::from_mins(1)).await;
            respond(StatusCode::OK.as_u16(), Body::empty())
        }
        Step::Cut => respond(200, broken(Vec::new())),
        Step::Stream(frames, clean) => {
            let body = if clean {
                frames.concat().into()
            } else {
                broken(frames)
            };
            let mut response = respond(200, body);
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, "text/event-stream".parse().unwrap());
            response
        }
    }
}

/// A body whose connection breaks off after its pieces.
fn broken(pieces: Vec<String>) -> Body {
    let pieces = futures::stream::iter(pieces.into_iter().map(Ok));
    let end = futures::stream::once(async {
        // What was written before must have left.
        sleep(Duration::from_millis(50)).await;
        Err(std::io::Error::other("cut"))
    });
    Body::from_stream(pieces.chain(end))
}

fn run(run_id: RunId, state: RunState) -> Value {
    json!({
        "runId": run_id, "tenant": "acme", "kind": "business_task", "quotaBucket": "uncounted", "capability": "demo",
        "serviceClass": "standard", "priority": 0, "state": state, "attempts": 0, "maxAttempts": 5,
        "createdAt": "2026-01-01T00:00:00Z", "budget": {}, "spentTokens": 0, "spentMs": 0, "aFieldOfTheFuture": 1,
    })
}

fn submit() -> SubmitRun {
    serde_json::from_value(json!({"capability": "demo", "input": {}})).unwrap()
}

fn busy(retry_after_ms: Option<u64>) -> Step {
    let mut problem = Problem::new(Code::QueueFull, "full");
    problem.retry_after_ms = retry_after_ms;
    Step::Refuse(problem)
}

fn frame(seq: i64, kind: EventKind) -> String {
    let event = json!({"seq": seq, "at": "2026-01-01T00:00:00Z", "kind": kind, "body": {}});
    format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
}

/// O-28: a write is repeated under one key, after lost answers too; another call has another key.
#[tokio::test]
async fn a_write_keeps_its_key_over_all_tries() {
    let view = Step::Answer(202, run(RunId::new(), RunState::Queued));
    let server = Scripted::start([
        Step::Cut,
        busy(None),
        Step::Silence,
        view.clone(),
        view.clone(),
        view,
    ])
    .await;
    let client = server.client();
    client.submit_run(&submit(), None).await.unwrap();
    client.submit_run(&submit(), None).await.unwrap();
    client.submit_run(&submit(), Some("mine")).await.unwrap();
    let keys = server.keys();
    assert!(
        keys[..4]
            .iter()
            .all(|key| *key == keys[0] && key.len() == 32),
        "{keys:?}"
    );
    assert_ne!(keys[4], keys[0]);
    assert_eq!(keys[5], "mine");
}

/// O-28: control returns at the deadline, not at a multiple of it; the error names deadline and attempts.
#[tokio::test]
async fn the_deadline_bounds_all_tries_together() {
    let server = Scripted::start(vec![Step::Silence; 10]).await;
    let client = server.client().with_deadline(Duration::from_millis(800));
    let started = Instant::now();
    let error = client.submit_run(&submit(), None).await.unwrap_err();
    assert!(
        started.elapsed() < Duration::from_millis(850),
        "{:?}",
        started.elapsed()
    );
    let Error::DeadlineExceeded {
        deadline, attempts, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(
        (deadline.as_millis(), *attempts),
        (800, 3),
        "the last try is shortened"
    );
    assert!(error.to_string().contains("0.8 s (3 attempts)"), "{error}");
}

/// O-28, R22.3: a hint past the deadline fails at once and carries it; a nearer one is waited for.
#[tokio::test]
async fn hints_are_obeyed_or_handed_on() {
    let server = Scripted::start([
        busy(Some(60_000)),
        busy(Some(200)),
        Step::Answer(202, run(RunId::new(), RunState::Queued)),
        Step::Foreign(503, "<html>busy</html>", vec![("retry-after", "60")]),
    ])
    .await;
    let client = server.client();
    let started = Instant::now();
    let error = client.submit_run(&submit(), None).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_millis(200));
    assert_eq!(
        (error.retry_after(), error.code()),
        (Some(Duration::from_mins(1)), Some(Code::QueueFull))
    );
    let started = Instant::now();
    client.submit_run(&submit(), None).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200));
    let error = client.submit_run(&submit(), None).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_mins(1)), "{error}");
}

#[tokio::test]
async fn final_refusals_are_not_repeated_and_say_what_is_wrong() {
    let mut problem = Problem::new(Code::InvalidArgument, "too long").with_field("input.text");
    problem.request_id = Some("req_1".to_owned());
    let server = Scripted::start([
        Step::Refuse(problem),
        Step::Answer(
            418,
            json!({"code": "CODE_OF_THE_FUTURE", "detail": "new", "retryable": false}),
        ),
        Step::Foreign(404, "<html>no such page</html>", vec![]),
        Step::Answer(200, json!({"not": "a run"})),
        Step::Foreign(302, "", vec![("location", "http://198.51.100.1/")]),
    ])
    .await;
    let client = server.client();
    let mut texts = Vec::new();
    for _ in 0..5 {
        texts.push(client.run(RunId::new()).await.unwrap_err().to_string());
    }
    assert_eq!(
        texts[0],
        "INVALID_ARGUMENT: too long (at input.text) [req_1]"
    );
    assert!(
        texts[1].contains("CODE_OF_THE_FUTURE") && texts[1].contains("new"),
        "{}",
        texts[1]
    );
    assert!(
        texts[2].contains("404") && texts[3].contains("matching version"),
        "{texts:?}"
    );
    assert!(
        texts[4].contains("302"),
        "no redirect is followed: {}",
        texts[4]
    );
    assert_eq!(server.seen().len(), 5);
}

/// The key goes to the server and nowhere else.
#[tokio::test]
async fn the_key_is_sent_and_never_shown() {
    let page = json!({"items": [], "nextCursor": "next"});
    let server = Scripted::start([Step::Answer(200, page)]).await;
    let client = server.client();
    let query = PageQuery {
        limit: Some(5),
        cursor: Some("a b&c".to_owned()),
    };
    assert_eq!(
        client.pools(&query).await.unwrap().next_cursor.unwrap(),
        "next"
    );
    let seen = server.seen().remove(0);
    assert_eq!(seen.headers["authorization"], "Bearer tg_canary");
    assert_eq!(seen.path, "/v1/pools?cursor=a+b%26c&limit=5");
    let closed = Client::builder("http://127.0.0.1:1")
        .key("tg_canary")
        .deadline(Duration::from_millis(100))
        .build()
        .unwrap();
    let error = closed.me().await.unwrap_err();
    assert!(
        !format!("{error} {error:?} {client:?}").contains("canary"),
        "{error:?}"
    );
    assert!(error.to_string().contains("TIDEGATE_URL"), "{error}");
}

/// R4.6: a stream that breaks off, stalls or is ended by a draining server goes on after the last event, each event once.
#[tokio::test]
async fn a_stream_resumes_without_a_gap() {
    let run_id = RunId::new();
    let first = vec![
        ": resumable\n\n".to_owned(),
        frame(1, EventKind::RunQueued),
        frame(2, EventKind::RunStarted),
    ];
    let again = vec![
        frame(2, EventKind::RunStarted),
        frame(3, EventKind::MessageDelta),
    ];
    let server = Scripted::start([
        Step::Stream(first, false),
        Step::Refuse(Problem::new(Code::ShuttingDown, "draining")),
        Step::Stream(again, true),
        Step::Stream(vec![frame(4, EventKind::RunEnded)], true),
    ])
    .await;
    let events: Vec<_> = server
        .client()
        .run_events(run_id, 0)
        .into_stream()
        .collect()
        .await;
    let seqs: Vec<_> = events.into_iter().map(|event| event.unwrap().seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let resumed: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.headers.get("last-event-id").cloned())
        .collect();
    let resumed: Vec<_> = resumed
        .iter()
        .flatten()
        .map(|id| id.to_str().unwrap())
        .collect();
    assert_eq!(resumed, ["2", "2", "3"]);
}

/// R4.6: a dead letter that was put back goes on after `run.ended`, on the same connection and after a drain.
#[tokio::test]
async fn a_stream_goes_on_where_the_run_does() {
    let drained = ": the server is draining; resume with Last-Event-ID 3\n\n".to_owned();
    let server = Scripted::start([
        Step::Stream(
            vec![
                frame(1, EventKind::RunEnded),
                frame(2, EventKind::RunRequeued),
                frame(3, EventKind::RunEnded),
                drained,
            ],
            true,
        ),
        Step::Stream(vec![frame(4, EventKind::RunRequeued)], true),
        Step::Stream(vec![frame(5, EventKind::RunEnded)], true),
    ])
    .await;
    let events = server.client().run_events(RunId::new(), 0).into_stream();
    let seqs: Vec<_> = events.map(|event| event.unwrap().seq).collect().await;
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
    assert_eq!(server.seen().len(), 3, "a clean end is believed");
}

#[tokio::test]
async fn a_silent_stream_is_opened_again() {
    let server = Scripted::start([
        Step::Silence,
        Step::Stream(vec![frame(1, EventKind::RunEnded)], true),
    ])
    .await;
    let mut events = server.client().run_events(RunId::new(), 0);
    assert_eq!(
        events.next().await.unwrap().unwrap().kind,
        EventKind::RunEnded
    );
    assert!(events.next().await.is_none());
}

/// R4.6: a gap is a defect that is shown, pruned events are final, and a reader at the end of an ended run is done.
#[tokio::test]
async fn a_stream_ends_with_the_truth() {
    let run_id = RunId::new();
    let server = Scripted::start([Step::Stream(
        vec![
            frame(1, EventKind::RunQueued),
            frame(3, EventKind::RunEnded),
        ],
        true,
    )])
    .await;
    let events: Vec<_> = server
        .client()
        .run_events(run_id, 0)
        .into_stream()
        .collect()
        .await;
    assert!(
        matches!(&events[1], Err(Error::BadAnswer { detail }) if detail.contains("from event 1 to 3")),
        "{events:?}"
    );
    let server = Scripted::start([Step::Refuse(Problem::new(
        Code::EventsPruned,
        "first kept: 9",
    ))])
    .await;
    let error = server
        .client()
        .run_events(run_id, 2)
        .next()
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.code(), Some(Code::EventsPruned));
    let ended = Step::Answer(200, run(run_id, RunState::Succeeded));
    let server = Scripted::start([
        Step::Stream(vec![], true),
        ended,
        Step::Stream(vec![], true),
    ])
    .await;
    assert!(server.client().run_events(run_id, 7).next().await.is_none());
}

/// R22.3: dropping a call ends its waiting at once, whatever it waits for.
#[tokio::test]
async fn a_dropped_call_leaves_at_once() {
    let server = Scripted::start([busy(Some(4_000)), Step::Silence]).await;
    let client = server.client();
    let started = Instant::now();
    let waited = tokio::time::timeout(Duration::from_millis(100), client.me()).await;
    assert!(waited.is_err() && started.elapsed() < Duration::from_millis(200));
}

/// R7.7: a refused admission is told at once, whenever it may be tried again: who keeps a queue takes something else meanwhile.
#[tokio::test]
async fn a_refused_admission_is_told_at_once() {
    let mut problem = Problem::new(Code::ResourceExhausted, "held by others");
    problem.retry_after_ms = Some(50);
    let server = Scripted::start([Step::Refuse(problem), Step::Silence]).await;
    let body = json!({"admissionId": tidegate_model::AdmissionId::new(), "requirements": {"capability": "demo"}});
    let body = serde_json::from_value(body).unwrap();
    let error = server.client().admit(&body).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::ResourceExhausted), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_millis(50)));
}
