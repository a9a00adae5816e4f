//! Any endpoint that speaks OpenAI's `chat/completions`.
//!
//! [`wire`] holds the shapes, [`assemble`] turns pieces into an answer, [`classify`] turns refusals into kinds; this
//! file only sends and reads.

mod assemble;
mod classify;
mod wire;

use std::{collections::VecDeque, error::Error as _, path::Path};

use async_trait::async_trait;
use bytes::Bytes;
use eventsource_stream::Eventsource;
use futures::{Stream, StreamExt, stream};
use reqwest::{
    Certificate, Client, Response, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect,
};
use secrecy::ExposeSecret;
use tidegate_model::ids::CatalogName;

use crate::{
    chat::{ChatRequest, ChatStream, Delta, Message},
    config::ProviderConfig,
    error::{FaultKind, LlmError, ProviderFault},
    limits::{ANSWER_MAX_BYTES, ERROR_BODY_MAX_BYTES, LINE_MAX_BYTES},
    provider::{CallContext, Provider},
    scrub::Scrubber,
};
use assemble::Assembler;

const TOO_LARGE: &str = "the answer, or a line of it, is larger than allowed (16 MiB, 1 MiB)";

/// An OpenAI-compatible provider.
#[derive(Debug)]
pub struct OpenAi {
    id: CatalogName,
    http: Client,
    url: Url,
    ask_for_usage: bool,
    scrubber: Scrubber,
}

impl OpenAi {
    /// Prepares the connections; sends nothing. The error is one sentence without secrets.
    pub fn new(config: &ProviderConfig) -> Result<Self, String> {
        let url = chat_url(&config.base_url)?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
                .map_err(|_| {
                    "its key holds characters that no HTTP header can carry; set it again"
                        .to_owned()
                })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = Client::builder()
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(config.timeouts.connect)
            // Traffic goes to base_url and nowhere else.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never());
        if let Some(path) = &config.ca_file {
            builder = builder.tls_certs_merge(authorities(path)?);
        }
        let http = builder.build().map_err(|error| {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            format!("its HTTP client cannot be made: {error} {cause}")
        })?;
        Ok(Self {
            id: config.id.clone(),
            http,
            url,
            ask_for_usage: config.ask_for_usage,
            scrubber: Scrubber::new(&config.api_key),
        })
    }

    /// A failure of the connection, told apart by what can be done about it.
    fn connection_fault(&self, error: &reqwest::Error) -> ProviderFault {
        let kind = if error.is_timeout() && !error.is_connect() {
            FaultKind::Timeout
        } else if error.is_connect() {
            FaultKind::Unreachable
        } else {
            FaultKind::CutStream
        };
        // The top error names the URL and little else; its sources say what happened.
        let mut text = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push(cause.to_string());
            source = cause.source();
        }
        let text = if text.is_empty() {
            "the connection failed".to_owned()
        } else {
            text.join(": ")
        };
        self.fault(kind, &text, None)
    }

    fn fault(&self, kind: FaultKind, text: &str, asked: Option<&ChatRequest>) -> ProviderFault {
        let asked = asked
            .into_iter()
            .flat_map(|request| request.messages.iter().map(Message::text));
        ProviderFault::new(kind, self.scrubber.clean_error(text, asked)).of(&self.id)
    }

    /// Cleans a fault made from what the provider said.
    fn cleaned(&self, mut fault: ProviderFault, request: &ChatRequest) -> ProviderFault {
        let asked = || request.messages.iter().map(Message::text);
        fault.message = self.scrubber.clean_error(&fault.message, asked());
        fault.provider_code = fault
            .provider_code
            .map(|code| self.scrubber.clean_error(&code, asked()));
        fault.of(&self.id)
    }

    async fn refusal(&self, response: Response, request: &ChatRequest) -> LlmError {
        let status = response.status();
        let retry_after = classify::retry_after(response.headers());
        let body = read_up_to(response, ERROR_BODY_MAX_BYTES)
            .await
            .unwrap_or_default();
        let fault = classify::refusal(
            status.as_u16(),
            retry_after,
            &String::from_utf8_lossy(&body),
        );
        self.cleaned(fault, request).into()
    }

    async fn whole_answer(
        &self,
        response: Response,
        request: &ChatRequest,
    ) -> Result<ChatStream, LlmError> {
        let Some(body) = read_within(response, ANSWER_MAX_BYTES)
            .await
            .map_err(|e| self.connection_fault(&e))?
        else {
            return Err(self
                .fault(
                    FaultKind::BadAnswer,
                    "the answer is larger than 16 MiB",
                    None,
                )
                .into());
        };
        let mut assembler = Assembler::new(self.scrubber.clone());
        let deltas = assembler
            .whole(&body)
            .map_err(|fault| self.cleaned(fault, request))?;
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }

    fn streamed_answer(&self, response: Response, request: &ChatRequest) -> ChatStream {
        let reading = Reading::new(response.bytes_stream(), self.scrubber.clone());
        let cleaner = Cleaner {
            id: self.id.clone(),
            scrubber: self.scrubber.clone(),
            asked: request.messages.clone(),
        };
        stream::try_unfold((reading, cleaner), |(mut reading, cleaner)| async move {
            match reading.next().await {
                Ok(Some(delta)) => Ok(Some((delta, (reading, cleaner)))),
                Ok(None) => Ok(None),
                Err(fault) => Err(LlmError::from(cleaner.clean(fault))),
            }
        })
        .boxed()
    }
}

#[async_trait]
impl Provider for OpenAi {
    fn id(&self) -> &CatalogName {
        &self.id
    }

    async fn chat(
        &self,
        request: &ChatRequest,
        _call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        let body = wire::request_body(request, self.ask_for_usage);
        let sent = self.http.post(self.url.clone()).json(&body).send().await;
        let response = sent.map_err(|error| self.connection_fault(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(response, request).await);
        }
        match media_type(&response).as_str() {
            "text/event-stream" => Ok(self.streamed_answer(response, request)),
            // Some endpoints answer in one piece although a stream was asked for.
            "application/json" => self.whole_answer(response, request).await,
            other => {
                let text = format!("the answer is {other:?}, neither JSON nor an event stream");
                Err(self.fault(FaultKind::BadAnswer, &text, None).into())
            }
        }
    }
}

/// What it takes to clean a fault once the provider is borrowed no more.
struct Cleaner {
    id: CatalogName,
    scrubber: Scrubber,
    asked: Vec<Message>,
}

impl Cleaner {
    fn clean(&self, mut fault: ProviderFault) -> ProviderFault {
        let asked = || self.asked.iter().map(Message::text);
        fault.message = self.scrubber.clean_error(&fault.message, asked());
        fault.provider_code = fault
            .provider_code
            .map(|code| self.scrubber.clean_error(&code, asked()));
        fault.of(&self.id)
    }
}

type Events = std::pin::Pin<
    Box<
        dyn Stream<
                Item = Result<
                    eventsource_stream::Event,
                    eventsource_stream::EventStreamError<ReadError>,
                >,
            > + Send,
    >,
>;

/// An answer that is being read.
struct Reading {
    events: Events,
    assembler: Assembler,
    ready: VecDeque<Delta>,
    ended: bool,
}

impl Reading {
    fn new(
        bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
        scrubber: Scrubber,
    ) -> Self {
        Self {
            events: Box::pin(bounded(bytes).eventsource()),
            assembler: Assembler::new(scrubber),
            ready: VecDeque::new(),
            ended: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Delta>, ProviderFault> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Ok(Some(delta));
            }
            if self.ended {
                return Ok(None);
            }
            match self.events.next().await {
                Some(Ok(event)) if event.data.trim() == "[DONE]" => self.end()?,
                Some(Ok(event)) => self
                    .ready
                    .extend(self.assembler.piece(&event.event, &event.data)?),
                None => self.end()?,
                // What breaks after the model said that it was done costs nobody the answer.
                Some(Err(_)) if self.assembler.said_done() => self.end()?,
                Some(Err(error)) => return Err(cut(&error)),
            }
        }
    }

    fn end(&mut self) -> Result<(), ProviderFault> {
        self.ended = true;
        self.ready.extend(self.assembler.end()?);
        Ok(())
    }
}

fn cut(error: &eventsource_stream::EventStreamError<ReadError>) -> ProviderFault {
    use eventsource_stream::EventStreamError as E;
    match error {
        E::Transport(ReadError::TooLarge) => ProviderFault::new(FaultKind::BadAnswer, TOO_LARGE),
        E::Transport(ReadError::Connection(cause)) => {
            ProviderFault::new(FaultKind::CutStream, cause)
        }
        E::Utf8(_) => ProviderFault::new(FaultKind::BadAnswer, "the answer is not UTF-8"),
        E::Parser(_) => {
            ProviderFault::new(FaultKind::BadAnswer, "the answer is not an event stream")
        }
    }
}

/// Why no more bytes came.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("the connection broke off: {0}")]
    Connection(String),
    #[error("the answer is too large")]
    TooLarge,
}

/// Stops reading at the greatest size of an answer and of a line: what never ends must fill neither memory nor time.
fn bounded(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send,
) -> impl Stream<Item = Result<Bytes, ReadError>> + Send {
    bytes.scan((0usize, 0usize), |(seen, line), chunk| {
        let chunk = match chunk {
            Ok(chunk) => {
                *seen += chunk.len();
                *line = match chunk.iter().rposition(|byte| *byte == b'\n') {
                    Some(end) => chunk.len() - end,
                    None => *line + chunk.len(),
                };
                if *seen > ANSWER_MAX_BYTES || *line > LINE_MAX_BYTES {
                    Err(ReadError::TooLarge)
                } else {
                    Ok(chunk)
                }
            }
            Err(error) => Err(ReadError::Connection(deepest(&error))),
        };
        futures::future::ready(Some(chunk))
    })
}

fn deepest(error: &reqwest::Error) -> String {
    let mut text = "the connection broke off".to_owned();
    let mut source = error.source();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}

/// The beginning of a body, for an error text.
async fn read_up_to(mut response: Response, max: usize) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk[..chunk.len().min(max - body.len())]);
        if body.len() == max {
            break;
        }
    }
    Ok(body)
}

/// A whole body, or `None` where it is larger than allowed.
async fn read_within(mut response: Response, max: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn media_type(response: &Response) -> String {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// The address of `chat/completions` below a base URL.
fn chat_url(base_url: &str) -> Result<Url, String> {
    let example = "for example https://api.example/v1";
    let mut url = Url::parse(base_url)
        .map_err(|error| format!("its base_url is not a URL ({error}); {example}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "its base_url must begin with http:// or https://; {example}"
        ));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(format!(
            "its base_url must hold neither user, password, query nor fragment; {example}"
        ));
    }
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, String> {
    let problem = |what: String| format!("its ca_file {} {what}", path.display());
    let pem = std::fs::read(path).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|_| problem("holds no valid PEM certificate".to_owned()))?;
    if certificates.is_empty() {
        return Err(problem("holds no PEM certificate".to_owned()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests;
