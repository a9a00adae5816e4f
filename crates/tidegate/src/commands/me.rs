//! `tidegate me`.

use clap::{Args, Subcommand};

use super::tenant::show_limits;
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    output::{facts, or_dash, table, time},
};

/// What a key may know about itself and its tenant.
#[derive(Debug, Args)]
pub struct MeCommand {
    #[command(subcommand)]
    command: Option<MeSubcommand>,
}

#[derive(Debug, Subcommand)]
enum MeSubcommand {
    /// Limits of the tenant with source and scope
    Limits,
    /// What is queued and running now
    Usage,
}

impl MeCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Tenant)?;
        match self.command {
            None => output.show(&client.me().await?, |me| {
                let scopes: Vec<&str> = me.scopes.iter().map(|scope| scope.as_str()).collect();
                facts([
                    ("key", Some(me.key_id.to_string())),
                    ("role", Some(me.role.to_string())),
                    ("tenant", me.tenant.as_ref().map(ToString::to_string)),
                    ("pool", me.pool.as_ref().map(ToString::to_string)),
                    ("user", me.user.clone()),
                    ("scopes", (!scopes.is_empty()).then(|| scopes.join(" "))),
                    ("until", me.expires_at.map(time)),
                ])
            }),
            Some(MeSubcommand::Limits) => output.show(&client.my_limits().await?, show_limits),
            Some(MeSubcommand::Usage) => output.show(&client.my_usage().await?, |usage| {
                table(
                    ["bucket", "queued", "running", "cap"],
                    usage.buckets.iter().map(|bucket| {
                        [
                            bucket.bucket.to_string(),
                            bucket.queued.to_string(),
                            bucket.running.to_string(),
                            or_dash(bucket.cap),
                        ]
                    }),
                )
            }),
        }
        Ok(Exit::Success)
    }
}
