//! What a connection may cost: slow and huge requests are cut off, others are not disturbed.

use std::time::{Duration, Instant};

use tidegate_model::principal::Role;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{PATIENCE, Rig};

async fn send(rig: &Rig, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(rig.address).await.unwrap();
    // The server may hang up in the middle of what is too much.
    let _ = socket.write_all(bytes).await;
    socket
}

/// Reads until the server closes.
async fn read(mut socket: TcpStream) -> String {
    let mut text = Vec::new();
    let whole = timeout(PATIENCE, socket.read_to_end(&mut text))
        .await
        .expect("closed in time");
    // A reset after the answer is a close too.
    let _ = whole;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_client_that_never_finishes_its_head_is_cut_off() {
    let rig = Rig::new().await;
    let started = Instant::now();
    let mut slow = send(&rig, b"GET /livez HTTP/1.1\r\nhost: x\r\n").await;
    let silent = TcpStream::connect(rig.address).await.unwrap();
    let drip = async {
        // One byte now and then does not buy more time.
        while slow.write_all(b"x").await.is_ok() && started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let (silent, ()) = tokio::join!(read(silent), drip);
    assert_eq!(silent, "");
    assert!(
        started.elapsed() < Duration::from_secs(25),
        "{:?}",
        started.elapsed()
    );
    assert!(
        rig.request("GET", "/livez")
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
}

/// An answer of the parser, which has neither a problem nor an id.
fn has_no_body(answer: &str) -> bool {
    answer.ends_with("\r\n\r\n")
        && answer.contains("content-length: 0")
        && !answer.contains("x-request-id")
}

/// Bad input: what is refused before there is a request has a status and nothing else.
#[tokio::test]
async fn huge_heads_are_refused() {
    let rig = Rig::new().await;
    let long = format!(
        "GET /livez HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n",
        "a".repeat(200 << 10)
    );
    let many: Vec<String> = (0..500).map(|n| format!("x-{n}: 1")).collect();
    let many = format!(
        "GET /livez HTTP/1.1\r\nhost: x\r\n{}\r\n\r\n",
        many.join("\r\n")
    );
    // docs/codes/README.md says that the parser's own answers have no body.
    let answer = read(send(&rig, many.as_bytes()).await).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(has_no_body(&answer), "{answer}");
    for head in [long, many] {
        let answer = read(send(&rig, head.as_bytes()).await).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    }
    let target = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(100_000));
    let answer = read(send(&rig, target.as_bytes()).await).await;
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_changes_nothing() {
    let rig = Rig::new().await;
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
    ] {
        let mut socket = send(&rig, bytes).await;
        let _ = socket.shutdown().await;
        let answer = read(socket).await;
        assert!(
            answer.is_empty() || (answer.starts_with("HTTP/1.1 400") && has_no_body(&answer)),
            "{answer}"
        );
    }
    let fine = read(
        send(
            &rig,
            b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await,
    )
    .await;
    assert!(fine.starts_with("HTTP/1.1 200"), "{fine}");
}

/// A client that writes all of its body before it reads gets the answer, on every route, and no broken pipe.
#[tokio::test]
async fn a_body_that_is_too_large_is_read_before_it_is_refused() {
    let rig = Rig::new().await;
    let worker = rig.key(Role::Worker, "", "default").await;
    let body = vec![b'x'; 3 << 20];
    let cases = [
        ("POST /v1/worker/renew", worker.as_str(), "413"),
        ("POST /v1/worker/claim", worker.as_str(), "413"),
        ("POST /v1/worker/renew", "tg_wrong", "401"),
        ("POST /v1/nowhere", worker.as_str(), "404"),
        ("PUT /livez", worker.as_str(), "405"),
    ];
    for (n, (route, key, status)) in cases.into_iter().cycle().take(20).enumerate() {
        let framing = if n % 2 == 0 {
            format!("content-length: {}\r\n\r\n", body.len())
        } else {
            format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len())
        };
        let head = format!(
            "{route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\n{framing}"
        );
        let mut socket = TcpStream::connect(rig.address).await.unwrap();
        let end: &[u8] = if n % 2 == 0 { b"" } else { b"\r\n0\r\n\r\n" };
        // Slowly enough that an early answer would be out, and the connection closed, before the body is.
        for part in [head.as_bytes()]
            .into_iter()
            .chain(body.chunks(512 << 10))
            .chain([end])
        {
            let written = socket.write_all(part).await;
            assert!(written.is_ok(), "{n} {route}: {written:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let answer = read(socket).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{n} {route}: {answer:?}");
    }
}

/// A client that stalls in the middle of its body is told so, by a code of its own: the database has no part in it. The
/// clock of the handler stands still meanwhile, so that a slow body leaves its handler all the time it may have.
#[tokio::test]
async fn a_body_that_does_not_arrive_is_the_clients_matter() {
    let rig = Rig::new().await;
    let acme = rig.tenant("acme").await;
    let head = |length: usize| {
        format!(
            "POST /v1/runs HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {acme}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let stalled = async {
        let socket = send(&rig, head(50).as_bytes()).await;
        read(socket).await
    };
    let slow = async {
        let body = r#"{"capability":"chat","input":"hello"}"#;
        let mut socket = send(&rig, head(body.len()).as_bytes()).await;
        // Longer than a handler may take.
        tokio::time::sleep(Duration::from_secs(12)).await;
        socket.write_all(body.as_bytes()).await.unwrap();
        read(socket).await
    };
    let (stalled, slow) = tokio::join!(stalled, slow);
    assert!(stalled.starts_with("HTTP/1.1 408"), "{stalled}");
    assert!(stalled.contains("REQUEST_TIMEOUT"), "{stalled}");
    assert!(slow.starts_with("HTTP/1.1 202"), "{slow}");
}
