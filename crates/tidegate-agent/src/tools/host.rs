//! All tool servers of an instance.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::RwLock;
use serde_json::Value;
use tidegate_llm::ToolSpec;
use tidegate_model::{
    Code, TenantId,
    api::{SideEffectLevel, ToolServerPhase, ToolState},
    ids::CatalogName,
};
use tidegate_policy::tool_names::{NameRefusal, ToolName, assign};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{
    live::{Asked, Live},
    network::Network,
    offer::{Offer, Offered, ToolAnswer},
    server::{Server, ServerState, Surroundings, ToolServerStatus},
    spec::{ToolServerSpec, Transport},
};
use crate::limits;

/// Bounds of a [`ToolHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Child processes at once; servers beyond wait. 0 switches tools off.
    pub processes: usize,
    /// How long after the start of a server turns still wait for it.
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
    around: Surroundings,
    servers: RwLock<BTreeMap<CatalogName, Arc<Server>>>,
}

/// What is offered, who stands behind it, and why something is not.
struct Mounts {
    names: BTreeMap<String, ToolName>,
    refused: BTreeMap<ToolName, NameRefusal>,
    live: BTreeMap<CatalogName, (Arc<Server>, Arc<Live>)>,
}

impl ToolHost {
    /// A host without servers, for public addresses only.
    pub fn new(limits: ToolLimits) -> Self {
        Self::with_network(limits, Network::default())
    }

    /// A host without servers.
    pub fn with_network(limits: ToolLimits, network: Network) -> Self {
        Self {
            shared: Arc::new(Shared {
                around: Surroundings {
                    processes: Arc::new(Semaphore::new(limits.processes)),
                    limits,
                    network: Arc::new(network),
                    changes: Arc::new(watch::channel(0).0),
                },
                servers: RwLock::default(),
            }),
        }
    }

    /// Changes whenever [`ToolHost::view`] may have.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.around.changes.subscribe()
    }

    /// Takes the servers of a new revision. Servers whose process or connection need not change keep it; others are
    /// stopped or started. Needs a runtime.
    pub fn configure(&self, specs: Vec<ToolServerSpec>) {
        let mut servers = self.shared.servers.write();
        let mut before = std::mem::take(&mut *servers);
        for spec in specs {
            let name = spec.name.clone();
            let kept = before
                .remove(&name)
                .filter(|server| server.spec.read().same_transport(&spec));
            let server = if let Some(server) = kept {
                server.update(spec);
                server
            } else {
                Arc::new(Server::start(spec, &self.shared.around))
            };
            servers.insert(name, server);
        }
        for server in before.values() {
            server.stop();
        }
        let changes = &self.shared.around.changes;
        changes.send_modify(|changes| *changes += 1);
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
        for (offered_as, name) in &mounts.names {
            let Some((server, live)) = mounts.live.get(&name.server) else {
                continue;
            };
            let Some((tool, _)) = live.tools.get(&name.tool) else {
                continue;
            };
            if !server.spec.read().serves(tenant) {
                continue;
            }
            let callable = tool.refused.is_none() && tool.level <= most;
            let spec = callable.then(|| ToolSpec {
                name: offered_as.clone(),
                description: tool.description.clone(),
                parameters: tool.schema.clone(),
            });
            let offered = Offered {
                name: name.clone(),
                digest: tool.digest,
                level: tool.level,
                spec,
            };
            offer.tools.insert(offered_as.clone(), offered);
        }
        offer.missing = self.missing(tenant, &mounts);
        offer
    }

    /// The tenant's servers without which the offer was made.
    fn missing(
        &self,
        tenant: &TenantId,
        mounts: &Mounts,
    ) -> BTreeMap<CatalogName, ToolServerPhase> {
        let servers = self.shared.servers.read();
        let missing = servers.iter().filter(|(name, server)| {
            !mounts.live.contains_key(*name) && server.spec.read().serves(tenant)
        });
        missing
            .map(|(name, server)| (name.clone(), server.state.borrow().phase()))
            .collect()
    }

    /// Calls a tool by the name a model used. Always answers within the server's time limit; dropping the future
    /// tells the server to stop.
    pub async fn call(&self, offer: &Offer, offered_name: &str, arguments: &str) -> ToolAnswer {
        self.call_under(None, offer, offered_name, arguments).await
    }

    /// The same under a key by which the tool can tell that it was called so before.
    pub async fn call_under(
        &self,
        key: Option<&str>,
        offer: &Offer,
        offered_name: &str,
        arguments: &str,
    ) -> ToolAnswer {
        let Some(tool) = offer.tools.get(offered_name) else {
            let text = "there is no tool of this name; use one of those offered";
            return ToolAnswer::refused(Code::ToolUnavailable, text);
        };
        let name = tool.name.canonical();
        if tool.spec.is_none() {
            return not_allowed(&name);
        }
        let (server, live) = match self.still_usable(offer, tool) {
            Ok(usable) => usable,
            Err(refusal) => return refusal,
        };
        let given: Value = serde_json::from_str(arguments).unwrap_or_default();
        let Some(arguments) = given.as_object() else {
            let text = format!("the arguments of {name} must be a JSON object");
            return ToolAnswer::refused(Code::InvalidArgument, text);
        };
        // What a model wrote is held against the schema it was told, whatever the server itself would make of it.
        let mounted = live.tools.get(&tool.name.tool);
        if let Some(fault) = mounted.and_then(|(mounted, _)| mounted.fault(&given)) {
            let text = format!(
                "the arguments do not fit the schema of {name}, and nothing was sent: {fault}"
            );
            return ToolAnswer::refused(Code::InvalidArgument, text);
        }
        let (idle, total) = {
            let spec = server.spec.read();
            (spec.idle_timeout, spec.call_timeout)
        };
        let started = Instant::now();
        let asked = Asked {
            name: &name,
            tool: &tool.name.tool,
            arguments: arguments.clone(),
            key,
            idle,
            total,
        };
        let answer = live.call(asked, &server.scrubber).await;
        let outcome = match answer.code {
            Some(Code::ToolTimeout) => "timeout",
            Some(_) => "unavailable",
            None if answer.is_error => "failed",
            None => "answered",
        };
        let label = tool.name.server.as_str().to_owned();
        metrics::histogram!("tidegate_tool_call_seconds", "server" => label.clone())
            .record(started.elapsed());
        metrics::counter!("tidegate_tool_calls_total", "server" => label, "outcome" => outcome)
            .increment(1);
        answer
    }

    /// Every server with its tools, for operators.
    pub fn view(&self) -> Vec<ToolServerStatus> {
        let mounts = self.mounts();
        let names = mounts.names.iter();
        let offered: BTreeMap<&ToolName, &String> =
            names.map(|(name, tool)| (tool, name)).collect();
        let servers = self.shared.servers.read();
        let statuses = servers.iter().map(|(name, server)| {
            let live = mounts.live.get(name).map(|(_, live)| live);
            let tools = live.into_iter().flat_map(|live| &live.tools);
            let tools = tools.map(|(tool, (mounted, _))| {
                let key = server.spec.read().name_of(tool);
                let refused = mounted.refused.map(str::to_owned);
                let refused = refused.or_else(|| mounts.refused.get(&key).map(ToString::to_string));
                let name = offered.get(&key).map(|name| (*name).clone());
                ToolState {
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
        let name = tool.name.canonical();
        let unavailable =
            |why: &str| ToolAnswer::refused(Code::ToolUnavailable, format!("{name} {why}"));
        let server = self.shared.servers.read().get(&tool.name.server).cloned();
        let server = server.ok_or_else(|| unavailable("was removed by the operator"))?;
        if !server.spec.read().serves(&offer.tenant) {
            return Err(unavailable("is no longer available to this tenant"));
        }
        let live = server.live();
        let live = live.ok_or_else(|| unavailable("is being started again; try later"))?;
        match live.tools.get(&tool.name.tool) {
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
        let keys = live.values().flat_map(|(server, live)| {
            live.tools.iter().flat_map(move |(tool, (_, twice))| {
                let name = server.spec.read().name_of(tool);
                std::iter::repeat_n(name, 1 + usize::from(*twice))
            })
        });
        let (names, refused) = assign(keys);
        Mounts {
            names,
            refused,
            live,
        }
    }

    /// Waits for the tenant's servers that were started a moment ago and have not failed yet. One that hangs holds up
    /// the turns of that moment and no others.
    async fn first_starts(&self, tenant: &TenantId) {
        let Surroundings { limits, .. } = &self.shared.around;
        let servers: Vec<_> = self.shared.servers.read().values().cloned().collect();
        let waits = servers.iter().filter(|server| {
            let spec = server.spec.read();
            let may_start = limits.processes > 0 || !matches!(spec.transport, Transport::Stdio(_));
            may_start && spec.serves(tenant)
        });
        let waits = waits.map(|server| {
            let mut state = server.state.clone();
            let patience = server.started + limits.offer_wait;
            async move {
                let first = |state: &ServerState| {
                    matches!(
                        state,
                        ServerState::WaitingForProcess | ServerState::Starting
                    )
                };
                let _out_of_patience =
                    timeout_at(patience, state.wait_for(|state| !first(state))).await;
            }
        });
        join_all(waits).await;
    }
}

fn not_allowed(name: &str) -> ToolAnswer {
    let text = format!("{name} may do more than the tools that may be called here");
    ToolAnswer::refused(Code::ToolNotReadOnly, text)
}
