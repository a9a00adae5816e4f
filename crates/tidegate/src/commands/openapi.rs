//! `tidegate openapi`.

use clap::Args;

use crate::cli::Context;

/// The contract (OpenAPI 3.1) as this release serves it.
#[derive(Debug, Args)]
pub struct OpenapiCommand {}

impl OpenapiCommand {
    /// Runs it.
    pub fn run(context: &Context) {
        context
            .output
            .line(tidegate_server::openapi_text().trim_end());
    }
}
