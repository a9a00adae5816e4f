//! `open_attempt`: from the queue to a lease, by arrays of lanes.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{
    Capability, ConversationId, Fence, InstanceId, PoolId, RunId, TenantId,
    api::DueTime,
    run::{QuotaBucket, RunKind, ServiceClass},
};
use uuid::Uuid;

use super::{bucket_number, bucket_of};
use crate::{Error, Fleet, error::stored, schedules::due_time};

/// One lane that a claim asks, in the order of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneAsk {
    /// The bucket.
    pub bucket: QuotaBucket,
    /// The tenant.
    pub tenant: TenantId,
    /// The requirement class.
    pub class: i32,
    /// At most this many of this lane.
    pub take: i32,
    /// The tenant's cap in this bucket; absent where it is not capped.
    pub cap: Option<i32>,
    /// What each run is charged until its real cost is known (R3.12).
    pub cost: i64,
    /// Nothing of the lane stands before this, as far as the instance knows.
    pub from: Place,
}

/// A place in a lane: rank, urgency, position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// 0 woken or taken over, 1 others.
    pub rank: i16,
    /// The negated priority.
    pub urgency: i16,
    /// The number in the queue.
    pub position: i64,
}

impl Place {
    /// Before every run.
    pub const FIRST: Self = Self {
        rank: 0,
        urgency: i16::MIN,
        position: 0,
    };
}

/// Who takes the leases.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The execution scope.
    pub scope: String,
    /// The worker's pool.
    pub pool: PoolId,
    /// The epoch of the pool's descriptor that it claims under; nothing is opened where another one is in force.
    pub epoch: i64,
    /// The worker's name.
    pub worker: String,
    /// Which start of that worker.
    pub incarnation: i64,
    /// The instance that grants the leases.
    pub instance: InstanceId,
    /// How long a lease lasts, in milliseconds.
    pub lease_ms: i64,
}

/// A lease that was just opened, with all that its holder needs.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenedLease {
    /// The run.
    pub run_id: RunId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// How it came to be.
    pub kind: RunKind,
    /// What it asks for.
    pub capability: Capability,
    /// Its service class.
    pub service_class: ServiceClass,
    /// Its conversation, if it is a turn.
    pub conversation_id: Option<ConversationId>,
    /// What was submitted.
    pub input: Value,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it must have ended.
    pub deadline: Option<DateTime<Utc>>,
    /// How long until then.
    pub deadline_in_ms: Option<i64>,
    /// The bounds over all attempts.
    pub budget_tokens: Option<i64>,
    /// The bounds over all attempts.
    pub budget_ms: Option<i64>,
    /// Used before this attempt.
    pub spent_tokens: i64,
    /// Used before this attempt.
    pub spent_ms: i64,
    /// The number of this attempt.
    pub attempt: i32,
    /// The fence.
    pub fence: Fence,
    /// When the lease ends.
    pub lease_until: DateTime<Utc>,
    /// The number of the holder's first event.
    pub next_seq: i64,
    /// How long the run was queued, in milliseconds.
    pub queued_ms: i64,
    /// Which of the asked lanes it came from, by index.
    pub ask: usize,
    /// Where it stood there.
    pub place: Place,
    /// Its parent, if it is a child.
    pub parent_run_id: Option<RunId>,
    /// The due time that it was fired for, if a schedule did.
    pub schedule: Option<DueTime>,
    /// Whether the root of its tree is a background run.
    pub of_background: bool,
    /// Whether it has a parent or children.
    pub in_tree: bool,
}

struct Row {
    run_id: Uuid,
    tenant: String,
    bucket: i16,
    kind: String,
    capability: String,
    service_class: String,
    conversation_id: Option<Uuid>,
    input: Value,
    created_at: DateTime<Utc>,
    deadline: Option<DateTime<Utc>>,
    deadline_in_ms: Option<i64>,
    budget_tokens: Option<i64>,
    budget_ms: Option<i64>,
    spent_tokens: i64,
    spent_ms: i64,
    attempt: i32,
    fence_generation: i32,
    fence_number: i64,
    lease_until: DateTime<Utc>,
    next_seq: i64,
    queued_ms: i64,
    ord: i64,
    rank: i16,
    urgency: i16,
    position: i64,
    parent_run_id: Option<Uuid>,
    schedule: Option<String>,
    due_at: Option<DateTime<Utc>>,
    of_background: bool,
    in_tree: bool,
}

impl TryFrom<Row> for OpenedLease {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            run_id: RunId::from_uuid(row.run_id),
            tenant: stored(&row.tenant, "run_leases.tenant")?,
            bucket: bucket_of(row.bucket)?,
            kind: stored(&row.kind, "agent_runs.kind")?,
            capability: stored(&row.capability, "agent_runs.capability")?,
            service_class: stored(&row.service_class, "agent_runs.service_class")?,
            conversation_id: row.conversation_id.map(ConversationId::from_uuid),
            input: row.input,
            created_at: row.created_at,
            deadline: row.deadline,
            deadline_in_ms: row.deadline_in_ms,
            budget_tokens: row.budget_tokens,
            budget_ms: row.budget_ms,
            spent_tokens: row.spent_tokens,
            spent_ms: row.spent_ms,
            attempt: row.attempt,
            fence: Fence {
                generation: row.fence_generation,
                number: row.fence_number,
            },
            lease_until: row.lease_until,
            next_seq: row.next_seq,
            queued_ms: row.queued_ms,
            ask: usize::try_from(row.ord - 1).map_err(|_| Error::Corrupt {
                what: "the index of a lane",
            })?,
            place: Place {
                rank: row.rank,
                urgency: row.urgency,
                position: row.position,
            },
            parent_run_id: row.parent_run_id.map(RunId::from_uuid),
            schedule: due_time(row.schedule.as_deref(), row.due_at)?,
            of_background: row.of_background,
            in_tree: row.in_tree,
        })
    }
}

/// The lanes of a claim as arrays.
#[derive(Default)]
struct Lanes {
    buckets: Vec<i16>,
    tenants: Vec<String>,
    classes: Vec<i32>,
    takes: Vec<i32>,
    caps: Vec<Option<i32>>,
    costs: Vec<i64>,
    ranks: Vec<i16>,
    urgencies: Vec<i16>,
    positions: Vec<i64>,
}

impl Lanes {
    fn of(asks: &[LaneAsk]) -> Self {
        let mut lanes = Self::default();
        for ask in asks {
            lanes.buckets.push(bucket_number(ask.bucket));
            lanes.tenants.push(ask.tenant.as_str().to_owned());
            lanes.classes.push(ask.class);
            lanes.takes.push(ask.take);
            lanes.caps.push(ask.cap);
            lanes.costs.push(ask.cost);
            lanes.ranks.push(ask.from.rank);
            lanes.urgencies.push(ask.from.urgency);
            lanes.positions.push(ask.from.position);
        }
        lanes
    }
}

/// The second half of both claims: `heads` are locked queue rows in order, `slots` writes those of background runs. Takes
/// them from the queue, writes lease and event, and answers what the holder needs.
macro_rules! open_heads {
    ($heads:tt, $slots:tt, $epoch:tt, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Row,
            $heads + r#"
        , gone AS (
            DELETE FROM run_queue WHERE ctid = ANY (ARRAY (SELECT at FROM heads)) RETURNING run_id
        ), opened AS (
            SELECT h.*, a.kind, a.capability, a.service_class, a.conversation_id, a.input, a.created_at, a.deadline,
                   a.budget_tokens, a.budget_ms, a.parent_run_id, a.of_background,
                   a.schedule, a.due_at,
                   -- A run that never had a lease has no children; the look-up is for those that come back.
                   CASE WHEN a.parent_run_id IS NOT NULL THEN true WHEN h.fence_number = 0 THEN false
                        ELSE coalesce((SELECT true FROM agent_runs k
                            WHERE k.tenant = a.tenant AND k.root_run_id = a.root_run_id AND k.parent_run_id = a.run_id
                            LIMIT 1), false) END AS in_tree,
                   (SELECT generation FROM cluster) AS fence_generation, clock.now AS started_at,
                   clock.now + $5::bigint * interval '1 millisecond' AS lease_until,
                   -- The deadline or the end of the budget; least() passes over an absent one, which is right here.
                   least(a.deadline, clock.now + (a.budget_ms - h.spent_ms) * interval '1 millisecond') AS must_end_at
            FROM heads h
            JOIN gone USING (run_id)
            -- By key, whatever is thought of the table's size when this is planned: a plain join may read all runs.
            CROSS JOIN LATERAL (
                SELECT a.* FROM agent_runs a WHERE a.tenant = h.tenant AND a.run_id = h.run_id OFFSET 0) a
            CROSS JOIN (SELECT clock_timestamp() AS now) clock
        ), leased AS (
            INSERT INTO run_leases (scope, bucket, tenant, run_id, class, urgency, attempt, fence_generation,
                fence_number, leases_lost, spent_tokens, spent_ms, next_seq, pool, holder, incarnation, instance_id,
                conversation_id, queued_at, started_at, lease_until, must_end_at, charged, budget_tokens, in_tree,
                descriptor_epoch, resources, held)
            SELECT scope, bucket, tenant, run_id, class, urgency, attempts + 1, fence_generation,
                fence_number + 1, leases_lost, spent_tokens, spent_ms, next_seq + 1, $2, $3, $4, $6,
                conversation_id, queued_at, started_at, lease_until, must_end_at, cost, budget_tokens, in_tree, "# + $epoch + r#"::bigint,
                nullif(resources, '')::integer[], nullif(held, '')::bigint[]
            FROM opened
        )"# + $slots + r#", told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, next_seq, started_at, 'run.started', jsonb_build_object(
                'attempt', attempts + 1, 'fence', fence_generation || '.' || (fence_number + 1), 'pool', $2::text)
            FROM opened
        )
        SELECT run_id AS "run_id!", tenant AS "tenant!", bucket AS "bucket!", kind AS "kind!",
               capability AS "capability!", service_class AS "service_class!", conversation_id, input AS "input!",
               created_at AS "created_at!", deadline,
               (extract(epoch FROM deadline - started_at) * 1000)::bigint AS deadline_in_ms,
               budget_tokens, budget_ms, spent_tokens AS "spent_tokens!", spent_ms AS "spent_ms!",
               attempts + 1 AS "attempt!", fence_generation AS "fence_generation!", fence_number + 1 AS "fence_number!",
               lease_until AS "lease_until!", next_seq + 1 AS "next_seq!",
               (extract(epoch FROM started_at - queued_at) * 1000)::bigint AS "queued_ms!",
               ord AS "ord!", rank AS "rank!", urgency AS "urgency!", position AS "position!",
               parent_run_id, schedule, due_at, of_background AS "of_background!", in_tree AS "in_tree!"
        FROM opened ORDER BY ord, rank, urgency, position"#,
            $($argument),+
        )
    };
}

impl Fleet {
    /// Opens attempts of foreground and uncounted lanes in one statement (R3.3).
    ///
    /// The cap is soft: only claims that race between their snapshot and the try-lock may exceed it, each by at most what
    /// it saw free. Without the try-lock there would be no cap at all: every claimer sees nothing running and takes its
    /// share of other rows. `least(take, NULL)` would be `take`, hence CASE.
    pub async fn open_foreground(
        &self,
        holder: &Holder,
        asks: &[LaneAsk],
    ) -> Result<Vec<OpenedLease>, Error> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let mut connection = self.pool().acquire().await?;
        foreground(&mut connection, holder, asks, &Held::nothing(asks)).await
    }

    /// Opens attempts of background lanes (R3.4): candidates and the try-lock of the bucket in one statement, recount and
    /// claim in a second one. In one statement the snapshot would be older than the lock: that broke the cap in 4 % of
    /// starts.
    pub async fn open_background(
        &self,
        holder: &Holder,
        asks: &[LaneAsk],
    ) -> Result<Vec<OpenedLease>, Error> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let holder = holder.clone();
        let asks = asks.to_vec();
        self.store()
            .transaction("open_background", move |tx| {
                let (holder, asks) = (holder.clone(), asks.clone());
                Box::pin(async move { background(tx, &holder, &asks, &Held::nothing(&asks)).await })
            })
            .await
    }
}

/// What each run of a lane holds, as arrays in texts; an empty text is nothing.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) resources: Vec<String>,
    pub(super) amounts: Vec<String>,
}

impl Held {
    fn nothing(asks: &[LaneAsk]) -> Self {
        Self {
            resources: vec![String::new(); asks.len()],
            amounts: vec![String::new(); asks.len()],
        }
    }
}

pub(super) async fn foreground(
    connection: &mut PgConnection,
    holder: &Holder,
    asks: &[LaneAsk],
    held: &Held,
) -> Result<Vec<OpenedLease>, Error> {
    let lanes = Lanes::of(asks);
    let rows = open_heads!(
            r#"/* attempt:open */
        WITH asked AS (
            SELECT a.* FROM unnest($7::smallint[], $8::text[], $9::integer[], $10::integer[], $11::integer[],
                $12::bigint[], $13::smallint[], $14::smallint[], $15::bigint[], $17::text[], $18::text[])
                WITH ORDINALITY AS a(bucket, tenant, class, take, cap, cost, from_rank, from_urgency, from_position,
                    resources, held, ord)
            WHERE a.tenant NOT IN (SELECT tenant FROM tenants WHERE state <> 'active' AND erased_at IS NULL)
              AND (SELECT p.active_epoch = $16::bigint AND $16 <> ALL (p.revoked_epochs) FROM pools p WHERE p.pool_id = $2)
        ), locked AS MATERIALIZED (
            SELECT a.*, CASE WHEN a.cap IS NULL THEN true ELSE
                pg_try_advisory_xact_lock(hashtext($1), hashtext(a.bucket || ':' || a.tenant)) END AS got
            FROM asked a
        ), room AS MATERIALIZED (
            SELECT l.*, CASE WHEN NOT l.got THEN 0 WHEN l.cap IS NULL THEN l.take ELSE greatest(0, least(l.take, l.cap - (
                SELECT count(*) FROM (SELECT FROM run_leases r
                    WHERE r.scope = $1 AND r.bucket = l.bucket AND r.tenant = l.tenant LIMIT l.cap) c)::integer)) END AS free
            FROM locked l
        ), heads AS MATERIALIZED (
            SELECT r.ord, r.cost, r.resources, r.held, q.* FROM room r CROSS JOIN LATERAL (
                SELECT q.ctid AS at, q.* FROM run_queue q
                WHERE q.scope = $1 AND q.bucket = r.bucket AND q.tenant = r.tenant AND q.class = r.class
                  -- Rows that were claimed lately are dead, but still in the index: the scan starts behind them.
                  AND (q.rank, q.urgency, q.position) >= (r.from_rank, r.from_urgency, r.from_position)
                  AND q.expires_at > clock_timestamp()
                ORDER BY q.rank, q.urgency, q.position LIMIT r.free FOR UPDATE SKIP LOCKED) q
        )"#,
            "",
            "$16",
            holder.scope,
            holder.pool.as_str(),
            holder.worker,
            holder.incarnation,
            holder.lease_ms,
            holder.instance.as_uuid(),
            &lanes.buckets,
            &lanes.tenants,
            &lanes.classes,
            &lanes.takes,
            &lanes.caps as &[Option<i32>],
            &lanes.costs,
            &lanes.ranks,
            &lanes.urgencies,
            &lanes.positions,
            holder.epoch,
            &held.resources,
            &held.amounts,
        )
        .fetch_all(connection)
        .await?;
    rows.into_iter().map(OpenedLease::try_from).collect()
}

pub(super) async fn background(
    tx: &mut PgConnection,
    holder: &Holder,
    asks: &[LaneAsk],
    held: &Held,
) -> Result<Vec<OpenedLease>, Error> {
    let lanes = Lanes::of(asks);
    let candidates = sqlx::query!(
                        r#"WITH asked AS (
                            SELECT a.* FROM unnest($2::text[], $3::integer[], $4::integer[], $5::integer[])
                                WITH ORDINALITY AS a(tenant, class, take, cap, ord)
                            WHERE a.tenant NOT IN (SELECT tenant FROM tenants WHERE state <> 'active' AND erased_at IS NULL)
                              AND (SELECT p.active_epoch = $7::bigint AND $7 <> ALL (p.revoked_epochs)
                                   FROM pools p WHERE p.pool_id = $6)
                        ), locked AS MATERIALIZED (
                            SELECT a.*, pg_try_advisory_xact_lock(hashtext($1), hashtext('1:' || a.tenant)) AS got
                            FROM asked a
                        )
                        SELECT q.run_id, l.tenant AS "tenant!", l.cap AS "cap!", l.ord AS "ord!"
                        FROM locked l CROSS JOIN LATERAL (
                            SELECT q.run_id FROM run_queue q
                            WHERE q.scope = $1 AND q.bucket = 1 AND q.tenant = l.tenant AND q.class = l.class
                              AND q.expires_at > clock_timestamp()
                            ORDER BY q.rank, q.urgency, q.position
                            LIMIT CASE WHEN l.got THEN greatest(0, least(l.take, l.cap)) ELSE 0 END
                            FOR UPDATE SKIP LOCKED) q
                        ORDER BY l.ord"#,
                        holder.scope,
                        &lanes.tenants,
                        &lanes.classes,
                        &lanes.takes,
                        &lanes.caps as &[Option<i32>],
                        holder.pool.as_str(),
                        holder.epoch,
                    )
                    .fetch_all(&mut *tx)
                    .await?;
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    fail::fail_point!("open_background_between", |_| Err(Error::injected()));
    let runs: Vec<Uuid> = candidates.iter().map(|c| c.run_id).collect();
    let tenants: Vec<String> = candidates.iter().map(|c| c.tenant.clone()).collect();
    let caps: Vec<i32> = candidates.iter().map(|c| c.cap).collect();
    let asks: Vec<i64> = candidates.iter().map(|c| c.ord).collect();
    let classes = &lanes.classes;
    let rows = open_heads!(
                        r#"/* attempt:open */
                    WITH candidates AS MATERIALIZED (
                        SELECT q.ctid AS at, q.*, c.cap, c.ord,
                               row_number() OVER (PARTITION BY q.tenant ORDER BY c.ord, q.rank, q.urgency, q.position) AS turn
                        FROM unnest($7::uuid[], $8::text[], $9::integer[], $11::bigint[]) AS c(run_id, tenant, cap, ord)
                        JOIN run_queue q ON q.scope = $1 AND q.bucket = 1 AND q.tenant = c.tenant
                         AND q.class = ANY ($10::integer[]) AND q.run_id = c.run_id
                    ), tenants_asked AS (
                        SELECT tenant, min(cap) AS cap FROM candidates GROUP BY tenant
                    ), room AS MATERIALIZED (
                        SELECT t.tenant, t.cap - (SELECT count(*) FROM run_leases r
                               WHERE r.scope = $1 AND r.bucket = 1 AND r.tenant = t.tenant) AS free
                        FROM tenants_asked t
                    ), slots AS MATERIALIZED (
                        SELECT t.tenant, s.slot::smallint AS slot,
                               row_number() OVER (PARTITION BY t.tenant ORDER BY s.slot) AS turn
                        FROM tenants_asked t CROSS JOIN LATERAL generate_series(1, t.cap) AS s(slot)
                        WHERE NOT EXISTS (SELECT FROM background_slots b
                            WHERE b.scope = $1 AND b.tenant = t.tenant AND b.slot = s.slot)
                    ), heads AS MATERIALIZED (
                        SELECT c.ord, ($12::bigint[])[c.ord] AS cost,
                               ($14::text[])[c.ord] AS resources, ($15::text[])[c.ord] AS held, s.slot, c.at, c.scope, c.bucket, c.tenant, c.class, c.rank, c.urgency, c.position,
                               c.run_id, c.attempts, c.fence_number, c.leases_lost, c.spent_tokens, c.spent_ms, c.next_seq,
                               c.queued_at, c.expires_at
                        FROM candidates c
                        JOIN room r ON r.tenant = c.tenant AND c.turn <= r.free
                        JOIN slots s ON s.tenant = c.tenant AND s.turn = c.turn
                    )"#,
                        r#", slotted AS (
                        INSERT INTO background_slots (scope, tenant, slot, run_id)
                        SELECT scope, tenant, slot, run_id FROM opened
                    )"#,
                        "$13",
                        holder.scope,
                        holder.pool.as_str(),
                        holder.worker,
                        holder.incarnation,
                        holder.lease_ms,
                        holder.instance.as_uuid(),
                        &runs,
                        &tenants,
                        &caps,
                        classes,
                        &asks,
                        &lanes.costs,
                        holder.epoch,
                        &held.resources,
                        &held.amounts,
                    )
                    .fetch_all(&mut *tx)
                    .await?;
    fail::fail_point!("open_background_before_commit", |_| Err(Error::injected()));
    rows.into_iter().map(OpenedLease::try_from).collect()
}
