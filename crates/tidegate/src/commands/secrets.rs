//! `tidegate secrets`.

use clap::Subcommand;
use serde_json::json;
use tidegate_engine::secrets::{self, UnreadableRow};
use tidegate_store::{Author, secrets::KeyCount};

use crate::{
    cli::Context,
    compose::database::{self, Migrations},
    exit::Exit,
    failure::Outcome,
    output::table,
};

/// Secrets at rest: provider keys and the environment of tool servers.
#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Seal everything anew under CONFIG_ENC_KEY; needs the key before in CONFIG_ENC_KEY_PREVIOUS. May be interrupted
    /// and repeated
    Rotate,
    /// Show how much is sealed under which key, and what cannot be opened
    Status,
}

impl SecretsCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let settings = context.settings()?.settings;
        settings.require_for_serve()?;
        let keyring = database::keyring(&settings)?;
        let store = database::open(&settings)?;
        let by = database::operator();
        database::prepare(&store, &by, Migrations::Check, None, database::AT_ONCE).await?;
        database::check_key(&store, &keyring).await?;
        match self {
            Self::Rotate => {
                let author = Author::shell(&database::user());
                let progress = |done: u64| output.note(&format!("{done} sealed anew"));
                let rotation = secrets::rotate(&store, &keyring, &author, progress)
                    .await
                    .map_err(|error| database::secret_failure(&error))?;
                let answer = json!({
                    "resealed": rotation.resealed,
                    "complete": rotation.complete,
                    "keys": keys(&rotation.counts),
                    "unreadable": rows(&rotation.unreadable),
                });
                output.show(&answer, |_| {
                    let next = if rotation.complete {
                        "done: CONFIG_ENC_KEY_PREVIOUS is no longer needed"
                    } else {
                        "not complete: rows below cannot be opened; store their secrets again"
                    };
                    format!(
                        "{} sealed anew\n{}\n{next}\n{}",
                        rotation.resealed,
                        key_table(&rotation.counts),
                        row_list(&rotation.unreadable)
                    )
                });
                if !rotation.complete {
                    return Ok(Exit::Failed);
                }
            }
            Self::Status => {
                let status = secrets::status(&store, &keyring)
                    .await
                    .map_err(|error| database::secret_failure(&error))?;
                let answer = json!({
                    "currentKey": status.current,
                    "keys": keys(&status.counts),
                    "unreadable": rows(&status.unreadable),
                });
                output.show(&answer, |_| {
                    format!(
                        "current key {}\n{}\n{}",
                        status.current,
                        key_table(&status.counts),
                        row_list(&status.unreadable)
                    )
                });
            }
        }
        Ok(Exit::Success)
    }
}

fn keys(counts: &[KeyCount]) -> serde_json::Value {
    counts
        .iter()
        .map(|count| json!({ "keyId": count.key_id, "secrets": count.rows }))
        .collect()
}

fn rows(unreadable: &[UnreadableRow]) -> serde_json::Value {
    unreadable
        .iter()
        .map(|row| json!({ "table": row.table.as_str(), "name": row.name, "keyId": row.key_id }))
        .collect()
}

fn key_table(counts: &[KeyCount]) -> String {
    table(
        ["key", "secrets"],
        counts
            .iter()
            .map(|count| [count.key_id.clone(), count.rows.to_string()]),
    )
}

fn row_list(unreadable: &[UnreadableRow]) -> String {
    unreadable
        .iter()
        .map(|row| {
            format!(
                "cannot be opened: {} {} (sealed with key {})",
                row.table.as_str(),
                row.name,
                row.key_id
            )
        })
        .collect::<Vec<_>>()
        .join("\n")
}
