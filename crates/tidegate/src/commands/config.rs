//! `tidegate config`.

use clap::{Args, Subcommand};
use tidegate_engine::settings::{self, Loaded};
use tidegate_model::api::RevisionView;

use super::page::{self, PageFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    flags::SettingFlags,
    output::{or_dash, table, time},
};

/// Every setting with value, source, scope and one line of meaning; secrets are redacted.
#[derive(Debug, Args)]
pub struct ConfigCommand {
    #[command(subcommand)]
    command: Option<ConfigSubcommand>,
    /// Write docs/configuration.md instead
    #[arg(long)]
    markdown: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

#[derive(Debug, Subcommand)]
enum ConfigSubcommand {
    /// What this release can do: built, on by default, on here
    Features,
    /// Numbered administrative writes, and since when each is in force everywhere
    Revisions(PageFlags),
}

impl ConfigCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        match self.command {
            None if self.markdown => output.piece(&settings::markdown()),
            None => show(context, &context.settings_with(self.flags)?),
            Some(ConfigSubcommand::Features) => {
                let features = settings::features(&context.settings_with(self.flags)?.settings);
                output.show(&features, |features| {
                    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
                    table(
                        ["feature", "built", "on by default", "on here", "switch"],
                        features.iter().map(|feature| {
                            [
                                feature.name.to_owned(),
                                word(feature.built),
                                word(feature.on_by_default),
                                word(feature.on_here),
                                feature.switch.to_owned(),
                            ]
                        }),
                    )
                });
            }
            Some(ConfigSubcommand::Revisions(page)) => {
                let answer = context.client(Who::Admin)?.revisions(&page.query()).await?;
                output.show(&answer, |page| revisions(&page.items));
                page::hint(output, &answer);
            }
        }
        Ok(Exit::Success)
    }
}

fn show(context: &Context, loaded: &Loaded) {
    let rows = loaded.rows();
    context.output.show(&rows, |rows| {
        table(
            ["setting", "value", "source", "scope", "meaning"],
            rows.iter().map(|row| {
                [
                    row.env.to_owned(),
                    or_dash(row.value.as_deref()),
                    row.source.clone(),
                    row.scope.to_string(),
                    row.meaning.to_owned(),
                ]
            }),
        )
    });
    for remark in loaded.remarks() {
        context.output.note(&format!("note: {remark}"));
    }
}

fn revisions(items: &[RevisionView]) -> String {
    table(
        [
            "revision",
            "what",
            "which",
            "at",
            "in force everywhere since",
        ],
        items.iter().map(|revision| {
            [
                revision.revision.to_string(),
                revision.kind.clone(),
                revision.subject.clone(),
                time(revision.at),
                revision
                    .in_force_since
                    .map_or_else(|| "not yet".to_owned(), time),
            ]
        }),
    )
}
