//! `tidegate demo`.

use clap::Args;

use super::model_source::ModelFlags;
use crate::{
    cli::Context,
    compose::telemetry,
    demo::{Narrator, Stage, tell},
    dev::checkout,
    exit::Exit,
    failure::{Failure, Outcome},
    flags::{SettingFlags, with_default},
    shell,
    signals::Stops,
};

/// Two servers over a private database, agent turns of two tenants, a run that waits and says why, a takeover after kill
/// -9. Everything is real but the model, which is scripted unless --llm names one.
#[derive(Debug, Args)]
pub struct DemoCommand {
    /// End when the story is told
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    model: ModelFlags,
    /// Directory for the demo's data; thrown away at each start
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
}

impl DemoCommand {
    /// Tells the story, then stays until it is interrupted.
    pub async fn run(self, context: &Context) -> Outcome {
        let narrator = Narrator::new(context.output);
        let mut flags = SettingFlags::default();
        if let Some(dir) = &self.data_dir {
            flags.0.push(("data_dir".to_owned(), dir.clone()));
        }
        let loaded = context.settings_of_own(with_default(flags, "log_level", "warn"))?;
        telemetry::start(&loaded.settings)?;
        require_checkout()?;
        narrator.title("Tidegate: what may start now, where, and why not");
        let mut stops = Stops::listen();
        let mut stage = tokio::select! {
            stage = Stage::build(narrator, &loaded.settings, &self.model) => stage?,
            () = stops.next() => return Ok(Exit::Interrupted),
        };
        let told = tokio::select! {
            told = tell(narrator, &mut stage) => told.map(|()| Exit::Success),
            () = stops.next() => Ok(Exit::Interrupted),
        };
        if matches!(told, Ok(Exit::Success)) && !self.once {
            invite(narrator, &stage);
            stops.next().await;
        }
        if let Err(failure) = &told {
            narrator.say(&format!("\nnot shown: {}", failure.messages.join("; ")));
            narrator.say(&format!("logs: {}", stage.home.dir().join("log").display()));
        }
        let closed = stage.close().await;
        let exit = told?;
        closed?;
        if exit == Exit::Success {
            narrator.say("\nall of it happened; every process has been stopped");
        }
        Ok(exit)
    }
}

/// The demo's tools read the files of a checkout; without them there is nothing to show, so nothing is started.
fn require_checkout() -> Outcome<()> {
    let directory = std::env::current_dir()
        .map_err(|error| Failure::caused(Exit::Failed, "no working directory", &error))?;
    let Some(checkout) = checkout::find(&directory) else {
        return Err(Failure::usage(format!(
            "the demo's tools read the files of a git checkout, and {} is in none",
            directory.display()
        ))
        .remedy("run it in the checkout of Tidegate (`make demo`); `tidegate dev` needs none"));
    };
    if !checkout::tool_servers(&checkout)
        .iter()
        .any(|(name, _)| *name == "git")
    {
        return Err(Failure::usage(format!(
            "the demo's tool server (mcp-server-git) is not installed for {}",
            checkout.display()
        ))
        .remedy("run `make setup` in the checkout of Tidegate, then `make demo`"));
    }
    Ok(())
}

fn invite(narrator: Narrator, stage: &Stage) {
    narrator.title("It stays up; try it");
    let profile = stage.home.profile_path().display().to_string();
    let command = format!("tidegate --profile {}", shell::word(&profile));
    narrator.block(&format!(
        "{command} conversation say new \"what changed lately?\"\n{command} run list\n{command} instances\n{command} audit"
    ));
    narrator.say("a real model in place of the scripted one:");
    narrator.block(
        "make demo ARGS=\"--llm https://api.openai.com/v1 --llm-model gpt-4.1-mini\"   (key in TIDEGATE_LLM_API_KEY)",
    );
    narrator.say("Ctrl-C ends it and stops every process");
}
