//! Tool servers.

use std::collections::BTreeMap;

use tidegate_model::{
    ConfigKind,
    api::{PutToolServer, ToolServerView},
    ids::CatalogName,
};
use tidegate_store::{catalog::StoredToolServer, secrets::SealedTable};

use super::{deleted, place, secret_state};
use crate::{Engine, Error, Principal, checks};

/// The longest program name, argument or value of the environment.
const TEXT_MAX: usize = 10_000;
/// The most arguments, variables or marks.
const ENTRIES_MAX: usize = 1_000;
/// How long a call may take unless given.
const CALL_TIMEOUT_MS: u64 = 60_000;
/// The longest that a call may be allowed to take.
const CALL_TIMEOUT_MAX_MS: u64 = 3_600_000;

/// Makes or replaces a tool server, its environment included.
pub async fn put_tool_server(
    engine: &Engine,
    principal: &Principal,
    name: CatalogName,
    request: PutToolServer,
) -> Result<ToolServerView, Error> {
    principal.require_operator()?;
    check(&request)?;
    let secret = if request.env.is_empty() {
        None
    } else {
        let plain = serde_json::to_vec(&request.env).map_err(|_| Error::Internal {
            what: "environment of a tool server",
        })?;
        let place = place(SealedTable::ToolServers, &name);
        Some(engine.platform().keyring.seal(place, &plain)?)
    };
    let timeout = request.call_timeout_ms.unwrap_or(CALL_TIMEOUT_MS);
    let server = StoredToolServer {
        name,
        command: request.command,
        args: request.args,
        env_names: request.env.into_keys().collect(),
        secret,
        tools: request.tools,
        tenants: request.tenants,
        call_timeout_ms: i64::try_from(timeout).unwrap_or(i64::MAX),
    };
    let written = engine
        .store()
        .put_tool_server(server, &principal.author())
        .await?;
    let server = engine.written(ConfigKind::ToolServer, written).await;
    Ok(view(engine, server))
}

/// Every tool server, without the values of its environment.
pub async fn list_tool_servers(
    engine: &Engine,
    principal: &Principal,
) -> Result<Vec<ToolServerView>, Error> {
    principal.require_operator()?;
    let servers = engine.store().list_tool_servers().await?;
    Ok(servers
        .into_iter()
        .map(|server| view(engine, server))
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

fn view(engine: &Engine, server: StoredToolServer) -> ToolServerView {
    let secret = secret_state(
        engine,
        SealedTable::ToolServers,
        &server.name,
        server.secret.as_ref(),
    );
    ToolServerView {
        name: server.name,
        command: server.command,
        args: server.args,
        env: server.env_names,
        secret,
        tools: server.tools,
        tenants: server.tenants,
        call_timeout_ms: server.call_timeout_ms.unsigned_abs(),
    }
}

fn check(request: &PutToolServer) -> Result<(), Error> {
    checks::filled("command", &request.command, TEXT_MAX)?;
    let counts = [
        ("args", request.args.len()),
        ("env", request.env.len()),
        ("tools", request.tools.len()),
        ("tenants", request.tenants.as_ref().map_or(0, Vec::len)),
    ];
    for (field, count) in counts {
        if count > ENTRIES_MAX {
            return Err(Error::invalid(
                field,
                format!("{field} has {count} entries; at most {ENTRIES_MAX} are allowed"),
            ));
        }
    }
    for (index, arg) in request.args.iter().enumerate() {
        checks::text(&format!("args[{index}]"), arg, TEXT_MAX)?;
    }
    check_env(&request.env)?;
    for tool in request.tools.keys() {
        checks::filled("tools", tool, checks::LABEL_MAX)?;
    }
    match request.call_timeout_ms {
        Some(ms) if !(1..=CALL_TIMEOUT_MAX_MS).contains(&ms) => Err(Error::invalid(
            "callTimeoutMs",
            format!("callTimeoutMs must be 1 to {CALL_TIMEOUT_MAX_MS}, found {ms}"),
        )),
        _ => Ok(()),
    }
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), Error> {
    for (name, value) in env {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || name.len() > checks::LABEL_MAX || !name.bytes().all(plain) {
            return Err(Error::invalid(
                "env",
                "env has a name that is not made of letters, digits and '_'",
            ));
        }
        // The value is a secret: the message names the variable only.
        if value.contains('\0') || value.len() > TEXT_MAX {
            return Err(Error::invalid(
                format!("env.{name}"),
                format!("env.{name} holds a NUL byte or more than {TEXT_MAX} bytes"),
            ));
        }
    }
    Ok(())
}
