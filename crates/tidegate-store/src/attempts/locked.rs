//! Leases under their locks, with what the policy needs to know of their runs.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_model::{Capability, ConversationId, Fence, RunId, run::StopReason};
use tidegate_policy::retry::AttemptFacts;
use uuid::Uuid;

use super::{
    HeldLease, LeaseKey, bucket_of,
    close::{CloseReport, Closer, Step},
    renew::HeldArrays,
};
use crate::{Error, error::stored};

/// A lease under its lock, with the facts of its run.
pub(super) struct Locked {
    pub(super) lease: HeldLease,
    /// Where its row is, while it is locked.
    pub(super) at: String,
    pub(super) conversation: Option<Uuid>,
    pub(super) facts: AttemptFacts,
    /// What its holder said with its renewals that it has used.
    pub(super) used_tokens: i64,
    /// Whether the attempt intended an effect.
    pub(super) has_effects: bool,
    pub(super) stop_to_release_ms: Option<i64>,
    pub(super) class: i32,
    pub(super) capability: Capability,
    pub(super) deadline: Option<DateTime<Utc>>,
    /// What the tenant was charged by estimate.
    pub(super) charged: i64,
    /// Time under this lease.
    pub(super) attempt_ms: i64,
    /// What it holds of the ledger, by resource.
    pub(super) held: Vec<(i32, i64)>,
}

struct Row {
    at: String,
    bucket: i16,
    tenant: String,
    run_id: Uuid,
    attempt: i32,
    leases_lost: i32,
    fence_generation: i32,
    fence_number: i64,
    conversation_id: Option<Uuid>,
    pool: String,
    stop_reason: Option<String>,
    spent_tokens: i64,
    spent_ms: i64,
    stop_to_release_ms: Option<i64>,
    max_attempts: i32,
    backoff_base_ms: i64,
    backoff_max_ms: i64,
    budget_ms: Option<i64>,
    budget_tokens: Option<i64>,
    deadline_passed: bool,
    class: i32,
    capability: String,
    deadline: Option<DateTime<Utc>>,
    charged: i64,
    attempt_ms: i64,
    used_tokens: i64,
    has_effects: bool,
    resources: Option<Vec<i32>>,
    held: Option<Vec<i64>>,
}

impl TryFrom<Row> for Locked {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let stop: Option<StopReason> = row
            .stop_reason
            .as_deref()
            .map(|text| stored(text, "run_leases.stop_reason"))
            .transpose()?;
        Ok(Self {
            lease: HeldLease {
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
            },
            at: row.at,
            conversation: row.conversation_id,
            class: row.class,
            capability: stored(&row.capability, "agent_runs.capability")?,
            deadline: row.deadline,
            charged: row.charged,
            attempt_ms: row.attempt_ms,
            stop_to_release_ms: row.stop_to_release_ms,
            used_tokens: row.used_tokens,
            has_effects: row.has_effects,
            held: row
                .resources
                .unwrap_or_default()
                .into_iter()
                .zip(row.held.unwrap_or_default())
                .collect(),
            facts: AttemptFacts {
                attempt: row.attempt,
                max_attempts: row.max_attempts,
                leases_lost: row.leases_lost,
                spent_ms: row.spent_ms,
                budget_ms: row.budget_ms,
                spent_tokens: row.spent_tokens,
                budget_tokens: row.budget_tokens,
                deadline_passed: row.deadline_passed,
                stop,
                backoff_base_ms: row.backoff_base_ms,
                backoff_max_ms: row.backoff_max_ms,
                unknown_effects: false,
            },
        })
    }
}

/// Locks the leases that are held as `closer` demands. What the caller saw is checked again under the lock: a run that
/// finished or was claimed again in between is left alone (O-01).
pub(super) async fn lock_leases(
    tx: &mut PgConnection,
    reports: &[CloseReport],
    step: Step,
    closer: Closer,
) -> Result<Vec<Locked>, Error> {
    let keys = HeldArrays::of(reports.iter().map(|report| &report.lease));
    let (how, grace_ms) = match closer {
        Closer::Holder => ("holder", 0),
        Closer::Takeover => ("takeover", 0),
        Closer::Grace { grace_ms } => ("grace", grace_ms),
    };
    // Runs and leases are looked up by key (`OFFSET 0` and the lock keep each look-up one), whatever is thought of the
    // tables' sizes when this is planned, and in the order of the key. By key and not by place: a lease that is renewed
    // while this waits for it stands elsewhere afterwards, and is still the one.
    sqlx::query_as!(
        Row,
        r#"WITH known AS MATERIALIZED (
               SELECT k.*, a.scope, a.capability, a.deadline, a.max_attempts, a.backoff_base_ms, a.backoff_max_ms,
                      a.budget_ms, a.budget_tokens
               FROM unnest($1::smallint[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[])
                    AS k(bucket, tenant, run_id, fence_generation, fence_number)
               CROSS JOIN LATERAL (
                   SELECT a.* FROM agent_runs a WHERE a.tenant = k.tenant AND a.run_id = k.run_id OFFSET 0) a
               ORDER BY k.bucket, k.tenant COLLATE "C", k.run_id
           )
           SELECT l.at AS "at!", l.bucket AS "bucket!", l.tenant AS "tenant!", l.run_id AS "run_id!",
                  l.attempt AS "attempt!", l.leases_lost AS "leases_lost!", l.fence_generation AS "fence_generation!",
                  l.fence_number AS "fence_number!", l.conversation_id, l.pool AS "pool!", l.stop_reason,
                  l.used_tokens AS "used_tokens!", l.has_effects AS "has_effects!", l.class AS "class!", l.resources, l.held,
                  l.charged AS "charged!", k.capability AS "capability!", k.deadline,
                  -- Time under a lease: what passed since it ran out is nobody's.
                  used.ms AS "attempt_ms!", l.spent_tokens AS "spent_tokens!", l.spent_ms + used.ms AS "spent_ms!",
                  (extract(epoch FROM clock.now - l.stop_requested_at) * 1000)::bigint AS stop_to_release_ms,
                  k.max_attempts AS "max_attempts!", k.backoff_base_ms AS "backoff_base_ms!",
                  k.backoff_max_ms AS "backoff_max_ms!", k.budget_ms, k.budget_tokens,
                  coalesce(k.deadline <= clock.now, false) AS "deadline_passed!"
           FROM known k
           CROSS JOIN LATERAL (
               SELECT l.*, l.ctid::text AS at FROM run_leases l
               WHERE l.scope = k.scope AND l.bucket = k.bucket AND l.tenant = k.tenant AND l.run_id = k.run_id
                 AND l.fence_generation = k.fence_generation AND l.fence_number = k.fence_number
                 -- Looked at again under the lock: a first child may have come in between.
                 AND l.in_tree = $8 AND CASE $6::text
                     WHEN 'holder' THEN l.fence_generation = (SELECT generation FROM cluster)
                        AND l.lease_until > clock_timestamp()
                     WHEN 'takeover' THEN l.fence_generation <> (SELECT generation FROM cluster)
                        OR l.lease_until <= clock_timestamp()
                     ELSE l.stop_requested_at + $7::bigint * interval '1 millisecond' <= clock_timestamp() END
               FOR UPDATE) l
           CROSS JOIN LATERAL (SELECT clock_timestamp() AS now OFFSET 0) clock
           CROSS JOIN LATERAL (SELECT greatest(0, extract(epoch FROM least(clock.now, l.lease_until) - l.started_at)
                * 1000)::bigint AS ms) used"#,
        &keys.buckets,
        &keys.tenants,
        &keys.runs,
        &keys.generations,
        &keys.numbers,
        how,
        grace_ms,
        step == Step::InTrees,
    )
    .fetch_all(tx)
    .await?
    .into_iter()
    .map(Locked::try_from)
    .collect()
}
