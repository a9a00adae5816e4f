//! Retention: ended runs and their events go after their time, in bounded batches (R24.3).
//!
//! Only trees of which nothing is open and nothing is young go, and a tree goes from its leaves to its root, so that what
//! is left of it can always be read. Whether a run has ended is looked at under the lock of its tree, and its end is taken
//! first: a dead letter that is put back meanwhile either keeps everything or is gone.
//!
//! No index is kept for this. Ids of runs hold the time at which they were made, so that the key of `run_ends` and
//! `run_events` (tenant, run) is also an order in time: what may be old enough stands at its front.

use sqlx::PgConnection;
use tidegate_model::{RunId, TenantId};
use uuid::Uuid;

use super::trees::lock_trees;
use crate::{Error, Fleet, error::stored};

/// Trees that one batch looks at.
const TREES_MAX: i64 = 200;
/// Runs whose events one batch looks at.
const STREAMS_MAX: i64 = 200;

/// How far a pass has come, in the order of tenants and runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position(Option<(String, Uuid)>);

impl Position {
    fn tenant(&self) -> &str {
        self.0.as_ref().map_or("", |(tenant, _)| tenant)
    }

    fn run(&self) -> Uuid {
        self.0.as_ref().map_or(Uuid::nil(), |(_, run)| *run)
    }
}

/// What one batch did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Runs, or events, that are gone.
    pub gone: u64,
    /// Where the next batch goes on; none where nothing is left.
    pub next: Option<Position>,
}

/// A run of a tree that goes.
struct Member {
    tenant: String,
    root: Uuid,
    run_id: Uuid,
}

impl Fleet {
    /// Deletes up to `limit` runs of trees that ended as a whole more than `keep_ms` ago, with all that is known of them.
    pub async fn prune_runs(
        &self,
        keep_ms: i64,
        from: &Position,
        limit: i64,
    ) -> Result<Batch, Error> {
        let from = from.clone();
        self.store()
            .transaction("prune_runs", move |tx| {
                let from = from.clone();
                Box::pin(async move { prune_runs(tx, keep_ms, &from, limit).await })
            })
            .await
    }

    /// Deletes up to `limit` events of runs whose tree ended as a whole more than `keep_ms` ago. The runs stay.
    pub async fn prune_events(
        &self,
        keep_ms: i64,
        from: &Position,
        limit: i64,
    ) -> Result<Batch, Error> {
        let from = from.clone();
        self.store()
            .transaction("prune_events", move |tx| {
                let from = from.clone();
                Box::pin(async move { prune_events(tx, keep_ms, &from, limit).await })
            })
            .await
    }

    /// Deletes up to `limit` accounts of tenants that stand where a newcomer starts (R3.12): they say nothing.
    pub async fn prune_passes(&self, limit: i64) -> Result<u64, Error> {
        let done = sqlx::query!(
            "DELETE FROM run_passes WHERE (scope, tenant) IN (
                 SELECT p.scope, p.tenant FROM run_passes p JOIN run_pass_floors f ON f.scope = p.scope
                 WHERE p.pass <= f.pass LIMIT $1 FOR UPDATE OF p SKIP LOCKED)",
            limit,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}

async fn prune_runs(
    tx: &mut PgConnection,
    keep_ms: i64,
    from: &Position,
    limit: i64,
) -> Result<Batch, Error> {
    let (tenants, roots) = old_trees(tx, keep_ms, from).await?;
    let Some(last) = tenants.last().cloned().zip(roots.last().copied()) else {
        return Ok(Batch {
            gone: 0,
            next: None,
        });
    };
    lock_trees(tx, &tenants, &roots).await?;
    let members = members(tx, &tenants, &roots, limit).await?;
    let gone = delete(tx, &members).await?;
    fail::fail_point!("prune_before_commit", |_| Err(Error::injected()));
    let cut_off = i64::try_from(members.len()).unwrap_or(i64::MAX) >= limit;
    let more = i64::try_from(roots.len()).unwrap_or(i64::MAX) >= TREES_MAX;
    let next = match members.last() {
        // The last tree may have more: the next batch begins before it.
        Some(member) if cut_off && gone > 0 => {
            let at = roots.iter().position(|root| *root == member.root);
            let before = at.and_then(|at| at.checked_sub(1));
            match before {
                Some(at) => Some(Position(Some((tenants[at].clone(), roots[at])))),
                None => Some(from.clone()),
            }
        }
        _ if more || cut_off => Some(Position(Some(last))),
        _ => None,
    };
    Ok(Batch { gone, next })
}

/// Roots of trees that ended as a whole before the time, in the order of tenants and runs.
async fn old_trees(
    tx: &mut PgConnection,
    keep_ms: i64,
    from: &Position,
) -> Result<(Vec<String>, Vec<Uuid>), Error> {
    Ok(sqlx::query!(
        r#"WITH cutoff AS MATERIALIZED (
            SELECT c.at, rpad(lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint + 3600000), 12, '0'), 32, '0')::uuid AS id
            FROM (SELECT clock_timestamp() - $3::bigint * interval '1 millisecond' AS at) c
        )
        SELECT t.tenant AS "tenant!", old.run_id AS "run_id!" FROM cutoff c CROSS JOIN tenants t CROSS JOIN LATERAL (
            SELECT e.run_id FROM run_ends e JOIN agent_runs a ON a.tenant = e.tenant AND a.run_id = e.run_id
            WHERE e.tenant = t.tenant AND e.run_id < c.id AND e.ended_at < c.at
              AND e.run_id > CASE WHEN t.tenant = $1 THEN $2::uuid ELSE '00000000-0000-0000-0000-000000000000' END
              AND a.parent_run_id IS NULL
              -- Neither an open descendant nor a young one.
              AND NOT EXISTS (SELECT FROM agent_runs k LEFT JOIN run_ends o ON o.tenant = k.tenant AND o.run_id = k.run_id
                  WHERE k.tenant = a.tenant AND k.root_run_id = a.run_id AND k.parent_run_id IS NOT NULL
                    AND coalesce(o.ended_at >= c.at, true))
            ORDER BY e.run_id LIMIT $4) old
        WHERE t.tenant >= $1
        ORDER BY t.tenant, old.run_id LIMIT $4"#,
        from.tenant(),
        from.run(),
        keep_ms,
        TREES_MAX,
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| (row.tenant, row.run_id))
    .unzip())
}

/// The runs of trees that are locked and of which nothing is open, those that are deepest first within each tree.
async fn members(
    tx: &mut PgConnection,
    tenants: &[String],
    roots: &[Uuid],
    limit: i64,
) -> Result<Vec<Member>, Error> {
    Ok(sqlx::query_as!(
        Member,
        r#"WITH trees AS MATERIALIZED (
            SELECT g.* FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS g(tenant, root, ord)
            WHERE NOT EXISTS (SELECT FROM agent_runs k WHERE k.tenant = g.tenant AND k.root_run_id = g.root
                  AND k.parent_run_id IS NOT NULL
                  AND NOT EXISTS (SELECT FROM run_ends o WHERE o.tenant = k.tenant AND o.run_id = k.run_id))
        )
        SELECT m.tenant AS "tenant!", m.root AS "root!", m.run_id AS "run_id!" FROM (
            SELECT t.tenant, t.root, t.root AS run_id, 0 AS depth, t.ord FROM trees t
            UNION ALL
            SELECT t.tenant, t.root, k.run_id, k.depth, t.ord FROM trees t
            JOIN agent_runs k ON k.tenant = t.tenant AND k.root_run_id = t.root AND k.parent_run_id IS NOT NULL) m
        ORDER BY m.ord, m.depth DESC, m.run_id LIMIT $3"#,
        tenants,
        roots,
        limit,
    )
    .fetch_all(tx)
    .await?)
}

/// Takes the ends, and with each of them all that is known of its run. Messages stay: they are the conversation's.
async fn delete(tx: &mut PgConnection, members: &[Member]) -> Result<u64, Error> {
    let (tenants, runs): (Vec<String>, Vec<Uuid>) = members
        .iter()
        .map(|member| (member.tenant.clone(), member.run_id))
        .unzip();
    let gone = sqlx::query_scalar!(
        r#"/* run:prune */
        WITH given AS (
            SELECT g.* FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
        ), ended AS (
            DELETE FROM run_ends e USING given g WHERE e.tenant = g.tenant AND e.run_id = g.run_id
            RETURNING e.tenant, e.run_id
        ), attempts AS (
            DELETE FROM run_attempts t USING ended e WHERE t.tenant = e.tenant AND t.run_id = e.run_id
        ), effects AS (
            DELETE FROM run_effects x USING ended e WHERE x.tenant = e.tenant AND x.run_id = e.run_id
        ), inputs AS (
            DELETE FROM run_inputs i USING ended e WHERE i.tenant = e.tenant AND i.run_id = e.run_id
        ), events AS (
            DELETE FROM run_events v USING ended e WHERE v.tenant = e.tenant AND v.run_id = e.run_id
        ), runs AS (
            DELETE FROM agent_runs a USING ended e WHERE a.tenant = e.tenant AND a.run_id = e.run_id
        )
        SELECT count(*) AS "gone!" FROM ended"#,
        &tenants,
        &runs,
    )
    .fetch_one(tx)
    .await?;
    Ok(u64::try_from(gone).unwrap_or(0))
}

async fn prune_events(
    tx: &mut PgConnection,
    keep_ms: i64,
    from: &Position,
    limit: i64,
) -> Result<Batch, Error> {
    let streams = old_streams(tx, keep_ms, from).await?;
    let Some((tenant, run)) = streams.last() else {
        return Ok(Batch {
            gone: 0,
            next: None,
        });
    };
    let last = Position(Some((tenant.as_str().to_owned(), run.as_uuid())));
    let tenants: Vec<String> = streams.iter().map(|(t, _)| t.as_str().to_owned()).collect();
    let runs: Vec<Uuid> = streams.iter().map(|(_, run)| run.as_uuid()).collect();
    let gone = sqlx::query!(
        r#"WITH held AS MATERIALIZED (
            -- One that is just put back is not touched: its stream goes on behind what it has.
            SELECT e.tenant, e.run_id FROM run_ends e
            JOIN unnest($1::text[], $2::uuid[]) AS g(tenant, run_id) ON e.tenant = g.tenant AND e.run_id = g.run_id
            FOR KEY SHARE OF e SKIP LOCKED
        )
        DELETE FROM run_events WHERE (tenant, run_id, seq) IN (
            SELECT v.tenant, v.run_id, v.seq FROM held h JOIN run_events v ON v.tenant = h.tenant AND v.run_id = h.run_id
            ORDER BY v.tenant, v.run_id, v.seq LIMIT $3)"#,
        &tenants,
        &runs,
        limit,
    )
    .execute(tx)
    .await?
    .rows_affected();
    fail::fail_point!("prune_before_commit", |_| Err(Error::injected()));
    let more = i64::try_from(streams.len()).unwrap_or(i64::MAX) >= STREAMS_MAX;
    let next = if i64::try_from(gone).unwrap_or(i64::MAX) >= limit {
        Some(from.clone())
    } else {
        more.then_some(last)
    };
    Ok(Batch { gone, next })
}

/// Runs with events whose tree ended as a whole before the time, in the order of tenants and runs. Steps from run to run
/// over the key of the events: what is pruned already has none and costs nothing.
async fn old_streams(
    tx: &mut PgConnection,
    keep_ms: i64,
    from: &Position,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    sqlx::query!(
        r#"WITH cutoff AS MATERIALIZED (
            SELECT c.at, rpad(lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint + 3600000), 12, '0'), 32, '0')::uuid AS id
            FROM (SELECT clock_timestamp() - $3::bigint * interval '1 millisecond' AS at) c
        )
        SELECT t.tenant AS "tenant!", old.run_id AS "run_id!" FROM cutoff c CROSS JOIN tenants t CROSS JOIN LATERAL (
            WITH RECURSIVE streams AS (
                (SELECT v.run_id FROM run_events v
                 WHERE v.tenant = t.tenant AND v.run_id < c.id
                   AND v.run_id > CASE WHEN t.tenant = $1 THEN $2::uuid ELSE '00000000-0000-0000-0000-000000000000' END
                 ORDER BY v.run_id LIMIT 1)
                UNION ALL
                (SELECT n.run_id FROM streams s CROSS JOIN LATERAL (
                    SELECT v.run_id FROM run_events v
                    WHERE v.tenant = t.tenant AND v.run_id < c.id AND v.run_id > s.run_id
                    ORDER BY v.run_id LIMIT 1) n)
            )
            SELECT s.run_id FROM streams s
            JOIN agent_runs a ON a.tenant = t.tenant AND a.run_id = s.run_id
            JOIN run_ends e ON e.tenant = t.tenant AND e.run_id = a.root_run_id
            WHERE e.ended_at < c.at
              AND NOT EXISTS (SELECT FROM agent_runs k LEFT JOIN run_ends o ON o.tenant = k.tenant AND o.run_id = k.run_id
                  WHERE k.tenant = a.tenant AND k.root_run_id = a.root_run_id AND k.parent_run_id IS NOT NULL
                    AND coalesce(o.ended_at >= c.at, true))
            LIMIT $4) old
        WHERE t.tenant >= $1
        ORDER BY t.tenant, old.run_id LIMIT $4"#,
        from.tenant(),
        from.run(),
        keep_ms,
        STREAMS_MAX,
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(|row| Ok((stored(&row.tenant, "tenants.tenant")?, RunId::from_uuid(row.run_id))))
    .collect()
}
