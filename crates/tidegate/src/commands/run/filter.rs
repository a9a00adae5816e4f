//! Filters of lists and of bulk commands.

use clap::Args;
use tidegate_model::{
    Capability, ConversationId, api::RunFilter, ids::ScheduleName, run::RunState,
};

use crate::{
    commands::page::PageFlags,
    failure::{Failure, Outcome},
};

/// Which runs.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    /// Only runs in this state: queued, running, waiting, review, succeeded, failed, cancelled or expired
    #[arg(long)]
    state: Option<RunState>,
    /// Only runs that ask for this
    #[arg(long)]
    capability: Option<Capability>,
    /// Only turns of this conversation
    #[arg(long, value_name = "CONVERSATION")]
    conversation: Option<ConversationId>,
    /// Only runs of this schedule
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,
    /// Only failed runs whose attempts were exhausted
    #[arg(long)]
    dead_letters: bool,
    #[command(flatten)]
    page: PageFlags,
}

impl Filter {
    /// As the API wants it.
    pub fn query(&self) -> RunFilter {
        RunFilter {
            state: self.state,
            capability: self.capability.clone(),
            conversation_id: self.conversation,
            schedule: self.schedule.clone(),
            dead_letters: self.dead_letters.then_some(true),
            limit: self.page.limit,
            cursor: self.page.cursor.clone(),
        }
    }

    /// Refuses a bulk command that would take everything by an oversight.
    pub fn require(&self, all: bool, verb: &str) -> Outcome<()> {
        let chosen = self.state.is_some()
            || self.capability.is_some()
            || self.conversation.is_some()
            || self.schedule.is_some()
            || self.dead_letters;
        if all || chosen {
            return Ok(());
        }
        Err(
            Failure::usage(format!("which runs shall I {verb}?")).remedy(format!(
                "give a run, a filter such as --state queued, or --all: `tidegate run {verb} --all`"
            )),
        )
    }
}
