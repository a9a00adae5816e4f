//! The flag of writes that may be sent again.

use clap::Args;
use tidegate_client::Client;

/// How a write is known again.
#[derive(Debug, Clone, Default, Args)]
pub struct RepeatFlags {
    /// Repeating a command with the same key repeats its answer, not its work
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl RepeatFlags {
    /// The client for the one write of a command.
    pub fn on(&self, client: &Client) -> Client {
        client.with_idempotency_key(self.key())
    }

    /// The key, where one was given.
    pub fn key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }
}
