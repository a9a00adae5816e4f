//! `tidegate schedule`.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use tidegate_model::{
    Capability,
    api::{PutSchedule, RunBudget, ScheduleView, ScheduledRun},
    ids::ScheduleName,
    run::ServiceClass,
    schedule::{MissedRuns, Overlap},
};

use super::{
    page::{self, PageFlags},
    repeat::RepeatFlags,
};
use crate::{
    cli::Context,
    connection::Who,
    exit::Exit,
    failure::Outcome,
    files,
    output::{duration, facts, or_dash, table, time},
};

/// Schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Make or replace a schedule; it continues from now
    Put(Put),
    /// List schedules with their next due times
    List(PageFlags),
    /// Show a schedule with its next due times
    Get {
        /// Its name
        name: ScheduleName,
    },
    /// Remove a schedule; its runs stay
    Delete {
        /// Its name
        name: ScheduleName,
    },
    /// Fire nothing until it is resumed
    Pause {
        /// Its name
        name: ScheduleName,
    },
    /// Fire again; for what it missed its rule for missed runs holds
    Resume {
        /// Its name
        name: ScheduleName,
    },
}

/// When it is due, and what each run is.
#[derive(Debug, Args)]
pub struct Put {
    /// Its name
    name: ScheduleName,
    /// Minute, hour, day of month, month, day of week, for example "0 6 * * MON-FRI"; or @hourly, @daily, @weekly, …
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// The IANA time zone that the expression is read in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// Of due times that nobody could fire in time: skip, runOnce (the latest) or runAll (100 at most)
    #[arg(long, value_name = "RULE", default_value_t)]
    missed_runs: MissedRuns,
    /// A missed due time that is older is skipped, in milliseconds; a day unless given
    #[arg(long, value_name = "MS")]
    catch_up_window_ms: Option<i64>,
    /// While an earlier run has not ended: allow, skip or replace (cancels the earlier one)
    #[arg(long, value_name = "RULE", default_value_t)]
    overlap: Overlap,
    /// What the pool must offer
    #[arg(long)]
    capability: Capability,
    /// Passed to the worker as it is, JSON, or @FILE with it; chat wants a text: '"hello"'
    #[arg(long, value_name = "JSON|@FILE", default_value = "null")]
    input: String,
    /// deferrable unless given; only less protection can be asked for
    #[arg(long)]
    service_class: Option<ServiceClass>,
    /// Order within the tenant; only lower than what policy grants
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i16>,
    /// 5 unless the server says otherwise
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// Tokens over all attempts of a run
    #[arg(long, value_name = "N")]
    budget_tokens: Option<i64>,
    /// Time under a lease over all attempts of a run, in milliseconds
    #[arg(long, value_name = "MS")]
    budget_ms: Option<i64>,
    /// The user the runs are for; another than the key's own needs the scope act_for_users
    #[arg(long)]
    user: Option<String>,
    #[command(flatten)]
    repeat: RepeatFlags,
}

impl Put {
    fn body(self) -> Outcome<PutSchedule> {
        let bounded = self.budget_tokens.is_some() || self.budget_ms.is_some();
        Ok(PutSchedule {
            cron: self.cron,
            time_zone: Some(self.time_zone),
            missed_runs: self.missed_runs,
            catch_up_window_ms: self.catch_up_window_ms,
            overlap: self.overlap,
            run: ScheduledRun {
                capability: self.capability,
                input: files::input(&self.input)?,
                service_class: self.service_class,
                priority: self.priority,
                max_attempts: self.max_attempts,
                budget: bounded.then_some(RunBudget {
                    tokens: self.budget_tokens,
                    execution_ms: self.budget_ms,
                }),
                user: self.user,
            },
        })
    }
}

impl ScheduleCommand {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Outcome {
        let output = context.output;
        let client = context.client(Who::Tenant)?;
        let view = match self {
            Self::Put(put) => {
                let name = put.name.clone();
                let client = put.repeat.on(&client);
                client.put_schedule(&name, &put.body()?).await?
            }
            Self::Get { name } => client.schedule(&name).await?,
            Self::Pause { name } => client.pause_schedule(&name).await?,
            Self::Resume { name } => client.resume_schedule(&name).await?,
            Self::List(page) => {
                let answer = client.schedules(&page.query()).await?;
                output.show(&answer, |page| list(&page.items));
                page::hint(output, &answer);
                return Ok(Exit::Success);
            }
            Self::Delete { name } => {
                client.delete_schedule(&name).await?;
                let answer = serde_json::json!({ "name": name, "deleted": true });
                output.show(&answer, |_| format!("schedule {name} is deleted"));
                return Ok(Exit::Success);
            }
        };
        output.show(&view, one);
        Ok(Exit::Success)
    }
}

fn list(schedules: &[ScheduleView]) -> String {
    table(
        [
            "schedule",
            "cron",
            "zone",
            "capability",
            "next due",
            "last run",
            "trouble",
        ],
        schedules.iter().map(|schedule| {
            [
                schedule.name.to_string(),
                schedule.cron.clone(),
                schedule.time_zone.clone(),
                schedule.run.capability.to_string(),
                next(schedule),
                or_dash(schedule.last_run.map(|run| run.run_id)),
                or_dash(schedule.last_error.as_ref().map(|error| error.code)),
            ]
        }),
    )
}

fn next(schedule: &ScheduleView) -> String {
    match schedule.next_due_times.first() {
        Some(due) => time(*due),
        None => "paused".to_owned(),
    }
}

fn one(schedule: &ScheduleView) -> String {
    let due = |due: DateTime<Utc>, rest: String| format!("{}, {rest}", time(due));
    let last_run = schedule.last_run;
    let last_skipped = schedule.last_skipped;
    let mut text = facts([
        ("schedule", Some(schedule.name.to_string())),
        (
            "cron",
            Some(format!("{} ({})", schedule.cron, schedule.time_zone)),
        ),
        ("capability", Some(schedule.run.capability.to_string())),
        (
            "missed runs",
            Some(format!(
                "{}, at most {} old",
                schedule.missed_runs,
                duration(schedule.catch_up_window_ms)
            )),
        ),
        ("overlap", Some(schedule.overlap.to_string())),
        ("user", schedule.run.user.clone()),
        ("paused", schedule.paused.then(|| "yes".to_owned())),
        (
            "last run",
            last_run.map(|run| due(run.due_at, run.run_id.to_string())),
        ),
        (
            "last skipped",
            last_skipped.map(|skipped| due(skipped.due_at, skipped.why.to_string())),
        ),
        (
            "last error",
            schedule
                .last_error
                .as_ref()
                .map(|error| due(error.due_at, format!("{}: {}", error.code, error.detail))),
        ),
    ]);
    for (index, due) in schedule.next_due_times.iter().enumerate() {
        let name = if index == 0 { "next due" } else { "" };
        let _infallible = write!(text, "\n{name:12}  {}", time(*due));
    }
    text
}
