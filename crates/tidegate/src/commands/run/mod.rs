//! `tidegate run`.

mod explain;
mod filter;
mod input;
mod resolve;
mod submit;
mod tree;
mod watch;

use std::fmt::Write as _;

use clap::Subcommand;
use tidegate_client::Client;
use tidegate_model::{
    RunId,
    api::{BulkOutcome, EffectView, RunView},
    contracts::Needs,
    run::PrioritySource,
    strict, words,
};

pub use explain::{attempts, explained, reason};
pub use filter::Filter;
pub use resolve::{effects, review};
pub use watch::follow;

use super::{page, repeat::RepeatFlags};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::{Failure, Outcome},
    files,
    output::{duration, facts, or_dash, table, time},
};

/// Runs.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Submit a business task; the key needs the scope runs:business
    Submit(submit::Submit),
    /// Show a run
    Get {
        /// The run, run_…
        run_id: RunId,
    },
    /// List runs, newest first
    List(Filter),
    /// Follow a run's events to its end
    Watch {
        /// The run, run_…
        run_id: RunId,
        /// Only events after this number
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
    },
    /// Say why a run is where it is, and what would unblock it
    Explain {
        /// The run, run_…
        run_id: RunId,
    },
    /// Show the tree of children below a run
    Children {
        /// The run, run_…
        run_id: RunId,
    },
    /// Answer what a waiting run asked
    Input(input::Input),
    /// Cancel a run, or all that a filter selects
    Cancel {
        /// The run, run_…; without it all runs that the filter selects
        run_id: Option<RunId>,
        #[command(flatten)]
        filter: Filter,
        /// Needed to cancel without any filter
        #[arg(long)]
        all: bool,
    },
    /// Say what became of the effects of a run in review
    Resolve(resolve::Resolve),
    /// Put a dead letter back, or all that a filter selects
    Requeue {
        /// The run, run_…; without it all dead letters that the filter selects, or all failed runs with --state failed
        run_id: Option<RunId>,
        #[command(flatten)]
        filter: Filter,
        /// Needed to put all dead letters back
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        repeat: RepeatFlags,
    },
}

impl RunCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Tenant)?;
        match self {
            Self::Submit(submit) => return submit.run(context, &client).await,
            Self::Get { run_id } => output.show(&client.run(run_id).await?, shown),
            Self::List(filter) => {
                let answer = client.runs(&filter.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
            }
            Self::Watch { run_id, after } => return follow(output, &client, run_id, after).await,
            Self::Explain { run_id } => {
                output.show(&client.explain_run(run_id).await?, explained);
            }
            Self::Children { run_id } => {
                output.show(&client.run_children(run_id).await?, tree::drawn);
            }
            Self::Input(input) => return input.run(context, &client).await,
            Self::Resolve(resolve) => return resolve.run(context, &client).await,
            Self::Cancel {
                run_id,
                filter,
                all,
            } => return cancel(context, &client, run_id, &filter, all).await,
            Self::Requeue {
                run_id,
                filter,
                all,
                repeat,
            } => return requeue(context, &repeat.on(&client), run_id, &filter, all).await,
        }
        Ok(Exit::Success)
    }
}

async fn cancel(
    context: &Context,
    client: &Client,
    run_id: Option<RunId>,
    filter: &Filter,
    all: bool,
) -> Outcome {
    if let Some(run_id) = run_id {
        context.output.show(&client.cancel_run(run_id).await?, one);
    } else {
        filter.require(all, "cancel")?;
        let outcome = client.cancel_runs(&filter.query()).await?;
        context.output.show(&outcome, bulk);
    }
    Ok(Exit::Success)
}

async fn requeue(
    context: &Context,
    client: &Client,
    run_id: Option<RunId>,
    filter: &Filter,
    all: bool,
) -> Outcome {
    if let Some(run_id) = run_id {
        context.output.show(&client.requeue_run(run_id).await?, one);
    } else {
        filter.require(all, "requeue")?;
        let outcome = client.requeue_runs(&filter.query()).await?;
        context.output.show(&outcome, bulk);
    }
    Ok(Exit::Success)
}

fn bulk(outcome: &BulkOutcome) -> String {
    let mut text = format!("{} changed", outcome.changed);
    if outcome.requested > 0 {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            ", {} running ones will stop within the grace",
            outcome.requested
        );
    }
    text
}

/// One run for people, with what a person has to decide.
fn shown(run: &RunView) -> String {
    match &run.review {
        Some(facts) => format!("{}\n\n{}", one(run), review(facts)),
        None => one(run),
    }
}

/// One run for people.
pub fn one(run: &RunView) -> String {
    let reason = run.queue_reason.as_ref();
    let wait = run.waiting_for.as_ref();
    facts([
        ("run", Some(run.run_id.to_string())),
        ("tenant", Some(run.tenant.to_string())),
        ("state", Some(run.state.to_string())),
        ("code", run.code.map(|code| code.to_string())),
        ("detail", run.detail.clone()),
        (
            "waits for",
            reason
                .map(|reason| reason.code.to_string())
                .or_else(|| wait.map(tree::waits_for)),
        ),
        (
            "what to do",
            reason
                .map(|reason| reason.remedy.clone())
                .or_else(|| wait.map(|wait| wait.remedy.clone())),
        ),
        ("parent", run.parent_run_id.map(|id| id.to_string())),
        (
            "cancel",
            run.cancel_requested.then(|| "requested".to_owned()),
        ),
        ("kind", Some(format!("{} ({})", run.kind, run.quota_bucket))),
        ("capability", Some(run.capability.to_string())),
        (
            "requirements",
            run.requirements
                .as_ref()
                .and_then(|needs| serde_json::to_string(needs).ok()),
        ),
        ("user", run.user.clone()),
        (
            "priority",
            (run.priority_source != PrioritySource::Default)
                .then(|| format!("{} (from {})", run.priority, run.priority_source)),
        ),
        ("conversation", run.conversation_id.map(|id| id.to_string())),
        (
            "schedule",
            run.schedule
                .as_ref()
                .map(|due| format!("{}, due {}", due.name, time(due.due_at))),
        ),
        (
            "attempts",
            Some(format!("{} of {}", run.attempts, run.max_attempts)),
        ),
        ("accepted", Some(time(run.created_at))),
        ("deadline", run.deadline.map(time)),
        ("ended", run.ended_at.map(time)),
        (
            "used",
            Some(format!(
                "{} tokens, {} under a lease",
                run.spent_tokens,
                duration(run.spent_ms)
            )),
        ),
        (
            "repeated",
            run.repeated
                .then(|| "yes: this key was used before".to_owned()),
        ),
        ("result", run.result.as_ref().map(ToString::to_string)),
    ])
}

fn list(runs: &[RunView]) -> String {
    table(
        [
            "run",
            "state",
            "why",
            "capability",
            "bucket",
            "attempts",
            "accepted",
        ],
        runs.iter().map(|run| {
            let why = run
                .queue_reason
                .as_ref()
                .map(|reason| reason.code.to_string())
                .or_else(|| run.waiting_for.as_ref().map(|wait| wait.on.to_string()))
                .or_else(|| run.code.map(|code| code.to_string()))
                .or_else(|| {
                    run.review
                        .as_ref()
                        .map(|review| in_question(&review.effects))
                });
            [
                run.run_id.to_string(),
                run.state.to_string(),
                or_dash(why),
                run.capability.to_string(),
                run.quota_bucket.to_string(),
                format!("{}/{}", run.attempts, run.max_attempts),
                time(run.created_at),
            ]
        }),
    )
}

/// The tools whose effects are in question.
fn in_question(effects: &[EffectView]) -> String {
    let tools: Vec<&str> = effects.iter().map(|effect| effect.tool.as_str()).collect();
    tools.join(", ")
}

/// What a run needs besides its capability, as `--requirements` gives it.
pub(crate) fn needs(text: Option<&str>) -> Outcome<Option<Needs>> {
    let Some(text) = text else { return Ok(None) };
    let written = files::json_or_file("--requirements", text, NEEDS_EXAMPLE)?;
    strict::from_value(written).map(Some).map_err(|error| {
        let what = words::plain(&error.inner().to_string());
        let said = match error.path().to_string().as_str() {
            "." => format!("--requirements: {what}"),
            path => format!("--requirements: {path}: {what}"),
        };
        Failure::usage(said).remedy(format!(
            "for example --requirements '{NEEDS_EXAMPLE}'; docs/how-to/add-a-pool.md lists the members"
        ))
    })
}

/// Requirements that some pool could meet.
const NEEDS_EXAMPLE: &str = r#"{"allowedRegions": ["eu-1"], "sandbox": "container"}"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bad input: whatever is wrong with requirements, the example that is shown is one of requirements.
    #[test]
    fn what_is_wrong_with_requirements_is_answered_with_right_ones() {
        for (given, said) in [
            ("{", "--requirements is no JSON"),
            ("@/nowhere/needs.json", "cannot read"),
            (
                r#"{"sandbox": null}"#,
                "sandbox: expected one of none, process, container, vm, found null; give a value, or leave the field out",
            ),
            (r#"{"gpu": 1}"#, "gpu"),
            (
                r#"{"tools": [["a/b", "*"]]}"#,
                "tools[0]: expected an object, found a list",
            ),
        ] {
            let failure = needs(Some(given)).unwrap_err();
            assert!(failure.messages[0].contains(said), "{failure:?}");
            let remedy = failure.remedy.unwrap();
            let shown = remedy.contains(NEEDS_EXAMPLE) || said == "cannot read";
            assert!(shown, "{remedy}");
        }
        assert!(needs(Some(NEEDS_EXAMPLE)).unwrap().is_some());
    }
}
