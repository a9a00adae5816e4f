//! `tidegate grant-key`.

use clap::Subcommand;
use tidegate_model::api::GrantKeyList;

use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    output::{table, time},
};

/// Keys that sign grants.
#[derive(Debug, Subcommand)]
pub enum GrantKeyCommand {
    /// List the keys with what each does; the private halves are never shown
    List,
    /// Let the next key sign, at once or when it was published for three minutes, and publish another one. What the key before
    /// has signed stays good until it ends
    Rotate,
}

impl GrantKeyCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let client = context.client(Who::Admin)?;
        let keys = match self {
            Self::List => client.grant_keys().await?,
            Self::Rotate => client.rotate_grant_keys().await?,
        };
        context.output.show(&keys, shown);
        Ok(Exit::Success)
    }
}

fn shown(keys: &GrantKeyList) -> String {
    let when = |at: Option<_>| at.map_or_else(|| "-".to_owned(), time);
    table(
        ["key", "state", "signs from", "retires at", "public key"],
        keys.items.iter().map(|key| {
            [
                key.published.key_id.to_string(),
                key.state.to_string(),
                when(key.published.not_before),
                when(key.published.retire_at),
                key.published.public_key.clone(),
            ]
        }),
    )
}
