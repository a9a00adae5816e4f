//! A server that can be called, of whatever transport.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rmcp::model::CallToolRequestParams;
use serde_json::{Map, Value};
use tidegate_llm::Scrubber;
use tidegate_model::Code;
use tokio::{sync::Notify, time::timeout};

use super::{
    http_api::HttpApi,
    mcp::McpPeer,
    mounted::Tools,
    offer::{Reached, ToolAnswer},
};
use crate::limits;

/// What holds for each request of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// The longest wait for the other side.
    pub(super) idle: Duration,
    /// The same for the same call of each attempt of a run.
    pub(super) key: Option<&'a str>,
}

/// A server that can be called.
#[derive(Debug)]
pub(super) struct Live {
    callee: Callee,
    pub(super) tools: Tools,
    strikes: AtomicU32,
    /// Told when too many calls in a row came to nothing.
    pub(super) broken: Notify,
}

/// Who is called.
#[derive(Debug)]
pub(super) enum Callee {
    Mcp(McpPeer),
    Http(Arc<HttpApi>),
}

/// A call and its bounds.
pub(super) struct Asked<'a> {
    /// The tool for people.
    pub(super) name: &'a str,
    /// The tool at its server.
    pub(super) tool: &'a str,
    pub(super) arguments: Map<String, Value>,
    /// The same for the same call of each attempt of a run.
    pub(super) key: Option<&'a str>,
    pub(super) idle: Duration,
    pub(super) total: Duration,
}

impl Live {
    pub(super) fn new(callee: Callee, tools: Tools) -> Arc<Self> {
        Arc::new(Self {
            callee,
            tools,
            strikes: AtomicU32::new(0),
            broken: Notify::new(),
        })
    }

    /// Calls a tool. Ends at the total limit whatever the server sends meanwhile (O-26).
    pub(super) async fn call(&self, asked: Asked<'_>, scrubber: &Scrubber) -> ToolAnswer {
        let Asked {
            name,
            tool,
            arguments,
            key,
            idle,
            total,
        } = asked;
        let idle = idle.min(total);
        let answer = async {
            match &self.callee {
                Callee::Mcp(peer) => {
                    let mut params = CallToolRequestParams::new(tool.to_owned());
                    params.arguments = Some(arguments);
                    peer.call(name, params, Bounds { idle, key }, scrubber)
                        .await
                }
                Callee::Http(api) => {
                    api.call(name, tool, &arguments, Bounds { idle, key }, scrubber)
                        .await
                }
            }
        };
        let answer = timeout(total, answer).await.unwrap_or_else(|_| {
            let text = format!("{name} did not answer within {} s", total.as_secs_f64());
            ToolAnswer::failed(Code::ToolTimeout, text, Reached::Unknown)
        });
        self.judge(&answer);
        answer
    }

    /// A server whose calls keep coming to nothing is started or connected to anew.
    fn judge(&self, answer: &ToolAnswer) {
        let failed = matches!(answer.code, Some(Code::ToolTimeout | Code::ToolUnavailable));
        if !failed || answer.reached == Reached::Answered {
            self.strikes.store(0, Ordering::Relaxed);
        } else if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= limits::STRIKES {
            self.broken.notify_one();
        }
    }
}
