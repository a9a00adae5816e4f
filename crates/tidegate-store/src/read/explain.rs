//! What explains a run: its attempts, its place in the lane, what blocked the lane and when (R3.9, R21.2).

use chrono::{DateTime, Utc};
use serde_json::Value;
use tidegate_model::{
    Code, Fence, PoolId, RunId, event::EventKind, queue_reason::QueueReason, run::AttemptOutcome,
};

use super::runs::{Queued, code};
use crate::{Error, TenantStore, attempts::bucket_number, error::stored, lanes::LaneKey};

/// Runs ahead are counted up to this.
const AHEAD_MAX: i64 = 1_000;
/// The most intervals of one lane that one run is explained with.
const INTERVALS_MAX: i64 = 10_000;

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// Its number.
    pub attempt: i32,
    /// Its fence.
    pub fence: Fence,
    /// The worker.
    pub holder: String,
    /// Which start of that worker.
    pub incarnation: i64,
    /// Its pool.
    pub pool: PoolId,
    /// Since when the run had been queued.
    pub queued_at: DateTime<Utc>,
    /// When the lease was granted.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// How.
    pub outcome: AttemptOutcome,
    /// The code of a failure.
    pub code: Option<Code>,
    /// Tokens it used.
    pub tokens: i64,
}

/// A run that was put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requeue {
    /// When.
    pub at: DateTime<Utc>,
    /// Whether it had ended; if not, it was started before its time.
    pub was_ended: bool,
}

/// A cause that held for a lane from some time on, to some time or still.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneWait {
    /// The cause.
    pub code: QueueReason,
    /// What it was seen with.
    pub facts: Value,
    /// Since when.
    pub from: DateTime<Utc>,
    /// Until when; `None` while it holds.
    pub to: Option<DateTime<Utc>>,
}

/// What blocks a lane now.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenWait {
    /// The bucket and class of the lane, whose tenant is the reader's.
    pub lane: LaneKey,
    /// Its scope.
    pub scope: String,
    /// What blocks it.
    pub wait: LaneWait,
}

/// When a run waited for something that is no queueing: a child, a time, a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Its reviews began.
    pub reviews: Vec<DateTime<Utc>>,
    /// It was woken, or the last effect in question was resolved.
    pub ends: Vec<DateTime<Utc>>,
}

impl TenantStore {
    /// The ended attempts of a run, oldest first.
    pub async fn attempts(&self, run: RunId) -> Result<Vec<AttemptRow>, Error> {
        let rows = sqlx::query!(
            r#"SELECT attempt, fence_generation, fence_number, holder, incarnation, pool, queued_at, started_at, ended_at,
                      outcome, code, tokens
               FROM run_attempts WHERE tenant = $1 AND run_id = $2 ORDER BY fence_generation, fence_number"#,
            self.key(),
            run.as_uuid(),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(AttemptRow {
                    attempt: row.attempt,
                    fence: Fence {
                        generation: row.fence_generation,
                        number: row.fence_number,
                    },
                    holder: row.holder,
                    incarnation: row.incarnation,
                    pool: stored(&row.pool, "run_attempts.pool")?,
                    queued_at: row.queued_at,
                    started_at: row.started_at,
                    ended_at: row.ended_at,
                    outcome: stored(&row.outcome, "run_attempts.outcome")?,
                    code: code(row.code.as_deref(), "run_attempts.code")?,
                    tokens: row.tokens,
                })
            })
            .collect()
    }

    /// When a run was put back as a dead letter, or started before its time; oldest first.
    pub async fn requeues(&self, run: RunId) -> Result<Vec<Requeue>, Error> {
        Ok(sqlx::query_as!(
            Requeue,
            r#"SELECT e.at, coalesce((SELECT b.kind = $4 FROM run_events b
                          WHERE b.tenant = e.tenant AND b.run_id = e.run_id AND b.seq = e.seq - 1), false)
                          AS "was_ended!"
               FROM run_events e WHERE e.tenant = $1 AND e.run_id = $2 AND e.kind = $3 ORDER BY e.seq"#,
            self.key(),
            run.as_uuid(),
            EventKind::RunRequeued.as_str(),
            EventKind::RunEnded.as_str(),
        )
        .fetch_all(self.pool())
        .await?)
    }

    /// Since when a run stood in review, and when it was woken or its review was over; oldest first.
    pub async fn pauses(&self, run: RunId) -> Result<Pauses, Error> {
        let rows = sqlx::query!(
            r#"SELECT at, kind = $4 AS "review!" FROM run_events
               WHERE tenant = $1 AND run_id = $2
                 AND (kind IN ($3, $4) OR kind = $5 AND body -> 'left' = '0')
               ORDER BY seq"#,
            self.key(),
            run.as_uuid(),
            EventKind::RunWoken.as_str(),
            EventKind::RunReview.as_str(),
            EventKind::RunResolved.as_str(),
        )
        .fetch_all(self.pool())
        .await?;
        let mut pauses = Pauses::default();
        for row in rows {
            let list = if row.review {
                &mut pauses.reviews
            } else {
                &mut pauses.ends
            };
            list.push(row.at);
        }
        Ok(pauses)
    }

    /// How many runs stand before a place in a lane, counted up to 1,000.
    pub async fn ahead_in_lane(
        &self,
        scope: &str,
        lane: &LaneKey,
        place: Queued,
    ) -> Result<i64, Error> {
        Ok(sqlx::query_scalar!(
            r#"SELECT count(*) AS "ahead!" FROM (SELECT FROM run_queue q
               WHERE q.scope = $1 AND q.bucket = $2 AND q.tenant = $3 AND q.class = $4
                 AND (q.rank, q.urgency, q.position) < ($5, $6, $7) LIMIT $8) ahead"#,
            scope,
            bucket_number(lane.bucket),
            self.key(),
            lane.class,
            place.rank,
            place.urgency,
            place.position,
            AHEAD_MAX,
        )
        .fetch_one(self.pool())
        .await?)
    }

    /// What blocks the tenant's lanes of these classes now.
    pub async fn open_waits(&self, classes: &[i32]) -> Result<Vec<OpenWait>, Error> {
        let rows = sqlx::query!(
            r#"SELECT scope, bucket, class, code, facts, from_at FROM lane_waits
               WHERE tenant = $1 AND class = ANY ($2) AND to_at IS NULL"#,
            self.key(),
            classes,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(OpenWait {
                    lane: LaneKey {
                        bucket: crate::attempts::bucket_of(row.bucket)?,
                        tenant: self.tenant().clone(),
                        class: row.class,
                    },
                    scope: row.scope,
                    wait: LaneWait {
                        code: stored(&row.code, "lane_waits.code")?,
                        facts: row.facts,
                        from: row.from_at,
                        to: None,
                    },
                })
            })
            .collect()
    }

    /// What blocked a lane between two times.
    pub async fn lane_history(
        &self,
        scope: &str,
        lane: &LaneKey,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<LaneWait>, Error> {
        let rows = sqlx::query!(
            r#"SELECT code, facts, from_at, to_at FROM lane_waits
               WHERE scope = $1 AND bucket = $2 AND tenant = $3 AND class = $4
                 AND from_at < $6 AND (to_at IS NULL OR to_at > $5)
               ORDER BY from_at LIMIT $7"#,
            scope,
            bucket_number(lane.bucket),
            self.key(),
            lane.class,
            from,
            to,
            INTERVALS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(LaneWait {
                    code: stored(&row.code, "lane_waits.code")?,
                    facts: row.facts,
                    from: row.from_at,
                    to: row.to_at,
                })
            })
            .collect()
    }
}
