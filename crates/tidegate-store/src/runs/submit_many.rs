//! Accepting runs that are no turns: many at once, of any tenants, by one statement.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use tidegate_model::{KeyId, RunId, TenantId};
use uuid::Uuid;

use super::submit::{NOT_WRITTEN, NewRun, Place, Submitted};
use crate::{Error, Fleet};

/// A run and whose it is.
#[derive(Debug, Clone)]
pub struct Submission {
    /// From an authenticated principal.
    pub tenant: TenantId,
    /// Not a turn: turns stand under their conversation's lock, see [`TenantStore::submit_run`](crate::TenantStore).
    pub run: NewRun,
}

impl Fleet {
    /// Accepts runs, or says of each why not; the answers are in the order of the submissions. A run that waits in the
    /// queue for longer than `queue_max_age_ms` expires.
    ///
    /// One statement writes all of them with their places and first events, so each is there whole or not at all. A key
    /// that another transaction is just using is waited for, so that nobody is told of a run that never came to be
    /// (O-33); keys are taken in their order, so that two batches cannot wait for each other.
    pub async fn submit_runs(
        &self,
        submissions: impl Into<Arc<[Submission]>>,
        queue_max_age_ms: i64,
    ) -> Result<Vec<Submitted>, Error> {
        let submissions = submissions.into();
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        self.store()
            .statement("submit_runs", move |connection| {
                let submissions = Arc::clone(&submissions);
                Box::pin(async move { submit(connection, &submissions, queue_max_age_ms).await })
            })
            .await
    }
}

async fn submit(
    connection: &mut PgConnection,
    submissions: &[Submission],
    queue_max_age_ms: i64,
) -> Result<Vec<Submitted>, Error> {
    fail::fail_point!("submit_before_write", |_| Err(Error::injected()));
    let columns = Columns::of(submissions);
    let written = columns.write(connection, queue_max_age_ms).await?;
    fail::fail_point!("submit_after_write", |_| Err(Error::injected()));
    let mut outcomes: HashMap<Uuid, Submitted> = written.into_iter().collect();
    if outcomes.len() < submissions.len() {
        let refused: Vec<&Submission> = submissions
            .iter()
            .filter(|submission| !outcomes.contains_key(&submission.run.run_id.as_uuid()))
            .collect();
        outcomes.extend(reasons(connection, &refused).await?);
    }
    submissions
        .iter()
        .map(|submission| {
            let run = submission.run.run_id.as_uuid();
            outcomes.remove(&run).ok_or(NOT_WRITTEN)
        })
        .collect()
}

/// Why submissions were not written: the tenant, the key, the deadline.
async fn reasons(
    connection: &mut PgConnection,
    refused: &[&Submission],
) -> Result<Vec<(Uuid, Submitted)>, Error> {
    let tenants: Vec<String> = refused
        .iter()
        .map(|submission| submission.tenant.as_str().to_owned())
        .collect();
    let runs = refused.iter().map(|submission| &submission.run);
    let keys: Vec<Option<String>> = runs
        .clone()
        .map(|run| run.idempotency_key.clone())
        .collect();
    let deadlines: Vec<Option<DateTime<Utc>>> = runs.map(|run| run.deadline).collect();
    let rows = sqlx::query!(
        r#"SELECT k.ord AS "ord!", coalesce(t.state = 'active', false) AS "active!",
                  coalesce(k.deadline <= clock_timestamp(), false) AS "late!", a.run_id AS "run_id?",
                  coalesce(a.request_digest, i.request_digest) AS request_digest
           FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS k(tenant, key, deadline, ord)
           LEFT JOIN tenants t ON t.tenant = k.tenant
           LEFT JOIN agent_runs a ON a.tenant = k.tenant AND a.idempotency_key = k.key
           LEFT JOIN idempotency_records i ON i.owner = k.tenant AND i.idempotency_key = k.key"#,
        &tenants,
        &keys as &[Option<String>],
        &deadlines as &[Option<DateTime<Utc>>],
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let place = usize::try_from(row.ord - 1).ok();
            let submission = place.and_then(|at| refused.get(at)).ok_or(NOT_WRITTEN)?;
            let run = &submission.run;
            let outcome = match (row.run_id, row.request_digest) {
                _ if !row.active => Submitted::TenantInactive,
                (Some(earlier), Some(digest)) if digest == run.request_digest => {
                    Submitted::Repeated(RunId::from_uuid(earlier))
                }
                // Used for another content, or for another write (crate::repeats).
                (_, Some(_)) => Submitted::Conflict,
                (_, None) if row.late => Submitted::DeadlinePassed,
                (_, None) => return Err(NOT_WRITTEN),
            };
            Ok((run.run_id.as_uuid(), outcome))
        })
        .collect()
}

#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<&'a str>,
    runs: Vec<Uuid>,
    scopes: Vec<&'a str>,
    kinds: Vec<&'a str>,
    capabilities: Vec<&'a str>,
    classes: Vec<i32>,
    service_classes: Vec<&'a str>,
    priorities: Vec<i16>,
    priority_sources: Vec<&'a str>,
    keys: Vec<Option<&'a str>>,
    digests: Vec<&'a [u8]>,
    max_attempts: Vec<i32>,
    backoff_bases: Vec<i64>,
    backoff_maxima: Vec<i64>,
    token_budgets: Vec<Option<i64>>,
    time_budgets: Vec<Option<i64>>,
    run_ats: Vec<Option<DateTime<Utc>>>,
    deadlines: Vec<Option<DateTime<Utc>>>,
    creators: Vec<Option<Uuid>>,
    users: Vec<Option<&'a str>>,
    inputs: Vec<Json<&'a serde_json::Value>>,
}

impl<'a> Columns<'a> {
    fn of(submissions: &'a [Submission]) -> Self {
        // By their keys: two batches take them in the same order.
        let mut sorted: Vec<&'a Submission> = submissions.iter().collect();
        sorted.sort_by(|a, b| {
            let by_tenant = a.tenant.cmp(&b.tenant);
            by_tenant.then_with(|| a.run.idempotency_key.cmp(&b.run.idempotency_key))
        });
        let mut columns = Self::default();
        for Submission { tenant, run } in sorted {
            columns.tenants.push(tenant.as_str());
            columns.runs.push(run.run_id.as_uuid());
            columns.scopes.push(&run.scope);
            columns.kinds.push(run.kind.as_str());
            columns.capabilities.push(run.capability.as_str());
            columns.classes.push(run.class);
            columns.service_classes.push(run.service_class.as_str());
            columns.priorities.push(run.priority);
            columns.priority_sources.push(run.priority_source.as_str());
            columns.keys.push(run.idempotency_key.as_deref());
            columns.digests.push(&run.request_digest);
            columns.max_attempts.push(run.max_attempts);
            columns.backoff_bases.push(run.backoff_base_ms);
            columns.backoff_maxima.push(run.backoff_max_ms);
            columns.token_budgets.push(run.budget_tokens);
            columns.time_budgets.push(run.budget_ms);
            columns.run_ats.push(run.run_at);
            columns.deadlines.push(run.deadline);
            columns.creators.push(run.created_by.map(KeyId::as_uuid));
            columns.users.push(run.user.as_deref());
            columns.inputs.push(Json(&run.input));
        }
        columns
    }

    /// Writes those that may be written, and says where they stand.
    async fn write(
        &self,
        connection: &mut PgConnection,
        queue_max_age_ms: i64,
    ) -> Result<Vec<(Uuid, Submitted)>, Error> {
        let rows = sqlx::query!(
            r#"WITH written AS (
                INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
                    priority_source, root_run_id, idempotency_key, request_digest, max_attempts, backoff_base_ms,
                    backoff_max_ms, budget_tokens, budget_ms, run_at, deadline, created_at, created_by, user_name, input)
                SELECT g.tenant, g.run_id, g.scope, g.kind, g.capability, g.class, g.service_class, g.priority,
                    g.priority_source, g.run_id, g.key, g.digest, g.max_attempts, g.backoff_base_ms, g.backoff_max_ms,
                    g.budget_tokens, g.budget_ms, g.run_at, g.deadline, clock.now, g.created_by, g.user_name, g.input
                FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
                    $8::smallint[], $9::text[], $10::text[], $11::bytea[], $12::integer[], $13::bigint[], $14::bigint[],
                    $15::bigint[], $16::bigint[], $17::timestamptz[], $18::timestamptz[], $19::uuid[], $20::text[],
                    $21::jsonb[])
                AS g(tenant, run_id, scope, kind, capability, class, service_class, priority, priority_source, key,
                    digest, max_attempts, backoff_base_ms, backoff_max_ms, budget_tokens, budget_ms, run_at, deadline,
                    created_by, user_name, input)
                CROSS JOIN (SELECT clock_timestamp() AS now) clock
                WHERE (SELECT t.state = 'active' FROM tenants t WHERE t.tenant = g.tenant)
                  AND (g.deadline IS NULL OR g.deadline > clock.now)
                  -- Of another write: a conflict (crate::repeats). A scalar query is always a look-up by key.
                  AND (SELECT i.owner FROM idempotency_records i
                       WHERE i.owner = g.tenant AND i.idempotency_key = g.key) IS NULL
                ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
                RETURNING scope, CASE quota_bucket WHEN 'foreground' THEN 0 WHEN 'background' THEN 1 ELSE 2 END AS bucket,
                    tenant, class, -priority AS urgency, run_id, kind, capability, created_at, run_at,
                    coalesce(run_at > created_at, false) AS early,
                    least(deadline, greatest(created_at, run_at) + $22::bigint * interval '1 millisecond') AS expires_at
            ), queued AS (
                INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, queued_at, expires_at)
                SELECT scope, bucket, tenant, class, 1, urgency, run_id, 2, created_at, expires_at
                FROM written WHERE NOT early
            ), parked AS (
                INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, next_seq, parked_at,
                    expires_at)
                SELECT tenant, run_id, 'scheduled', run_at, scope, bucket, class, urgency, 2, created_at, expires_at
                FROM written WHERE early
            ), told AS (
                INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
                SELECT tenant, run_id, 1, created_at, 'run.queued',
                    jsonb_build_object('kind', kind, 'capability', capability)
                FROM written
            )
            SELECT run_id, created_at, early AS "early!" FROM written"#,
            &self.tenants as &[&str],
            &self.runs,
            &self.scopes as &[&str],
            &self.kinds as &[&str],
            &self.capabilities as &[&str],
            &self.classes,
            &self.service_classes as &[&str],
            &self.priorities,
            &self.priority_sources as &[&str],
            &self.keys as &[Option<&str>],
            &self.digests as &[&[u8]],
            &self.max_attempts,
            &self.backoff_bases,
            &self.backoff_maxima,
            &self.token_budgets as &[Option<i64>],
            &self.time_budgets as &[Option<i64>],
            &self.run_ats as &[Option<DateTime<Utc>>],
            &self.deadlines as &[Option<DateTime<Utc>>],
            &self.creators as &[Option<Uuid>],
            &self.users as &[Option<&str>],
            &self.inputs as &[Json<&serde_json::Value>],
            queue_max_age_ms,
        )
        .fetch_all(connection)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| {
                let place = if row.early {
                    Place::Parked
                } else {
                    Place::Queued
                };
                let created_at = row.created_at;
                (row.run_id, Submitted::Accepted { place, created_at })
            })
            .collect())
    }
}
