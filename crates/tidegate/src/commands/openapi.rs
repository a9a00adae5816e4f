//! `tidegate openapi`.

use clap::Args;

use crate::{cli::Context, exit::Exit, failure::Outcome};

/// The contract (OpenAPI 3.1) as this release serves it.
#[derive(Debug, Args)]
pub struct OpenapiCommand {}

impl OpenapiCommand {
    /// Runs it.
    pub fn run(context: &Context) -> Outcome {
        context
            .output
            .line(tidegate_server::openapi_text().trim_end());
        Ok(Exit::Success)
    }
}
