//! All tool servers of an instance.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::RwLock;
use rmcp::{
    ServiceError,
    model::{CallToolRequestParams, CallToolResponse},
};
use serde_json::Value;
use tidegate_llm::ToolSpec;
use tidegate_model::{Code, TenantId, api::SideEffectLevel, ids::CatalogName};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    mounted::ToolStatus,
    names::{ToolKey, assign, canonical},
    offer::{Offer, Offered, Reached, ToolAnswer},
    output,
    server::{Live, Server, ServerState, ToolServerStatus},
    spec::ToolServerSpec,
};
use crate::limits;

/// Bounds of a [`ToolHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Child processes at once; servers beyond wait. 0 switches tools off.
    pub processes: usize,
    /// How long a turn waits for servers that are being started for the first time.
    pub offer_wait: Duration,
    /// How long a server may take until it can be called.
    pub mount_timeout: Duration,
    /// The first pause after a server ended; doubles up to a minute.
    pub restart_base: Duration,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            processes: limits::PROCESSES,
            offer_wait: limits::OFFER_WAIT,
            mount_timeout: limits::MOUNT_TIMEOUT,
            restart_base: limits::RESTART_BASE,
        }
    }
}

/// Keeps tool servers running and calls their tools. Cheap to clone; clones share the servers. The processes end when
/// the last clone is gone, and in an orderly way with [`ToolHost::shutdown`].
#[derive(Debug, Clone)]
pub struct ToolHost {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: ToolLimits,
    processes: Arc<Semaphore>,
    servers: RwLock<BTreeMap<CatalogName, Arc<Server>>>,
}

/// What is offered, who stands behind it, and why something is not.
struct Mounts {
    names: BTreeMap<String, ToolKey>,
    refused: BTreeMap<ToolKey, String>,
    live: BTreeMap<CatalogName, (Arc<Server>, Arc<Live>)>,
}

impl ToolHost {
    /// A host without servers.
    pub fn new(limits: ToolLimits) -> Self {
        Self {
            shared: Arc::new(Shared {
                limits,
                processes: Arc::new(Semaphore::new(limits.processes)),
                servers: RwLock::default(),
            }),
        }
    }

    /// Takes the servers of a new revision. Servers whose process need not change keep it; others are stopped or
    /// started. Needs a runtime.
    pub fn configure(&self, specs: Vec<ToolServerSpec>) {
        let mut servers = self.shared.servers.write();
        let mut before = std::mem::take(&mut *servers);
        for spec in specs {
            let name = spec.name.clone();
            let kept = before
                .remove(&name)
                .filter(|server| server.spec.read().same_process(&spec));
            let server = if let Some(server) = kept {
                server.update(spec);
                server
            } else {
                let processes = Arc::clone(&self.shared.processes);
                Arc::new(Server::start(spec, processes, self.shared.limits))
            };
            servers.insert(name, server);
        }
        for server in before.values() {
            server.stop();
        }
    }

    /// Stops all servers and waits until their processes are reaped.
    pub async fn shutdown(&self) {
        let servers = std::mem::take(&mut *self.shared.servers.write());
        let stopped = servers.values().map(|server| {
            server.stop();
            server.stopped()
        });
        join_all(stopped).await;
    }

    /// What an attempt of this tenant may call: tools that do no more than `most`. Waits a moment for servers that are
    /// being started for the first time.
    pub async fn offer(&self, tenant: &TenantId, most: SideEffectLevel) -> Offer {
        self.first_starts(tenant).await;
        let mounts = self.mounts();
        let mut offer = Offer::none(tenant.clone());
        for (name, key) in &mounts.names {
            let Some((server, live)) = mounts.live.get(&key.0) else {
                continue;
            };
            let Some((tool, _)) = live.tools.get(&key.1) else {
                continue;
            };
            if !server.spec.read().serves(tenant) {
                continue;
            }
            let callable = tool.refused.is_none() && tool.level <= most;
            let spec = callable.then(|| ToolSpec {
                name: name.clone(),
                description: tool.description.clone(),
                parameters: tool.schema.clone(),
            });
            let offered = Offered {
                key: key.clone(),
                digest: tool.digest,
                level: tool.level,
                spec,
            };
            offer.tools.insert(name.clone(), offered);
        }
        offer
    }

    /// Calls a tool by the name a model used. Always answers within the server's time limit; dropping the future
    /// tells the server to stop.
    pub async fn call(&self, offer: &Offer, offered_name: &str, arguments: &str) -> ToolAnswer {
        let Some(tool) = offer.tools.get(offered_name) else {
            let text = "there is no tool of this name; use one of those offered";
            return ToolAnswer::refused(Code::ToolUnavailable, text);
        };
        let name = canonical(&tool.key);
        if tool.spec.is_none() {
            return not_allowed(&name);
        }
        let (server, live) = match self.still_usable(offer, tool) {
            Ok(usable) => usable,
            Err(refusal) => return refusal,
        };
        let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) else {
            let text = format!("the arguments of {name} must be a JSON object");
            return ToolAnswer::refused(Code::InvalidArgument, text);
        };
        let mut params = CallToolRequestParams::new(tool.key.1.clone());
        params.arguments = Some(arguments);
        let limit = server.spec.read().call_timeout;
        let started = Instant::now();
        let answer = timeout(limit, live.peer.call_tool_once(params)).await;
        let (answer, outcome) = match answer {
            Ok(Ok(CallToolResponse::Complete(result))) => {
                live.answered();
                let failed = result.is_error == Some(true);
                let answer = ToolAnswer {
                    text: output::text(&result, &server.scrubber),
                    code: None,
                    is_error: failed,
                    reached: Reached::Answered,
                };
                (answer, if failed { "failed" } else { "answered" })
            }
            Ok(Ok(_)) => {
                let text = format!("{name} asks for more than an answer, which is not supported");
                let reached = Reached::Unknown;
                (
                    ToolAnswer::failed(Code::ToolUnavailable, text, reached),
                    "refused",
                )
            }
            Ok(Err(error)) => {
                live.answered();
                let reached = match error {
                    ServiceError::McpError(_) => Reached::Answered,
                    _ => Reached::Unknown,
                };
                let text = format!(
                    "{name} cannot be called: {}",
                    server.scrubber.clean(&error.to_string())
                );
                let text = output::bounded(&text, 1_000);
                (
                    ToolAnswer::failed(Code::ToolUnavailable, text, reached),
                    "unavailable",
                )
            }
            Err(_) => {
                live.timed_out();
                let text = format!("{name} did not answer within {} s", limit.as_secs_f64());
                (
                    ToolAnswer::failed(Code::ToolTimeout, text, Reached::Unknown),
                    "timeout",
                )
            }
        };
        let label = tool.key.0.as_str().to_owned();
        metrics::histogram!("tidegate_tool_call_seconds", "server" => label.clone())
            .record(started.elapsed());
        metrics::counter!("tidegate_tool_calls_total", "server" => label, "outcome" => outcome)
            .increment(1);
        answer
    }

    /// Every server with its tools, for operators.
    pub fn view(&self) -> Vec<ToolServerStatus> {
        let mounts = self.mounts();
        let offered: BTreeMap<&ToolKey, &String> =
            mounts.names.iter().map(|(name, key)| (key, name)).collect();
        let servers = self.shared.servers.read();
        let statuses = servers.iter().map(|(name, server)| {
            let live = mounts.live.get(name).map(|(_, live)| live);
            let tools = live.into_iter().flat_map(|live| &live.tools);
            let tools = tools.map(|(tool, (mounted, _))| {
                let key = (name.clone(), tool.clone());
                let refused = mounted.refused.map(str::to_owned);
                let refused = refused.or_else(|| mounts.refused.get(&key).cloned());
                let name = offered.get(&key).map(|name| (*name).clone());
                ToolStatus {
                    name: tool.clone(),
                    offered_as: name.filter(|_| refused.is_none()),
                    level: mounted.level,
                    refused,
                }
            });
            ToolServerStatus {
                name: name.clone(),
                state: server.state.borrow().clone(),
                tools: tools.collect(),
            }
        });
        statuses.collect()
    }

    /// R20.2: frozen ∩ current; whatever changed since the offer takes away.
    fn still_usable(
        &self,
        offer: &Offer,
        tool: &Offered,
    ) -> Result<(Arc<Server>, Arc<Live>), ToolAnswer> {
        let name = canonical(&tool.key);
        let unavailable =
            |why: &str| ToolAnswer::refused(Code::ToolUnavailable, format!("{name} {why}"));
        let server = self.shared.servers.read().get(&tool.key.0).cloned();
        let server = server.ok_or_else(|| unavailable("was removed by the operator"))?;
        if !server.spec.read().serves(&offer.tenant) {
            return Err(unavailable("is no longer available to this tenant"));
        }
        let live = server.live();
        let live = live.ok_or_else(|| unavailable("is being started again; try later"))?;
        match live.tools.get(&tool.key.1) {
            None => Err(unavailable("is no longer listed by its server")),
            Some((_, true)) => Err(unavailable("is listed twice by its server")),
            Some((now, _)) if now.refused.is_some() || now.level > tool.level => {
                Err(not_allowed(&name))
            }
            Some((now, _)) if now.digest != tool.digest => {
                Err(unavailable("has changed since it was offered"))
            }
            Some(_) => Ok((server, live)),
        }
    }

    fn mounts(&self) -> Mounts {
        let servers = self.shared.servers.read();
        let live: BTreeMap<_, _> = servers
            .iter()
            .filter_map(|(name, server)| {
                let live = server.live()?;
                Some((name.clone(), (Arc::clone(server), live)))
            })
            .collect();
        let keys = live.iter().flat_map(|(domain, (_, live))| {
            live.tools.iter().flat_map(move |(name, (_, twice))| {
                std::iter::repeat_n((domain.clone(), name.clone()), 1 + usize::from(*twice))
            })
        });
        let (names, refused) = assign(keys);
        Mounts {
            names,
            refused,
            live,
        }
    }

    /// Waits for the tenant's servers that have not failed yet, but for nobody that has.
    async fn first_starts(&self, tenant: &TenantId) {
        if self.shared.limits.processes == 0 {
            return;
        }
        let servers: Vec<_> = self.shared.servers.read().values().cloned().collect();
        let waits = servers
            .iter()
            .filter(|server| server.spec.read().serves(tenant))
            .map(|server| {
                let mut state = server.state.clone();
                async move {
                    let first = |state: &ServerState| {
                        matches!(
                            state,
                            ServerState::WaitingForProcess | ServerState::Starting(0)
                        )
                    };
                    let _ended = state.wait_for(|state| !first(state)).await;
                }
            });
        let _out_of_patience = timeout(self.shared.limits.offer_wait, join_all(waits)).await;
    }
}

fn not_allowed(name: &str) -> ToolAnswer {
    let text = format!("{name} may do more than the tools that may be called here");
    ToolAnswer::refused(Code::ToolNotReadOnly, text)
}
