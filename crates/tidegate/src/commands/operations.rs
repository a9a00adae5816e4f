//! `tidegate instances`, `tidegate audit`.

use clap::Args;
use tidegate_model::api::{AuditView, InstanceView};

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    output::{or_dash, table, time},
};

/// Server processes that share the database.
#[derive(Debug, Args)]
pub struct InstancesCommand {
    #[command(flatten)]
    page: PageFlags,
}

impl InstancesCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let client = context.client(Who::Admin)?;
        let answer = client.instances(&self.page.query()).await?;
        context.output.show(&answer, |page| instances(&page.items));
        page::hint(context.output, &answer);
        Ok(Exit::Success)
    }
}

/// Administrative writes: who, what, before, after.
#[derive(Debug, Args)]
pub struct AuditCommand {
    #[command(flatten)]
    page: PageFlags,
}

impl AuditCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let client = context.client(Who::Admin)?;
        let answer = client.audit(&self.page.query()).await?;
        context.output.show(&answer, |page| audit(&page.items));
        page::hint(context.output, &answer);
        Ok(Exit::Success)
    }
}

fn instances(items: &[InstanceView]) -> String {
    table(
        [
            "instance", "version", "roles", "state", "running", "revision", "skew", "notified",
            "seen",
        ],
        items.iter().map(|instance| {
            let alive = instance.alive;
            let state = match (alive, instance.draining) {
                (false, _) => format!("gone since {}", time(instance.seen_at)),
                (true, true) => "draining".to_owned(),
                (true, false) => "alive".to_owned(),
            };
            // What a process said of itself last is no news of one that is gone.
            let said = |text: String| or_dash(alive.then_some(text));
            [
                instance.instance_id.to_string(),
                instance.version.clone(),
                instance.roles.join(" "),
                state,
                match (alive, instance.running) {
                    (true, running) => format!("{running} of {}", instance.concurrency),
                    (false, 0) => or_dash(None::<&str>),
                    (false, left) => format!("{left} to take over"),
                },
                said(instance.revision.to_string()),
                said(format!("{} ms", instance.clock_skew_ms)),
                said(
                    if instance.listening {
                        "yes"
                    } else {
                        "no: polls"
                    }
                    .to_owned(),
                ),
                time(instance.seen_at),
            ]
        }),
    )
}

fn audit(items: &[AuditView]) -> String {
    table(
        [
            "number", "at", "who", "what", "which", "tenant", "before", "after",
        ],
        items.iter().map(|entry| {
            [
                entry.seq.to_string(),
                time(entry.at),
                entry.actor.clone(),
                entry.action.clone(),
                entry.subject.clone(),
                or_dash(entry.tenant.as_ref()),
                entry.before.to_string(),
                entry.after.to_string(),
            ]
        }),
    )
}
