//! Schedules (R3.14): their rows, and firing what is due.

pub mod fire;
mod fire_run;
pub mod put;
pub mod read;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_model::{
    Capability, Code, KeyId, RunId,
    api::DueTime,
    ids::ScheduleName,
    run::{PrioritySource, ServiceClass},
    schedule::{MissedRuns, Overlap, SkipReason},
};
use tidegate_policy::schedules::{Recurrence, Rules};
use uuid::Uuid;

use crate::{Error, error::stored, repeats::Outcome};

/// What a schedule does, as its tenant wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Its name.
    pub name: ScheduleName,
    /// When it is due.
    pub cron: String,
    /// The zone that `cron` is read in.
    pub time_zone: String,
    /// About missed due times.
    pub missed_runs: MissedRuns,
    /// How old a missed one may be.
    pub catch_up_window_ms: i64,
    /// About due times that come while an earlier run is open.
    pub overlap: Overlap,
    /// What the pool must offer.
    pub capability: Capability,
    /// What gives way first.
    pub service_class: ServiceClass,
    /// Order within the tenant.
    pub priority: i16,
    /// The most attempts; the server's default where absent.
    pub max_attempts: Option<i32>,
    /// Bound over all attempts.
    pub budget_tokens: Option<i64>,
    /// Bound over all attempts.
    pub budget_ms: Option<i64>,
    /// The user it is for.
    pub user: Option<String>,
    /// Passed on as it is.
    pub input: Value,
}

impl Terms {
    /// The rules as policy takes them.
    pub const fn rules(&self) -> Rules {
        Rules {
            missed_runs: self.missed_runs,
            catch_up_window_ms: self.catch_up_window_ms,
            overlap: self.overlap,
        }
    }
}

/// A schedule to store.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    /// What it does.
    pub terms: Terms,
    /// The execution scope.
    pub scope: String,
    /// The requirement class of its runs.
    pub class: i32,
    /// Who granted the priority.
    pub priority_source: PrioritySource,
    /// Keyed digest of what was asked.
    pub request_digest: [u8; 32],
    /// The key that wrote it.
    pub created_by: KeyId,
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRow {
    /// What it does.
    pub terms: Terms,
    /// Whether nothing is fired.
    pub paused: bool,
    /// The earliest due time that is not settled.
    pub next_due_at: DateTime<Utc>,
    /// The latest due time with a run.
    pub last_run: Option<(DateTime<Utc>, RunId)>,
    /// The latest due time that was skipped.
    pub skipped: Option<(DateTime<Utc>, SkipReason)>,
    /// Why no run could come of the latest due time.
    pub error: Option<(DateTime<Utc>, Code, String)>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

impl Outcome for ScheduleRow {}

/// The expression of a stored schedule.
fn recurrence(cron: &str, time_zone: &str) -> Result<Recurrence, Error> {
    Recurrence::parse(cron, time_zone).map_err(|_| Error::Corrupt {
        what: "schedules.cron",
    })
}

/// The due time that a run was fired for.
pub(crate) fn due_time(
    schedule: Option<&str>,
    due_at: Option<DateTime<Utc>>,
) -> Result<Option<DueTime>, Error> {
    let (Some(name), Some(due_at)) = (schedule, due_at) else {
        return Ok(None);
    };
    Ok(Some(DueTime {
        name: stored(name, "agent_runs.schedule")?,
        due_at,
    }))
}

/// The columns of [`Row`] between what a statement says before and after them.
macro_rules! schedule_rows {
    ($before:tt, $after:tt, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            $crate::schedules::Row,
            $before
                + " name, cron, time_zone, missed_runs, catch_up_window_ms, overlap, paused, capability, service_class,
                priority, max_attempts, budget_tokens, budget_ms, user_name, input, next_due_at, last_due_at, last_run_id,
                skipped_due_at, skipped_why, error_due_at, error_code, error_detail, created_at, updated_at "
                + $after,
            $($argument),+
        )
    };
}
use schedule_rows;

struct Row {
    name: String,
    cron: String,
    time_zone: String,
    missed_runs: String,
    catch_up_window_ms: i64,
    overlap: String,
    paused: bool,
    capability: String,
    service_class: String,
    priority: i16,
    max_attempts: Option<i32>,
    budget_tokens: Option<i64>,
    budget_ms: Option<i64>,
    user_name: Option<String>,
    input: Value,
    next_due_at: DateTime<Utc>,
    last_due_at: Option<DateTime<Utc>>,
    last_run_id: Option<Uuid>,
    skipped_due_at: Option<DateTime<Utc>>,
    skipped_why: Option<String>,
    error_due_at: Option<DateTime<Utc>>,
    error_code: Option<String>,
    error_detail: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn schedule(self) -> Result<ScheduleRow, Error> {
        let skipped = self.skipped_due_at.zip(self.skipped_why);
        let error = self.error_due_at.zip(self.error_code);
        Ok(ScheduleRow {
            terms: Terms {
                name: stored(&self.name, "schedules.name")?,
                cron: self.cron,
                time_zone: self.time_zone,
                missed_runs: stored(&self.missed_runs, "schedules.missed_runs")?,
                catch_up_window_ms: self.catch_up_window_ms,
                overlap: stored(&self.overlap, "schedules.overlap")?,
                capability: stored(&self.capability, "schedules.capability")?,
                service_class: stored(&self.service_class, "schedules.service_class")?,
                priority: self.priority,
                max_attempts: self.max_attempts,
                budget_tokens: self.budget_tokens,
                budget_ms: self.budget_ms,
                user: self.user_name,
                input: self.input,
            },
            paused: self.paused,
            next_due_at: self.next_due_at,
            last_run: self.last_due_at.zip(self.last_run_id.map(RunId::from_uuid)),
            skipped: skipped
                .map(|(due, why)| Ok::<_, Error>((due, stored(&why, "schedules.skipped_why")?)))
                .transpose()?,
            error: error
                .map(|(due, code)| {
                    let detail = self.error_detail.unwrap_or_default();
                    Ok::<_, Error>((due, stored(&code, "schedules.error_code")?, detail))
                })
                .transpose()?,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}
