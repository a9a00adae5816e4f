//! A secret for a command: from a variable or from standard input, never from a flag, which the list of processes shows.

use std::io::Read;

use clap::Args;

use crate::{
    exit::Exit,
    failure::{Failure, Outcome},
};

/// Where the secret comes from; without either the stored one stays.
#[derive(Debug, Clone, Default, Args)]
pub struct SecretInput {
    /// The variable that holds the provider's key, for example OPENAI_API_KEY
    #[arg(long, value_name = "VARIABLE", conflicts_with = "api_key_stdin")]
    api_key_env: Option<String>,
    /// Read the provider's key from standard input; an empty one removes the stored key
    #[arg(long)]
    api_key_stdin: bool,
}

impl SecretInput {
    /// The secret, if one is given.
    pub fn read(&self) -> Outcome<Option<String>> {
        if let Some(name) = &self.api_key_env {
            let secret = std::env::var(name).map_err(|_| {
                Failure::usage(format!("the environment has no variable {name}"))
                    .remedy(format!("export {name} first, or use --api-key-stdin"))
            })?;
            return Ok(Some(secret.trim().to_owned()));
        }
        if !self.api_key_stdin {
            return Ok(None);
        }
        let mut secret = String::new();
        std::io::stdin()
            .lock()
            .take(64 << 10)
            .read_to_string(&mut secret)
            .map_err(|error| Failure::caused(Exit::Usage, "cannot read the key", &error))?;
        Ok(Some(secret.trim().to_owned()))
    }
}
