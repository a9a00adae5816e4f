//! Servers that misbehave on purpose, resolvers that lie, and what stands between them and a host of tools.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidegate_agent::{
    ToolHost, ToolServerSpec,
    tools::{Endpoint, Lookup, Network, ToolLimits, Transport},
};
use tidegate_model::api::SideEffectLevel;
use tidegate_policy::egress::Egress;
use tokio::net::TcpListener;

use crate::support::{SOON, name};

/// An address that plays the public internet.
pub const PUBLIC: &str = "127.0.0.1";
/// An address of this machine that plays an internal one.
pub const INTERNAL: &str = "127.0.0.2";

/// A network in which only [`PUBLIC`] is public.
pub fn network(lookup: impl Lookup + 'static) -> Network {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let public = PUBLIC.parse().unwrap();
    Network::with_lookup(Egress::new(vec![public]), Arc::new(lookup))
}

/// A host of tools in that network.
pub fn host(network: Network, specs: Vec<ToolServerSpec>) -> ToolHost {
    let limits = ToolLimits {
        offer_wait: SOON,
        mount_timeout: Duration::from_secs(5),
        restart_base: Duration::from_millis(50),
        ..ToolLimits::default()
    };
    let host = ToolHost::with_network(limits, network);
    host.configure(specs);
    host
}

/// An MCP server behind a URL whose tools are all mounted; `read` are marked so, the others write.
pub fn mcp_spec(url: &str, read: &[&str]) -> ToolServerSpec {
    let endpoint = Endpoint {
        url: url.to_owned(),
        headers: BTreeMap::from([("Authorization".to_owned(), "Bearer canary-token".into())]),
    };
    let mut spec = ToolServerSpec::new(name("notes"), Transport::StreamableHttp(endpoint));
    for tool in read {
        spec.tools.insert((*tool).to_owned(), SideEffectLevel::Read);
    }
    spec.mount.allow = Some(vec!["*".to_owned()]);
    spec
}

/// Answers each question for a host with the next of its answers, the last one for ever.
#[derive(Debug, Default)]
pub struct Names {
    answers: BTreeMap<&'static str, Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Names {
    pub fn with(mut self, host: &'static str, answers: &[&[&str]]) -> Self {
        let addresses = |list: &&[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        self.answers
            .insert(host, answers.iter().map(addresses).collect());
        self
    }
}

#[async_trait::async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let answers = self
            .answers
            .get(host)
            .ok_or_else(|| io::Error::other("no such host"))?;
        Ok(answers[asked.min(answers.len() - 1)].clone())
    }
}

/// What reached a server.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type Answer = Arc<dyn Fn(&Seen) -> Response + Send + Sync>;

/// A server that answers as it is told and remembers what reached it.
#[derive(Clone)]
pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Answer,
}

impl Server {
    pub async fn start(
        at: &str,
        answer: impl Fn(&Seen) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((at, 0)).await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            answer: Arc::new(answer),
        };
        let router = Router::new()
            .fallback(any(handle))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let seen = Seen {
        method: parts.method,
        target: parts.uri.to_string(),
        headers: parts.headers,
        body: axum::body::to_bytes(body, 1 << 20)
            .await
            .unwrap_or_default(),
    };
    server.seen.lock().unwrap().push(seen.clone());
    (server.answer)(&seen)
}

/// A server that nothing may reach.
pub async fn canary() -> Server {
    Server::start(INTERNAL, |_| "canary: internal".into_response()).await
}

pub fn redirect(status: u16, to: &str) -> Response {
    (
        StatusCode::from_u16(status).unwrap(),
        [(header::LOCATION, to)],
    )
        .into_response()
}

/// An MCP server over HTTP, written against the protocol and no library, so that it can also misbehave.
#[derive(Default)]
pub struct Mcp {
    sessions: AtomicUsize,
    /// Sessions up to this one are forgotten.
    forgotten: AtomicUsize,
    /// Calls that were looked at.
    pub calls: AtomicUsize,
}

impl Mcp {
    pub async fn start(at: &str) -> (Arc<Self>, Server) {
        let mcp = Arc::new(Self::default());
        let answering = Arc::clone(&mcp);
        let server = Server::start(at, move |seen| answering.answer(seen)).await;
        (mcp, server)
    }

    /// As if the server had been started anew.
    pub fn forget(&self) {
        self.forgotten
            .store(self.sessions.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::SeqCst)
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn answer(&self, seen: &Seen) -> Response {
        let session = seen
            .headers
            .get("mcp-session-id")
            .map(|id| id.to_str().unwrap().parse::<usize>().unwrap());
        if session.is_some_and(|session| session <= self.forgotten.load(Ordering::SeqCst)) {
            return StatusCode::NOT_FOUND.into_response();
        }
        if seen.method == Method::GET {
            return match seen.headers.get("last-event-id") {
                Some(id) => resumed(id.to_str().unwrap()),
                None => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            };
        }
        let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => {
                let session = self.sessions.fetch_add(1, Ordering::SeqCst) + 1;
                let result = json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "fixture", "version": "1.0.0"},
                });
                ([("mcp-session-id", session.to_string())], rpc(id, &result)).into_response()
            }
            Some("tools/list") => {
                let mut tools = [
                    "read", "add", "progress", "resumed", "cut", "echo", "broken", "hang",
                ]
                .map(ToOwned::to_owned)
                .to_vec();
                tools.push(format!("of_session_{}", self.sessions()));
                let tools = tools
                    .into_iter()
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                rpc(id, &json!({ "tools": tools.collect::<Vec<_>>() }))
            }
            Some("tools/call") => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                called(id, &message["params"], seen)
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    }
}

fn called(id: &Value, params: &Value, seen: &Seen) -> Response {
    match params["name"].as_str().unwrap_or_default() {
        "progress" => {
            let note = json!({
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1},
            });
            let notes = stream::unfold(note, |note| async move {
                tokio::time::sleep(Duration::from_millis(30)).await;
                Some((Ok::<_, io::Error>(format!("data: {note}\n\n")), note))
            });
            events(Body::from_stream(notes))
        }
        // The answer comes by resumption only.
        "resumed" => events(Body::from(format!("id: {id}\nretry: 10\ndata: \n\n"))),
        "cut" => {
            let broken = stream::iter([
                Ok("data: {\"jsonrpc\"".to_owned()),
                Err(io::Error::other("cut")),
            ]);
            events(Body::from_stream(broken.boxed()))
        }
        "hang" => events(Body::from_stream(stream::pending::<io::Result<String>>())),
        "echo" => {
            let token = seen.headers[header::AUTHORIZATION].to_str().unwrap();
            rpc(id, &content(&format!("you are {token}")))
        }
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "canary-token is wrong").into_response(),
        other => rpc(id, &content(&format!("{other} was called"))),
    }
}

fn resumed(last_event: &str) -> Response {
    let id: Value = serde_json::from_str(last_event).unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": content("told on resumption")});
    events(Body::from(format!("id: {id}x\ndata: {answer}\n\n")))
}

fn events(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn rpc(id: &Value, result: &Value) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn content(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}
