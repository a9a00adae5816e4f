//! Accepting a child under its parent's fence (R3.2, R3.13).

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    Capability, RunId, TenantId,
    run::{RunKind, ServiceClass},
};
use tidegate_policy::waitgraph::{
    ChildAsk, ChildRefusal, ChildTerms, ParentFacts, STANDARD, admit_child,
};
use uuid::Uuid;

use super::Place;
use crate::{
    Error, Fleet,
    attempts::{HeldLease, bucket_number},
    error::stored,
};

/// A child to accept.
#[derive(Debug, Clone)]
pub struct NewChild {
    /// Chosen by the engine.
    pub run_id: RunId,
    /// Its name within the parent.
    pub key: String,
    /// What the pool must offer.
    pub capability: Capability,
    /// Its requirement class.
    pub class: i32,
    /// Keyed digest of what was submitted.
    pub request_digest: [u8; 32],
    /// What is asked for beside the parent's terms.
    pub ask: ChildAsk,
    /// The most attempts.
    pub max_attempts: i32,
    /// First step of the backoff.
    pub backoff_base_ms: i64,
    /// Largest step of the backoff.
    pub backoff_max_ms: i64,
    /// Not before.
    pub run_at: Option<DateTime<Utc>>,
    /// Passed on as it is.
    pub input: Value,
    /// The greatest age in the queue.
    pub queue_max_age_ms: i64,
    /// Why no pool could ever serve it, if none could.
    pub unservable: Option<String>,
}

/// What became of a child's submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmittedChild {
    /// It was accepted.
    Accepted {
        /// Where it stands.
        place: Place,
        /// The priority that it got.
        priority: i16,
    },
    /// The key was used before for the same content: this run.
    Repeated(RunId),
    /// The key was used before for another content.
    Conflict,
    /// The fence is not that of an open lease.
    LeaseLost,
    /// The parent's attempt is to stop, and no child comes after that.
    ParentStops,
    /// The tenant is suspended or deleted.
    TenantInactive,
    /// The deadline has passed by the database's clock.
    DeadlinePassed,
    /// The tree is full, or the child asks for more than its parent has.
    Refused(ChildRefusal),
    /// No pool could ever serve it; says why.
    Unservable(String),
}

/// What a child takes from its parent and what never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parentage {
    /// Whether children are descendants of a background root.
    pub children_of_background: bool,
    /// The class of the parent's requirements.
    pub class: i32,
}

/// The parent's rows, read under the locks of its tree and its lease.
#[expect(clippy::struct_excessive_bools, reason = "columns of one row")]
struct Parent {
    scope: String,
    root_run_id: Uuid,
    depth: i16,
    children_of_background: bool,
    service_class: String,
    priority: i16,
    deadline: Option<DateTime<Utc>>,
    tokens_left: Option<i64>,
    ms_left: Option<i64>,
    stops: bool,
    in_tree: bool,
    tenant_active: bool,
    late: bool,
}

impl Fleet {
    /// What is known of a run as a parent, for its lease.
    pub async fn parentage(
        &self,
        tenant: &TenantId,
        run: RunId,
    ) -> Result<Option<Parentage>, Error> {
        Ok(sqlx::query_as!(
            Parentage,
            r#"SELECT (of_background OR kind = $3) AS "children_of_background!", class FROM agent_runs
               WHERE tenant = $1 AND run_id = $2"#,
            tenant.as_str(),
            run.as_uuid(),
            RunKind::BackgroundWork.as_str(),
        )
        .fetch_optional(self.pool())
        .await?)
    }

    /// Accepts a child of a leased run, or says why not. The tree is counted under its lock.
    pub async fn submit_child(
        &self,
        parent: HeldLease,
        child: NewChild,
    ) -> Result<SubmittedChild, Error> {
        self.store()
            .transaction("submit_child", move |tx| {
                let (parent, child) = (parent.clone(), child.clone());
                Box::pin(async move { submit(tx, &parent, &child).await })
            })
            .await
    }
}

async fn submit(
    tx: &mut PgConnection,
    parent: &HeldLease,
    child: &NewChild,
) -> Result<SubmittedChild, Error> {
    let (tenant, parent_id) = (parent.key.tenant.as_str(), parent.key.run_id.as_uuid());
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended('tidegate tree ' || root_run_id::text, 0))
           FROM agent_runs WHERE tenant = $1 AND run_id = $2"#,
        tenant,
        parent_id,
    )
    .fetch_all(&mut *tx)
    .await?;
    let Some(facts) = lock_parent(tx, parent, child).await? else {
        return Ok(SubmittedChild::LeaseLost);
    };
    if let Some(earlier) = repeated(tx, tenant, parent_id, child).await? {
        return Ok(earlier);
    }
    if facts.stops {
        return Ok(SubmittedChild::ParentStops);
    }
    if !facts.tenant_active {
        return Ok(SubmittedChild::TenantInactive);
    }
    if facts.late {
        return Ok(SubmittedChild::DeadlinePassed);
    }
    let terms = match terms(tx, tenant, &facts, child).await? {
        Ok(terms) => terms,
        Err(refusal) => return Ok(SubmittedChild::Refused(refusal)),
    };
    if let Some(clause) = &child.unservable {
        return Ok(SubmittedChild::Unservable(clause.clone()));
    }
    if !facts.in_tree {
        enter_tree(tx, parent, &facts.scope).await?;
    }
    fail::fail_point!("child_before_insert", |_| Err(Error::injected()));
    let place = insert(tx, tenant, parent_id, &facts, child, &terms).await?;
    Ok(SubmittedChild::Accepted {
        place,
        priority: terms.priority,
    })
}

/// Locks the parent's lease, so that it cannot be closed before the child is there; a renewal waits a moment.
async fn lock_parent(
    tx: &mut PgConnection,
    parent: &HeldLease,
    child: &NewChild,
) -> Result<Option<Parent>, Error> {
    Ok(sqlx::query_as!(
        Parent,
        r#"SELECT a.scope, a.root_run_id, a.depth, (a.of_background OR a.kind = $7) AS "children_of_background!",
                  a.service_class, a.priority, a.deadline,
                  -- greatest() passes over an absent budget, which here would make it zero.
                  CASE WHEN a.budget_tokens IS NOT NULL THEN greatest(0, a.budget_tokens - l.spent_tokens) END AS tokens_left,
                  CASE WHEN a.budget_ms IS NOT NULL THEN greatest(0, a.budget_ms - l.spent_ms) END AS ms_left,
                  l.stop_reason IS NOT NULL AS "stops!", l.in_tree, t.state = 'active' AS "tenant_active!",
                  coalesce(least($6::timestamptz, a.deadline) <= clock_timestamp(), false) AS "late!"
           FROM agent_runs a
           JOIN tenants t ON t.tenant = a.tenant
           JOIN run_leases l ON l.scope = a.scope AND l.bucket = $1 AND l.tenant = a.tenant AND l.run_id = a.run_id
           CROSS JOIN cluster c
           WHERE a.tenant = $2 AND a.run_id = $3 AND l.fence_generation = $4 AND l.fence_number = $5
             AND l.fence_generation = c.generation AND l.lease_until > clock_timestamp()
           FOR NO KEY UPDATE OF l"#,
        bucket_number(parent.key.bucket),
        parent.key.tenant.as_str(),
        parent.key.run_id.as_uuid(),
        parent.fence.generation,
        parent.fence.number,
        child.ask.deadline,
        RunKind::BackgroundWork.as_str(),
    )
    .fetch_optional(tx)
    .await?)
}

async fn repeated(
    tx: &mut PgConnection,
    tenant: &str,
    parent: Uuid,
    child: &NewChild,
) -> Result<Option<SubmittedChild>, Error> {
    let earlier = sqlx::query!(
        "SELECT run_id, request_digest FROM agent_runs WHERE tenant = $1 AND parent_run_id = $2 AND child_key = $3",
        tenant,
        parent,
        child.key,
    )
    .fetch_optional(tx)
    .await?;
    Ok(earlier.map(|row| {
        if row.request_digest == child.request_digest {
            SubmittedChild::Repeated(RunId::from_uuid(row.run_id))
        } else {
            SubmittedChild::Conflict
        }
    }))
}

/// Counts the tree and lets the policy decide.
async fn terms(
    tx: &mut PgConnection,
    tenant: &str,
    parent: &Parent,
    child: &NewChild,
) -> Result<Result<ChildTerms, ChildRefusal>, Error> {
    let tree = sqlx::query!(
        r#"SELECT count(*) AS "total!", count(*) FILTER (WHERE NOT EXISTS (SELECT FROM run_ends e
                WHERE e.tenant = a.tenant AND e.run_id = a.run_id)) AS "open!"
           FROM agent_runs a WHERE a.tenant = $1 AND a.root_run_id = $2 AND a.parent_run_id IS NOT NULL"#,
        tenant,
        parent.root_run_id,
    )
    .fetch_one(tx)
    .await?;
    let service_class: ServiceClass = stored(&parent.service_class, "agent_runs.service_class")?;
    let facts = ParentFacts {
        depth: parent.depth,
        open: tree.open,
        total: tree.total,
        service_class,
        priority: parent.priority,
        deadline: parent.deadline,
        tokens_left: parent.tokens_left,
        ms_left: parent.ms_left,
    };
    Ok(admit_child(STANDARD, &facts, &child.ask))
}

/// Marks the parent's lease: from now on its close is a matter of the tree.
async fn enter_tree(tx: &mut PgConnection, parent: &HeldLease, scope: &str) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE run_leases SET in_tree = true WHERE scope = $1 AND bucket = $2 AND tenant = $3 AND run_id = $4",
        scope,
        bucket_number(parent.key.bucket),
        parent.key.tenant.as_str(),
        parent.key.run_id.as_uuid(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Writes the child, its place and its first event.
async fn insert(
    tx: &mut PgConnection,
    tenant: &str,
    parent_id: Uuid,
    parent: &Parent,
    child: &NewChild,
    terms: &ChildTerms,
) -> Result<Place, Error> {
    let parked = sqlx::query_scalar!(
        r#"WITH made AS (
            INSERT INTO agent_runs (tenant, run_id, scope, kind, capability, class, service_class, priority,
                priority_source, parent_run_id, root_run_id, depth, child_key, of_background, request_digest,
                max_attempts, backoff_base_ms, backoff_max_ms, budget_tokens, budget_ms, run_at, deadline, created_by,
                user_name, input)
            SELECT p.tenant, $3, p.scope, $4, $5, $6, $7, $8, 'parent', p.run_id, p.root_run_id, $9, $10, $11, $12, $13,
                $14, $15, $16, $17, $18, $19, p.created_by, p.user_name, $20
            FROM agent_runs p WHERE p.tenant = $1 AND p.run_id = $2
            RETURNING *
        ), given AS (
            SELECT m.*, clock.now, coalesce(m.run_at > clock.now, false) AS early,
                   least(m.deadline, greatest(clock.now, m.run_at) + $21::bigint * interval '1 millisecond') AS expires_at
            FROM made m CROSS JOIN (SELECT clock_timestamp() AS now) clock
        ), queued AS (
            INSERT INTO run_queue (scope, bucket, tenant, class, rank, urgency, run_id, next_seq, queued_at, expires_at)
            SELECT scope, 2, tenant, class, 1, -priority, run_id, 2, now, expires_at FROM given WHERE NOT early
        ), parked AS (
            INSERT INTO run_parked (tenant, run_id, why, due, scope, bucket, class, urgency, next_seq, parked_at,
                expires_at)
            SELECT tenant, run_id, 'scheduled', run_at, scope, 2, class, -priority, 2, now, expires_at
            FROM given WHERE early
        ), told AS (
            INSERT INTO run_events (tenant, run_id, seq, at, kind, body)
            SELECT tenant, run_id, 1, now, 'run.queued', $22 FROM given
        )
        SELECT early AS "early!" FROM given"#,
        tenant,
        parent_id,
        child.run_id.as_uuid(),
        RunKind::Child.as_str(),
        child.capability.as_str(),
        child.class,
        terms.service_class.as_str(),
        terms.priority,
        terms.depth,
        child.key,
        parent.children_of_background,
        child.request_digest.as_slice(),
        child.max_attempts,
        child.backoff_base_ms,
        child.backoff_max_ms,
        terms.tokens,
        terms.ms,
        child.run_at,
        terms.deadline,
        child.input,
        child.queue_max_age_ms,
        json!({"kind": RunKind::Child, "capability": child.capability, "parent": RunId::from_uuid(parent_id)}),
    )
    .fetch_one(tx)
    .await?;
    Ok(if parked { Place::Parked } else { Place::Queued })
}
