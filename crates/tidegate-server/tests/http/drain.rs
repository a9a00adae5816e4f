//! R1.7: the end of a server.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use tidegate_model::{Code, principal::Role};
use tidegate_testkit::log;

use crate::rig::{Rig, answer, claim_body, eventually};
use crate::streams;

#[tokio::test]
async fn a_server_that_closes_finishes_what_has_begun() {
    let mut rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let mut stream = streams::open(&rig, &acme, &run, 0).await;
    stream.event().await.unwrap();
    let waiting = rig
        .request("POST", "/v1/worker/claim")
        .bearer_auth(&worker)
        .json(&claim_body(25_000));
    let waiting = tokio::spawn(answer(waiting));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let started = Instant::now();
    rig.shutdown.close();
    assert_eq!(
        waiting.await.unwrap().status,
        StatusCode::OK,
        "answered, not cut"
    );
    assert!(
        stream
            .rest()
            .await
            .iter()
            .any(|frame| frame.comment.is_some())
    );
    rig.ended().await;
    assert!(
        started.elapsed() < Duration::from_secs(9),
        "no need to wait for the grace"
    );
    assert!(
        rig.request("GET", "/livez").send().await.is_err(),
        "nobody listens any more"
    );
    drop(lease);
}

/// A second signal ends at once.
#[tokio::test]
async fn an_end_does_not_wait_for_clients() {
    let mut rig = Rig::new().await;
    let socket = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    rig.shutdown.end();
    rig.ended().await;
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    drop(socket);
}

#[tokio::test]
async fn while_draining_answers_ask_clients_to_go_elsewhere() {
    let rig = Rig::new().await;
    rig.shutdown.drain();
    let live = answer(rig.request("GET", "/livez")).await;
    assert_eq!(live.headers["connection"], "close");
}

/// R1.7: that a server drains is said when it begins, and not as an error with each request that it refuses.
#[tokio::test]
async fn what_is_refused_while_draining_is_no_error_in_the_log() {
    log::catch();
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    rig.shutdown.drain();
    eventually("it drains", async || {
        let task = json!({"capability": "chat", "input": "hello"});
        let submitted = rig.post("/v1/runs", &acme, task).await;
        (submitted.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    let claimed = rig.post("/v1/worker/claim", &worker, claim_body(0)).await;
    assert_eq!(claimed.problem().code, Code::ShuttingDown);
    let log = log::text();
    let failed: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(failed, Vec::<&str>::new());
}
