//! `tidegate openapi`.

use clap::Args;

use crate::{
    cli::Context,
    exit::Exit,
    failure::{Failure, Outcome},
};

/// The contract (OpenAPI 3.1) as this release serves it.
#[derive(Debug, Args)]
pub struct OpenapiCommand {}

impl OpenapiCommand {
    /// Runs it.
    pub fn run(&self, context: &Context) -> Outcome {
        let text = serde_json::to_string_pretty(&tidegate_server::openapi())
            .map_err(|error| Failure::caused(Exit::Failed, "cannot write the contract", &error))?;
        context.output.line(&text);
        Ok(Exit::Success)
    }
}
