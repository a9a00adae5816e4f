//! `tidegate recover`.

use clap::Args;
use tidegate_model::api::RecoveryView;

use crate::{
    cli::Context,
    compose::database::{self, Migrations},
    exit::Exit,
    failure::Outcome,
    output::{facts, table, time},
};

/// What dangles after a restore or a promotion of the database: leases of a lost history. Reads the database itself, so
/// that it works before any server does.
#[derive(Debug, Args)]
pub struct RecoverCommand {}

impl RecoverCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let settings = context.settings()?.settings;
        let store = database::open(&settings)?;
        let by = database::operator();
        database::prepare(&store, &by, Migrations::Check, None, database::AT_ONCE).await?;
        let view = store
            .recovery()
            .await
            .map_err(|error| database::store_failure(&error))?;
        context.output.show(&view, shown);
        Ok(Exit::Success)
    }
}

fn shown(view: &RecoveryView) -> String {
    let head = facts([
        ("generation", Some(view.generation.to_string())),
        ("since", Some(time(view.since))),
        ("cause", Some(view.cause.clone())),
        ("taken over", Some(view.recovered.to_string())),
        ("dangling", Some(view.leases.len().to_string())),
    ]);
    if view.leases.is_empty() {
        return head;
    }
    let leases = table(
        ["run", "tenant", "fence", "holder", "pool", "lease until"],
        view.leases.iter().map(|lease| {
            [
                lease.run_id.to_string(),
                lease.tenant.to_string(),
                lease.fence.to_string(),
                lease.holder.clone(),
                lease.pool.to_string(),
                time(lease.lease_until),
            ]
        }),
    );
    format!(
        "{head}\n\n{leases}\n\nany server takes these over when their leases run out; their old holders are fenced off"
    )
}
