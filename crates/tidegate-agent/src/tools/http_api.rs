//! Tools that are calls of an HTTP API.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tidegate_llm::Scrubber;
use tidegate_model::{
    Code,
    api::{HttpMethod, HttpTool, StatusMeaning},
};
use tidegate_policy::tool_requests::{self, ToolRequest};
use tokio::time::timeout;

use super::{
    live::Bounds,
    network::{Network, deepest, is_same_origin},
    offer::{Reached, ToolAnswer},
    output,
    spec::Endpoint,
};
use crate::limits;

/// Under which a call may be sent again without being made again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An API that can be called.
#[derive(Debug)]
pub(super) struct HttpApi {
    client: Client,
    network: Arc<Network>,
    base: Url,
    headers: HeaderMap,
    tools: BTreeMap<String, HttpTool>,
}

/// Why a call came to no answer.
struct Fault {
    code: Code,
    text: String,
    reached: Reached,
}

impl Fault {
    /// The same, where a step before it may have done the work already.
    fn after(mut self, acted: bool) -> Self {
        if acted {
            self.reached = Reached::Unknown;
        }
        self
    }
}

/// The last answer of a call.
struct Answered {
    response: Response,
    /// Whether the call was answered before with a redirect that says where to read what came of it.
    acted: bool,
}

/// A request that is under way, or that a redirect asks for.
struct Step {
    method: Method,
    url: Url,
    body: Option<Value>,
    /// Whether it may carry the operator's headers: never to another host than they were set for.
    trusted: bool,
}

impl HttpApi {
    /// Prepares the client; sends nothing. The error is one sentence without secrets.
    pub(super) fn new(
        network: Arc<Network>,
        base: &Endpoint,
        tools: BTreeMap<String, HttpTool>,
    ) -> Result<Self, String> {
        let url = Url::parse(&base.url).map_err(|_| "its base URL is no URL".to_owned())?;
        network.check(&url).map_err(|refused| refused.to_string())?;
        Ok(Self {
            client: network.plain_client()?,
            network,
            base: url,
            headers: headers(&base.headers)?,
            tools,
        })
    }

    /// Its calls by name.
    pub(super) fn tools(&self) -> &BTreeMap<String, HttpTool> {
        &self.tools
    }

    /// Calls a tool. The caller bounds the whole.
    pub(super) async fn call(
        &self,
        name: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        bounds: Bounds<'_>,
        scrubber: &Scrubber,
    ) -> ToolAnswer {
        let Some(tool) = self.tools.get(tool) else {
            return ToolAnswer::refused(Code::ToolUnavailable, format!("{name} is not described"));
        };
        let request = match tool_requests::request(tool, arguments) {
            Ok(request) => request,
            Err(why) => {
                return ToolAnswer::refused(Code::InvalidArgument, format!("{name}: {why}"));
            }
        };
        match self.ask(tool, request, bounds).await {
            Ok((text, is_error, reached)) => ToolAnswer {
                text: output::bounded(&scrubber.clean(&text), limits::TOOL_TEXT_MAX_BYTES),
                code: None,
                is_error,
                reached,
            },
            Err(fault) => {
                let text = output::bounded(&scrubber.clean(&fault.text), 1_000);
                ToolAnswer::failed(fault.code, format!("{name} {text}"), fault.reached)
            }
        }
    }

    async fn ask(
        &self,
        tool: &HttpTool,
        request: ToolRequest,
        bounds: Bounds<'_>,
    ) -> Result<(String, bool, Reached), Fault> {
        let Answered { response, acted } = self.follow(tool, request, bounds).await?;
        let status = response.status();
        let failed = match tool_requests::meaning(tool, status.as_u16()) {
            StatusMeaning::Answer => false,
            StatusMeaning::Failed => true,
            StatusMeaning::Unavailable => {
                return Err(Fault {
                    code: Code::ToolUnavailable,
                    text: format!("answered with status {status}"),
                    reached: outcome_of(status),
                }
                .after(acted));
            }
        };
        // What the call did is done, even where it cannot be read.
        let reached = if acted && failed {
            Reached::Unknown
        } else {
            Reached::Answered
        };
        let kind = media_type(&response);
        let encoding = encoding(&response);
        let most = tool.max_bytes.unwrap_or(limits::HTTP_ANSWER_BYTES);
        let body = read(response, most, bounds.idle).await;
        let Some(body) = body.map_err(|fault| fault.after(acted))? else {
            let text = format!("[the answer is larger than {most} bytes and cannot be shown]");
            return Ok((text, failed, reached));
        };
        let text = if body.is_empty() {
            format!("[no content, status {status}]")
        } else if let Some(encoding) = encoding {
            // Nobody asked for one.
            format!("[answer in {encoding} omitted, {} bytes]", body.len())
        } else if is_text(&kind) {
            String::from_utf8_lossy(&body).into_owned()
        } else {
            format!("[{kind} omitted, {} bytes]", body.len())
        };
        Ok((text, failed, reached))
    }

    /// Sends the request, and follows redirects that ask for no trust that was not given.
    async fn follow(
        &self,
        tool: &HttpTool,
        request: ToolRequest,
        bounds: Bounds<'_>,
    ) -> Result<Answered, Fault> {
        let address = format!(
            "{}{}",
            self.base.as_str().trim_end_matches('/'),
            request.target
        );
        let url = Url::parse(&address)
            .ok()
            .filter(|url| is_same_origin(url, &self.base));
        let url = url.ok_or_else(|| unsent("has no address for these arguments"))?;
        let mut step = Step {
            method: method(tool.method),
            url,
            body: request.body,
            trusted: true,
        };
        let mut acted = false;
        for _ in 0..=limits::REDIRECTS {
            let response = self.send(&step, bounds).await;
            let response = response.map_err(|fault| fault.after(acted))?;
            let status = response.status();
            let meant = tool.statuses.contains_key(status.as_str());
            let target = (status.is_redirection() && !meant)
                .then(|| location(&response))
                .flatten();
            let Some(target) = target else {
                return Ok(Answered { response, acted });
            };
            acted |= step.method != Method::GET && !says_undone(status);
            let next = self.redirected(step, status, &target);
            step = next.map_err(|fault| fault.after(acted))?;
        }
        let text = format!("redirects more than {} times", limits::REDIRECTS);
        Err(unsent(&text).after(acted))
    }

    fn redirected(&self, step: Step, status: StatusCode, target: &str) -> Result<Step, Fault> {
        let elsewhere = |why: &str| Fault {
            code: Code::ToolUnavailable,
            text: format!("redirects {why}"),
            reached: Reached::No,
        };
        let url = step
            .url
            .join(target)
            .map_err(|_| elsewhere("to no address"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(elsewhere("to what is no http or https address"));
        }
        let stays = is_same_origin(&step.url, &url);
        let keeps = says_undone(status) || step.method == Method::GET;
        if !stays
            && (step.method != Method::GET
                || step.url.scheme() == "https" && url.scheme() != "https")
        {
            return Err(elsewhere("to another host; set its URL to where it is"));
        }
        self.network.check(&url).map_err(|refused| {
            elsewhere(&format!("to an address that is not allowed: {refused}"))
        })?;
        Ok(Step {
            method: if keeps { step.method } else { Method::GET },
            url,
            body: step.body.filter(|_| keeps),
            trusted: step.trusted && stays,
        })
    }

    async fn send(&self, step: &Step, bounds: Bounds<'_>) -> Result<Response, Fault> {
        let mut request = self.client.request(step.method.clone(), step.url.clone());
        if step.trusted {
            request = request.headers(self.headers.clone());
            if let Some(key) = bounds.key {
                request = request.header(IDEMPOTENCY_KEY, key);
            }
        }
        if let Some(body) = &step.body {
            request = request.json(body);
        }
        match timeout(bounds.idle, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Fault {
                code: Code::ToolUnavailable,
                text: format!("cannot be called: {}", deepest(&error)),
                reached: if error.is_connect() {
                    Reached::No
                } else {
                    Reached::Unknown
                },
            }),
            Err(_) => Err(silent(bounds.idle)),
        }
    }
}

/// Headers with their values marked as secrets. The error names the header only.
pub(super) fn headers(given: &BTreeMap<String, SecretString>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let unusable = || format!("its header {name} cannot be sent; set it again");
        let name: HeaderName = name.parse().map_err(|_| unusable())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| unusable())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Redirects that say that nothing was done yet: the same request is wanted elsewhere.
fn says_undone(status: StatusCode) -> bool {
    matches!(status.as_u16(), 307 | 308)
}

/// Whether anything may have happened: a refusal at the door is none, a failure inside may come after the fact.
fn outcome_of(status: StatusCode) -> Reached {
    match status.as_u16() {
        408 | 500..=599 => Reached::Unknown,
        _ => Reached::Answered,
    }
}

fn unsent(text: &str) -> Fault {
    Fault {
        code: Code::ToolUnavailable,
        text: text.to_owned(),
        reached: Reached::No,
    }
}

fn silent(idle: Duration) -> Fault {
    Fault {
        code: Code::ToolTimeout,
        text: format!("gave no sign of progress for {} s", idle.as_secs_f64()),
        reached: Reached::Unknown,
    }
}

/// The whole body, or nothing where it is larger than allowed: the beginning alone could hold half a secret.
async fn read(mut response: Response, most: u32, idle: Duration) -> Result<Option<Vec<u8>>, Fault> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    loop {
        match timeout(idle, response.chunk()).await {
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > most => return Ok(None),
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            Ok(Ok(None)) => return Ok(Some(body)),
            Ok(Err(error)) => {
                return Err(Fault {
                    code: Code::ToolUnavailable,
                    text: format!("broke off its answer: {}", deepest(&error)),
                    reached: Reached::Unknown,
                });
            }
            Err(_) => return Err(silent(idle)),
        }
    }
}

fn location(response: &Response) -> Option<String> {
    let value = response.headers().get(LOCATION)?;
    value.to_str().ok().map(ToOwned::to_owned)
}

fn media_type(response: &Response) -> String {
    let kind = word(response, &CONTENT_TYPE);
    kind.unwrap_or_else(|| "text/plain".to_owned())
}

/// How the body is encoded, where it is.
fn encoding(response: &Response) -> Option<String> {
    word(response, &CONTENT_ENCODING).filter(|encoding| encoding != "identity")
}

/// The first word of a header, in lower case and bounded.
fn word(response: &Response, name: &HeaderName) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    let word = value.split([';', ',']).next().unwrap_or_default().trim();
    Some(
        word.chars()
            .take(100)
            .collect::<String>()
            .to_ascii_lowercase(),
    )
}

fn is_text(kind: &str) -> bool {
    let (main, sub) = kind.split_once('/').unwrap_or((kind, ""));
    main == "text"
        || matches!(
            sub,
            "json" | "xml" | "javascript" | "x-ndjson" | "yaml" | "x-www-form-urlencoded"
        )
        || sub.ends_with("+json")
        || sub.ends_with("+xml")
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
