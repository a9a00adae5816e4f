//! Accepting runs that are no turns: many at once, of any tenants, by one statement.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_model::{KeyId, RunId, TenantId};
use uuid::Uuid;

use super::submit::{NewRun, Place, Submitted};
use crate::{Error, Fleet, attempts::bucket_number};

/// A run and whose it is.
#[derive(Debug, Clone)]
pub struct Submission {
    /// From an authenticated principal.
    pub tenant: TenantId,
    /// Not a turn: turns stand under their conversation's lock, see [`TenantStore::submit_run`](crate::TenantStore).
    pub run: NewRun,
}

impl Fleet {
    /// Accepts runs, or says of each why not; the answers are in the order of the submissions.
    ///
    /// One statement writes all of them with their places and first events, so each is there whole or not at all. A key
    /// that another transaction is just using is waited for, so that nobody is told of a run that never came to be
    /// (O-33); keys are taken in their order, so that two batches cannot wait for each other.
    pub async fn submit_runs(
        &self,
        submissions: impl Into<Arc<[Submission]>>,
    ) -> Result<Vec<Submitted>, Error> {
        let submissions = submissions.into();
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        self.store()
            .statement("submit_runs", move |connection| {
                let submissions = Arc::clone(&submissions);
                Box::pin(async move { submit(connection, &submissions).await })
            })
            .await
    }
}

async fn submit(
    connection: &mut PgConnection,
    submissions: &[Submission],
) -> Result<Vec<Submitted>, Error> {
    fail::fail_point!("submit_before_write", |_| Err(Error::injected()));
    let seen = Columns::of(submissions).write(connection).await?;
    fail::fail_point!("submit_after_write", |_| Err(Error::injected()));
    let mut by_run: HashMap<Uuid, Seen> = seen.into_iter().map(|row| (row.run_id, row)).collect();
    let earlier = if by_run.values().any(|row| row.active && !row.written) {
        earlier_runs(connection, submissions).await?
    } else {
        HashMap::new()
    };
    submissions
        .iter()
        .map(|submission| {
            let id = submission.run.run_id.as_uuid();
            let row = by_run.remove(&id).ok_or(Error::RowCount {
                statement: "submit runs",
                expected: 1,
                changed: 0,
            })?;
            outcome(submission, &row, &earlier)
        })
        .collect()
}

/// Keys that were used before, with the run (none for another write) and the digest they were used for.
type Earlier = HashMap<(String, String), (Option<Uuid>, Vec<u8>)>;

fn outcome(submission: &Submission, row: &Seen, earlier: &Earlier) -> Result<Submitted, Error> {
    if !row.active {
        return Ok(Submitted::TenantInactive);
    }
    if row.written {
        return Ok(Submitted::Accepted {
            place: if row.early {
                Place::Parked
            } else {
                Place::Queued
            },
            created_at: row.now,
        });
    }
    let key = submission
        .run
        .idempotency_key
        .as_ref()
        .map(|key| (submission.tenant.as_str().to_owned(), key.clone()));
    match key.and_then(|key| earlier.get(&key)) {
        Some((Some(run), digest)) if *digest == submission.run.request_digest => {
            Ok(Submitted::Repeated(RunId::from_uuid(*run)))
        }
        Some(_) => Ok(Submitted::Conflict),
        None if row.late => Ok(Submitted::DeadlinePassed),
        None => Err(Error::RowCount {
            statement: "submit runs",
            expected: 1,
            changed: 0,
        }),
    }
}

async fn earlier_runs(
    connection: &mut PgConnection,
    submissions: &[Submission],
) -> Result<Earlier, Error> {
    let (tenants, keys): (Vec<String>, Vec<String>) = submissions
        .iter()
        .filter_map(|submission| {
            let key = submission.run.idempotency_key.clone()?;
            Some((submission.tenant.as_str().to_owned(), key))
        })
        .unzip();
    let rows = sqlx::query!(
        r#"SELECT k.tenant AS "tenant!", k.key AS "key!", a.run_id AS "run_id?",
                  coalesce(a.request_digest, i.request_digest) AS "request_digest!"
           FROM unnest($1::text[], $2::text[]) AS k(tenant, key)
           LEFT JOIN agent_runs a ON a.tenant = k.tenant AND a.idempotency_key = k.key
           LEFT JOIN idempotency_records i ON i.owner = k.tenant AND i.idempotency_key = k.key
           WHERE a.run_id IS NOT NULL OR i.owner IS NOT NULL"#,
        &tenants,
        &keys,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ((row.tenant, row.key), (row.run_id, row.request_digest)))
        .collect())
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "a row as the statement answers it"
)]
struct Seen {
    run_id: Uuid,
    active: bool,
    late: bool,
    early: bool,
    written: bool,
    now: DateTime<Utc>,
}

#[derive(Default)]
struct Columns {
    tenants: Vec<String>,
    runs: Vec<Uuid>,
    scopes: Vec<String>,
    kinds: Vec<String>,
    buckets: Vec<i16>,
    capabilities: Vec<String>,
    classes: Vec<i32>,
    service_classes: Vec<String>,
    priorities: Vec<i16>,
    priority_sources: Vec<String>,
    keys: Vec<Option<String>>,
    digests: Vec<Vec<u8>>,
    max_attempts: Vec<i32>,
    backoff_bases: Vec<i64>,
    backoff_maxima: Vec<i64>,
    token_budgets: Vec<Option<i64>>,
    time_budgets: Vec<Option<i64>>,
    run_ats: Vec<Option<DateTime<Utc>>>,
    deadlines: Vec<Option<DateTime<Utc>>>,
    creators: Vec<Option<Uuid>>,
    users: Vec<Option<String>>,
    inputs: Vec<serde_json::Value>,
    max_ages: Vec<i64>,
}

impl Columns {
    fn of(submissions: &[Submission]) -> Self {
        let mut columns = Self::default();
        for Submission { tenant, run } in submissions {
            columns.tenants.push(tenant.as_str().to_owned());
            columns.runs.push(run.run_id.as_uuid());
            columns.scopes.push(run.scope.clone());
            columns.kinds.push(run.kind.as_str().to_owned());
            columns.buckets.push(bucket_number(run.kind.quota_bucket()));
            columns
                .capabilities
                .push(run.capability.as_str().to_owned());
            columns.classes.push(run.class);
            columns
                .service_classes
                .push(run.service_class.as_str().to_owned());
            columns.priorities.push(run.priority);
            columns
                .priority_sources
                .push(run.priority_source.as_str().to_owned());
            columns.keys.push(run.idempotency_key.clone());
            columns.digests.push(run.request_digest.to_vec());
            columns.max_attempts.push(run.max_attempts);
            columns.backoff_bases.push(run.backoff_base_ms);
            columns.backoff_maxima.push(run.backoff_max_ms);
            columns.token_budgets.push(run.budget_tokens);
            columns.time_budgets.push(run.budget_ms);
            columns.run_ats.push(run.run_at);
            columns.deadlines.push(run.deadline);
            columns.creators.push(run.created_by.map(KeyId::as_uuid));
            columns.users.push(run.user.clone());
            columns.inputs.push(run.input.clone());
            columns.max_ages.push(run.queue_max_age_ms);
        }
        columns
    }

    async fn write(self, connection: &mut PgConnection) -> Result<Vec<Seen>, Error> {
        Ok(sqlx::query_as!(
            Seen,
            r#"WITH given AS MATERIALIZED (
                SELECT g.*, t.tenant IS NOT NULL AS active, clock.now,
                       coalesce(g.run_at > clock.now, false) AS early, coalesce(g.deadline <= clock.now, false) AS late
                FROM unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::integer[],
                    $8::text[], $9::smallint[], $10::text[], $11::text[], $12::bytea[], $13::integer[], $14::bigint[],
                    $15::bigint[], $16::bigint[], $17::bigint[], $18::timestamptz[], $19::timestamptz[], $20::uuid[],
                    $21::text[], $22::jsonb[], $23::bigint[]) WITH ORDINALITY
                AS g(tenant, run_id, scope, kind, bucket, capability, class, service_class, priority, priority_source,
                    key, digest, max_attempts, backoff_base_ms, backoff_max_ms, budget_tokens, budget_ms, run_at,
                    deadline, created_by, user_name, input, max_age_ms, ord)
                LEFT JOIN tenants t ON t.tenant = g.tenant AND t.state = 'active'
                CROSS JOIN (SELECT clock_timestamp() AS now) clock
            ), written AS (
                INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
                    priority_source, root_run_id, idempotency_key, request_digest, max_attempts, backoff_base_ms,
                    backoff_max_ms, budget_tokens, budget_ms, run_at, deadline, created_at, created_by, user_name, input)
                SELECT tenant, run_id, scope, kind, capability, class, service_class, priority, priority_source, run_id,
                    key, digest, max_attempts, backoff_base_ms, backoff_max_ms, budget_tokens, budget_ms, run_at,
                    deadline, now, created_by, user_name, input
                FROM given WHERE active AND NOT late
                  -- Of another write: a conflict (crate::repeats).
                  AND (key IS NULL OR NOT EXISTS (SELECT FROM idempotency_records i
                       WHERE i.owner = given.tenant AND i.idempotency_key = given.key))
                ORDER BY tenant, key, ord
                ON CONFLICT (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
                RETURNING run_id
            ), placed AS MATERIALIZED (
                SELECT g.tenant, g.run_id, g.scope, g.bucket, g.class, g.priority, g.kind, g.capability, g.run_at, g.now,
                       g.early, g.ord,
                       least(g.deadline, greatest(g.now, g.run_at) + g.max_age_ms * interval '1 millisecond') AS expires_at
                FROM given g JOIN written w ON w.run_id = g.run_id
            ), queued AS (
                INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, queued_at, expires_at)
                SELECT scope, bucket, tenant, class, 1, -priority, run_id, 2, now, expires_at
                FROM placed WHERE NOT early ORDER BY ord
            ), parked AS (
                INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, next_seq, parked_at,
                    expires_at)
                SELECT tenant, run_id, 'scheduled', run_at, scope, bucket, class, -priority, 2, now, expires_at
                FROM placed WHERE early
            ), told AS (
                INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
                SELECT tenant, run_id, 1, now, 'run.queued', jsonb_build_object('kind', kind, 'capability', capability)
                FROM placed
            )
            SELECT g.run_id AS "run_id!", g.active AS "active!", g.late AS "late!", g.early AS "early!", g.now AS "now!",
                   p.run_id IS NOT NULL AS "written!"
            FROM given g LEFT JOIN placed p ON p.run_id = g.run_id"#,
            &self.tenants,
            &self.runs,
            &self.scopes,
            &self.kinds,
            &self.buckets,
            &self.capabilities,
            &self.classes,
            &self.service_classes,
            &self.priorities,
            &self.priority_sources,
            &self.keys as &[Option<String>],
            &self.digests,
            &self.max_attempts,
            &self.backoff_bases,
            &self.backoff_maxima,
            &self.token_budgets as &[Option<i64>],
            &self.time_budgets as &[Option<i64>],
            &self.run_ats as &[Option<DateTime<Utc>>],
            &self.deadlines as &[Option<DateTime<Utc>>],
            &self.creators as &[Option<Uuid>],
            &self.users as &[Option<String>],
            &self.inputs,
            &self.max_ages,
        )
        .fetch_all(connection)
        .await?)
    }
}
