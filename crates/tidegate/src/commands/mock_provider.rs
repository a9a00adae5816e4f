//! `tidegate mock-provider`: a scripted model provider in a process of its own.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use tidegate_mock_provider::{MockProvider, Scenario};

use crate::{
    cli::Context,
    exit::Exit,
    failure::{Failure, Outcome},
};

/// An OpenAI-compatible server that answers by script. It is no model: for demonstrations, tests and load.
#[derive(Debug, Args)]
pub struct MockProviderCommand {
    /// Where to listen; port 0 takes a free one on loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8490")]
    listen: SocketAddr,
    /// The script (TOML, see docs/mock-provider.md); the demo's unless given
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// A value for {{var.NAME}} of the script; may be repeated
    #[arg(long = "var", value_name = "NAME=VALUE")]
    variables: Vec<String>,
}

impl MockProviderCommand {
    /// Runs it until it is interrupted.
    pub async fn run(self, context: &Context) -> Outcome {
        let mut scenario = match &self.scenario {
            Some(path) => Scenario::load(path).map_err(|error| {
                Failure::usage(format!("--scenario {}: {error}", path.display()))
                    .remedy("docs/mock-provider.md has the form of a script")
            })?,
            None => Scenario::demo(),
        };
        for variable in &self.variables {
            let (name, value) = variable
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--var {variable}: expected NAME=VALUE")))?;
            scenario.vars.insert(name.to_owned(), value.to_owned());
        }
        let failed = |error: std::io::Error| {
            Failure::caused(
                Exit::Failed,
                format!("cannot listen on {}", self.listen),
                &error,
            )
            .remedy("choose another address with --listen")
        };
        let announce = |url: &str| {
            let answer = serde_json::json!({ "url": url });
            context
                .output
                .show(&answer, |_| format!("mock provider at {url}"));
        };
        let stop = crate::signals::stop();
        if self.listen.port() == 0 && self.listen.ip().is_loopback() {
            let server = MockProvider::start(scenario).await.map_err(failed)?;
            announce(server.url());
            stop.await;
            server.stop();
        } else {
            announce(&format!("http://{}/v1", self.listen));
            tidegate_mock_provider::run(self.listen, scenario, stop)
                .await
                .map_err(failed)?;
        }
        Ok(Exit::Success)
    }
}
