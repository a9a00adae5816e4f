//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use tidegate_engine::settings::{self, Loaded, Sources};

use crate::{
    commands,
    connection::{Connection, Who},
    exit::{self, Exit},
    failure::Outcome,
    flags::SettingFlags,
    output::Output,
};

/// Control plane for agent work: which run may start now, where, and why not.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 120, after_help = exit::HELP)]
pub struct Cli {
    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    configuration: Configuration,
    #[command(subcommand)]
    command: Command,
}

/// Whether a command line that cannot be read asks for JSON; what stands after `--` is not ours.
pub fn asks_for_json(args: impl IntoIterator<Item = OsString>) -> bool {
    args.into_iter()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// Flags of every command that reads settings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct Configuration {
    /// The configuration file (TOML); else ./tidegate.toml where there is one [env: TIDEGATE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What every command gets.
#[derive(Debug)]
pub struct Context {
    /// Where to write.
    pub output: Output,
    connection: Connection,
    configuration: Configuration,
}

impl Context {
    /// A client for the server that the flags, the environment or the profile name.
    pub fn client(&self, who: Who) -> Outcome<tidegate_client::Client> {
        self.connection.client(who)
    }

    /// Settings without flags.
    pub fn settings(&self) -> Outcome<Loaded> {
        self.settings_with(SettingFlags::default())
    }

    /// Settings with flags.
    pub fn settings_with(&self, flags: SettingFlags) -> Outcome<Loaded> {
        let sources = Sources::of_process(self.configuration.config.clone(), flags.0);
        Ok(settings::load(&sources)?)
    }

    /// Settings of a command that has a database and a key of its own: those of the environment may be anything.
    pub fn settings_of_own(&self, flags: SettingFlags) -> Outcome<Loaded> {
        let sources = Sources {
            ignored: &["database_url", "enc_key", "enc_key_previous"],
            ..Sources::of_process(self.configuration.config.clone(), flags.0)
        };
        Ok(settings::load(&sources)?)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve over a shared PostgreSQL
    Serve(commands::serve::ServeCommand),
    /// Serve without set-up: private database, key, demo data
    Dev(commands::dev::DevCommand),
    /// See it work: turns, a wait with its reason, a takeover
    Demo(commands::demo::DemoCommand),
    /// Check configuration, database, secrets and server, with remedies
    Doctor(commands::doctor::DoctorCommand),
    /// Bring the database to this release's schema
    Migrate(commands::migrate::MigrateCommand),
    /// Show every setting with value, source and meaning
    Config(commands::config::ConfigCommand),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Key(commands::key::KeyCommand),
    /// Make, list, suspend, resume and delete tenants
    #[command(subcommand)]
    Tenant(commands::tenant::TenantCommand),
    /// Model providers
    #[command(subcommand)]
    Provider(commands::provider::ProviderCommand),
    /// Models and who serves them
    #[command(subcommand)]
    Model(commands::model::ModelCommand),
    /// Tool servers (MCP)
    #[command(subcommand)]
    Tool(commands::tool::ToolCommand),
    /// Execution pools and what they offer
    #[command(subcommand)]
    Pool(commands::pool::PoolCommand),
    /// What is counted, how much there is of it, who holds it, and whether it adds up
    #[command(subcommand)]
    Ledger(commands::ledger::LedgerCommand),
    /// Reserve what a piece of work takes, for queues of your own
    #[command(subcommand)]
    Admission(commands::admission::AdmissionCommand),
    /// What a grant or a call lease says, and whether it is good
    #[command(subcommand)]
    Grant(commands::grant::GrantCommand),
    /// The keys that sign grants
    #[command(subcommand)]
    GrantKey(commands::grant_key::GrantKeyCommand),
    /// Hold a conversation
    #[command(subcommand)]
    Conversation(commands::conversation::ConversationCommand),
    /// Submit, follow, explain and steer runs
    #[command(subcommand)]
    Run(commands::run::RunCommand),
    /// Runs by the clock: cron expressions in a time zone
    #[command(subcommand)]
    Schedule(commands::schedule::ScheduleCommand),
    /// Who this key is, its limits and its usage
    Me(commands::me::MeCommand),
    /// Server processes
    Instances(commands::operations::InstancesCommand),
    /// What administrators changed
    Audit(commands::operations::AuditCommand),
    /// Seal secrets anew, show what is sealed under which key
    #[command(subcommand)]
    Secrets(commands::secrets::SecretsCommand),
    /// What dangles after a restore or a promotion of the database
    Recover(commands::recover::RecoverCommand),
    /// The contract of the API (OpenAPI 3.1)
    Openapi(commands::openapi::OpenapiCommand),
    /// A scripted model provider, for demos and tests
    MockProvider(commands::mock_provider::MockProviderCommand),
    /// Completions for a shell
    Completions(commands::completions::CompletionsCommand),
}

impl Cli {
    /// Runs the command.
    pub async fn run(self, output: Output) -> Outcome {
        let context = Context {
            output,
            connection: self.connection,
            configuration: self.configuration,
        };
        match self.command {
            Command::Serve(command) => command.run(&context).await,
            Command::Dev(command) => command.run(&context).await,
            Command::Demo(command) => command.run(&context).await,
            Command::Doctor(command) => command.run(&context).await,
            Command::Migrate(command) => command.run(&context).await,
            Command::Secrets(command) => command.run(&context).await,
            Command::Recover(command) => command.run(&context).await,
            Command::Openapi(_) => {
                commands::openapi::OpenapiCommand::run(&context);
                Ok(Exit::Success)
            }
            Command::Config(command) => command.run(&context).await,
            Command::Key(command) => command.run(&context).await,
            Command::Tenant(command) => command.run(&context).await,
            Command::Provider(command) => command.run(&context).await,
            Command::Model(command) => command.run(&context).await,
            Command::Tool(command) => command.run(&context).await,
            Command::Pool(command) => command.run(&context).await,
            Command::Ledger(command) => command.run(&context).await,
            Command::Admission(command) => command.run(&context).await,
            Command::Grant(command) => command.run(&context).await,
            Command::GrantKey(command) => command.run(&context).await,
            Command::Conversation(command) => command.run(&context).await,
            Command::Run(command) => command.run(&context).await,
            Command::Schedule(command) => command.run(&context).await,
            Command::Me(command) => command.run(&context).await,
            Command::Instances(command) => command.run(&context).await,
            Command::Audit(command) => command.run(&context).await,
            Command::MockProvider(command) => command.run(&context).await,
            Command::Completions(command) => Ok(command.run(&context)),
        }
    }
}
