//! Firing what is due (R3.14): each due time once, whatever number of instances fire.
//!
//! Schedules that are due are locked in a batch that skips what others have locked; runs, places, events and the next
//! due times are written in the transaction that holds the locks, so that a due time is settled whole or not at all. What
//! guards this besides is the unique index over schedule and due time. Each schedule is written behind a savepoint: one
//! whose run is refused says so and keeps none of the others from firing.
//!
//! Lock order: the schedules, then as everything else.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{Acquire as _, PgConnection};
use tidegate_model::{Capability, Code, RunId, TenantId, ids::ScheduleName};
use tidegate_policy::schedules::{self, Firing, Recurrence, RecurrenceError, Rules};
use uuid::Uuid;

use super::fire_run::{Accepted, write_runs};
use crate::{Error, Fleet, attempts::cancel::replace, error::stored};

/// How long a schedule rests whose expression cannot be used any more. A newer release may know the zone again.
const UNREADABLE_REST: TimeDelta = TimeDelta::hours(1);
/// How many of a schedule's latest runs are looked at for open ones.
const OPEN_RUNS_MAX: i64 = 100;

/// What a firing instance gives to the runs.
#[derive(Debug, Clone)]
pub struct FireTerms {
    /// The execution scope whose schedules are fired.
    pub scope: String,
    /// Attempts of a run whose schedule names none.
    pub max_attempts: i32,
    /// First step of the backoff.
    pub backoff_base_ms: i64,
    /// Largest step of the backoff.
    pub backoff_max_ms: i64,
    /// The greatest age in the queue.
    pub queue_max_age_ms: i64,
}

/// A run that came of a due time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiredRun {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its schedule.
    pub schedule: ScheduleName,
    /// The due time.
    pub due_at: DateTime<Utc>,
    /// The run.
    pub run_id: RunId,
    /// Its requirement class.
    pub class: i32,
    /// What it asks for.
    pub capability: Capability,
    /// Its order within the tenant.
    pub priority: i16,
}

/// A schedule whose run was refused.
#[derive(Debug)]
pub struct FireFailure {
    /// Its tenant.
    pub tenant: TenantId,
    /// The schedule.
    pub schedule: ScheduleName,
    /// Why, for people.
    pub detail: String,
    /// What the database said, where it refused.
    pub cause: Option<Error>,
}

/// What one batch did.
#[derive(Debug, Default)]
pub struct Fired {
    /// Schedules that were due.
    pub due: usize,
    /// Runs that came of them.
    pub runs: Vec<FiredRun>,
    /// Schedules with a due time that was skipped.
    pub skipped: usize,
    /// Runs that ended at once or were told to, because later ones replace them.
    pub replaced: Vec<(TenantId, RunId)>,
    /// Schedules whose run was refused.
    pub failures: Vec<FireFailure>,
}

/// A schedule that is due, locked.
pub(super) struct Due {
    pub(super) tenant: TenantId,
    pub(super) name: ScheduleName,
    cron: String,
    time_zone: String,
    rules: Rules,
    next_due_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Fleet {
    /// Fires up to `limit` schedules that are due and that nobody else is firing.
    pub async fn fire_schedules(&self, terms: FireTerms, limit: i64) -> Result<Fired, Error> {
        self.store()
            .transaction("fire_schedules", move |tx| {
                let terms = terms.clone();
                Box::pin(async move { fire(tx, &terms, limit).await })
            })
            .await
    }
}

async fn fire(tx: &mut PgConnection, terms: &FireTerms, limit: i64) -> Result<Fired, Error> {
    let due = lock_due(tx, &terms.scope, limit).await?;
    let mut fired = Fired {
        due: due.len(),
        ..Fired::default()
    };
    let mut replaced = Vec::new();
    for schedule in due {
        let mut savepoint = tx.begin().await?;
        match fire_one(&mut savepoint, terms, &schedule).await {
            Ok(Ok(one)) => {
                savepoint.commit().await?;
                fired.skipped += usize::from(one.skipped);
                replaced.extend(one.replaced);
                fired.runs.extend(one.runs);
            }
            Ok(Err(error)) => {
                savepoint.rollback().await?;
                let next = schedule.now + UNREADABLE_REST;
                let detail = error.to_string();
                refuse(tx, &schedule, Code::InvalidArgument, &detail, next).await?;
                fired.failures.push(schedule.failure(detail, None));
            }
            Err(error) if error.is_unavailable() || error.is_serialization() => return Err(error),
            Err(error) => {
                savepoint.rollback().await?;
                let next = schedule.next_but(UNREADABLE_REST);
                let detail = "the run was refused by the database: a defect; the log of the server has the cause";
                refuse(tx, &schedule, Code::Internal, detail, next).await?;
                let failure = schedule.failure(detail.to_owned(), Some(error));
                fired.failures.push(failure);
            }
        }
    }
    fired.replaced = replace(tx, replaced, terms.queue_max_age_ms).await?;
    fail::fail_point!("fire_before_commit", |_| Err(Error::injected()));
    Ok(fired)
}

impl Due {
    fn recurrence(&self) -> Result<Recurrence, RecurrenceError> {
        Recurrence::parse(&self.cron, &self.time_zone)
    }

    /// The next due time from now; `rest` from now where there is none.
    fn next_but(&self, rest: TimeDelta) -> DateTime<Utc> {
        self.recurrence()
            .and_then(|recurrence| recurrence.after(self.now))
            .unwrap_or(self.now + rest)
    }

    fn failure(&self, detail: String, cause: Option<Error>) -> FireFailure {
        FireFailure {
            tenant: self.tenant.clone(),
            schedule: self.name.clone(),
            detail,
            cause,
        }
    }
}

/// R3.14: one instance gets each due schedule; the clock is the database's. Schedules of a suspended tenant stay due.
async fn lock_due(tx: &mut PgConnection, scope: &str, limit: i64) -> Result<Vec<Due>, Error> {
    sqlx::query!(
        r#"SELECT s.tenant, s.name, s.cron, s.time_zone, s.missed_runs, s.catch_up_window_ms, s.overlap, s.next_due_at,
                  clock_timestamp() AS "now!"
           FROM schedules s JOIN tenants t ON t.tenant = s.tenant AND t.state = 'active'
           WHERE s.scope = $1 AND NOT s.paused AND s.next_due_at <= (SELECT clock_timestamp())
           ORDER BY s.next_due_at LIMIT $2 FOR UPDATE OF s SKIP LOCKED"#,
        scope,
        limit,
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| {
        Ok(Due {
            tenant: stored(&row.tenant, "schedules.tenant")?,
            name: stored(&row.name, "schedules.name")?,
            cron: row.cron,
            time_zone: row.time_zone,
            rules: Rules {
                missed_runs: stored(&row.missed_runs, "schedules.missed_runs")?,
                catch_up_window_ms: row.catch_up_window_ms,
                overlap: stored(&row.overlap, "schedules.overlap")?,
            },
            next_due_at: row.next_due_at,
            now: row.now,
        })
    })
    .collect()
}

/// What one schedule did.
struct One {
    runs: Vec<FiredRun>,
    skipped: bool,
    replaced: Vec<(TenantId, RunId)>,
}

async fn fire_one(
    tx: &mut PgConnection,
    terms: &FireTerms,
    schedule: &Due,
) -> Result<Result<One, RecurrenceError>, Error> {
    let open = open_runs(tx, schedule).await?;
    let decided = schedule.recurrence().and_then(|recurrence| {
        schedules::fire(
            &recurrence,
            schedule.rules,
            schedule.next_due_at,
            schedule.now,
            !open.is_empty(),
        )
    });
    let firing = match decided {
        Ok(firing) => firing,
        Err(error) => return Ok(Err(error)),
    };
    let accepted = write_runs(tx, terms, schedule, &firing.runs).await?;
    settle(tx, schedule, &firing, accepted.last()).await?;
    let runs = accepted
        .into_iter()
        .map(|run| run.fired(schedule))
        .collect::<Result<_, Error>>()?;
    Ok(Ok(One {
        runs,
        skipped: firing.skipped.is_some(),
        replaced: if firing.replaces {
            open.into_iter()
                .map(|run| (schedule.tenant.clone(), run))
                .collect()
        } else {
            Vec::new()
        },
    }))
}

/// The runs of a schedule that have not ended.
async fn open_runs(tx: &mut PgConnection, schedule: &Due) -> Result<Vec<RunId>, Error> {
    let open: Vec<Uuid> = sqlx::query_scalar!(
        r#"SELECT r.run_id AS "run_id!" FROM (
               SELECT a.run_id FROM agent_runs a WHERE a.tenant = $1 AND a.schedule = $2 ORDER BY a.due_at DESC LIMIT $3) r
           WHERE NOT EXISTS (SELECT FROM run_ends e WHERE e.tenant = $1 AND e.run_id = r.run_id)"#,
        schedule.tenant.as_str(),
        schedule.name.as_str(),
        OPEN_RUNS_MAX,
    )
    .fetch_all(tx)
    .await?;
    Ok(open.into_iter().map(RunId::from_uuid).collect())
}

/// Writes what became of the due times and which one is next.
async fn settle(
    tx: &mut PgConnection,
    schedule: &Due,
    firing: &Firing,
    latest: Option<&Accepted>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE schedules SET next_due_at = $3,
             last_due_at = coalesce($4, last_due_at), last_run_id = coalesce($5, last_run_id),
             skipped_due_at = coalesce($6, skipped_due_at), skipped_why = coalesce($7, skipped_why),
             error_due_at = CASE WHEN $4::timestamptz IS NULL THEN error_due_at END,
             error_code = CASE WHEN $4::timestamptz IS NULL THEN error_code END,
             error_detail = CASE WHEN $4::timestamptz IS NULL THEN error_detail END
         WHERE tenant = $1 AND name = $2",
        schedule.tenant.as_str(),
        schedule.name.as_str(),
        firing.next,
        latest.map(|run| run.due_at),
        latest.map(|run| run.run_id),
        firing.skipped.map(|(due, _)| due),
        firing.skipped.map(|(_, why)| why.as_str()),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes why no run came of a due time.
async fn refuse(
    tx: &mut PgConnection,
    schedule: &Due,
    code: Code,
    detail: &str,
    next: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE schedules SET error_due_at = next_due_at, error_code = $3, error_detail = left($4, 2000), next_due_at = $5
         WHERE tenant = $1 AND name = $2",
        schedule.tenant.as_str(),
        schedule.name.as_str(),
        code.as_str(),
        detail,
        next,
    )
    .execute(tx)
    .await?;
    Ok(())
}
