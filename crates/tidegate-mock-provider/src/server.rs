//! Does what the plan says, and counts what reached the server.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Response, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::sleep};

use crate::{
    plan::{Plan, Step, plan},
    request::{Counters, Request},
    scenario::Scenario,
};

/// Requests remembered for tests.
const REMEMBERED: usize = 256;
/// The largest body of a request, in bytes.
const BODY_MAX_BYTES: usize = 32 << 20;
/// Time between the last piece and a cut.
const BEFORE_CUT: Duration = Duration::from_millis(10);
/// Time between two comments that keep a stalled connection alive.
const COMMENT_EVERY: Duration = Duration::from_millis(50);

/// What reached the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Requests for an answer.
    pub requests: u64,
    /// Those that came to the end of their script.
    pub completed: u64,
    /// Those whose client hung up before.
    pub aborted: u64,
    /// Those that are not over.
    pub in_flight: u64,
    /// The most that were in flight at once.
    pub peak_in_flight: u64,
    /// Those refused for their key.
    pub unauthorized: u64,
    /// How often each rule answered.
    pub by_rule: BTreeMap<String, u64>,
}

struct Shared {
    scenario: Scenario,
    state: std::sync::Mutex<Memory>,
    /// Turns true when the server stops: open streams break off.
    stopped: watch::Sender<bool>,
}

#[derive(Default)]
struct Memory {
    stats: Stats,
    counters: Counters,
    requests: Vec<Value>,
}

impl Shared {
    fn new(scenario: Scenario) -> Arc<Self> {
        Arc::new(Self {
            scenario,
            state: std::sync::Mutex::default(),
            stopped: watch::Sender::new(false),
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        // A poisoned lock only means that a test panicked meanwhile; the figures are still whole.
        let mut memory = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut memory)
    }
}

/// Counts a request in flight, and how it left.
struct Flight {
    shared: Arc<Shared>,
    done: bool,
}

impl Flight {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.with(|memory| {
            let stats = &mut memory.stats;
            stats.requests += 1;
            stats.in_flight += 1;
            stats.peak_in_flight = stats.peak_in_flight.max(stats.in_flight);
        });
        Self {
            shared: Arc::clone(shared),
            done: false,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let done = self.done;
        self.shared.with(|memory| {
            memory.stats.in_flight -= 1;
            if done {
                memory.stats.completed += 1;
            } else {
                memory.stats.aborted += 1;
            }
        });
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/healthz", get(|| async { "ok" }))
        .route("/__stats", get(stats))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX_BYTES))
        .with_state(shared)
}

/// The server as a router, to put behind a listener of one's own, and its figures.
pub fn router(scenario: Scenario) -> (Router, impl Fn() -> Stats + Clone + Send + 'static) {
    let shared = Shared::new(scenario);
    let stats = Arc::clone(&shared);
    (routes(shared), move || {
        stats.with(|memory| memory.stats.clone())
    })
}

/// Serves until `shutdown` is done.
pub async fn run(
    addr: SocketAddr,
    scenario: Scenario,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let listener = TcpListener::bind(addr).await?;
    tracing::info!(address = %listener.local_addr()?, scenario = scenario.name, "mock provider is listening");
    let shared = Shared::new(scenario);
    let served = axum::serve(listener, routes(Arc::clone(&shared)));
    tokio::select! {
        result = std::future::IntoFuture::into_future(served) => result,
        () = shutdown => {
            shared.stopped.send_replace(true);
            Ok(())
        }
    }
}

/// Starts servers for tests and demonstrations.
#[derive(Debug)]
pub struct MockProvider;

impl MockProvider {
    /// Starts a server on a free port of the loopback interface. It stops when the handle is dropped.
    pub async fn start(scenario: Scenario) -> io::Result<MockHandle> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let shared = Shared::new(scenario);
        let app = routes(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!("mock provider stopped: {error}");
            }
        });
        Ok(MockHandle { url, shared, task })
    }
}

/// A running server.
pub struct MockHandle {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for MockHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockHandle")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl MockHandle {
    /// The base URL, to configure a provider with.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What reached it so far.
    pub fn stats(&self) -> Stats {
        self.shared.with(|memory| memory.stats.clone())
    }

    /// The last bodies that reached it, oldest first.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.with(|memory| memory.requests.clone())
    }

    /// Waits until the figures are as wanted; false where they are not within the time.
    pub async fn until(&self, within: Duration, wanted: impl Fn(&Stats) -> bool) -> bool {
        let deadline = tokio::time::Instant::now() + within;
        while !wanted(&self.stats()) {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        true
    }

    /// Stops: no new connections, open streams break off.
    pub fn stop(&self) {
        self.task.abort();
        self.shared.stopped.send_replace(true);
    }
}

impl Drop for MockHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<Stats> {
    Json(shared.with(|memory| memory.stats.clone()))
}

async fn models(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response<Body> {
    if let Err(plan) = authorize(&shared, &bearer(&headers)) {
        return respond(plan, None);
    }
    let model =
        |id: &String| json!({ "id": id, "object": "model", "created": 0, "owned_by": "mock" });
    let data: Vec<Value> = shared.scenario.models.iter().map(model).collect();
    Json(json!({ "object": "list", "data": data })).into_response()
}

async fn chat(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let flight = Flight::begin(&shared);
    let key = bearer(&headers);
    let plan = match decide(&shared, &key, &body) {
        Ok(plan) | Err(plan) => plan,
    };
    match plan.headers_after {
        Some(time) if time.is_zero() => {}
        Some(time) => sleep(time).await,
        None => stopped(&shared).await,
    }
    respond(plan, Some(flight))
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.strip_prefix("Bearer ").unwrap_or_default().to_owned()
}

fn authorize(shared: &Shared, key: &str) -> Result<(), Plan> {
    match &shared.scenario.api_key {
        Some(wanted) if wanted != key => {
            shared.with(|memory| memory.stats.unauthorized += 1);
            Err(Plan::error(
                401,
                Some("invalid_api_key"),
                "the key is missing or wrong",
            ))
        }
        _ => Ok(()),
    }
}

fn decide(shared: &Shared, key: &str, body: &[u8]) -> Result<Plan, Plan> {
    authorize(shared, key)?;
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Plan::error(
            400,
            Some("invalid_json"),
            &format!("the body is not JSON: {error}"),
        )
    })?;
    let request: Request = serde_json::from_value(value.clone()).map_err(|error| {
        Plan::error(
            400,
            Some("invalid_request"),
            &format!("the body is no request: {error}"),
        )
    })?;
    let scenario = &shared.scenario;
    if !scenario.models.is_empty() && !scenario.models.contains(&request.model) {
        let message = format!(
            "the model {:?} does not exist; there are {:?}",
            request.model, scenario.models
        );
        return Err(Plan::error(404, Some("model_not_found"), &message));
    }
    shared.with(|memory| {
        if memory.requests.len() == REMEMBERED {
            memory.requests.remove(0);
        }
        memory.requests.push(value);
        let rule = memory.counters.select(scenario, &request).ok_or_else(|| {
            Plan::error(
                400,
                Some("no_rule"),
                "no rule of the scenario matches this request; add one without `when`",
            )
        })?;
        *memory.stats.by_rule.entry(rule.name.clone()).or_default() += 1;
        Ok(plan(scenario, rule, &request, key))
    })
}

async fn stopped(shared: &Shared) {
    let mut stopped = shared.stopped.subscribe();
    // An error means that the sender is gone, which is as good as stopped.
    let _gone = stopped.wait_for(|stopped| *stopped).await;
}

fn respond(plan: Plan, flight: Option<Flight>) -> Response<Body> {
    let mut response = Response::builder()
        .status(StatusCode::from_u16(plan.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .header(header::CONTENT_TYPE, plan.content_type);
    for (name, value) in &plan.headers {
        response = response.header(*name, value);
    }
    let body = match flight {
        Some(flight) => Body::from_stream(steps(plan.body, flight)),
        None => Body::from(plan.body.into_iter().filter_map(sent).fold(
            Vec::new(),
            |mut all, bytes| {
                all.extend_from_slice(&bytes);
                all
            },
        )),
    };
    response
        .body(body)
        .unwrap_or_else(|_: axum::http::Error| Response::new(Body::empty()))
}

fn sent(step: Step) -> Option<Bytes> {
    match step {
        Step::Send(bytes) => Some(bytes),
        _ => None,
    }
}

/// Why a body breaks off.
#[derive(Debug, thiserror::Error)]
#[error("cut by the script")]
struct CutByScript;

fn steps(
    body: Vec<Step>,
    flight: Flight,
) -> impl stream::Stream<Item = Result<Bytes, CutByScript>> {
    let steps = std::collections::VecDeque::from(body);
    stream::unfold((steps, flight), |(mut steps, mut flight)| async move {
        let shared = Arc::clone(&flight.shared);
        let next = async {
            loop {
                match steps.pop_front() {
                    Some(Step::Wait(time)) => sleep(time).await,
                    Some(Step::Send(bytes)) => return Some(Ok(bytes)),
                    Some(Step::Stall { comments: true }) => {
                        steps.push_front(Step::Stall { comments: true });
                        sleep(COMMENT_EVERY).await;
                        return Some(Ok(Bytes::from_static(b": still here\n\n")));
                    }
                    Some(Step::Stall { comments: false }) => std::future::pending::<()>().await,
                    Some(Step::Cut) => {
                        // What was sent before must have left, or the cut would swallow it too.
                        sleep(BEFORE_CUT).await;
                        return Some(Err(CutByScript));
                    }
                    None => return None,
                }
            }
        };
        let item = tokio::select! {
            item = next => item,
            () = stopped(&shared) => Some(Err(CutByScript)),
        };
        flight.done = flight.done || steps.is_empty();
        item.map(|item| (item, (steps, flight)))
    })
}
