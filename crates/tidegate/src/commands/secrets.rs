//! `tidegate secrets`.

use clap::Subcommand;
use serde_json::json;
use tidegate_engine::secrets::{self, Keyring, Servers, UnreadableRow};
use tidegate_store::{Author, Store, secrets::KeyCount};

use crate::{
    cli::Context,
    compose::database::{self, Migrations},
    exit::Exit,
    failure::Outcome,
    output::table,
};

/// Secrets at rest: provider keys, the environment of tool servers, and the private halves of keys that sign grants.
#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Seal everything anew under CONFIG_ENC_KEY; needs the key before in CONFIG_ENC_KEY_PREVIOUS. Refused while servers
    /// run that do not have CONFIG_ENC_KEY. May be interrupted and repeated
    Rotate {
        /// Rotate even if servers without the new key seem to run: they are known to be gone, or may fail
        #[arg(long)]
        force: bool,
    },
    /// Show how much is sealed under which key, and what cannot be opened; exit code 1 where something cannot
    Status,
}

impl SecretsCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let settings = context.settings()?.settings;
        settings.require_for_serve()?;
        let keyring = database::keyring(&settings)?;
        let store = database::open(&settings)?;
        let by = database::operator();
        database::prepare(&store, &by, Migrations::Check, None, database::AT_ONCE).await?;
        database::check_key(&store, &keyring).await?;
        // Before the rotation: afterwards the previous key has nothing to do any more.
        if let Some(idle) = database::idle_previous_key(&store, &keyring).await? {
            context.output.warn(&idle);
        }
        match self {
            Self::Rotate { force } => {
                let servers = if force {
                    Servers::AreIgnored
                } else {
                    Servers::MustHaveKey {
                        dead_after_ms: settings.instance_dead_after_ms(),
                    }
                };
                rotate(context, &store, &keyring, servers).await
            }
            Self::Status => status(context, &store, &keyring).await,
        }
    }
}

async fn rotate(context: &Context, store: &Store, keyring: &Keyring, servers: Servers) -> Outcome {
    let output = context.output;
    let author = Author::shell(&database::user());
    let progress = |done: u64| output.note(&format!("{done} sealed anew"));
    let rotation = secrets::rotate(store, keyring, &author, servers, progress)
        .await
        .map_err(|error| database::secret_failure(&error))?;
    let answer = json!({
        "resealed": rotation.resealed,
        "complete": rotation.complete,
        "keys": keys(&rotation.counts),
        "unreadable": rows(&rotation.unreadable),
    });
    output.show(&answer, |_| {
        let next = if !rotation.unreadable.is_empty() {
            "not all: the rows below cannot be opened"
        } else if rotation.complete {
            "done: CONFIG_ENC_KEY_PREVIOUS is no longer needed"
        } else {
            "not complete: run it again"
        };
        format!(
            "{} sealed anew\n{}\n{next}\n{}",
            rotation.resealed,
            key_table(&rotation.counts),
            row_list(keyring, &rotation.unreadable)
        )
    });
    Ok(exit(rotation.complete && rotation.unreadable.is_empty()))
}

async fn status(context: &Context, store: &Store, keyring: &Keyring) -> Outcome {
    let status = secrets::status(store, keyring)
        .await
        .map_err(|error| database::secret_failure(&error))?;
    let answer = json!({
        "currentKey": status.current,
        "keys": keys(&status.counts),
        "unreadable": rows(&status.unreadable),
    });
    context.output.show(&answer, |_| {
        format!(
            "current key {}\n{}\n{}",
            status.current,
            key_table(&status.counts),
            row_list(keyring, &status.unreadable)
        )
    });
    Ok(exit(status.unreadable.is_empty()))
}

const fn exit(good: bool) -> Exit {
    if good { Exit::Success } else { Exit::Failed }
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

fn row_list(keyring: &Keyring, unreadable: &[UnreadableRow]) -> String {
    let mut lines: Vec<String> = unreadable
        .iter()
        .map(|row| {
            format!(
                "cannot be opened: {} {} (sealed with key {}); without that key: {}",
                row.table.as_str(),
                row.name,
                row.key_id,
                secrets::stored_again(row.table)
            )
        })
        .collect();
    let wrong = keyring.previous_id().filter(|_| {
        let missing = |row: &UnreadableRow| !keyring.has(&row.key_id);
        unreadable.iter().any(missing)
    });
    if let Some(previous) = wrong {
        lines.push(format!(
            "CONFIG_ENC_KEY_PREVIOUS is key {previous} and opens none of them: give the key named above, or store the \
             secrets again"
        ));
    } else if !unreadable.is_empty() {
        lines.push(
            "give the key named above as CONFIG_ENC_KEY_PREVIOUS, or store the secrets again"
                .to_owned(),
        );
    }
    lines.join("\n")
}
