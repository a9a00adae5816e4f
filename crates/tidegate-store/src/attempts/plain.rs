//! The close of attempts of which nothing has to be decided: completed in time by their holder, in no tree, no turn of a
//! conversation, told of no stop. One statement takes the lease and writes attempt, end and event; it reads no run and
//! needs no transaction around it.
//!
//! That such an attempt succeeds is the policy's word ([`plain_success`]); the statement only finds out, under the lease's
//! lock, whether it is one. What it leaves is closed the other way, which reads more and decides by the same policy.

use std::sync::Arc;

use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use tidegate_model::run::QuotaBucket;
use tidegate_policy::retry::{Report, plain_success};

use super::{
    close::{CloseReport, Closed, Rules},
    renew::HeldArrays,
};
use crate::{Error, Fleet, error::stored, lanes::LaneKey};

/// Whether a report may be of a plain success, as far as its holder knows.
fn may_be_plain(report: &CloseReport) -> bool {
    report.report == Report::Completed
        && report.detail.is_none()
        && report.wait.is_none()
        && report.messages.is_empty()
        && report.lease.key.conversation_id.is_none()
        // A background run gives its slot back.
        && report.lease.key.bucket != QuotaBucket::Background
}

/// What the statement is given: the plain ones of some reports, in the order in which their leases are locked.
struct Columns<'a> {
    /// Which reports these are.
    places: Vec<usize>,
    keys: HeldArrays,
    tokens: Vec<i64>,
    results: Vec<Option<Json<&'a Value>>>,
}

impl<'a> Columns<'a> {
    fn of(reports: &'a [CloseReport]) -> Self {
        let mut plain: Vec<(usize, &CloseReport)> = reports
            .iter()
            .enumerate()
            .filter(|(_, report)| may_be_plain(report))
            .collect();
        // As everybody does who takes several leases. Of two reports about one lease the first stays the first.
        plain.sort_by(|(_, a), (_, b)| a.lease.key.order().cmp(&b.lease.key.order()));
        Self {
            places: plain.iter().map(|(place, _)| *place).collect(),
            keys: HeldArrays::of(plain.iter().map(|(_, report)| &report.lease)),
            tokens: plain.iter().map(|(_, report)| report.tokens).collect(),
            results: plain
                .iter()
                .map(|(_, report)| report.result.as_ref().map(Json))
                .collect(),
        }
    }
}

impl Fleet {
    /// Closes those of the reports that are plain successes, and answers them.
    pub(super) async fn close_plain(
        &self,
        reports: Arc<[CloseReport]>,
        rules: &Rules,
    ) -> Result<Vec<Closed>, Error> {
        if !reports.iter().any(may_be_plain) {
            return Ok(Vec::new());
        }
        let scope = rules.scope.clone();
        let closed = self
            .store()
            .statement("close_plain", move |connection| {
                let (reports, scope) = (Arc::clone(&reports), scope.clone());
                Box::pin(async move { succeed(connection, &scope, &reports).await })
            })
            .await;
        match closed {
            // An event of a holder came between the statement's snapshot and its lock, and has the number of the end.
            Err(error) if error.is_duplicate() => Ok(Vec::new()),
            other => other,
        }
    }
}

async fn succeed(
    connection: &mut PgConnection,
    scope: &str,
    reports: &[CloseReport],
) -> Result<Vec<Closed>, Error> {
    fail::fail_point!("close_before_write", |_| Err(Error::injected()));
    let columns = Columns::of(reports);
    let Columns { places, keys, .. } = &columns;
    let rows = sqlx::query!(
        r#"/* attempt:close */
        WITH gone AS (
            DELETE FROM run_leases l
            USING unnest($2::smallint[], $3::text[], $4::uuid[], $5::integer[], $6::bigint[], $7::bigint[], $8::jsonb[])
                    WITH ORDINALITY AS g(bucket, tenant, run_id, fence_generation, fence_number, tokens, result, ord),
                (SELECT c.generation, clock_timestamp() AS now FROM cluster c OFFSET 0) c
            WHERE l.scope = $1 AND l.bucket = g.bucket AND l.tenant = g.tenant AND l.run_id = g.run_id
              AND l.fence_generation = g.fence_generation AND l.fence_number = g.fence_number
              AND l.fence_generation = c.generation AND l.lease_until > clock_timestamp()
              -- What makes it plain, see tidegate_policy::retry::plain_success.
              AND l.stop_reason IS NULL AND (l.must_end_at IS NULL OR l.must_end_at > clock_timestamp())
              AND NOT l.in_tree AND l.conversation_id IS NULL
              -- What holds something of the ledger gives it back the other way.
              AND l.resources IS NULL
            RETURNING l.*, g.ord, greatest(g.tokens, l.used_tokens) AS tokens, g.result,
                      greatest(c.now, l.started_at) AS ended_at,
                      greatest(0, extract(epoch FROM c.now - l.started_at) * 1000)::bigint AS ms,
                      (SELECT max(e.seq) + 1 FROM run_events e WHERE e.tenant = l.tenant AND e.run_id = l.run_id) AS seq
        ), attempts AS (
            INSERT INTO run_attempts (tenant, run_id, fence_generation, fence_number, attempt, pool, holder,
                incarnation, queued_at, started_at, ended_at, outcome, tokens)
            SELECT tenant, run_id, fence_generation, fence_number, attempt, pool, holder, incarnation, queued_at,
                started_at, ended_at, 'succeeded', tokens FROM gone
        ), ends AS (
            INSERT INTO run_ends (tenant, run_id, state, result, attempts, fence_number, spent_tokens, spent_ms,
                next_seq, ended_at)
            SELECT tenant, run_id, 'succeeded', result, attempt, fence_number, spent_tokens + tokens, spent_ms + ms,
                seq + 1, ended_at FROM gone
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, seq, ended_at, 'run.ended', '{"state": "succeeded", "code": null}' FROM gone
        )
        SELECT g.ord AS "ord!", g.class AS "class!", g.charged AS "charged!", g.ms AS "ms!", g.tokens AS "tokens!",
               (SELECT r.capability FROM requirement_classes r WHERE r.class = g.class) AS "capability!"
        FROM gone g"#,
        scope,
        &keys.buckets,
        &keys.tenants,
        &keys.runs,
        &keys.generations,
        &keys.numbers,
        &columns.tokens,
        &columns.results as &[Option<Json<&Value>>],
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let place = usize::try_from(row.ord - 1)
                .ok()
                .and_then(|at| places.get(at));
            let report = place.and_then(|place| reports.get(*place));
            let lease = report.map(|report| report.lease.clone());
            let lease = lease.ok_or(Error::Corrupt {
                what: "the index of a report",
            })?;
            Ok(Closed {
                lane: LaneKey {
                    bucket: lease.key.bucket,
                    tenant: lease.key.tenant.clone(),
                    class: row.class,
                },
                fence: lease.fence,
                key: lease.key,
                verdict: plain_success(),
                stop_to_release_ms: None,
                capability: stored(&row.capability, "requirement_classes.capability")?,
                charged: u64::try_from(row.charged).unwrap_or(0),
                attempt_ms: row.ms,
                tokens: row.tokens,
                next_turn: None,
                woken: false,
                in_tree: false,
                gave_back: false,
            })
        })
        .collect()
}
