//! The auditor. It reads what was written down, and nothing of what the servers think.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::AssertSqlSafe;
use tidegate_model::RunId;
use uuid::Uuid;

use crate::rig::World;

/// The caps of the tier that every tenant has here.
const FOREGROUND_CAP: usize = 2;
const BACKGROUND_CAP: usize = 1;

/// 1 where every run has ended; children may still come while one has not.
const NOTHING_OPEN: &str =
    "SELECT (NOT EXISTS (SELECT FROM run_queue) AND NOT EXISTS (SELECT FROM run_leases)
     AND NOT EXISTS (SELECT FROM run_parked))::integer::bigint";

/// What must never be found, with a query that counts it.
const NEVER: &[(&str, &str)] = &[
    (
        "a run that ended otherwise than well",
        "SELECT count(*) FROM run_ends WHERE state <> 'succeeded'",
    ),
    (
        "a run without exactly one attempt that succeeded",
        "SELECT count(*) FROM (SELECT r.run_id FROM agent_runs r LEFT JOIN run_attempts a
             ON a.tenant = r.tenant AND a.run_id = r.run_id AND a.outcome = 'succeeded'
         GROUP BY r.tenant, r.run_id HAVING count(a.run_id) <> 1) x",
    ),
    (
        "an attempt after the one that succeeded",
        "SELECT count(*) FROM run_attempts a JOIN run_attempts b USING (tenant, run_id)
         WHERE a.outcome = 'succeeded'
           AND (b.fence_generation, b.fence_number) > (a.fence_generation, a.fence_number)",
    ),
    (
        "a result that was written under another fence than that of the attempt that succeeded",
        "SELECT count(*) FROM run_ends e JOIN run_attempts a USING (tenant, run_id)
         WHERE a.outcome = 'succeeded' AND e.result ? 'fence'
           AND e.result->>'fence' <> a.fence_generation || '.' || a.fence_number",
    ),
    (
        "a number of attempts that the events do not tell",
        "SELECT count(*) FROM (SELECT a.tenant, a.run_id, count(*) AS attempts FROM run_attempts a GROUP BY 1, 2) a
         JOIN (SELECT v.tenant, v.run_id, count(*) AS started FROM run_events v WHERE v.kind = 'run.started'
               GROUP BY 1, 2) v USING (tenant, run_id)
         WHERE a.attempts <> v.started",
    ),
];

/// Waits until everything has ended, then panics on the first thing that does not add up.
#[expect(clippy::print_stdout, reason = "the figures of a soak")]
pub async fn judge(world: &World, accepted: &[RunId]) {
    world.until_count(NOTHING_OPEN, 1).await;
    let runs = world.count("SELECT count(*) FROM agent_runs").await;
    let known: Vec<Uuid> = accepted.iter().map(|run| run.as_uuid()).collect();
    let there: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM unnest($1::uuid[]) AS k(run_id) JOIN run_ends e USING (run_id)",
    )
    .bind(&known)
    .fetch_one(world.db.pool())
    .await
    .expect("count");
    assert_eq!(
        there,
        i64::try_from(known.len()).expect("few"),
        "an accepted run was lost"
    );
    for (what, sql) in NEVER {
        assert_eq!(world.count(sql).await, 0, "{what}");
    }
    tidegate_testkit::audit(world.db.pool()).await;
    let background = most_at_once(world, "background").await;
    assert!(
        background <= BACKGROUND_CAP,
        "{background} background runs of a tenant at once"
    );
    // Soft: claims that race may each take what they saw free.
    let foreground = most_at_once(world, "foreground").await;
    let bound = FOREGROUND_CAP * world.servers.len();
    assert!(
        foreground <= bound,
        "{foreground} foreground runs of a tenant at once"
    );
    let attempts = world.count("SELECT count(*) FROM run_attempts").await;
    let lost = world
        .count("SELECT count(*) FROM run_attempts WHERE outcome = 'lease_lost'")
        .await;
    let children = world
        .count("SELECT count(*) FROM agent_runs WHERE parent_run_id IS NOT NULL")
        .await;
    let waits = world
        .count("SELECT count(*) FROM run_attempts WHERE outcome = 'waiting'")
        .await;
    println!(
        "{runs} runs, {} of them acknowledged, {children} of them children, {attempts} claims, {waits} ended in waits, \
         {lost} leases lost; at once at most {foreground} foreground and {background} background runs of a tenant",
        known.len()
    );
    assert!(children > 0 && waits > 0, "nobody waited for a child");
    assert!(lost > 0, "nothing went wrong");
}

/// The most attempts of one tenant in a bucket at any instant.
async fn most_at_once(world: &World, bucket: &str) -> usize {
    let attempts: Vec<(String, DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT a.tenant, a.started_at, a.ended_at FROM run_attempts a
         JOIN agent_runs r ON r.tenant = a.tenant AND r.run_id = a.run_id AND r.quota_bucket = '{bucket}'"
    )))
    .fetch_all(world.db.pool())
    .await
    .expect("attempts");
    let mut changes: HashMap<String, Vec<(DateTime<Utc>, isize)>> = HashMap::new();
    for (tenant, started, ended) in attempts {
        changes
            .entry(tenant)
            .or_default()
            .extend([(started, 1), (ended, -1)]);
    }
    let mut most = 0;
    for of_tenant in changes.values_mut() {
        // An end comes before a start of the same instant.
        of_tenant.sort_unstable();
        let mut now = 0;
        for (_, change) in of_tenant {
            now += *change;
            most = most.max(now);
        }
    }
    usize::try_from(most).expect("a count")
}
