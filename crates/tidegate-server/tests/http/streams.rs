//! R4.6: a run's events over SSE, resumable, never with a gap; a reader that leaves changes nothing.

use std::{collections::VecDeque, time::Duration};

use futures::{Stream, StreamExt};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidegate_model::{Code, principal::Role};

use crate::rig::{PATIENCE, Rig, eventually};

/// One frame of a stream.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Frame {
    pub id: Option<i64>,
    pub event: Option<String>,
    pub data: Option<Value>,
    pub comment: Option<String>,
}

/// A stream that is read frame by frame.
pub struct Reader {
    bytes: std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: String,
    frames: VecDeque<Frame>,
}

impl Reader {
    pub fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        let media = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(media.starts_with("text/event-stream"), "{media}");
        Self {
            bytes: Box::pin(response.bytes_stream()),
            text: String::new(),
            frames: VecDeque::new(),
        }
    }

    /// The next frame; none at the end of the stream.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            let next = tokio::time::timeout(PATIENCE, self.bytes.next())
                .await
                .expect("a live stream");
            let piece = next?.ok()?;
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                self.frames.push_back(parse(frame));
                let rest = rest.len();
                self.text.drain(..self.text.len() - rest);
            }
        }
    }

    /// The next event, past comments.
    pub async fn event(&mut self) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.id.is_some() {
                return Some(frame);
            }
        }
    }

    /// All that is left.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut all = Vec::new();
        while let Some(frame) = self.frame().await {
            all.push(frame);
        }
        all
    }
}

fn parse(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines() {
        match line
            .split_once(':')
            .map(|(name, value)| (name, value.trim()))
        {
            Some(("", value)) => frame.comment = Some(value.to_owned()),
            Some(("id", value)) => frame.id = value.parse().ok(),
            Some(("event", value)) => frame.event = Some(value.to_owned()),
            Some(("data", value)) => frame.data = serde_json::from_str(value).ok(),
            _ => {}
        }
    }
    frame
}

/// Opens the stream of a run after an event.
pub async fn open(rig: &Rig, key: &str, run: &str, after: i64) -> Reader {
    let request = rig
        .request("GET", &format!("/v1/runs/{run}/events"))
        .bearer_auth(key);
    let request = if after > 0 {
        request.header("last-event-id", after)
    } else {
        request
    };
    Reader::of(
        request
            .timeout(Duration::from_mins(2))
            .send()
            .await
            .unwrap(),
    )
}

/// Appends notes numbered from `first` in one call.
async fn append(rig: &Rig, worker: &str, lease: &Value, first: i64, count: i64) {
    let events: Vec<Value> = (first..first + count)
        .map(|seq| json!({"seq": seq, "kind": "worker.note", "body": {"n": seq}}))
        .collect();
    let run = lease["run"]["runId"].as_str().unwrap();
    let body = json!({"fence": lease["fence"], "events": events});
    let answer = rig
        .post(&format!("/v1/worker/runs/{run}/events"), worker, body)
        .await;
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test]
async fn a_reader_that_resumes_sees_every_event_once() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let first = lease["nextSeq"].as_i64().unwrap();
    let writer = async {
        for batch in 0..10 {
            append(&rig, &worker, &lease, first + batch * 20, 20).await;
        }
        let path = format!("/v1/worker/runs/{run}/complete");
        let done = rig
            .post(
                &path,
                &worker,
                json!({"fence": lease["fence"], "result": 1}),
            )
            .await;
        assert_eq!(done.status, StatusCode::OK, "{done:?}");
    };
    let reader = async {
        let mut seen: Vec<Frame> = Vec::new();
        // Leaves again and again after a few events, as a phone in a tunnel does.
        for pieces in 1.. {
            let after = seen.last().and_then(|frame| frame.id).unwrap_or(0);
            let mut stream = open(&rig, &acme, &run, after).await;
            for _ in 0..pieces * 3 {
                let Some(event) = stream.event().await else {
                    return seen;
                };
                seen.push(event);
            }
        }
        unreachable!("the stream ends")
    };
    let ((), seen) = tokio::join!(writer, reader);
    let numbers: Vec<i64> = seen.iter().map(|frame| frame.id.unwrap()).collect();
    let whole: Vec<i64> = (1..=i64::try_from(numbers.len()).unwrap()).collect();
    assert_eq!(numbers, whole, "no gap, no repetition");
    assert!(numbers.len() > 200);
    let last = seen.last().unwrap();
    assert_eq!(last.event.as_deref(), Some("run.ended"));
    for frame in &seen {
        let data = frame.data.as_ref().unwrap();
        assert_eq!(data["seq"].as_i64(), frame.id);
        assert_eq!(data["kind"].as_str(), frame.event.as_deref());
    }
}

/// A position that the run has not reached is an error of the caller, not an endless wait.
#[tokio::test]
async fn a_position_in_the_future_is_refused() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let run = rig.submit(&acme).await;
    let request = rig
        .request("GET", &format!("/v1/runs/{run}/events"))
        .bearer_auth(&acme);
    let answer = crate::rig::answer(request.header("last-event-id", "1000")).await;
    assert_eq!(answer.problem().code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_turn_streams_and_a_reader_that_leaves_does_not_cancel_it() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let conversation = rig.conversation(&acme).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let ask = || {
        rig.request("POST", &path)
            .bearer_auth(&acme)
            .header("accept", "text/event-stream")
            .header("idempotency-key", "turn-1")
            .json(&json!({"input": "hello"}))
    };
    let response = ask().send().await.unwrap();
    let run = response.headers()["x-tidegate-run"]
        .to_str()
        .unwrap()
        .to_owned();
    let mut stream = Reader::of(response);
    let queued = stream.event().await.unwrap();
    assert_eq!(
        (queued.id, queued.event.as_deref()),
        (Some(1), Some("run.queued"))
    );
    drop(stream);
    let lease = rig.claim(&worker).await;
    assert_eq!(
        lease["run"]["runId"], run,
        "still queued after its reader has left"
    );
    let body = json!({"fence": lease["fence"], "messages": [{"role": "assistant", "content": {"text": "hi"}}]});
    let done = rig
        .post(&format!("/v1/worker/runs/{run}/complete"), &worker, body)
        .await;
    assert_eq!(done.json()["state"], "succeeded", "{done:?}");
    // The same key again: the same turn, from its first event to its last.
    let again = Reader::of(ask().send().await.unwrap()).rest().await;
    let events: Vec<&str> = again
        .iter()
        .filter_map(|frame| frame.event.as_deref())
        .collect();
    assert_eq!(events.first(), Some(&"run.queued"));
    assert_eq!(events.last(), Some(&"run.ended"));
    let messages = rig
        .get(&format!("/v1/conversations/{conversation}/messages"), &acme)
        .await
        .json();
    let roles: Vec<&str> = messages["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant"]);
}

/// R1.7: streams end with the position to resume from.
#[tokio::test]
async fn a_drain_ends_streams_with_a_resumable_position() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let run = rig.submit(&acme).await;
    let mut stream = open(&rig, &acme, &run, 0).await;
    let last = stream.event().await.unwrap().id.unwrap();
    rig.shutdown.drain();
    let end = stream.rest().await.pop().expect("a last frame");
    let comment = end.comment.expect("a comment");
    assert!(comment.contains("draining"), "{comment}");
    assert!(
        comment.contains(&format!("Last-Event-ID {last}")),
        "{comment}"
    );
}

/// R2.1: what is read goes on only as long as the key holds.
#[tokio::test]
async fn a_revoked_key_ends_its_streams() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let admin = rig.key(Role::TenantAdmin, "acme", "").await;
    let made = rig
        .post(
            "/v1/admin/keys",
            &admin,
            json!({"role": "member", "tenant": "acme"}),
        )
        .await
        .json();
    let (id, secret) = (
        made["key"]["keyId"].as_str().unwrap(),
        made["secret"].as_str().unwrap(),
    );
    let run = rig.submit(&acme).await;
    let mut stream = open(&rig, secret, &run, 0).await;
    assert!(stream.event().await.is_some());
    rig.call(
        "DELETE",
        &format!("/v1/admin/keys/{id}"),
        &admin,
        Value::Null,
    )
    .await;
    let end = stream.rest().await.pop().expect("a last frame");
    assert!(end.comment.is_some_and(|text| text.contains("revoked")));
    // The run itself is untouched.
    let state = rig.get(&format!("/v1/runs/{run}"), &acme).await.json();
    assert_eq!(state["state"], "queued");
}

/// Two readers of one run see the same while it is being written.
#[tokio::test]
async fn events_arrive_while_they_are_written() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let mut one = open(&rig, &acme, &run, 0).await;
    let mut two = open(&rig, &acme, &run, 0).await;
    let lease = rig.claim(&worker).await;
    append(&rig, &worker, &lease, lease["nextSeq"].as_i64().unwrap(), 1).await;
    for stream in [&mut one, &mut two] {
        let note = eventually("the note arrives", async || {
            let event = stream.event().await.expect("an open stream");
            (event.event.as_deref() == Some("worker.note")).then_some(event)
        })
        .await;
        assert_eq!(note.data.unwrap()["seq"], lease["nextSeq"]);
    }
}

/// A run that waits long looks different from a connection that is dead.
#[tokio::test]
async fn a_quiet_stream_shows_that_it_lives() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let run = rig.submit(&acme).await;
    let mut stream = open(&rig, &acme, &run, 0).await;
    eventually("a heartbeat", async || {
        let frame = stream.frame().await.expect("an open stream");
        (frame.comment.as_deref() == Some("alive")).then_some(())
    })
    .await;
}
