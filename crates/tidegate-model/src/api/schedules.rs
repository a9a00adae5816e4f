//! Schedules of runs (R3.14).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Capability, Code, RunId, TenantId,
    api::RunBudget,
    ids::ScheduleName,
    run::ServiceClass,
    schedule::{MissedRuns, Overlap, SkipReason},
};

/// `PUT /v1/schedules/{name}`: makes or replaces a schedule. It continues from now: due times before this are not looked
/// at again, and whether it is paused stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutSchedule {
    /// Five fields (minute, hour, day of month, month, day of week), for example `0 6 * * MON-FRI`, or one of `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub cron: String,
    /// The IANA time zone that `cron` is read in, for example `Europe/Berlin`; `UTC` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// What becomes of due times that nobody could fire in time; `runOnce` unless given.
    #[serde(default)]
    pub missed_runs: MissedRuns,
    /// A missed due time that is older than this is skipped by every rule, in milliseconds; a day unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_ms: Option<i64>,
    /// What becomes of a due time while an earlier run has not ended; `skip` unless given.
    #[serde(default)]
    pub overlap: Overlap,
    /// What each run is.
    pub run: ScheduledRun,
}

/// What comes of a due time: a run of kind `scheduled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduledRun {
    /// What the pool must offer.
    pub capability: Capability,
    /// Passed to the worker as it is, at most 64 KiB. The due time is told beside it (`schedule.dueAt`).
    /// What only the built-in executor serves (`chat` unless configured) needs something to ask a model: a text,
    /// `{"text": "…"}`, or another object or array that is not empty.
    #[serde(default)]
    pub input: Value,
    /// `deferrable` unless given; only lower protection than what is granted can be asked for (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_class: Option<ServiceClass>,
    /// Lower starts later within the tenant; never above what policy grants (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// 5 unless given (R3.11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// Unbounded unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<RunBudget>,
    /// The user it is for: the key's own unless given; another one needs a key with the scope `act_for_users` (R2.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleView {
    /// Its name.
    pub name: ScheduleName,
    /// Whose it is.
    pub tenant: TenantId,
    /// When it is due.
    pub cron: String,
    /// The time zone that `cron` is read in.
    pub time_zone: String,
    /// What becomes of due times that nobody could fire in time.
    pub missed_runs: MissedRuns,
    /// A missed due time that is older than this is skipped, in milliseconds.
    pub catch_up_window_ms: i64,
    /// What becomes of a due time while an earlier run has not ended.
    pub overlap: Overlap,
    /// What each run is.
    pub run: ScheduledRun,
    /// Whether it is paused: nothing is fired until it is resumed.
    pub paused: bool,
    /// The next due times, as far as they are known; none while it is paused.
    pub next_due_times: Vec<DateTime<Utc>>,
    /// The latest due time that a run came of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// The latest due time that no run came of by the schedule's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<LastSkipped>,
    /// Why no run could come of the latest due time; gone with the next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ScheduleError>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last replaced, paused or resumed.
    pub updated_at: DateTime<Utc>,
}

/// A due time with its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The due time.
    pub due_at: DateTime<Utc>,
    /// The run.
    pub run_id: RunId,
}

/// A due time without a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastSkipped {
    /// The due time.
    pub due_at: DateTime<Utc>,
    /// Why no run came of it.
    pub why: SkipReason,
}

/// A due time whose run was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ScheduleError {
    /// The due time.
    pub due_at: DateTime<Utc>,
    /// Why.
    pub code: Code,
    /// What is wrong and what to do.
    pub detail: String,
}

/// Which due time of which schedule a run is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DueTime {
    /// The schedule, also after it was deleted.
    pub name: ScheduleName,
    /// The due time; the run may have been accepted later.
    pub due_at: DateTime<Utc>,
}
