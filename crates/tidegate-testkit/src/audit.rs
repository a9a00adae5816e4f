//! An auditor that reads only what the database holds: places, slots, streams and attempts must add up, whatever happened.

use sqlx::{AssertSqlSafe, PgPool};

/// What must never be found, with a query that counts it.
const NEVER: &[(&str, &str)] = &[
    (
        "a run in no place or in two",
        "SELECT count(*) FROM (SELECT a.run_id FROM agent_runs a
         LEFT JOIN (SELECT run_id FROM run_queue UNION ALL SELECT run_id FROM run_leases
                    UNION ALL SELECT run_id FROM run_parked UNION ALL SELECT run_id FROM run_ends) p USING (run_id)
         GROUP BY a.run_id HAVING count(p.run_id) <> 1) x",
    ),
    (
        "a background lease without its slot, or a slot without its lease",
        "SELECT count(*) FROM (SELECT run_id FROM run_leases WHERE bucket = 1) l
         FULL JOIN background_slots s USING (run_id) WHERE l.run_id IS NULL OR s.run_id IS NULL",
    ),
    (
        "a gap or a double in a stream of events",
        "SELECT count(*) FROM (SELECT run_id FROM run_events GROUP BY run_id
         HAVING max(seq) <> count(*) OR min(seq) <> 1) x",
    ),
    (
        "an event after the end",
        "SELECT count(*) FROM run_ends e JOIN run_events v USING (tenant, run_id)
         WHERE v.seq = (SELECT max(seq) FROM run_events m WHERE m.tenant = e.tenant AND m.run_id = e.run_id) AND v.kind <> 'run.ended'",
    ),
    (
        "two attempts of one run at the same time",
        "SELECT count(*) FROM run_attempts a JOIN run_attempts b USING (tenant, run_id)
         WHERE a.fence_number < b.fence_number AND b.started_at < a.ended_at",
    ),
    (
        "two turns of one conversation at the same time",
        "SELECT count(*) FROM run_attempts a JOIN agent_runs ra USING (tenant, run_id)
         JOIN agent_runs rb ON rb.tenant = ra.tenant AND rb.conversation_id = ra.conversation_id
          AND rb.run_id <> ra.run_id
         JOIN run_attempts b ON b.tenant = rb.tenant AND b.run_id = rb.run_id
         WHERE a.started_at < b.started_at AND b.started_at < a.ended_at",
    ),
    (
        "an open run that was not told that its parent ended without success",
        "SELECT count(*) FROM agent_runs a
         JOIN run_ends p ON p.tenant = a.tenant AND p.run_id = a.parent_run_id AND p.state <> 'succeeded'
         WHERE NOT EXISTS (SELECT FROM run_ends e WHERE e.run_id = a.run_id)
           AND NOT EXISTS (SELECT FROM run_leases l WHERE l.run_id = a.run_id AND l.stop_reason IS NOT NULL)",
    ),
    (
        "a run that waits for what is there",
        "SELECT count(*) FROM run_parked p CROSS JOIN LATERAL (SELECT count(*) AS ended FROM run_ends e
           WHERE e.tenant = p.tenant AND e.run_id = ANY (p.wait_runs)) e
         WHERE p.waits_on = 'children'
           AND CASE p.wait_mode WHEN 'any' THEN e.ended > 0 ELSE e.ended = cardinality(p.wait_runs) END",
    ),
    (
        "a tree that is larger than it may be",
        "SELECT count(*) FROM (SELECT a.root_run_id FROM agent_runs a LEFT JOIN run_ends e USING (tenant, run_id)
         WHERE a.parent_run_id IS NOT NULL GROUP BY a.root_run_id
         HAVING count(*) > 512 OR max(a.depth) > 8 OR count(*) FILTER (WHERE e.run_id IS NULL) > 32) x",
    ),
    (
        "a counter of the ledger that is not the sum of what is held",
        "SELECT count(*) FROM resources r WHERE r.in_use <> coalesce((
           SELECT sum(h.held) FROM (SELECT resources, held FROM admissions_open
               UNION ALL SELECT resources, held FROM run_leases WHERE resources IS NOT NULL) x
           CROSS JOIN LATERAL unnest(x.resources, x.held) AS h(resource, held) WHERE h.resource = r.resource), 0)",
    ),
    (
        "an admission that is open and over",
        "SELECT count(*) FROM admissions_open JOIN admissions_done USING (tenant, admission_id)",
    ),
    (
        "a conversation whose active turn has ended",
        "SELECT count(*) FROM conversations c JOIN run_ends e ON e.tenant = c.tenant AND e.run_id = c.active_run",
    ),
];

/// Panics on the first thing that does not add up. Reads one snapshot per check; call it when nothing is in flight.
pub async fn audit(pool: &PgPool) {
    for (what, sql) in NEVER {
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(*sql))
            .fetch_one(pool)
            .await
            .expect("audit");
        assert_eq!(found, 0, "{what}");
    }
}
