//! What the demo plays on: a private database, a model, two server processes, two tenants.

use std::path::PathBuf;

use secrecy::ExposeSecret;
use tidegate_client::Client;
use tidegate_engine::settings::Settings;
use tidegate_model::api::PageQuery;
use tokio::time::{Instant, sleep};

use super::{narrator::Narrator, process::Process};
use crate::{
    commands::model_source::ModelFlags,
    compose::database::{self, Migrations},
    dev::{checkout, home::Home, seed},
    exit::Exit,
    failure::{Failure, Outcome},
    profile::Profile,
};

/// A lease is 30 s long unless set; a demo cannot wait that long.
pub const LEASE_MS: u32 = 4_000;
const RENEW_MS: u32 = 1_000;
const SWEEP_MS: u32 = 200;
/// How long until both servers have the seeded catalogue.
const IN_FORCE: std::time::Duration = std::time::Duration::from_secs(20);
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// Everything that runs, and whom to ask.
#[derive(Debug)]
pub struct Stage {
    /// The database.
    pub home: Home,
    /// The scripted provider, unless a real endpoint is used.
    pub mock: Option<Process>,
    /// The servers.
    pub servers: Vec<Process>,
    /// Where the server is, and keys.
    pub profile: Profile,
    /// Whether a real model answers.
    pub real_model: bool,
}

impl Stage {
    /// Builds it up, saying what comes.
    pub async fn build(
        narrator: Narrator,
        settings: &Settings,
        model: &ModelFlags,
    ) -> Outcome<Self> {
        // Never the directory of `tidegate dev` itself: this one is thrown away.
        let dir = match &settings.data_dir {
            Some(_) => {
                let given = Home::directory(settings, "demo")?;
                Home::claim(&given)?;
                given.join("demo")
            }
            None => Home::directory(settings, "demo")?,
        };
        let home = Home::open(dir, settings, true).await?;
        let logs = home.dir().join("log");
        std::fs::create_dir_all(&logs).map_err(|error| {
            Failure::caused(
                Exit::Failed,
                format!("cannot make {}", logs.display()),
                &error,
            )
        })?;
        narrator.say(&format!("database   {}", home.database()));
        let mut stage = Self {
            home,
            mock: None,
            servers: Vec::new(),
            profile: Profile::default(),
            real_model: model.is_real(),
        };
        let mut mock = None;
        let source = model
            .source(async || start_mock(&mut mock, &logs).await)
            .await?;
        stage.mock = mock;
        if let Some(mock) = &stage.mock {
            narrator.say(&format!(
                "model      scripted provider, process {}, {}",
                mock.id(),
                mock.ready("url")
            ));
        }
        stage.prepare_database(settings).await?;
        for name in ["server A", "server B"] {
            let server = stage.start_server(name).await?;
            narrator.say(&format!(
                "{name}   process {}, {}",
                server.id(),
                server.ready("url")
            ));
            stage.servers.push(server);
        }
        stage.seed(narrator, &source).await?;
        Ok(stage)
    }

    /// Migrates, and makes the administrator's key, before any server runs.
    async fn prepare_database(&mut self, settings: &Settings) -> Outcome<()> {
        let settings = self.home.settings(settings);
        let store = database::open(&settings)?;
        let by = database::operator();
        database::prepare(&store, &by, Migrations::Apply, None, database::PATIENCE).await?;
        seed::admin_key(&store, &mut self.profile).await?;
        self.profile.write(&self.home.profile_path())?;
        store.pool().close().await;
        Ok(())
    }

    async fn start_server(&self, name: &'static str) -> Outcome<Process> {
        let log = self.log(name);
        let environment = [
            ("CONFIG_DB_URL", self.home.database_url()),
            ("CONFIG_ENC_KEY", self.home.key().expose_secret().to_owned()),
            ("TIDEGATE_LISTEN", "127.0.0.1:0".to_owned()),
            ("TIDEGATE_LEASE_MS", LEASE_MS.to_string()),
            ("TIDEGATE_RENEW_MS", RENEW_MS.to_string()),
            ("TIDEGATE_TAKEOVER_SWEEP_MS", SWEEP_MS.to_string()),
            ("TIDEGATE_GRACE_MS", "1000".to_owned()),
        ];
        Process::start(name, &["serve", "--no-migrate"], &environment, &log).await
    }

    /// The log of a process.
    pub fn log(&self, name: &str) -> PathBuf {
        let file = format!("{}.log", name.replace(' ', "-"));
        self.home.dir().join("log").join(file)
    }

    async fn seed(&mut self, narrator: Narrator, source: &seed::ModelSource) -> Outcome<()> {
        let url = self.servers[0].ready("url").to_owned();
        let admin_key = self.profile.keys.get("admin").cloned().unwrap_or_default();
        let admin = Client::new(&url, admin_key)?;
        self.profile.url = url;
        seed::tenants(&admin, &mut self.profile).await?;
        self.profile.write(&self.home.profile_path())?;
        let model = seed::model(&admin, source).await?;
        if self.real_model {
            narrator.say(&format!("model      {model}"));
        }
        let directory = std::env::current_dir()
            .map_err(|error| Failure::caused(Exit::Failed, "no working directory", &error))?;
        let tools = seed::tools(&admin, &directory).await?;
        narrator.say(&format!("tools      {} (MCP, read only)", tools.join(", ")));
        narrator.say("tenants    acme, globex");
        in_force(&admin).await
    }

    /// A client of a tenant at one of the servers.
    pub fn client(&self, tenant: &str, server: usize) -> Outcome<Client> {
        let key = self.profile.keys.get(tenant).cloned().unwrap_or_default();
        Ok(Client::new(self.servers[server].ready("url"), key)?)
    }

    /// Has the profile name this server, so that commands find one that lives.
    pub fn point_profile_at(&mut self, server: usize) -> Outcome<()> {
        self.servers[server]
            .ready("url")
            .clone_into(&mut self.profile.url);
        self.profile.write(&self.home.profile_path())
    }

    /// Stops everything by its process id.
    pub async fn close(self) -> Outcome<()> {
        let mut outcome = Ok(());
        for process in self.servers.into_iter().chain(self.mock) {
            let stopped = process.stop().await;
            outcome = outcome.and(stopped);
        }
        let closed = self.home.close().await;
        outcome.and(closed)
    }
}

async fn start_mock(process: &mut Option<Process>, logs: &std::path::Path) -> Outcome<String> {
    let repo = std::env::current_dir()
        .ok()
        .and_then(|dir| checkout::find(&dir))
        .map_or_else(|| ".".to_owned(), |dir| dir.display().to_string());
    let variable = format!("repo={repo}");
    let args = [
        "mock-provider",
        "--listen",
        "127.0.0.1:0",
        "--var",
        &variable,
    ];
    let mock = Process::start("scripted provider", &args, &[], &logs.join("provider.log")).await?;
    let url = mock.ready("url").to_owned();
    *process = Some(mock);
    Ok(url)
}

/// Waits until every server serves the last change (R17.2).
async fn in_force(admin: &Client) -> Outcome<()> {
    let deadline = Instant::now() + IN_FORCE;
    let newest = PageQuery {
        limit: Some(1),
        cursor: None,
    };
    loop {
        let page = admin.revisions(&newest).await?;
        if page.items.iter().all(|item| item.in_force_since.is_some()) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(
                "the servers did not take up the configuration in time",
            ));
        }
        sleep(POLL).await;
    }
}
