//! `tidegate completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{
    cli::{Cli, Context},
    exit::Exit,
};

/// Writes completions to standard output, for example `tidegate completions bash > /etc/bash_completion.d/tidegate`.
#[derive(Debug, Args)]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    /// Runs it.
    pub fn run(&self, context: &Context) -> Exit {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tidegate", &mut script);
        context.output.piece(&String::from_utf8_lossy(&script));
        Exit::Success
    }
}
