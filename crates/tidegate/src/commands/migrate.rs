//! `tidegate migrate`.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_store::migrate::{self, MigrationStatus, OPTIONAL_SETS, OptionalSet, Report};

use crate::{
    cli::Context,
    compose::{
        database::{self, Migrations},
        telemetry,
    },
    exit::Exit,
    failure::{Failure, Outcome},
    output::{or_dash, table, time},
};

/// Brings the database to this release's schema; safe on many machines at once. Needs a direct connection.
#[derive(Debug, Args)]
pub struct MigrateCommand {
    #[command(subcommand)]
    command: Option<MigrateSubcommand>,
    /// An optional set of migrations: tenant-resource-tiers
    #[arg(long, value_name = "SET")]
    with: Option<String>,
}

#[derive(Debug, Subcommand)]
enum MigrateSubcommand {
    /// Apply what is missing
    Run,
    /// Show which migrations are applied, by whom and when
    Status,
}

impl MigrateCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let migrations = match &self.with {
            None => Migrations::Apply,
            Some(name) => Migrations::With(named(name)?),
        };
        let settings = context.settings()?.settings;
        telemetry::start(&settings)?;
        let store = database::open(&settings)?;
        match self.command {
            None | Some(MigrateSubcommand::Run) => {
                let by = database::operator();
                let report =
                    database::prepare(&store, &by, migrations, None, database::PATIENCE).await?;
                if let Some(warning) = &report.warning {
                    context.output.warn(warning);
                }
                let answer = json!({ "applied": report.applied, "warning": report.warning });
                context
                    .output
                    .show(&answer, |_| match report.applied.len() {
                        0 => "nothing to do: the database is up to date".to_owned(),
                        _ => applied(&report),
                    });
            }
            Some(MigrateSubcommand::Status) => {
                let all = migrate::status(store.pool())
                    .await
                    .map_err(|error| database::migrate_failure(&error))?;
                let answer: Vec<_> = all.iter().map(as_json).collect();
                context.output.show(&answer, |_| as_table(&all));
            }
        }
        Ok(Exit::Success)
    }
}

/// How many migrations were applied, in words.
pub fn applied(report: &Report) -> String {
    match report.applied.len() {
        1 => "applied 1 migration".to_owned(),
        several => format!("applied {several} migrations"),
    }
}

/// The optional set of this name.
fn named(name: &str) -> Result<OptionalSet, Failure> {
    let set = OPTIONAL_SETS.iter().find(|set| set.name == name).copied();
    set.ok_or_else(|| {
        let known: Vec<&str> = OPTIONAL_SETS.iter().map(|set| set.name).collect();
        Failure::usage(format!(
            "there is no optional set of migrations named `{name}`"
        ))
        .remedy(format!("this release has: {}", known.join(", ")))
    })
}

fn as_json(status: &MigrationStatus) -> serde_json::Value {
    json!({
        "version": status.version,
        "description": status.description,
        "state": status.state.as_str(),
        "appliedAt": status.applied_at,
        "appliedBy": status.applied_by,
        "server": status.server,
        "digest": status.digest,
    })
}

fn as_table(all: &[MigrationStatus]) -> String {
    table(
        ["version", "what", "state", "at", "by", "server", "digest"],
        all.iter().map(|status| {
            [
                status.version.to_string(),
                status.description.clone(),
                status.state.as_str().to_owned(),
                or_dash(status.applied_at.map(time)),
                or_dash(status.applied_by.as_deref()),
                or_dash(status.server.as_deref()),
                status.digest.clone(),
            ]
        }),
    )
}
