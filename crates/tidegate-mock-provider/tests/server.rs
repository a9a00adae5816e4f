//! The server over real HTTP. What it says to a real client is proven in `tidegate-llm`.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tidegate_mock_provider::{MockProvider, Scenario, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

const SOON: Duration = Duration::from_secs(5);

/// Sends one request by hand and reads until the server closes.
async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://")
        .trim_end_matches("/v1")
        .parse()
        .unwrap()
}

fn question(text: &str) -> String {
    json!({ "model": "demo", "messages": [{ "role": "user", "content": text }] }).to_string()
}

#[tokio::test]
async fn it_lists_its_models_answers_and_counts() {
    let mock = MockProvider::start(Scenario::demo()).await.unwrap();
    let at = address(mock.url());
    assert_eq!(send(at, "GET", "/healthz", "", "").await.0, 200);
    assert!(
        send(at, "GET", "/v1/models", "", "")
            .await
            .1
            .contains("\"id\":\"demo\"")
    );
    let (status, answer) = send(at, "POST", "/v1/chat/completions", "", &question("hi")).await;
    assert!(status == 200 && answer.contains("You said: hi"), "{answer}");
    let (_, shown) = send(at, "GET", "/__stats", "", "").await;
    let start = shown.find('{').unwrap();
    let counted: Value = serde_json::from_str(&shown[start..=shown.rfind('}').unwrap()]).unwrap();
    assert_eq!(
        (
            &counted["requests"],
            &counted["completed"],
            &counted["inFlight"]
        ),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(counted["byRule"], json!({ "anything else": 1 }));
}

#[tokio::test]
async fn what_it_does_not_serve_is_a_clear_error() {
    let scenario = Scenario::parse(
        "models = [\"demo\"]\n[[rule]]\nname = \"a\"\nwhen = { model = \"x\" }\nreply = { text = \"x\" }\n",
    );
    let mock = MockProvider::start(scenario.unwrap().with_api_key("sk-1"))
        .await
        .unwrap();
    let at = address(mock.url());
    for (key, body, status, words) in [
        ("sk-2", question("hi"), 401, "invalid_api_key"),
        ("sk-1", "{".to_owned(), 400, "invalid_json"),
        (
            "sk-1",
            json!({ "messages": 7 }).to_string(),
            400,
            "invalid_request",
        ),
        (
            "sk-1",
            json!({ "model": "gpt" }).to_string(),
            404,
            "model_not_found",
        ),
        ("sk-1", question("hi"), 400, "no_rule"),
    ] {
        let (got, answer) = send(at, "POST", "/v1/chat/completions", key, &body).await;
        assert!(got == status && answer.contains(words), "{answer}");
    }
    assert_eq!(mock.stats().unauthorized, 1);
    assert_eq!(send(at, "GET", "/v1/models", "sk-2", "").await.0, 401);
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_stop() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let scenario = Scenario::parse(
        "[[rule]]\nname = \"a\"\nreply = { text = \"x\" }\nfault = { kind = \"stall\" }\n",
    )
    .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(run(at, scenario, async {
        let _told = stopped.await;
    }));
    let deadline = tokio::time::Instant::now() + SOON;
    while TcpStream::connect(at).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it never listened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    tokio::time::timeout(SOON, server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn open_streams_break_off_when_it_stops() {
    let scenario = Scenario::parse(
        "[[rule]]\nname = \"a\"\nreply = { text = \"x\" }\nfault = { kind = \"stall\", after_chunks = 1 }\n",
    );
    let mock = MockProvider::start(scenario.unwrap()).await.unwrap();
    let at = address(mock.url());
    let open =
        tokio::spawn(
            async move { send(at, "POST", "/v1/chat/completions", "", &question("hi")).await },
        );
    assert!(mock.until(SOON, |stats| stats.in_flight == 1).await);
    mock.stop();
    tokio::time::timeout(SOON, open).await.unwrap().unwrap();
}
