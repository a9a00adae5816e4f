//! Renewals, stop marks and where a lease stands. Renewing changes `lease_until`, what the holder says it has used, and
//! the stop mark where that is more than the budget; none of them is in an index.

use sqlx::{
    PgConnection,
    types::chrono::{DateTime, Utc},
};
use tidegate_model::{ConversationId, Fence, RunId, TenantId};
use tidegate_policy::retry::StopReason;
use uuid::Uuid;

use super::{HeldLease, LeaseKey, bucket_number, bucket_of};
use crate::{Error, Fleet, error::stored};

/// A lease that was renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// The run.
    pub run_id: RunId,
    /// The fence it was renewed under.
    pub fence: Fence,
    /// When it now ends.
    pub lease_until: DateTime<Utc>,
    /// Why its holder is to stop, if it is.
    pub stop: Option<StopReason>,
}

/// The leases that an operation names, as arrays.
pub(crate) struct HeldArrays {
    pub buckets: Vec<i16>,
    pub tenants: Vec<String>,
    pub runs: Vec<Uuid>,
    pub generations: Vec<i32>,
    pub numbers: Vec<i64>,
}

impl HeldArrays {
    pub(crate) fn of<'a>(leases: impl IntoIterator<Item = &'a HeldLease>) -> Self {
        let mut arrays = Self {
            buckets: Vec::new(),
            tenants: Vec::new(),
            runs: Vec::new(),
            generations: Vec::new(),
            numbers: Vec::new(),
        };
        for lease in leases {
            arrays.buckets.push(bucket_number(lease.key.bucket));
            arrays.tenants.push(lease.key.tenant.as_str().to_owned());
            arrays.runs.push(lease.key.run_id.as_uuid());
            arrays.generations.push(lease.fence.generation);
            arrays.numbers.push(lease.fence.number);
        }
        arrays
    }
}

impl Fleet {
    /// Where the leases of some runs stand. One scan of the narrow table, whatever the number of runs; callers remember
    /// the answer, because it never changes while a lease is open.
    pub async fn locate_leases(&self, runs: &[RunId]) -> Result<Vec<LeaseKey>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.as_uuid()).collect();
        sqlx::query!(
            r#"SELECT bucket, tenant, run_id, conversation_id, pool FROM run_leases WHERE run_id = ANY ($1)"#,
            &ids
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| {
            Ok(LeaseKey {
                bucket: bucket_of(row.bucket)?,
                tenant: stored(&row.tenant, "run_leases.tenant")?,
                run_id: RunId::from_uuid(row.run_id),
                conversation_id: row.conversation_id.map(ConversationId::from_uuid),
                pool: stored(&row.pool, "run_leases.pool")?,
            })
        })
        .collect()
    }

    /// Renews leases in one statement; those that are missing from the answer are lost (R4.2, R4.3). A lease that has
    /// expired is lost even where nobody has taken it over yet: its holder must have stopped already.
    ///
    /// `used_tokens` is what each attempt has used by its holder's word; smaller than before changes nothing. An attempt
    /// that has used up the run's budget is told to stop (R3.11).
    pub async fn renew_leases(
        &self,
        scope: &str,
        leases: &[HeldLease],
        used_tokens: &[i64],
        lease_ms: i64,
    ) -> Result<Vec<Renewed>, Error> {
        let mut named: Vec<(&HeldLease, i64)> =
            leases.iter().zip(used_tokens.iter().copied()).collect();
        // Leases are locked in the order of their key, by everybody who takes several.
        named.sort_unstable_by(|(a, _), (b, _)| a.key.order().cmp(&b.key.order()));
        let keys = HeldArrays::of(named.iter().map(|(lease, _)| *lease));
        let used_tokens: Vec<i64> = named.into_iter().map(|(_, used)| used).collect();
        sqlx::query!(
            r#"UPDATE run_leases l SET lease_until = clock_timestamp() + $7::bigint * interval '1 millisecond',
                   used_tokens = greatest(l.used_tokens, k.used_tokens),
                   stop_reason = coalesce(l.stop_reason, CASE WHEN l.spent_tokens
                       + greatest(l.used_tokens, k.used_tokens) >= l.budget_tokens THEN 'budget' END),
                   stop_requested_at = coalesce(l.stop_requested_at, CASE WHEN l.spent_tokens
                       + greatest(l.used_tokens, k.used_tokens) >= l.budget_tokens THEN clock_timestamp() END)
               FROM unnest($2::smallint[], $3::text[], $4::uuid[], $5::integer[], $6::bigint[], $8::bigint[])
                    AS k(bucket, tenant, run_id, fence_generation, fence_number, used_tokens), cluster c
               WHERE l.scope = $1 AND l.bucket = k.bucket AND l.tenant = k.tenant AND l.run_id = k.run_id
                 AND l.fence_generation = k.fence_generation AND l.fence_number = k.fence_number
                 AND l.fence_generation = c.generation AND l.lease_until > clock_timestamp()
               RETURNING l.run_id, l.fence_generation, l.fence_number, l.lease_until, l.stop_reason"#,
            scope,
            &keys.buckets,
            &keys.tenants,
            &keys.runs,
            &keys.generations,
            &keys.numbers,
            lease_ms,
            &used_tokens,
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| {
            Ok(Renewed {
                run_id: RunId::from_uuid(row.run_id),
                fence: Fence {
                    generation: row.fence_generation,
                    number: row.fence_number,
                },
                lease_until: row.lease_until,
                stop: row
                    .stop_reason
                    .as_deref()
                    .map(|text| stored(text, "run_leases.stop_reason"))
                    .transpose()?,
            })
        })
        .collect()
    }

    /// Runs of one instance's leases that are to stop, so that it can tell their holders before the next renewal.
    pub async fn stopped_leases(
        &self,
        instance: tidegate_model::InstanceId,
    ) -> Result<Vec<(RunId, Fence)>, Error> {
        Ok(sqlx::query!(
            r#"SELECT run_id, fence_generation, fence_number FROM run_leases
               WHERE instance_id = $1 AND stop_reason IS NOT NULL"#,
            instance.as_uuid()
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| {
            let fence = Fence {
                generation: row.fence_generation,
                number: row.fence_number,
            };
            (RunId::from_uuid(row.run_id), fence)
        })
        .collect())
    }
}

/// Marks running runs to be stopped; answers those that were running and not marked yet (R3.10). Locked in the order of
/// the key before the first is changed, like renewals and closings of several.
pub(super) async fn stop(
    connection: &mut PgConnection,
    runs: &[(TenantId, RunId)],
    why: StopReason,
) -> Result<Vec<(TenantId, RunId)>, Error> {
    let tenants: Vec<String> = runs.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let ids: Vec<Uuid> = runs.iter().map(|(_, run)| run.as_uuid()).collect();
    sqlx::query!(
        r#"UPDATE run_leases l SET stop_reason = $3, stop_requested_at = clock_timestamp()
           FROM (
               SELECT k.scope, k.bucket, k.tenant, k.run_id
               FROM unnest($1::text[], $2::uuid[]) AS g(tenant, run_id)
               CROSS JOIN LATERAL (
                   SELECT a.* FROM agent_runs a WHERE a.tenant = g.tenant AND a.run_id = g.run_id OFFSET 0) a
               JOIN run_leases k ON k.scope = a.scope AND k.tenant = a.tenant AND k.run_id = a.run_id
                AND k.bucket = CASE a.quota_bucket WHEN 'foreground' THEN 0 WHEN 'background' THEN 1 ELSE 2 END
               WHERE k.stop_reason IS NULL
               ORDER BY k.bucket, k.tenant COLLATE "C", k.run_id
               FOR NO KEY UPDATE OF k) running
           WHERE l.scope = running.scope AND l.bucket = running.bucket AND l.tenant = running.tenant
             AND l.run_id = running.run_id
           RETURNING l.tenant, l.run_id"#,
        &tenants,
        &ids,
        why.as_str(),
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(|row| {
        let tenant = stored(&row.tenant, "run_leases.tenant")?;
        Ok((tenant, RunId::from_uuid(row.run_id)))
    })
    .collect()
}
