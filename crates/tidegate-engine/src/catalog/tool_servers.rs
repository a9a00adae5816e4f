//! Tool servers.

use std::collections::BTreeMap;

use tidegate_model::{
    ConfigKind,
    api::{PutToolServer, ToolServerState, ToolServerView, ToolTransport, ToolTransportView},
    ids::CatalogName,
};
use tidegate_store::{
    catalog::{StoredToolServer, ToolServerReport},
    secrets::SealedTable,
};

use super::{deleted, place, secret_state, tool_checks};
use crate::{Engine, Error, Principal, config_bus, secrets::seal_for_all};

/// How long a call may take unless given.
const CALL_TIMEOUT_MS: u64 = 60_000;

/// Makes or replaces a tool server, its secrets included.
pub async fn put_tool_server(
    engine: &Engine,
    principal: &Principal,
    name: CatalogName,
    request: PutToolServer,
) -> Result<ToolServerView, Error> {
    principal.require_operator()?;
    tool_checks::check(&engine.settings().egress(), &request)?;
    let (transport, secrets) = apart(request.transport);
    let secret = if secrets.is_empty() {
        None
    } else {
        let plain = serde_json::to_vec(&secrets).map_err(|_| Error::Internal {
            what: "secrets of a tool server",
        })?;
        let place = place(SealedTable::ToolServers, &name);
        Some(seal_for_all(engine, place, &plain).await?)
    };
    let call_timeout = request.call_timeout_ms.unwrap_or(CALL_TIMEOUT_MS);
    let idle_timeout = request.idle_timeout_ms.unwrap_or(call_timeout);
    let server = StoredToolServer {
        name,
        transport,
        secret,
        tools: request.tools,
        mount: request.mount,
        tenants: request.tenants,
        call_timeout_ms: i64::try_from(call_timeout).unwrap_or(i64::MAX),
        idle_timeout_ms: i64::try_from(idle_timeout).unwrap_or(i64::MAX),
    };
    let store = engine.store();
    // A name that is misspelt would offer the tools to nobody, and say nothing.
    for (index, tenant) in server.tenants.iter().flatten().enumerate() {
        if store.get_tenant(tenant).await?.is_none() {
            return Err(Error::invalid(
                format!("tenants[{index}]"),
                format!(
                    "there is no tenant {tenant}; make it first (`tidegate tenant create {tenant}`) or leave it out"
                ),
            ));
        }
    }
    tool_checks::check_names(&server, store.list_tool_servers().await?)?;
    let written = store.put_tool_server(server, &principal.author()).await?;
    let server = engine.written(ConfigKind::ToolServer, written).await;
    Ok(view(engine, server, Vec::new()))
}

/// Every tool server, without the values of its secrets, and how it stands on each instance.
pub async fn list_tool_servers(
    engine: &Engine,
    principal: &Principal,
) -> Result<Vec<ToolServerView>, Error> {
    principal.require_operator()?;
    let servers = engine.store().list_tool_servers().await?;
    let dead_after = config_bus::dead_after_ms(engine);
    let mut states = engine.store().tool_server_states(dead_after).await?;
    Ok(servers
        .into_iter()
        .map(|server| {
            let states = states.remove(&server.name).unwrap_or_default();
            view(engine, server, states)
        })
        .collect())
}

/// Deletes a tool server.
pub async fn delete_tool_server(
    engine: &Engine,
    principal: &Principal,
    name: &CatalogName,
) -> Result<(), Error> {
    principal.require_operator()?;
    let written = engine
        .store()
        .delete_tool_server(name, &principal.author())
        .await?;
    deleted(
        engine.written(ConfigKind::ToolServer, written).await,
        "tool server",
    )
}

/// Says how the tool servers of this instance stand. `false` where the instance has not said yet that it lives.
pub async fn report_tool_servers(
    engine: &Engine,
    reports: Vec<ToolServerReport>,
) -> Result<bool, Error> {
    let instance = engine.instance();
    Ok(engine
        .store()
        .report_tool_servers(instance, reports)
        .await?)
}

/// What is stored plainly, and what is sealed.
fn apart(transport: ToolTransport) -> (ToolTransportView, BTreeMap<String, String>) {
    let names = |secrets: &BTreeMap<String, String>| secrets.keys().cloned().collect();
    match transport {
        ToolTransport::Stdio(stdio) => {
            let env = names(&stdio.env);
            let view = ToolTransportView::Stdio {
                command: stdio.command,
                args: stdio.args,
                env,
            };
            (view, stdio.env)
        }
        ToolTransport::StreamableHttp(http) => {
            let headers = names(&http.headers);
            let url = http.url;
            (
                ToolTransportView::StreamableHttp { url, headers },
                http.headers,
            )
        }
        ToolTransport::Http(http) => {
            let view = ToolTransportView::Http {
                base_url: http.base_url,
                headers: names(&http.headers),
                tools: http.tools,
            };
            (view, http.headers)
        }
    }
}

fn view(engine: &Engine, server: StoredToolServer, states: Vec<ToolServerState>) -> ToolServerView {
    let secret = secret_state(
        engine,
        SealedTable::ToolServers,
        &server.name,
        server.secret.as_ref(),
    );
    ToolServerView {
        name: server.name,
        transport: server.transport,
        secret,
        tools: server.tools,
        mount: server.mount,
        tenants: server.tenants,
        call_timeout_ms: server.call_timeout_ms.unsigned_abs(),
        idle_timeout_ms: server.idle_timeout_ms.unsigned_abs(),
        states,
    }
}
