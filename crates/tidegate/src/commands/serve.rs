//! `tidegate serve`.

use std::sync::Arc;

use clap::Args;
use serde_json::json;

use crate::{
    cli::Context,
    compose::{Server, database::Migrations, local, telemetry},
    failure::Outcome,
    flags::SettingFlags,
    signals::Stops,
};

/// A server over a shared PostgreSQL; any number of equal ones may run. Needs CONFIG_DB_URL and CONFIG_ENC_KEY.
#[derive(Debug, Args)]
pub struct ServeCommand {
    /// Refuse a database that lacks migrations, in place of applying them
    #[arg(long)]
    no_migrate: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

impl ServeCommand {
    /// Serves until it is told to end.
    pub async fn run(self, context: &Context) -> Outcome {
        let loaded = context.settings_with(self.flags)?;
        telemetry::start(&loaded.settings)?;
        loaded.settings.require_for_serve()?;
        let local = local::take(&loaded.settings)?;
        for remark in loaded.remarks() {
            tracing::info!("{remark}");
        }
        let migrations = if self.no_migrate {
            Migrations::Check
        } else {
            Migrations::Apply
        };
        // From here on a signal drains; before, it simply ends a process that has promised nothing.
        let settings = Arc::new(loaded.settings);
        let server = Server::start(settings, local, migrations).await?;
        let stops = Stops::listen();
        announce(context, &server);
        server.run(stops).await
    }
}

fn announce(context: &Context, server: &Server) {
    let engine = server.engine();
    let answer = json!({
        "ready": true,
        "url": server.url(),
        "metricsUrl": server.metrics_url(),
        "instance": engine.instance(),
        "roles": engine.settings().roles.names(),
    });
    if context.output.is_json() {
        return context.output.json_line(&answer);
    }
    context.output.line(&format!(
        "ready at {} (instance {}, roles {})",
        server.url(),
        engine.instance(),
        engine.settings().roles.names().join(",")
    ));
}
