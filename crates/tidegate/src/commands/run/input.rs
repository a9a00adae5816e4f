//! `tidegate run input`.

use clap::{ArgGroup, Args};
use tidegate_client::Client;
use tidegate_model::{
    RunId,
    api::{AnswerInput, FileReference},
};

use super::one;
use crate::{cli::Context, commands::repeat::RepeatFlags, exit::Exit, failure::Outcome};

/// An answer to what a waiting run asked.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("answer").required(true).args(["text", "confirm", "deny", "file"])))]
pub struct Input {
    /// The run, run_…
    run_id: RunId,
    /// The answer, where a text is asked for
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Yes, where a confirmation is asked for
    #[arg(long)]
    confirm: bool,
    /// No, where a confirmation is asked for
    #[arg(long)]
    deny: bool,
    /// Where the file is, where one is asked for
    #[arg(long, value_name = "URI")]
    file: Option<String>,
    /// The name of the file
    #[arg(long, value_name = "NAME", requires = "file")]
    file_name: Option<String>,
    /// Which question, by its number; the one that waits unless given
    #[arg(long, value_name = "N")]
    ask_no: Option<i64>,
    #[command(flatten)]
    repeat: RepeatFlags,
}

impl Input {
    /// Runs it.
    pub async fn run(self, context: &Context, client: &Client) -> Outcome {
        let name = self.file_name;
        let answer = AnswerInput {
            ask_no: self.ask_no,
            text: self.text,
            confirmed: (self.confirm || self.deny).then_some(self.confirm),
            file: self.file.map(|uri| FileReference {
                uri,
                name,
                media_type: None,
                size_bytes: None,
            }),
        };
        let client = self.repeat.on(client);
        let run = client.answer_input(self.run_id, &answer).await?;
        context.output.show(&run, one);
        Ok(Exit::Success)
    }
}
