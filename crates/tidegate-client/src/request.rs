//! One call: its tries, their deadline, and what an answer means.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use secrecy::ExposeSecret;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tidegate_model::{Code, api::Problem};
use tokio::time::{Instant, sleep, timeout};

use crate::{Client, Error, Result, RetryPolicy, ambient, retry::Next, setup};

/// The longest text of a foreign answer that is kept.
const FOREIGN_TEXT_MAX_CHARS: usize = 300;

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Option<Bytes>,
    idempotency_key: Option<String>,
    retry: Option<RetryPolicy>,
    try_timeout: Option<Duration>,
    also_success: Option<u16>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            retry: None,
            try_timeout: None,
            also_success: None,
        }
    }

    /// A read.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A write, under a key of its own that all its tries share.
    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path).key(None)
    }

    /// Sets something by name.
    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path).key(None)
    }

    /// Removes something by name.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path).key(None)
    }

    /// The caller's idempotency key, or a new one.
    pub(crate) fn key(mut self, key: Option<&str>) -> Self {
        self.idempotency_key = Some(key.map_or_else(ambient::idempotency_key, str::to_owned));
        self
    }

    /// The body.
    pub(crate) fn body<T: Serialize + ?Sized>(mut self, body: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(body).map_err(|error| Error::Configuration {
            field: "body",
            detail: format!("cannot be written as JSON: {error}"),
        })?;
        self.body = Some(bytes.into());
        Ok(self)
    }

    /// The members of a struct as query parameters.
    pub(crate) fn query<T: Serialize + ?Sized>(mut self, query: &T) -> Result<Self> {
        let value = serde_json::to_value(query).map_err(|error| Error::Configuration {
            field: "query",
            detail: format!("cannot be written: {error}"),
        })?;
        if let Value::Object(members) = value {
            for (name, value) in members {
                let text = match value {
                    Value::Null => continue,
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                self.query.push((name, text));
            }
        }
        Ok(self)
    }

    /// Makes one try only.
    pub(crate) fn once(mut self) -> Self {
        self.retry = Some(RetryPolicy::NONE);
        self
    }

    /// A status that is an answer besides those of success.
    pub(crate) fn success_or(mut self, status: u16) -> Self {
        self.also_success = Some(status);
        self
    }

    /// How long one try may take.
    pub(crate) fn try_timeout(mut self, timeout: Duration) -> Self {
        self.try_timeout = Some(timeout);
        self
    }
}

impl Client {
    /// Sends and reads a JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let path = call.path.clone();
        let bytes = self.send(call).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::BadAnswer {
            detail: format!("{path}: {error}"),
        })
    }

    /// Sends and ignores the answer's body.
    pub(crate) async fn done(&self, call: Call) -> Result<()> {
        self.send(call).await.map(|_| ())
    }

    /// Sends until there is an answer, a final error, or no time left.
    pub(crate) async fn send(&self, call: Call) -> Result<Bytes> {
        let started = Instant::now();
        let retry = call.retry.unwrap_or(self.retry);
        let try_timeout = call.try_timeout.unwrap_or(self.shared.try_timeout);
        let mut attempts = 0;
        let mut last = None;
        loop {
            let left = self.deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(self.out_of_time(attempts, last));
            }
            attempts += 1;
            let error = match timeout(left.min(try_timeout), self.attempt(&call)).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(error)) => error,
                Err(_) => self.transport("no answer in time"),
            };
            let left = self.deadline.saturating_sub(started.elapsed());
            match retry.decide(&error, attempts, left, self.shared.dice.unit()) {
                Next::GiveUp => return Err(error),
                Next::OutOfTime => return Err(self.out_of_time(attempts, Some(error))),
                Next::HintTooLate(retry_after) => {
                    return Err(Error::RetryAfterDeadline {
                        retry_after,
                        deadline: self.deadline,
                        attempts,
                        source: Box::new(error),
                    });
                }
                Next::After(wait) => {
                    let code = error.code().map(Code::as_str);
                    tracing::debug!(path = call.path, attempts, ?wait, code, "repeating a call");
                    last = Some(error);
                    sleep(wait).await;
                }
            }
        }
    }

    fn out_of_time(&self, attempts: u32, last: Option<Error>) -> Error {
        Error::DeadlineExceeded {
            deadline: self.deadline,
            attempts,
            last: last.map(Box::new),
        }
    }

    pub(crate) fn transport(&self, reason: impl Into<String>) -> Error {
        Error::Transport {
            base_url: self.base_url().to_owned(),
            reason: reason.into(),
        }
    }

    /// Why a request got no answer.
    fn unanswered(&self, error: &reqwest::Error) -> Error {
        let plain = self.shared.base.scheme() == "http";
        match setup::cause(error, plain) {
            Some(cause) => Error::Setup {
                base_url: self.base_url().to_owned(),
                cause,
                reason: reason(error),
            },
            None => self.transport(reason(error)),
        }
    }

    async fn attempt(&self, call: &Call) -> Result<Bytes> {
        let response = self.open(call, HeaderMap::new()).await?;
        response
            .bytes()
            .await
            .map_err(|error| self.transport(reason(&error)))
    }

    /// Sends once and gives the response if it is a success.
    pub(crate) async fn open(&self, call: &Call, headers: HeaderMap) -> Result<reqwest::Response> {
        let mut url = self.shared.base.clone();
        url.set_path(&format!(
            "{}{}",
            url.path().trim_end_matches('/'),
            call.path
        ));
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = self
            .shared
            .http
            .request(call.method.clone(), url)
            .headers(headers);
        if let Some(key) = &self.shared.key {
            request = request.bearer_auth(key.expose_secret());
        }
        if let Some(own) = &call.idempotency_key {
            let key = self.write_key.as_deref().unwrap_or(own);
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let response = request
            .send()
            .await
            .map_err(|error| self.unanswered(&error))?;
        let status = response.status();
        if status.is_success() || call.also_success == Some(status.as_u16()) {
            return Ok(response);
        }
        let hint = retry_after(response.headers());
        let body = response.bytes().await.unwrap_or_default();
        Err(refusal(status, hint, &body))
    }
}

/// What an answer that is no success means.
pub(crate) fn refusal(status: StatusCode, hint: Option<Duration>, body: &[u8]) -> Error {
    if let Ok(mut problem) = serde_json::from_slice::<Problem>(body) {
        if problem.retry_after_ms.is_none() {
            problem.retry_after_ms = hint.and_then(|hint| u64::try_from(hint.as_millis()).ok());
        }
        return Error::Problem(Box::new(problem));
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let detail = text("detail")
        .or_else(|| text("title"))
        .unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    let retryable = value.get("retryable").and_then(Value::as_bool);
    Error::Status {
        status: status.as_u16(),
        code: text("code"),
        detail: detail.chars().take(FOREIGN_TEXT_MAX_CHARS).collect(),
        retryable: retryable.unwrap_or(matches!(status.as_u16(), 429 | 502 | 503 | 504)),
        retry_after: value
            .get("retryAfterMs")
            .and_then(Value::as_u64)
            .map(Duration::from_millis)
            .or(hint),
    }
}

/// `Retry-After` in seconds; the form with a date is for people, who have clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

/// Why a request failed: the causes without the address, which may be long and stands in the error already.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    let mut text = String::new();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.ends_with(&more) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&more);
        }
        cause = inner.source();
    }
    if text.is_empty() {
        text.push_str(if error.is_timeout() {
            "timed out"
        } else {
            "the request failed"
        });
    }
    text
}
