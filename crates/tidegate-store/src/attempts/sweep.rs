//! What any instance looks for once a second: lost leases, leases that must stop, parked runs that are due. Each statement
//! only names candidates or moves rows by itself; closing checks again what the sweep saw (O-01).

use tidegate_model::{ConversationId, Fence, RunId};

use super::{HeldLease, LeaseKey, bucket_of};
use crate::{Error, Fleet, error::stored};

struct Candidate {
    bucket: i16,
    tenant: String,
    run_id: uuid::Uuid,
    conversation_id: Option<uuid::Uuid>,
    pool: String,
    fence_generation: i32,
    fence_number: i64,
}

impl TryFrom<Candidate> for HeldLease {
    type Error = Error;

    fn try_from(row: Candidate) -> Result<Self, Error> {
        Ok(Self {
            key: LeaseKey {
                bucket: bucket_of(row.bucket)?,
                tenant: stored(&row.tenant, "run_leases.tenant")?,
                run_id: RunId::from_uuid(row.run_id),
                conversation_id: row.conversation_id.map(ConversationId::from_uuid),
                pool: stored(&row.pool, "run_leases.pool")?,
            },
            fence: Fence {
                generation: row.fence_generation,
                number: row.fence_number,
            },
        })
    }
}

/// Which parts of a sweep have anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "answers to questions that have nothing to do with each other"
)]
pub struct ToSweep {
    /// There are leases.
    pub leases: bool,
    /// A parked run is due.
    pub due: bool,
    /// A run has waited too long.
    pub late: bool,
    /// Runs are queued or parked.
    pub queued: bool,
}

impl ToSweep {
    /// Nothing is there that could need a sweep soon: whatever comes has to be submitted first.
    pub const fn is_nothing(self) -> bool {
        !self.leases && !self.due && !self.late && !self.queued
    }
}

impl Fleet {
    /// Which parts of a sweep have anything to do: one statement, where all of them would be seven. Runs in the queue that
    /// are late are looked for only where `in_queue` says so: that reads the whole of it.
    pub async fn to_sweep(&self, scope: &str, in_queue: bool) -> Result<ToSweep, Error> {
        Ok(sqlx::query_as!(
            ToSweep,
            r#"SELECT EXISTS (SELECT FROM run_leases WHERE scope = $1) AS "leases!",
                      EXISTS (SELECT FROM run_parked WHERE due <= clock_timestamp() AND scope = $1) AS "due!",
                      ($2 AND EXISTS (SELECT FROM run_queue WHERE expires_at <= clock_timestamp()))
                      OR EXISTS (SELECT FROM run_parked WHERE expires_at <= clock_timestamp()) AS "late!",
                      EXISTS (SELECT FROM run_queue) OR EXISTS (SELECT FROM run_parked) AS "queued!""#,
            scope,
            in_queue,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// Leases that have run out or belong to a lost history, oldest first. Reads the whole narrow table: 10,000 leases in
    /// 2.6 ms, where an index on `lease_until` would cost every renewal.
    pub async fn expired_leases(&self, scope: &str, limit: i64) -> Result<Vec<HeldLease>, Error> {
        sqlx::query_as!(
            Candidate,
            r#"SELECT l.bucket, l.tenant, l.run_id, l.conversation_id, l.pool, l.fence_generation, l.fence_number
               FROM run_leases l, cluster c
               WHERE l.scope = $1 AND (l.lease_until <= clock_timestamp() OR l.fence_generation <> c.generation)
               ORDER BY l.lease_until LIMIT $2"#,
            scope,
            limit
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(HeldLease::try_from)
        .collect()
    }

    /// Marks leases whose deadline or execution budget has passed; answers how many. Locked in the order of the key.
    pub async fn stop_overdue(&self, scope: &str) -> Result<u64, Error> {
        Ok(sqlx::query!(
            r#"UPDATE run_leases l
               SET stop_reason = CASE WHEN late.deadline <= clock_timestamp() THEN 'deadline' ELSE 'budget' END,
                   stop_requested_at = clock_timestamp()
               FROM (
                   SELECT k.scope, k.bucket, k.tenant, k.run_id, a.deadline
                   FROM run_leases k JOIN agent_runs a ON a.tenant = k.tenant AND a.run_id = k.run_id
                   WHERE k.scope = $1 AND k.must_end_at <= clock_timestamp() AND k.stop_reason IS NULL
                   ORDER BY k.bucket, k.tenant COLLATE "C", k.run_id
                   FOR NO KEY UPDATE OF k) late
               WHERE l.scope = late.scope AND l.bucket = late.bucket AND l.tenant = late.tenant
                 AND l.run_id = late.run_id"#,
            scope
        )
        .execute(self.pool())
        .await?
        .rows_affected())
    }

    /// Marks leases whose parent has ended without success and that its end has passed over; answers how many. The end
    /// itself marks them (R3.10): this finds a run that was just being claimed or renewed then.
    pub async fn stop_orphans(&self, scope: &str) -> Result<u64, Error> {
        Ok(sqlx::query!(
            r#"UPDATE run_leases l SET stop_reason = 'parent_ended', stop_requested_at = clock_timestamp()
               FROM (
                   SELECT k.ctid AS at FROM run_leases k
                   JOIN agent_runs a ON a.tenant = k.tenant AND a.run_id = k.run_id
                   JOIN run_ends e ON e.tenant = a.tenant AND e.run_id = a.parent_run_id AND e.state <> 'succeeded'
                   WHERE k.scope = $1 AND k.in_tree AND k.stop_reason IS NULL
                   FOR NO KEY UPDATE OF k SKIP LOCKED) orphans
               WHERE l.ctid = orphans.at"#,
            scope
        )
        .execute(self.pool())
        .await?
        .rows_affected())
    }

    /// Leases whose grace after a stop is over.
    pub async fn leases_past_grace(
        &self,
        scope: &str,
        grace_ms: i64,
        limit: i64,
    ) -> Result<Vec<HeldLease>, Error> {
        sqlx::query_as!(
            Candidate,
            r#"SELECT bucket, tenant, run_id, conversation_id, pool, fence_generation, fence_number
               FROM run_leases
               WHERE scope = $1 AND stop_requested_at + $2::bigint * interval '1 millisecond' <= clock_timestamp()
               ORDER BY stop_requested_at LIMIT $3"#,
            scope,
            grace_ms,
            limit
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(HeldLease::try_from)
        .collect()
    }

    /// Moves scheduled and backed-off runs that are due into the queue; answers how many. A run that has waited for its
    /// own time keeps no claim to the head: rank 1. One whose lease was lost does (R3.11), for the worker's end was not
    /// its own doing: it comes back where the first loss would have put it, or what was submitted since would be done
    /// before it. How the last attempt ended stands in its row, whose fence is the parked one.
    pub async fn wake_due(
        &self,
        scope: &str,
        queue_max_age_ms: i64,
        limit: i64,
    ) -> Result<u64, Error> {
        Ok(sqlx::query!(
            r#"WITH due AS MATERIALIZED (
                SELECT ctid AS at FROM run_parked
                WHERE due <= clock_timestamp() AND why IN ('scheduled', 'retry_backoff') AND scope = $1
                ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED
            ), moved AS (
                DELETE FROM run_parked WHERE ctid = ANY (ARRAY (SELECT at FROM due)) RETURNING *
            )
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, attempts, fence_number,
                leases_lost, spent_tokens, spent_ms, next_seq, expires_at)
            SELECT m.scope, m.bucket, m.tenant, m.class,
                CASE WHEN m.why = 'retry_backoff' AND EXISTS (
                    SELECT FROM run_attempts t WHERE t.tenant = m.tenant AND t.run_id = m.run_id
                        AND t.fence_number = m.fence_number AND t.outcome = 'lease_lost') THEN 0 ELSE 1 END,
                m.urgency, m.run_id, m.attempts, m.fence_number,
                m.leases_lost, m.spent_tokens, m.spent_ms, m.next_seq,
                least(a.deadline, clock_timestamp() + $2::bigint * interval '1 millisecond')
            FROM moved m JOIN agent_runs a ON a.tenant = m.tenant AND a.run_id = m.run_id"#,
            scope,
            queue_max_age_ms,
            limit
        )
        .execute(self.pool())
        .await?
        .rows_affected())
    }
}
