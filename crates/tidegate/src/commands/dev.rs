//! `tidegate dev`.

use std::{path::Path, sync::Arc, time::Duration};

use clap::Args;
use serde_json::json;
use tidegate_client::Client;
use tidegate_engine::settings::{Loaded, Source};
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_server::Local;
use tidegate_store::Store;
use tokio_util::sync::CancellationToken;

use super::model_source::ModelFlags;
use crate::{
    cli::Context,
    compose::{
        Server,
        database::{self, Migrations},
        local, telemetry,
    },
    dev::{checkout, home::Home, seed},
    exit::Exit,
    failure::{Failure, Outcome},
    flags::{SettingFlags, with_default},
    output::facts,
    profile::{self, Profile},
    shell,
    signals::Stops,
};

/// How long the seeded catalogue may take to be in force.
const IN_FORCE: Duration = Duration::from_secs(10);

/// The production server without set-up: a private PostgreSQL, a key, demo data. Data survive a restart.
#[derive(Debug, Args)]
pub struct DevCommand {
    /// Throw away the database, the key and the profile first
    #[arg(long)]
    fresh: bool,
    /// End as soon as everything is ready
    #[arg(long)]
    once: bool,
    /// Put nothing into the database but the administrator's key
    #[arg(long)]
    no_seed: bool,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    flags: SettingFlags,
}

/// What runs beside the server.
struct Ready {
    profile: Profile,
    model: String,
    tools: Vec<&'static str>,
    /// Answers as long as it is kept.
    mock: Option<MockHandle>,
}

impl DevCommand {
    /// Runs until it is told to end.
    pub async fn run(self, context: &Context) -> Outcome {
        let flags = with_default(self.flags.clone(), "log_level", "warn");
        let loaded = context.settings_of_own(flags)?;
        telemetry::start(&loaded.settings)?;
        warn_of_ignored(context, &loaded);
        let local = local::take(&loaded.settings)?;
        let dir = Home::directory(&loaded.settings, "dev")?;
        let home = Home::open(dir, &loaded.settings, self.fresh).await?;
        let outcome = self.serve(context, &loaded, local, &home).await;
        let closed = home.close().await;
        let exit = outcome?;
        closed?;
        Ok(exit)
    }

    async fn serve(
        &self,
        context: &Context,
        loaded: &Loaded,
        local: Local,
        home: &Home,
    ) -> Outcome {
        let settings = home.settings(&loaded.settings);
        let server = Server::start(Arc::new(settings), local, Migrations::Apply).await?;
        let (store, url) = (server.engine().store().clone(), server.url().to_owned());
        let mut applied = server.applied();
        let end = CancellationToken::new();
        let stops = Stops::listen().or(end.clone());
        let serving = tokio::spawn(server.run(stops));
        let ready = async {
            let ready = self.prepare(context, home, &store, &url).await?;
            let last = store
                .last_revision()
                .await
                .map_err(|error| database::store_failure(&error))?;
            let in_force = applied.wait_for(|revision| *revision >= last);
            // A late catalogue shows itself in the first run's code; no reason to refuse service.
            let _late = tokio::time::timeout(IN_FORCE, in_force).await;
            Outcome::Ok(ready)
        };
        let ready = match ready.await {
            Ok(ready) => ready,
            Err(failure) => {
                end.cancel();
                let _ended = serving.await;
                return Err(failure);
            }
        };
        announce(context, home, &ready);
        if self.once {
            end.cancel();
        }
        let ended = serving
            .await
            .map_err(|error| Failure::caused(Exit::Failed, "the server broke off", &error))?;
        if let Some(mock) = ready.mock {
            mock.stop();
        }
        ended
    }

    async fn prepare(
        &self,
        context: &Context,
        home: &Home,
        store: &Store,
        url: &str,
    ) -> Outcome<Ready> {
        let path = home.profile_path();
        let mut profile = Profile::read(&path)?.unwrap_or_default();
        url.clone_into(&mut profile.url);
        let key = seed::admin_key(store, &mut profile).await?;
        // Written at once: the key is nowhere else.
        profile.write(&path)?;
        let mut ready = Ready {
            profile,
            model: "none".to_owned(),
            tools: Vec::new(),
            mock: None,
        };
        if !self.no_seed {
            let admin = Client::new(url, key)?;
            seed::tenants(&admin, &mut ready.profile).await?;
            ready.profile.write(&path)?;
            let mut mock = None;
            let source = self
                .model
                .source(async || start_mock(&mut mock).await)
                .await?;
            ready.model = seed::model(&admin, &source).await?;
            ready.mock = mock;
            ready.tools = seed::tools(
                &admin,
                Path::new(".")
                    .canonicalize()
                    .as_deref()
                    .unwrap_or(Path::new(".")),
            )
            .await?;
            if ready.tools.is_empty() {
                context.output.note(
                    "no tool servers: start this in a checkout after `make setup`, or add some with `tidegate tool set`",
                );
            }
        }
        Ok(ready)
    }
}

async fn start_mock(handle: &mut Option<MockHandle>) -> Outcome<String> {
    let mut scenario = Scenario::demo();
    if let Some(checkout) = std::env::current_dir()
        .ok()
        .and_then(|dir| checkout::find(&dir))
    {
        scenario = scenario.with_var("repo", checkout.display().to_string());
    }
    let mock = MockProvider::start(scenario).await.map_err(|error| {
        Failure::caused(Exit::Failed, "cannot start the scripted provider", &error)
    })?;
    let url = mock.url().to_owned();
    *handle = Some(mock);
    Ok(url)
}

/// `dev` has a database and a key of its own, whatever the environment says.
fn warn_of_ignored(context: &Context, loaded: &Loaded) {
    let own = [
        ("database_url", "CONFIG_DB_URL"),
        ("enc_key", "CONFIG_ENC_KEY"),
        ("enc_key_previous", "CONFIG_ENC_KEY_PREVIOUS"),
    ];
    let given = |name: &str| loaded.source(name) != Source::Default;
    for (_, name) in own.iter().filter(|(setting, _)| given(setting)) {
        context.output.warn(&format!(
            "{name} is ignored: `tidegate dev` has a database and a key of its own; `tidegate serve` uses yours"
        ));
    }
}

fn announce(context: &Context, home: &Home, ready: &Ready) {
    let keys: Vec<&str> = ready.profile.keys.keys().map(String::as_str).collect();
    let answer = json!({
        "ready": true,
        "url": ready.profile.url,
        "dataDir": home.dir(),
        "profile": home.profile_path(),
        "keys": keys,
        "model": ready.model,
        "tools": ready.tools,
    });
    if context.output.is_json() {
        return context.output.json_line(&answer);
    }
    let usual = profile::default_path() == Some(home.profile_path());
    let with = if usual {
        String::new()
    } else {
        let path = home.profile_path().display().to_string();
        format!("--profile {} ", shell::word(&path))
    };
    let said = facts([
        ("API", Some(ready.profile.url.clone())),
        ("data", Some(home.dir().display().to_string())),
        ("database", Some(home.database())),
        (
            "keys",
            Some(format!(
                "{} in {}",
                keys.join(", "),
                home.profile_path().display()
            )),
        ),
        ("model", Some(ready.model.clone())),
        (
            "tools",
            (!ready.tools.is_empty()).then(|| ready.tools.join(", ")),
        ),
    ]);
    context.output.line(&format!(
        "Tidegate is ready.\n\n{said}\n\nA first turn:\n  tidegate {with}conversation say new \"what changed lately in \
         this repository?\"\nWhat there is:\n  tidegate {with}--as admin instances\n  tidegate {with}run list\n\nCtrl-C \
         ends it and keeps the data; `tidegate dev --fresh` starts over."
    ));
}
