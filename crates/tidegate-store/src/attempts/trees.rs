//! A run's end in its tree: descendants end with it, and its parent wakes (R3.10, R3.13).
//!
//! Whatever moves runs of a tree holds the tree's lock: a child that is submitted, an attempt of the tree that is closed,
//! a queued run of it that is ended or put back. Without it the end of a child and the parking of its parent could each
//! read what the other has not written yet, and the parent would wait for ever. Claims, renewals and wakes by time do not
//! take it: they move a run to a place where the next look finds it.
//!
//! The lock is one per tree, held for a few milliseconds, and nobody asks for it while holding a lease or a queue row.

use std::collections::HashSet;

use serde_json::json;
use sqlx::PgConnection;
use tidegate_model::{
    Code, RunId,
    run::{RunState, WaitMode, WaitOn},
};
use tidegate_policy::{
    retry::Disposition,
    waitgraph::{is_over, takes_descendants_along},
};
use uuid::Uuid;

use super::{
    LeaseKey,
    close::{CloseReport, Step},
    end_queued::{Ends, end_rows},
    waits::{Wait, Wakes, wake},
};
use crate::{Error, error::stored};

/// How often descendants that moved meanwhile are looked for again; what is still missed is found by the sweep.
const ROUNDS_MAX: u32 = 8;

/// What happened in a transaction to runs of trees whose locks it holds.
#[derive(Default)]
pub(super) struct Family {
    ended_tenants: Vec<String>,
    ended: Vec<Uuid>,
    failed_tenants: Vec<String>,
    failed: Vec<Uuid>,
    waiting_tenants: Vec<String>,
    waiting: Vec<Uuid>,
}

impl Family {
    /// Notes what became of an attempt's run.
    pub(super) fn note(&mut self, key: &LeaseKey, next: Disposition, wait: Option<&Wait>) {
        let (tenant, run) = (key.tenant.as_str(), key.run_id.as_uuid());
        match next {
            Disposition::End { state, .. } => self.ended(tenant, run, state),
            Disposition::Wait if wait.is_some_and(|wait| wait.on == WaitOn::Children) => {
                self.waiting_tenants.push(tenant.to_owned());
                self.waiting.push(run);
            }
            _ => {}
        }
    }

    /// Notes an end.
    pub(super) fn ended(&mut self, tenant: &str, run: Uuid, state: RunState) {
        self.ended_tenants.push(tenant.to_owned());
        self.ended.push(run);
        if takes_descendants_along(state) {
            self.failed_tenants.push(tenant.to_owned());
            self.failed.push(run);
        }
    }
}

/// Locks the trees of some runs, in one order; runs without a parent and without children are passed over.
pub(super) async fn lock_trees(
    tx: &mut PgConnection,
    tenants: &[String],
    runs: &[Uuid],
) -> Result<(), Error> {
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(k.key) FROM (
               SELECT DISTINCT hashtextextended('tidegate tree ' || a.root_run_id::text, 0) AS key
               FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
               JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
               WHERE a.parent_run_id IS NOT NULL OR coalesce((SELECT true FROM agent_runs c
                   WHERE c.tenant = a.tenant AND c.root_run_id = a.root_run_id AND c.parent_run_id = a.run_id
                   LIMIT 1), false)
               ORDER BY 1) k"#,
        tenants,
        runs,
    )
    .fetch_all(tx)
    .await?;
    Ok(())
}

/// Locks the trees of leased runs that are in one; whether there were any.
pub(super) async fn lock_trees_of_leases(
    tx: &mut PgConnection,
    reports: &[CloseReport],
) -> Result<bool, Error> {
    let key = |report: &CloseReport| report.lease.key.clone();
    let tenants: Vec<String> = reports.iter().map(|r| key(r).tenant.to_string()).collect();
    let runs: Vec<Uuid> = reports.iter().map(|r| key(r).run_id.as_uuid()).collect();
    let buckets: Vec<i16> = reports
        .iter()
        .map(|r| super::bucket_number(key(r).bucket))
        .collect();
    let locked = sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(k.key) FROM (
               SELECT DISTINCT hashtextextended('tidegate tree ' || a.root_run_id::text, 0) AS key
               FROM unnest($1::smallint[], $2::text[], $3::uuid[]) AS g(bucket, tenant, run_id)
               JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
               JOIN run_leases l ON l.scope = a.scope AND l.bucket = g.bucket AND l.tenant = g.tenant
                AND l.run_id = g.run_id AND l.in_tree
               ORDER BY 1) k"#,
        &buckets,
        &tenants,
        &runs,
    )
    .fetch_all(tx)
    .await?;
    Ok(!locked.is_empty())
}

/// Ends the descendants of runs that ended without success, and wakes whoever waited for an end; answers who was woken.
pub(super) async fn settle(
    tx: &mut PgConnection,
    family: Family,
    step: Step,
    queue_max_age_ms: i64,
) -> Result<HashSet<RunId>, Error> {
    if step == Step::Alone {
        return Ok(HashSet::new());
    }
    if !family.failed.is_empty() {
        end_descendants(tx, &family).await?;
    }
    if family.ended.is_empty() && family.waiting.is_empty() {
        return Ok(HashSet::new());
    }
    let wakes = waits_over(tx, &family).await?;
    fail::fail_point!("tree_before_wake", |_| Err(Error::injected()));
    wake(tx, &wakes, queue_max_age_ms).await
}

/// Ends open descendants: queued and parked ones at once, running ones are told (R3.10).
async fn end_descendants(tx: &mut PgConnection, family: &Family) -> Result<(), Error> {
    for _ in 0..ROUNDS_MAX {
        let open = sqlx::query!(
            r#"WITH RECURSIVE below AS (
                SELECT c.tenant, c.run_id, c.scope FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
                JOIN agent_runs c ON c.tenant = g.tenant AND c.parent_run_id = g.run_id
                UNION
                SELECT c.tenant, c.run_id, c.scope FROM below b
                JOIN agent_runs c ON c.tenant = b.tenant AND c.parent_run_id = b.run_id
            )
            SELECT b.tenant AS "tenant!", b.run_id AS "run_id!", l.run_id IS NOT NULL AS "leased!",
                   l.stop_reason IS NOT NULL AS "told!"
            FROM below b
            LEFT JOIN run_leases l ON l.scope = b.scope AND l.bucket = 2 AND l.tenant = b.tenant AND l.run_id = b.run_id
            WHERE NOT EXISTS (SELECT FROM run_ends e WHERE e.tenant = b.tenant AND e.run_id = b.run_id)"#,
            &family.failed_tenants,
            &family.failed,
        )
        .fetch_all(&mut *tx)
        .await?;
        let mut ends = Ends::default();
        let (mut told_tenants, mut told) = (Vec::new(), Vec::new());
        for run in open {
            if !run.leased {
                ends.tenants.push(run.tenant);
                ends.runs.push(run.run_id);
                ends.states.push(RunState::Cancelled.as_str().to_owned());
                ends.codes.push(Code::ParentEnded.as_str().to_owned());
                ends.details.push(None);
            } else if !run.told {
                told_tenants.push(run.tenant);
                told.push(run.run_id);
            }
        }
        if !told.is_empty() {
            tell(tx, &told_tenants, &told).await?;
        }
        if ends.runs.is_empty() || end_rows(tx, &ends).await?.len() == ends.runs.len() {
            return Ok(());
        }
        // One was being claimed, or its time came: it stands elsewhere now.
    }
    Ok(())
}

/// Marks leases; one that is just being renewed is passed over and found by the sweep, so that nobody waits here.
async fn tell(tx: &mut PgConnection, tenants: &[String], runs: &[Uuid]) -> Result<(), Error> {
    sqlx::query!(
        r#"UPDATE run_leases l SET stop_reason = 'parent_ended', stop_requested_at = clock_timestamp()
           FROM (
               SELECT k.ctid AS at FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
               JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
               JOIN run_leases k ON k.scope = a.scope AND k.bucket = 2 AND k.tenant = g.tenant AND k.run_id = g.run_id
               WHERE k.stop_reason IS NULL
               FOR NO KEY UPDATE OF k SKIP LOCKED) open
           WHERE l.ctid = open.at"#,
        tenants,
        runs,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Which waits on children are over: of the parents of runs that ended, and of runs that have just begun to wait. Read
/// after both were written, under the tree's lock, so that no end is missed.
async fn waits_over(tx: &mut PgConnection, family: &Family) -> Result<Wakes, Error> {
    let waits = sqlx::query!(
        r#"SELECT p.tenant AS "tenant!", p.run_id AS "run_id!", p.wait_mode AS "mode!",
                  cardinality(p.wait_runs)::bigint AS "awaited!", e.ended AS "ended!", e.last
           FROM (
               SELECT a.tenant, a.parent_run_id AS run_id FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
               JOIN agent_runs a ON a.tenant = g.tenant AND a.run_id = g.run_id
               WHERE a.parent_run_id IS NOT NULL
               UNION SELECT * FROM unnest($3::text[], $4::uuid[])) k
           JOIN run_parked p ON p.tenant = k.tenant AND p.run_id = k.run_id AND p.waits_on = 'children'
           CROSS JOIN LATERAL (
               SELECT count(*) AS ended, (array_agg(e.run_id ORDER BY e.ended_at DESC))[1] AS last
               FROM run_ends e WHERE e.tenant = p.tenant AND e.run_id = ANY (p.wait_runs)) e"#,
        &family.ended_tenants,
        &family.ended,
        &family.waiting_tenants,
        &family.waiting,
    )
    .fetch_all(tx)
    .await?;
    let mut wakes = Wakes::default();
    for wait in waits {
        let mode: WaitMode = stored(&wait.mode, "run_parked.wait_mode")?;
        if is_over(mode, wait.awaited, wait.ended) {
            let run = wait.last.map(RunId::from_uuid);
            wakes.push(
                wait.tenant,
                wait.run_id,
                json!({"by": WaitOn::Children, "run": run}),
            );
        }
    }
    Ok(wakes)
}
