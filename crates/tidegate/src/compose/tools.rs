//! Tools of this process: what the catalogue asks for, and what the instance says of them.

use std::time::Duration;

use tidegate_agent::{
    ToolHost, ToolServerSpec,
    tools::{Endpoint, Network, Program, ServerState, ToolLimits, ToolServerStatus, Transport},
};
use tidegate_engine::{
    Engine,
    catalog::{
        self,
        resolved::{ResolvedCatalog, ResolvedToolServer},
    },
    settings::Settings,
};
use tidegate_model::api::ToolTransportView;
use tidegate_store::catalog::ToolServerReport;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};

/// Changes that come close after one another are told together.
const GATHER: Duration = Duration::from_millis(200);
/// How often it is told again, should a telling have been lost.
const AGAIN: Duration = Duration::from_secs(30);
/// How soon it is tried again where it could not be told.
const SOON: Duration = Duration::from_secs(1);

/// A host without servers.
pub fn host(settings: &Settings) -> Outcome<ToolHost> {
    let mut network = Network::new(settings.egress());
    if let Some(path) = &settings.tool_extra_ca {
        network = network
            .trust(path)
            .map_err(|why| Failure::usage(format!("TIDEGATE_TOOL_EXTRA_CA: {why}")))?;
    }
    let limits = ToolLimits {
        processes: settings.mcp_max_processes as usize,
        ..ToolLimits::default()
    };
    Ok(ToolHost::with_network(limits, network))
}

/// The servers of the catalogue. One whose secrets do not open stays visible, and is not started.
pub fn specs(catalogue: &ResolvedCatalog) -> Vec<ToolServerSpec> {
    catalogue.tool_servers.iter().map(spec).collect()
}

fn spec(server: &ResolvedToolServer) -> ToolServerSpec {
    ToolServerSpec {
        tools: server.tools.clone(),
        mount: server.mount.clone(),
        tenants: server.tenants.clone(),
        call_timeout: Duration::from_millis(server.call_timeout_ms),
        idle_timeout: Duration::from_millis(server.idle_timeout_ms),
        ..ToolServerSpec::new(server.name.clone(), transport(server))
    }
}

fn transport(server: &ResolvedToolServer) -> Transport {
    if let Some(reason) = &server.unreadable {
        return Transport::Unusable(reason.clone());
    }
    let endpoint = |url: &String| Endpoint {
        url: url.clone(),
        headers: server.secrets.clone(),
    };
    match &server.transport {
        ToolTransportView::Stdio { command, args, .. } => Transport::Stdio(Program {
            command: command.clone(),
            args: args.clone(),
            env: server.secrets.clone(),
        }),
        ToolTransportView::StreamableHttp { url, .. } => Transport::StreamableHttp(endpoint(url)),
        ToolTransportView::Http {
            base_url, tools, ..
        } => Transport::Http {
            base: endpoint(base_url),
            tools: tools.clone(),
        },
    }
}

/// Tells the cluster how the tool servers of this process stand, whenever that changes, until stopped.
pub async fn report(engine: Engine, host: ToolHost, stop: CancellationToken) {
    let mut changes = host.changes();
    let mut told = None;
    loop {
        changes.borrow_and_update();
        let now: Vec<_> = host.view().into_iter().map(said).collect();
        let mut patience = AGAIN;
        if told.as_ref() == Some(&now) {
            // Nothing new; after a while it is told again all the same.
            told = None;
        } else {
            match catalog::report_tool_servers(&engine, now.clone()).await {
                Ok(true) => told = Some(now),
                // The instance's first heartbeat is still to come.
                Ok(false) => patience = SOON,
                Err(error) => {
                    patience = SOON;
                    tracing::debug!(%error, "how the tool servers stand could not be told");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timeout(patience, changes.changed()) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(GATHER) => {}
        }
    }
}

fn said(status: ToolServerStatus) -> ToolServerReport {
    let phase = status.state.phase();
    let detail = match status.state {
        ServerState::Down { reason, .. } => Some(reason),
        _ => None,
    };
    ToolServerReport {
        server: status.name,
        phase,
        detail,
        tools: status.tools,
    }
}
