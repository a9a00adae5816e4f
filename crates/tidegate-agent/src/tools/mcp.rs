//! Calls of MCP servers, over whatever transport: what ends them, and what their failures mean.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
        ClientCapabilities, ClientConfig, ClientRequest, Implementation, ProgressNotificationParam,
        ProgressToken, RequestId, RequestMetaObject, ServerResult,
    },
    service::{ClientInitializeError, NotificationContext, PeerRequestOptions},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use serde_json::Value;
use tidegate_llm::Scrubber;
use tidegate_model::Code;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use super::{
    live::Bounds,
    network::deepest,
    offer::{Reached, ToolAnswer},
    output,
};
use crate::limits;

/// Where servers find the key of a call that may be sent again without being made again.
const CALL_KEY: &str = "tidegate/idempotencyKey";

/// What a server may tell us by itself: that its tools changed, and that a call makes progress.
#[derive(Debug, Clone, Default)]
pub(super) struct Listener {
    pub(super) changed: Arc<Notify>,
    progress: Arc<Mutex<HashMap<ProgressToken, Arc<Notify>>>>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("tidegate", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        if let Some(watched) = self.progress.lock().get(&params.progress_token) {
            watched.notify_one();
        }
    }
}

/// An MCP server that can be called.
#[derive(Debug)]
pub(super) struct McpPeer {
    pub(super) peer: Peer<RoleClient>,
    listener: Listener,
}

/// Tells the server that nobody waits any more, however the call ends.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
    listener: Listener,
    token: ProgressToken,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.listener.progress.lock().remove(&self.token);
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the caller does not wait any more".to_owned());
            let cancelled =
                peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason));
            // A server that reads nothing is not waited for.
            let _told = timeout(limits::LEAVE_GRACE, cancelled).await;
        });
    }
}

impl McpPeer {
    pub(super) fn new(peer: Peer<RoleClient>, listener: Listener) -> Self {
        Self { peer, listener }
    }

    /// Calls a tool. Progress that the server reports puts off `idle` and nothing else (O-26); the caller bounds the
    /// whole.
    pub(super) async fn call(
        &self,
        name: &str,
        params: CallToolRequestParams,
        bounds: Bounds<'_>,
        scrubber: &Scrubber,
    ) -> ToolAnswer {
        match self.ask(params, bounds).await {
            Ok(Some(ServerResult::CallToolResult(result))) => answered(&result, scrubber),
            Ok(Some(_)) => {
                let text = format!("{name} asks for more than an answer, which is not supported");
                ToolAnswer::failed(Code::ToolUnavailable, text, Reached::Unknown)
            }
            Ok(None) => {
                let text = format!(
                    "{name} gave no sign of progress for {} s",
                    bounds.idle.as_secs_f64()
                );
                ToolAnswer::failed(Code::ToolTimeout, text, Reached::Unknown)
            }
            Err(error) => {
                let (reached, why) = of_call(&error);
                let text = format!("{name} cannot be called: {}", scrubber.clean(&why));
                let text = output::bounded(&text, 1_000);
                ToolAnswer::failed(Code::ToolUnavailable, text, reached)
            }
        }
    }

    /// `None` where the server was silent for too long.
    async fn ask(
        &self,
        params: CallToolRequestParams,
        Bounds { idle, key }: Bounds<'_>,
    ) -> Result<Option<ServerResult>, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        if let Some(key) = key {
            let mut meta = RequestMetaObject::default();
            meta.insert(CALL_KEY.to_owned(), Value::from(key));
            options = options.with_meta(meta);
        }
        let handle = self.peer.send_cancellable_request(request, options).await?;
        let token = handle.progress_token.clone();
        let progress = Arc::new(Notify::new());
        let watched = Arc::clone(&progress);
        self.listener.progress.lock().insert(token.clone(), watched);
        let mut guard = CancelOnDrop {
            peer: self.peer.clone(),
            id: Some(handle.id.clone()),
            listener: self.listener.clone(),
            token,
        };
        let response = handle.await_response();
        tokio::pin!(response);
        let mut silent_at = Instant::now() + idle;
        loop {
            tokio::select! {
                biased;
                result = &mut response => {
                    guard.id = None;
                    return result.map(Some);
                }
                () = progress.notified() => silent_at = Instant::now() + idle,
                () = sleep_until(silent_at) => return Ok(None),
            }
        }
    }
}

fn answered(result: &CallToolResult, scrubber: &Scrubber) -> ToolAnswer {
    ToolAnswer {
        text: output::text(result, scrubber),
        code: None,
        is_error: result.is_error == Some(true),
        reached: Reached::Answered,
    }
}

/// Why the handshake failed, without the address of the server.
pub(super) fn of_handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(error).1,
        ClientInitializeError::ConnectionClosed(_) => "it ended".to_owned(),
        ClientInitializeError::JsonRpcError(error) => error.message.to_string(),
        _ => "it answered with something that is not MCP".to_owned(),
    }
}

/// How far a failed call came, and why it failed.
fn of_call(error: &ServiceError) -> (Reached, String) {
    match error {
        ServiceError::McpError(error) => (Reached::Answered, error.message.to_string()),
        ServiceError::TransportSend(error) => of_transport(error),
        _ => (Reached::Unknown, "the connection ended".to_owned()),
    }
}

fn of_transport(error: &DynamicTransportError) -> (Reached, String) {
    let no = |why: &str| (Reached::No, why.to_owned());
    let unknown = |why: &str| (Reached::Unknown, why.to_owned());
    let Some(error) = error
        .error
        .downcast_ref::<StreamableHttpError<reqwest::Error>>()
    else {
        return unknown("the connection broke");
    };
    match error {
        StreamableHttpError::Client(error) if error.is_connect() || error.is_redirect() => {
            (Reached::No, deepest(error))
        }
        StreamableHttpError::Client(error) => (Reached::Unknown, deepest(error)),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            no("it refuses our credentials")
        }
        StreamableHttpError::HttpStatus(error) if error.status == 429 => {
            no("it asks for fewer calls")
        }
        StreamableHttpError::HttpStatus(error) => {
            unknown(&format!("it answered with status {}", error.status))
        }
        // Refused twice by a server that does not know the session: it never looked at the call.
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            no("it ended the session")
        }
        StreamableHttpError::ResponseBodyTooLarge { .. } => {
            unknown("the answer is too large; ask for less")
        }
        _ => unknown("it answered with something that is not MCP"),
    }
}
