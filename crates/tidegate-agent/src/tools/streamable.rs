//! MCP over streamable HTTP: the library's transport on a guarded client.
//!
//! Of a session that a server does not know any more (404) the transport makes a new one, once, and repeats only what
//! was refused with it: the server had not looked at it. A broken stream of an answer is resumed where the server
//! numbered its events; else the call has failed, and whether it happened is not known.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::stream::BoxStream;
use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest},
    transport::{
        StreamableHttpClientTransport,
        common::client_side_sse::ExponentialBackoff,
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
            StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
        },
    },
};
use sse_stream::Sse;
use tokio::sync::Notify;

use super::{http_api::headers, network::Network, spec::Endpoint};
use crate::limits;

/// A transport to the endpoint; connects with its first message. The error is one sentence without secrets.
pub(super) fn transport(
    network: &Network,
    endpoint: &Endpoint,
    changed: Arc<Notify>,
) -> Result<StreamableHttpClientTransport<Sessions>, String> {
    let url = Url::parse(&endpoint.url).map_err(|_| "its URL is no URL".to_owned())?;
    network.check(&url).map_err(|refused| refused.to_string())?;
    let client = Sessions {
        http: network.mcp_client()?,
        begun: Arc::default(),
        changed,
    };
    let mut headers_sent = HashMap::new();
    for (name, value) in headers(&endpoint.headers)? {
        if let Some(name) = name {
            headers_sent.insert(name, value);
        }
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers_sent)
        .max_sse_event_size(limits::LINE_MAX_BYTES)
        .max_json_response_size(limits::LINE_MAX_BYTES)
        .max_error_response_size(limits::ERROR_BODY_BYTES)
        .control_request_timeout(limits::LEAVE_GRACE)
        .reinit_on_expired_session(true);
    let mut patience = ExponentialBackoff::default();
    patience.base_duration = limits::RESTART_BASE;
    patience.max_delay = Some(limits::RESTART_MAX);
    config.retry_config = Arc::new(patience);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// The guarded client, which notices when the transport begins another session: the server behind it may be another
/// one with other tools.
#[derive(Debug, Clone)]
pub(super) struct Sessions {
    http: reqwest::Client,
    begun: Arc<AtomicU32>,
    changed: Arc<Notify>,
}

type Headers = HashMap<HeaderName, HeaderValue>;
type Answer<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl StreamableHttpClient for Sessions {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Answer<StreamableHttpPostResponse> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(
            uri,
            message,
            session_id,
            auth_header,
            headers,
            limits,
        )
        .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Answer<StreamableHttpPostResponse> {
        let begins = matches!(
            &message,
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_))
        );
        let http = &self.http;
        let answer = http
            .post_message_with_response_limits(
                uri,
                message,
                session_id,
                auth_header,
                headers,
                limits,
            )
            .await?;
        if begins && self.begun.fetch_add(1, Ordering::Relaxed) > 0 {
            self.changed.notify_one();
        }
        Ok(answer)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Answer<()> {
        self.http
            .delete_session(uri, session_id, auth_header, headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Answer<Events> {
        self.http
            .get_stream(uri, session_id, last_event_id, auth_header, headers)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Answer<Events> {
        let http = &self.http;
        http.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            headers,
            most,
        )
        .await
    }
}
