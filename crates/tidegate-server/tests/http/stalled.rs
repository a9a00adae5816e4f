//! Readers that do not read: what they may cost, and whom.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_model::{Code, principal::Role};
use tidegate_store::{ConnectOptions, Store, connect};
use tidegate_testkit::TestDb;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::{
    rig::{PATIENCE, Rig, answer, eventually},
    streams::open,
};

/// Notes of the history, each of this size: more than sockets hold by themselves.
const NOTES: i64 = 12;
const NOTE_BYTES: usize = 800_000;
/// Connections of the server to its database.
const CONNECTIONS: u32 = 8;

/// A server that cuts off who takes nothing for this long, with a long history of a run of `acme`; the key and the run.
async fn rig(stall_ms: u32) -> (Rig, String, String) {
    let db = TestDb::new().await;
    let pool = connect(&ConnectOptions {
        max_connections: CONNECTIONS,
        acquire_timeout: Duration::from_secs(2),
        ..ConnectOptions::new(db.url())
    });
    let store = Store::new(pool.expect("a pool"));
    let rig = Rig::over(db, store, |settings| {
        settings.db_pool_size = CONNECTIONS;
        settings.client_stall_ms = stall_ms;
        settings.event_streams_per_tenant_max = 100;
    })
    .await;
    let acme = rig.tenant("acme").await;
    let worker = rig.key(Role::Worker, "", "builtin").await;
    let run = rig.submit(&acme).await;
    let lease = rig.claim(&worker).await;
    let first = lease["nextSeq"].as_i64().unwrap();
    for seq in first..first + NOTES {
        let note =
            json!({"seq": seq, "kind": "worker.note", "body": {"text": "x".repeat(NOTE_BYTES)}});
        let body = json!({"fence": lease["fence"], "events": [note]});
        let path = format!("/v1/worker/runs/{run}/events");
        let told = rig.post(&path, &worker, body).await;
        assert!(told.status.is_success(), "{told:?}");
    }
    (rig, acme, run)
}

/// Asks for the events of a run and reads nothing of the answer.
async fn ask(rig: &Rig, key: &str, run: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut socket = socket.connect(rig.address).await.unwrap();
    let head = format!(
        "GET /v1/runs/{run}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// R4.3, R2.2: readers of one tenant that take nothing hold no connection of the pool; other tenants, readiness and
/// renewals go on. They are dropped after a while, and their memory with them.
#[tokio::test]
async fn readers_that_take_nothing_starve_nobody_and_are_dropped() {
    let (rig, acme, run) = rig(3_000).await;
    let globex = rig.tenant("globex").await;
    let mut sockets = Vec::new();
    for _ in 0..60 {
        sockets.push(ask(&rig, &acme, &run).await);
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        for path in ["/v1/runs", "/readyz"] {
            let asked = Instant::now();
            let told = rig.get(path, &globex).await;
            assert_eq!(told.status, 200, "{path}: {told:?}");
            let took = asked.elapsed();
            assert!(took < Duration::from_millis(1_900), "{path}: {took:?}");
        }
    }
    assert_eq!(rig.engine.events().open_streams(), sockets.len());
    eventually("all are dropped", async || {
        (rig.engine.events().open_streams() == 0).then_some(())
    })
    .await;
    // Not only forgotten: the connections are closed, with most of the history unsent.
    for mut socket in sockets {
        let mut taken = Vec::new();
        // A reset is a close too.
        let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut taken))
            .await
            .expect("closed");
        let size = taken.len();
        assert!((1..3 << 20).contains(&size), "{size} bytes");
    }
}

/// R4.6: who reads slowly is not taken for one who does not read, and misses nothing.
#[tokio::test]
async fn a_slow_reader_is_left_alone() {
    let (rig, acme, run) = rig(1_000).await;
    let mut socket = ask(&rig, &acme, &run).await;
    let (began, mut taken) = (Instant::now(), Vec::new());
    let mut buffer = vec![0; 512 << 10];
    let whole = usize::try_from(NOTES).unwrap() * NOTE_BYTES;
    while taken.len() < whole {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let size = tokio::time::timeout(PATIENCE, socket.read(&mut buffer))
            .await
            .expect("a live stream")
            .unwrap();
        assert!(size > 0, "cut after {} bytes", taken.len());
        taken.extend_from_slice(&buffer[..size]);
    }
    assert!(began.elapsed() > Duration::from_secs(2), "slower than that");
}

/// R2.2: a tenant has so many streams at once, refused before anything is done; others have theirs.
#[tokio::test]
async fn streams_of_a_tenant_are_bounded() {
    let rig = Rig::with(|settings| settings.event_streams_per_tenant_max = 2).await;
    let (acme, globex) = (rig.tenant("acme").await, rig.tenant("globex").await);
    let (run, other) = (rig.submit(&acme).await, rig.submit(&globex).await);
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = open(&rig, &acme, &run, 0).await;
        stream.event().await.expect("an event");
        kept.push(stream);
    }
    let refused = rig.get(&format!("/v1/runs/{run}/events"), &acme).await;
    assert_eq!(refused.status, 429);
    let problem = refused.problem();
    assert_eq!(
        (problem.code, problem.retryable),
        (Code::TooManyStreams, true)
    );
    assert!(problem.retry_after_ms.is_some());
    // A turn whose stream has no place is not submitted.
    let conversation = rig.conversation(&acme).await;
    let turn = rig
        .request("POST", &format!("/v1/conversations/{conversation}/turns"))
        .bearer_auth(&acme)
        .header("accept", "text/event-stream")
        .json(&json!({"input": "hello"}));
    assert_eq!(answer(turn).await.problem().code, Code::TooManyStreams);
    let said = rig
        .get(&format!("/v1/conversations/{conversation}/messages"), &acme)
        .await;
    assert_eq!(said.json()["items"], json!([]));
    assert!(open(&rig, &globex, &other, 0).await.event().await.is_some());
    kept.pop();
    eventually("the place is free again", async || {
        (rig.engine.events().open_streams() == 1).then_some(())
    })
    .await;
    assert!(open(&rig, &acme, &run, 0).await.event().await.is_some());
}

/// R4.6: over HTTP/2 a reader that takes nothing loses its stream, with all that it held, and the connection goes on for
/// others.
#[tokio::test]
async fn a_stalled_stream_of_a_shared_connection_is_cut_alone() {
    let (rig, acme, run) = rig(2_000).await;
    let http = reqwest::Client::builder()
        .http2_prior_knowledge()
        .timeout(PATIENCE)
        .build()
        .unwrap();
    let url = format!("http://{}/v1/runs", rig.address);
    let ask = |url: &str| http.get(url).bearer_auth(&acme).send();
    let unread = ask(&format!("{url}/{run}/events")).await.unwrap();
    assert_eq!(unread.status(), 200);
    assert_eq!(rig.engine.events().open_streams(), 1);
    eventually("the stream is cut", async || {
        (rig.engine.events().open_streams() == 0).then_some(())
    })
    .await;
    let other = ask(&url).await.unwrap();
    assert_eq!(
        (other.status(), other.version()),
        (200.try_into().unwrap(), reqwest::Version::HTTP_2)
    );
    // What was on its way arrives, and then the break: not an end that looks whole.
    assert!(unread.bytes().await.is_err());
}
