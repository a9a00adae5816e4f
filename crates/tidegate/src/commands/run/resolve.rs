//! `tidegate run resolve`, and effects for people.

use clap::{Args, ValueEnum};
use tidegate_client::Client;
use tidegate_model::{
    RunId,
    api::{EffectView, ResolveRun, ReviewView},
    effect::{CallId, ReviewVerdict},
};

use super::one;
use crate::{
    cli::Context,
    commands::repeat::RepeatFlags,
    exit::Exit,
    failure::Outcome,
    output::{or_dash, table, time},
};

/// What became of the effects of a run in review.
#[derive(Debug, Args)]
pub struct Resolve {
    /// The run, run_…
    run_id: RunId,
    /// What you found out
    #[arg(value_enum)]
    verdict: Verdict,
    /// Only about this effect; all that are in question unless given
    #[arg(long, value_name = "CALL")]
    call: Option<CallId>,
    /// For the record and for the next attempt
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    repeat: RepeatFlags,
}

/// A verdict as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verdict {
    /// The effect is in place: the run goes on and does not call again
    Done,
    /// The effect is not in place: the run goes on and knows it
    NotDone,
    /// The run fails
    Abandon,
}

impl Resolve {
    /// Runs it.
    pub async fn run(self, context: &Context, client: &Client) -> Outcome {
        let body = ResolveRun {
            verdict: match self.verdict {
                Verdict::Done => ReviewVerdict::ConfirmDone,
                Verdict::NotDone => ReviewVerdict::ConfirmNotDone,
                Verdict::Abandon => ReviewVerdict::Abandon,
            },
            call_id: self.call,
            note: self.note,
        };
        let client = self.repeat.on(client);
        let run = client.resolve_run(self.run_id, &body).await?;
        context.output.show(&run, one);
        Ok(Exit::Success)
    }
}

/// What a person has to decide.
pub fn review(review: &ReviewView) -> String {
    format!(
        "in review since {}: nobody knows whether this happened\n{}\n\nwhat to do: {}",
        time(review.since),
        effects(&review.effects),
        review.remedy
    )
}

/// The journal of a run.
pub fn effects(effects: &[EffectView]) -> String {
    table(
        [
            "call", "tool", "attempt", "intended", "outcome", "said by", "note",
        ],
        effects.iter().map(|effect| {
            let outcome = match effect.outcome {
                Some(outcome) => outcome.to_string(),
                None if effect.idempotent => "unknown, may be repeated".to_owned(),
                None => "unknown".to_owned(),
            };
            [
                effect.call_id.to_string(),
                effect.tool.clone(),
                effect.attempt.to_string(),
                time(effect.intended_at),
                outcome,
                or_dash(effect.source),
                or_dash(effect.note.clone()),
            ]
        }),
    )
}
