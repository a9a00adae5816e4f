//! A provider that says what it is told word for word, also names of tools that were never offered.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, http::header, response::IntoResponse, routing::post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone)]
pub struct RawProvider {
    pub url: String,
    state: Arc<Mutex<(Vec<Value>, Vec<Value>)>>,
}

impl RawProvider {
    pub async fn start(mut answers: Vec<Value>) -> Self {
        answers.reverse();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let provider = Self {
            url,
            state: Arc::new(Mutex::new((answers, Vec::new()))),
        };
        let router = Router::new()
            .route("/v1/chat/completions", post(answer))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    pub fn requests(&self) -> Vec<Value> {
        self.state.lock().unwrap().1.clone()
    }
}

async fn answer(
    State(provider): State<RawProvider>,
    Json(request): Json<Value>,
) -> impl IntoResponse {
    let mut state = provider.state.lock().unwrap();
    state.1.push(request);
    let delta = state
        .0
        .pop()
        .unwrap_or_else(|| json!({"content": "nothing more"}));
    let reason = if delta["tool_calls"].is_null() {
        "stop"
    } else {
        "tool_calls"
    };
    let chunk = |delta: Value, reason: Value| {
        json!({
            "id": "c", "object": "chat.completion.chunk", "created": 0, "model": "raw",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        })
    };
    let body = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        chunk(delta, Value::Null),
        chunk(json!({}), json!(reason))
    );
    ([(header::CONTENT_TYPE, "text/event-stream")], body)
}

pub fn text(text: &str) -> Value {
    json!({ "content": text })
}

pub fn tool_call(name: &str, arguments: &str) -> Value {
    json!({"tool_calls": [{
        "index": 0, "id": format!("call-{name}"), "type": "function",
        "function": {"name": name, "arguments": arguments},
    }]})
}
