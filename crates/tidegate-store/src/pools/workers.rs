//! Workers that have joined their pool (R5.2). Every write names the incarnation, and an older one changes nothing.

use std::collections::HashMap;

use serde_json::json;
use sqlx::PgConnection;
use tidegate_model::{
    PoolId, WorkerId,
    api::{LeavePool, RegisterWorker, WorkerHeartbeat, WorkerView},
    contracts::CapabilityDescriptor,
    strict,
};

use crate::{
    Error, Store,
    error::stored,
    written::{Audited, Author, append_audit},
};

/// Who has not been heard of for so long is forgotten when another one joins its pool.
const FORGOTTEN_AFTER_DAYS: i32 = 7;

/// Who has not been heard of for so long is not shown.
const HEARD_LATELY_SECS: f64 = 120.0;

/// What came of joining a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// It has joined, now or before.
    Joined(WorkerView),
    /// The pool has no epoch in force.
    NothingInForce,
    /// This epoch is in force, not the one that the worker was built for.
    OtherEpoch(i64),
    /// The descriptor names another runtime than the worker shows.
    OtherRuntime,
    /// A later start of the worker has joined.
    Stale(i64),
}

/// What came of a worker's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It counts.
    Noted(WorkerView),
    /// A later start of the worker has joined.
    Stale(i64),
    /// No worker of this name has joined, or it has left.
    Unknown,
}

/// A worker as a claim asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Which start of it.
    pub incarnation: i64,
    /// The epoch under which it works.
    pub epoch: i64,
    /// Whether it has left again.
    pub left: bool,
}

struct Row {
    worker: String,
    incarnation: i64,
    descriptor_epoch: i64,
    occupied: i64,
    registered_at: chrono::DateTime<chrono::Utc>,
    seen_at: chrono::DateTime<chrono::Utc>,
}

impl TryFrom<Row> for WorkerView {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            worker_id: stored(&row.worker, "worker_registrations.worker")?,
            incarnation: row.incarnation,
            descriptor_epoch: row.descriptor_epoch,
            occupied: row.occupied,
            registered_at: row.registered_at,
            seen_at: row.seen_at,
        })
    }
}

impl Store {
    /// A worker joins its pool, if what it shows is what the descriptor in force says.
    pub async fn join_pool(&self, request: RegisterWorker, author: &Author) -> Result<Join, Error> {
        let author = author.clone();
        self.transaction("worker.register", move |tx| {
            let (request, author) = (request.clone(), author.clone());
            Box::pin(async move { join(tx, &request, &author).await })
        })
        .await
    }

    /// A worker says how many runs it works on.
    pub async fn note_occupancy(
        &self,
        pool: &PoolId,
        heartbeat: &WorkerHeartbeat,
        author: &Author,
    ) -> Result<Heard, Error> {
        let row = sqlx::query_as!(
            Row,
            "UPDATE worker_registrations SET occupied = $4, seen_at = clock_timestamp()
             WHERE pool_id = $1 AND worker = $2 AND incarnation = $3 AND left_at IS NULL
             RETURNING worker, incarnation, descriptor_epoch, occupied, registered_at, seen_at",
            pool.as_str(),
            heartbeat.worker_id.as_str(),
            heartbeat.incarnation,
            heartbeat.occupied,
        )
        .fetch_optional(self.pool())
        .await?;
        let (worker, incarnation) = (&heartbeat.worker_id, heartbeat.incarnation);
        self.heard(row, pool, worker, incarnation, "worker.heartbeat", author)
            .await
    }

    /// A worker leaves its pool.
    pub async fn leave_pool(
        &self,
        pool: &PoolId,
        leaving: &LeavePool,
        author: &Author,
    ) -> Result<Heard, Error> {
        let row = sqlx::query_as!(
            Row,
            "UPDATE worker_registrations SET left_at = coalesce(left_at, clock_timestamp())
             WHERE pool_id = $1 AND worker = $2 AND incarnation = $3
             RETURNING worker, incarnation, descriptor_epoch, occupied, registered_at, seen_at",
            pool.as_str(),
            leaving.worker_id.as_str(),
            leaving.incarnation,
        )
        .fetch_optional(self.pool())
        .await?;
        let (worker, incarnation) = (&leaving.worker_id, leaving.incarnation);
        self.heard(row, pool, worker, incarnation, "worker.leave", author)
            .await
    }

    /// The workers that have joined and were heard of lately, by pool.
    pub(super) async fn live_workers(&self) -> Result<HashMap<PoolId, Vec<WorkerView>>, Error> {
        let rows = sqlx::query!(
            "SELECT pool_id, worker, incarnation, descriptor_epoch, occupied, registered_at, seen_at
             FROM worker_registrations
             WHERE left_at IS NULL AND seen_at > clock_timestamp() - make_interval(secs => $1)
             ORDER BY pool_id, worker",
            HEARD_LATELY_SECS,
        )
        .fetch_all(self.pool())
        .await?;
        let mut workers: HashMap<PoolId, Vec<WorkerView>> = HashMap::new();
        for row in rows {
            let view = Row {
                worker: row.worker,
                incarnation: row.incarnation,
                descriptor_epoch: row.descriptor_epoch,
                occupied: row.occupied,
                registered_at: row.registered_at,
                seen_at: row.seen_at,
            };
            let pool = stored(&row.pool_id, "worker_registrations.pool_id")?;
            workers.entry(pool).or_default().push(view.try_into()?);
        }
        Ok(workers)
    }

    /// What is known of a worker, for its claims.
    pub async fn joined(&self, pool: &PoolId, worker: &str) -> Result<Option<Joined>, Error> {
        Ok(sqlx::query_as!(
            Joined,
            r#"SELECT incarnation, descriptor_epoch AS epoch, left_at IS NOT NULL AS "left!"
               FROM worker_registrations WHERE pool_id = $1 AND worker = $2"#,
            pool.as_str(),
            worker,
        )
        .fetch_optional(self.pool())
        .await?)
    }

    /// The word of a start that has passed changes nothing, and stands in the audit log (O-10).
    async fn heard(
        &self,
        row: Option<Row>,
        pool: &PoolId,
        worker: &WorkerId,
        incarnation: i64,
        action: &'static str,
        author: &Author,
    ) -> Result<Heard, Error> {
        if let Some(row) = row {
            return Ok(Heard::Noted(row.try_into()?));
        }
        match self.joined(pool, worker.as_str()).await? {
            Some(later) if later.incarnation > incarnation => {
                let mut connection = self.pool().acquire().await?;
                let stale = Stale {
                    pool,
                    worker,
                    incarnation,
                    later: later.incarnation,
                };
                stale.audit(&mut connection, action, author).await?;
                Ok(Heard::Stale(later.incarnation))
            }
            Some(_) | None => Ok(Heard::Unknown),
        }
    }
}

/// A start of a worker that has passed.
struct Stale<'a> {
    pool: &'a PoolId,
    worker: &'a WorkerId,
    incarnation: i64,
    later: i64,
}

impl Stale<'_> {
    async fn audit(
        &self,
        connection: &mut PgConnection,
        action: &'static str,
        author: &Author,
    ) -> Result<(), Error> {
        let audited = Audited {
            author,
            action,
            subject: &format!("{}/{}", self.pool, self.worker),
            tenant: None,
            before: json!({"incarnation": self.later}),
            after: json!({"refusedIncarnation": self.incarnation}),
        };
        append_audit(connection, &audited).await
    }
}

async fn join(
    tx: &mut PgConnection,
    request: &RegisterWorker,
    author: &Author,
) -> Result<Join, Error> {
    let pool = request.pool_id.as_str();
    let body = sqlx::query_scalar!(
        "SELECT d.body FROM pools p JOIN pool_descriptors d ON d.pool_id = p.pool_id AND d.epoch = p.active_epoch
         WHERE p.pool_id = $1 AND d.epoch <> ALL (p.revoked_epochs) FOR SHARE OF p",
        pool,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let descriptor = body.and_then(|body| strict::from_value::<CapabilityDescriptor>(body).ok());
    let Some(descriptor) = descriptor else {
        return Ok(Join::NothingInForce);
    };
    if descriptor.descriptor_epoch != request.descriptor_epoch {
        return Ok(Join::OtherEpoch(descriptor.descriptor_epoch));
    }
    if descriptor.runtime_digest.is_some() && descriptor.runtime_digest != request.runtime_digest {
        return Ok(Join::OtherRuntime);
    }
    sqlx::query!(
        "DELETE FROM worker_registrations
         WHERE pool_id = $1 AND worker <> $2 AND seen_at < clock_timestamp() - make_interval(days => $3)",
        pool,
        request.worker_id.as_str(),
        FORGOTTEN_AFTER_DAYS,
    )
    .execute(&mut *tx)
    .await?;
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO worker_registrations AS w
             (pool_id, worker, incarnation, protocol_version, descriptor_epoch, runtime_digest)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (pool_id, worker) DO UPDATE
         SET incarnation = $3, protocol_version = $4, descriptor_epoch = $5, runtime_digest = $6, left_at = NULL,
             seen_at = clock_timestamp(),
             occupied = CASE WHEN w.incarnation = $3 THEN w.occupied ELSE 0 END,
             registered_at = CASE WHEN w.incarnation = $3 THEN w.registered_at ELSE clock_timestamp() END
         WHERE w.incarnation <= $3
         RETURNING worker, incarnation, descriptor_epoch, occupied, registered_at, seen_at",
        pool,
        request.worker_id.as_str(),
        request.incarnation,
        request.protocol_version,
        request.descriptor_epoch,
        request.runtime_digest,
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(row) = row {
        return Ok(Join::Joined(row.try_into()?));
    }
    let later = sqlx::query_scalar!(
        "SELECT incarnation FROM worker_registrations WHERE pool_id = $1 AND worker = $2",
        pool,
        request.worker_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let stale = Stale {
        pool: &request.pool_id,
        worker: &request.worker_id,
        incarnation: request.incarnation,
        later,
    };
    stale.audit(tx, "worker.register", author).await?;
    Ok(Join::Stale(later))
}
