//! Logs: structured, to standard error, for people or as JSON (R21.3).

use std::io::IsTerminal;

use tidegate_engine::settings::{LogFormat, Settings};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::failure::{Failure, Outcome};

/// Libraries whose logs hold contents of messages; no level switches them on (R21.3).
const SILENCED: [&str; 1] = ["rmcp"];

/// Libraries whose remarks (slow statements, notices, connections of the pool) are not news to whoever runs a server, or
/// are said by us with what they mean; silent unless the level names them.
const UNLESS_NAMED: [&str; 1] = ["sqlx"];

/// Starts logging as the settings say. A second start in the same process changes nothing.
pub fn start(settings: &Settings) -> Outcome<()> {
    let filter = EnvFilter::builder()
        .parse(&settings.log_level)
        .map_err(|error| {
            Failure::usage(format!(
                "TIDEGATE_LOG_LEVEL: found {:?}, which is no filter ({error}); allowed: for example info or \
                 info,tidegate_engine=debug",
                settings.log_level
            ))
        })?;
    // The MCP library logs what servers and models say to each other, already at level info.
    let unnamed = UNLESS_NAMED
        .iter()
        .filter(|name| !settings.log_level.contains(**name));
    let filter = SILENCED
        .iter()
        .chain(unnamed)
        .filter_map(|name| format!("{name}=off").parse().ok())
        .fold(filter, EnvFilter::add_directive);
    let layer = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    let _started_before = match settings.log_format {
        LogFormat::Json => registry
            .with(layer.json().flatten_event(true).with_current_span(false))
            .try_init(),
        LogFormat::Text => registry
            .with(layer.with_ansi(std::io::stderr().is_terminal()))
            .try_init(),
    };
    Ok(())
}
