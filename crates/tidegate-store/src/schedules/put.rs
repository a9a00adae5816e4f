//! Making, replacing, pausing, resuming and deleting a schedule.
//!
//! The row is locked before the clock is read, so that what was just fired is not due again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tidegate_model::{KeyId, ids::ScheduleName, limits, schedule::MissedRuns};

use super::{NewSchedule, Row, ScheduleRow, recurrence, schedule_rows};
use crate::{Error, Intent, TenantStore, catalog::Delete, repeats::Outcome, written::Written};

/// What came of writing a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PutSchedule {
    /// It is stored.
    Stored(Box<ScheduleRow>),
    /// The tenant has as many as it may have.
    TooMany,
    /// The tenant is suspended or deleted.
    TenantInactive,
}

impl Outcome for PutSchedule {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Stored(_))
    }
}

impl TenantStore {
    /// Makes or replaces a schedule, which continues from now. Whether it is paused stays as it is.
    pub async fn put_schedule(
        &self,
        schedule: NewSchedule,
        intent: Option<&Intent>,
    ) -> Result<PutSchedule, Error> {
        let tenant = self.key().to_owned();
        let written = self
            .store()
            .once("put_schedule", intent, move |tx| {
                let (tenant, schedule) = (tenant.clone(), schedule.clone());
                Box::pin(async move {
                    let put = put(tx, &tenant, &schedule).await?;
                    Ok(Written::unchanged(put))
                })
            })
            .await?;
        Ok(written.value)
    }

    /// Pauses or resumes a schedule; nothing where the tenant has no such schedule. One that is resumed makes up for what
    /// it missed by its rule.
    pub async fn pause_schedule(
        &self,
        name: &ScheduleName,
        paused: bool,
        intent: Option<&Intent>,
    ) -> Result<Option<ScheduleRow>, Error> {
        let (tenant, name) = (self.key().to_owned(), name.clone());
        let written = self
            .store()
            .once("pause_schedule", intent, move |tx| {
                let (tenant, name) = (tenant.clone(), name.clone());
                Box::pin(async move {
                    let row = pause(tx, &tenant, &name, paused).await?;
                    Ok(Written::unchanged(row))
                })
            })
            .await?;
        Ok(written.value)
    }

    /// Deletes a schedule; its runs stay.
    pub async fn delete_schedule(
        &self,
        name: &ScheduleName,
        intent: Option<&Intent>,
    ) -> Result<Delete, Error> {
        let (tenant, name) = (self.key().to_owned(), name.clone());
        let written = self
            .store()
            .once("delete_schedule", intent, move |tx| {
                let (tenant, name) = (tenant.clone(), name.clone());
                Box::pin(async move {
                    let gone = sqlx::query!(
                        "DELETE FROM schedules WHERE tenant = $1 AND name = $2",
                        tenant,
                        name.as_str(),
                    )
                    .execute(tx)
                    .await?
                    .rows_affected();
                    Ok(Written::unchanged(if gone == 0 {
                        Delete::NotFound
                    } else {
                        Delete::Deleted
                    }))
                })
            })
            .await?;
        Ok(written.value)
    }
}

/// Locks a schedule, where there is one, and then reads the clock.
async fn lock(
    tx: &mut PgConnection,
    tenant: &str,
    name: &ScheduleName,
) -> Result<(Option<ScheduleRow>, DateTime<Utc>), Error> {
    let row = schedule_rows!(
        "SELECT",
        "FROM schedules WHERE tenant = $1 AND name = $2 FOR UPDATE",
        tenant,
        name.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?
    .map(Row::schedule)
    .transpose()?;
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
        .fetch_one(tx)
        .await?;
    Ok((row, now))
}

async fn put(
    tx: &mut PgConnection,
    tenant: &str,
    schedule: &NewSchedule,
) -> Result<PutSchedule, Error> {
    let terms = &schedule.terms;
    let (before, now) = lock(tx, tenant, &terms.name).await?;
    if before.is_none() {
        let others = sqlx::query_scalar!(
            r#"SELECT count(*) AS "others!" FROM schedules WHERE tenant = $1"#,
            tenant
        )
        .fetch_one(&mut *tx)
        .await?;
        if others >= limits::SCHEDULES_MAX {
            return Ok(PutSchedule::TooMany);
        }
    }
    let next = recurrence(&terms.cron, &terms.time_zone)?
        .after(now)
        .map_err(|_| Error::Corrupt {
            what: "schedules.cron",
        })?;
    Ok(match write(tx, tenant, schedule, next).await? {
        Some(row) => PutSchedule::Stored(Box::new(row.schedule()?)),
        None => PutSchedule::TenantInactive,
    })
}

async fn write(
    tx: &mut PgConnection,
    tenant: &str,
    schedule: &NewSchedule,
    next: DateTime<Utc>,
) -> Result<Option<Row>, Error> {
    let terms = &schedule.terms;
    Ok(schedule_rows!(
        "INSERT INTO schedules (tenant, name, scope, cron, time_zone, missed_runs, catch_up_window_ms, overlap, capability,
             class, service_class, priority, priority_source, max_attempts, budget_tokens, budget_ms, input,
             request_digest, user_name, created_by, next_due_at)
         SELECT tenant, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21
         FROM tenants WHERE tenant = $1 AND state = 'active'
         ON CONFLICT (tenant, name) DO UPDATE SET scope = $3, cron = $4, time_zone = $5, missed_runs = $6,
             catch_up_window_ms = $7, overlap = $8, capability = $9, class = $10, service_class = $11, priority = $12,
             priority_source = $13, max_attempts = $14, budget_tokens = $15, budget_ms = $16, input = $17,
             request_digest = $18, user_name = $19, created_by = $20, next_due_at = $21, updated_at = clock_timestamp(),
             error_due_at = NULL, error_code = NULL, error_detail = NULL
         RETURNING",
        "",
        tenant,
        terms.name.as_str(),
        schedule.scope,
        terms.cron,
        terms.time_zone,
        terms.missed_runs.as_str(),
        terms.catch_up_window_ms,
        terms.overlap.as_str(),
        terms.capability.as_str(),
        schedule.class,
        terms.service_class.as_str(),
        terms.priority,
        schedule.priority_source.as_str(),
        terms.max_attempts,
        terms.budget_tokens,
        terms.budget_ms,
        terms.input,
        schedule.request_digest.as_slice(),
        terms.user,
        KeyId::as_uuid(schedule.created_by),
        next,
    )
    .fetch_optional(tx)
    .await?)
}

async fn pause(
    tx: &mut PgConnection,
    tenant: &str,
    name: &ScheduleName,
    paused: bool,
) -> Result<Option<ScheduleRow>, Error> {
    let (Some(row), now) = lock(tx, tenant, name).await? else {
        return Ok(None);
    };
    if row.paused == paused {
        return Ok(Some(row));
    }
    // A due time within the pause is missed, however short ago it was.
    let next = if !paused && row.terms.missed_runs == MissedRuns::Skip && row.next_due_at <= now {
        let recurrence = recurrence(&row.terms.cron, &row.terms.time_zone)?;
        recurrence.after(now).unwrap_or(row.next_due_at)
    } else {
        row.next_due_at
    };
    let changed = schedule_rows!(
        "UPDATE schedules SET paused = $3, next_due_at = $4, updated_at = clock_timestamp()
         WHERE tenant = $1 AND name = $2 RETURNING",
        "",
        tenant,
        name.as_str(),
        paused,
        next,
    )
    .fetch_one(tx)
    .await?;
    changed.schedule().map(Some)
}
