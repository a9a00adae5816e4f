//! Admissions as rows, and a batch's changes as arrays.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_model::{
    AdmissionId, Fence,
    admission::{AdmissionState, EndReason},
    digest::Digest,
};
use tidegate_policy::ledger::Held;
use uuid::Uuid;

use super::{Admission, AdmissionKey};
use crate::{Error, error::stored};

/// Stands for "not settled" in an array.
const UNSETTLED: i64 = -1;

struct Row {
    tenant: String,
    admission_id: Uuid,
    digest: Vec<u8>,
    state: String,
    pool: String,
    descriptor_epoch: i64,
    policy_generation: i64,
    fence_generation: i32,
    fence_number: i64,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    ttl_ms: i64,
    resources: Vec<i32>,
    granted: Vec<i64>,
    held: Vec<i64>,
    settled: Vec<i64>,
    ended_at: Option<DateTime<Utc>>,
    reason: Option<String>,
}

impl TryFrom<Row> for Admission {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = Error::Corrupt {
            what: "admissions.digest",
        };
        let digest: [u8; 32] = row.digest.try_into().map_err(|_| corrupt)?;
        let ended = match (row.ended_at, row.reason) {
            (Some(at), Some(reason)) => {
                let reason: EndReason = stored(&reason, "admissions_done.reason")?;
                Some((at, reason))
            }
            _ => None,
        };
        Ok(Self {
            key: AdmissionKey {
                tenant: stored(&row.tenant, "admissions.tenant")?,
                id: AdmissionId::from_uuid(row.admission_id),
            },
            digest: Digest(digest),
            state: stored::<AdmissionState>(&row.state, "admissions.state")?,
            pool: stored(&row.pool, "admissions.pool")?,
            descriptor_epoch: row.descriptor_epoch,
            policy_generation: row.policy_generation,
            fence: Fence {
                generation: row.fence_generation,
                number: row.fence_number,
            },
            created_at: row.created_at,
            expires_at: row.expires_at.or(row.ended_at).unwrap_or(row.created_at),
            ttl_ms: row.ttl_ms,
            grants: grants(&row.resources, &row.granted, &row.held, &row.settled)?,
            ended,
        })
    }
}

fn grants(
    resources: &[i32],
    granted: &[i64],
    held: &[i64],
    settled: &[i64],
) -> Result<Vec<Held>, Error> {
    let lengths = [granted.len(), held.len(), settled.len()];
    if lengths.iter().any(|length| *length != resources.len()) {
        return Err(Error::Corrupt {
            what: "the vector of an admission",
        });
    }
    let all = (0..resources.len()).map(|at| Held {
        resource: resources[at],
        granted: granted[at],
        held: held[at],
        settled: (settled[at] != UNSETTLED).then_some(settled[at]),
    });
    Ok(all.collect())
}

/// The admissions of some keys that are there, open or over. Read under the book's lock or for display.
pub(super) async fn read(
    connection: &mut PgConnection,
    keys: &[&AdmissionKey],
) -> Result<Vec<Admission>, Error> {
    let tenants: Vec<String> = keys.iter().map(|key| key.tenant.to_string()).collect();
    let ids: Vec<Uuid> = keys.iter().map(|key| key.id.as_uuid()).collect();
    sqlx::query_as!(
        Row,
        r#"SELECT a.tenant AS "tenant!", a.admission_id AS "admission_id!", a.digest AS "digest!", a.state AS "state!",
                  a.pool AS "pool!", a.descriptor_epoch AS "descriptor_epoch!",
                  a.policy_generation AS "policy_generation!", a.fence_generation AS "fence_generation!",
                  a.fence_number AS "fence_number!", a.created_at AS "created_at!", a.expires_at, a.ttl_ms AS "ttl_ms!",
                  a.resources AS "resources!", a.granted AS "granted!", a.held AS "held!", a.settled AS "settled!",
                  a.ended_at, a.reason
           FROM unnest($1::text[], $2::uuid[]) AS k(tenant, admission_id)
           CROSS JOIN LATERAL (
               SELECT o.tenant, o.admission_id, o.digest, o.state, o.pool, o.descriptor_epoch, o.policy_generation,
                      o.fence_generation, o.fence_number, o.created_at, o.expires_at, o.ttl_ms, o.resources, o.granted,
                      o.held, o.settled, NULL::timestamptz AS ended_at, NULL::text AS reason
               FROM admissions_open o WHERE o.tenant = k.tenant AND o.admission_id = k.admission_id
               UNION ALL
               SELECT d.tenant, d.admission_id, d.digest, d.state, d.pool, d.descriptor_epoch, d.policy_generation,
                      d.fence_generation, d.fence_number, d.created_at, NULL, 0, d.resources, d.granted,
                      array_fill(0::bigint, ARRAY[cardinality(d.resources)]), d.settled, d.ended_at, d.reason
               FROM admissions_done d WHERE d.tenant = k.tenant AND d.admission_id = k.admission_id
           ) a"#,
        &tenants,
        &ids,
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(Admission::try_from)
    .collect()
}

/// An array as one text, so that arrays of different lengths travel in one parameter.
pub(crate) fn numbers_as_text(numbers: impl Iterator<Item = i64>) -> String {
    let mut text = String::from("{");
    for (at, number) in numbers.enumerate() {
        if at > 0 {
            text.push(',');
        }
        // A string takes everything.
        let _written = write!(text, "{number}");
    }
    text.push('}');
    text
}

/// Admissions as columns.
#[derive(Default)]
struct Columns {
    tenants: Vec<String>,
    ids: Vec<Uuid>,
    digests: Vec<Vec<u8>>,
    states: Vec<String>,
    reasons: Vec<Option<String>>,
    pools: Vec<String>,
    epochs: Vec<i64>,
    policies: Vec<i64>,
    generations: Vec<i32>,
    numbers: Vec<i64>,
    created: Vec<DateTime<Utc>>,
    until: Vec<DateTime<Utc>>,
    ttls: Vec<i64>,
    resources: Vec<String>,
    granted: Vec<String>,
    held: Vec<String>,
    settled: Vec<String>,
}

impl Columns {
    fn of<'a>(admissions: impl IntoIterator<Item = &'a Admission>) -> Self {
        let mut all = Self::default();
        for one in admissions {
            let grants = &one.grants;
            all.tenants.push(one.key.tenant.to_string());
            all.ids.push(one.key.id.as_uuid());
            all.digests.push(one.digest.as_bytes().to_vec());
            all.states.push(one.state.as_str().to_owned());
            all.pools.push(one.pool.to_string());
            all.epochs.push(one.descriptor_epoch);
            all.policies.push(one.policy_generation);
            all.generations.push(one.fence.generation);
            all.numbers.push(one.fence.number);
            all.created.push(one.created_at);
            all.until
                .push(one.ended.map_or(one.expires_at, |(at, _)| at));
            all.reasons
                .push(one.ended.map(|(_, reason)| reason.as_str().to_owned()));
            all.ttls.push(one.ttl_ms);
            all.resources.push(numbers_as_text(
                grants.iter().map(|grant| grant.resource.into()),
            ));
            all.granted
                .push(numbers_as_text(grants.iter().map(|grant| grant.granted)));
            all.held
                .push(numbers_as_text(grants.iter().map(|grant| grant.held)));
            all.settled.push(numbers_as_text(
                grants
                    .iter()
                    .map(|grant| grant.settled.unwrap_or(UNSETTLED)),
            ));
        }
        all
    }
}

/// Stores admissions that were not there before, by key.
pub(super) async fn insert(
    tx: &mut PgConnection,
    scope: &str,
    new: &[&Admission],
) -> Result<(), Error> {
    if new.is_empty() {
        return Ok(());
    }
    let all = Columns::of(new.iter().copied());
    sqlx::query!(
        r#"INSERT INTO admissions_open (scope, tenant, admission_id, digest, state, pool, descriptor_epoch,
               policy_generation, fence_generation, fence_number, created_at, expires_at, ttl_ms, resources, granted, held,
               settled)
           SELECT $1, tenant, admission_id, digest, state, pool, epoch, policy, generation, number, created_at, until,
                  ttl_ms, resources::integer[], granted::bigint[], held::bigint[], settled::bigint[]
           FROM unnest($2::text[], $3::uuid[], $4::bytea[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
                $9::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::bigint[], $14::text[],
                $15::text[], $16::text[], $17::text[])
                AS n(tenant, admission_id, digest, state, pool, epoch, policy, generation, number, created_at, until,
                ttl_ms, resources, granted, held, settled)"#,
        scope,
        &all.tenants,
        &all.ids,
        &all.digests,
        &all.states,
        &all.pools,
        &all.epochs,
        &all.policies,
        &all.generations,
        &all.numbers,
        &all.created,
        &all.until,
        &all.ttls,
        &all.resources,
        &all.granted,
        &all.held,
        &all.settled,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Stores what became of open admissions.
pub(super) async fn update(tx: &mut PgConnection, changed: &[&Admission]) -> Result<(), Error> {
    if changed.is_empty() {
        return Ok(());
    }
    let all = Columns::of(changed.iter().copied());
    let rows = sqlx::query!(
        r#"UPDATE admissions_open o SET digest = n.digest, state = n.state, pool = n.pool, descriptor_epoch = n.epoch,
               policy_generation = n.policy, fence_generation = n.generation, fence_number = n.number,
               expires_at = n.until, ttl_ms = n.ttl_ms, resources = n.resources::integer[],
               granted = n.granted::bigint[], held = n.held::bigint[], settled = n.settled::bigint[]
           FROM unnest($1::text[], $2::uuid[], $3::bytea[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                $8::integer[], $9::bigint[], $10::timestamptz[], $11::bigint[], $12::text[], $13::text[], $14::text[],
                $15::text[])
                AS n(tenant, admission_id, digest, state, pool, epoch, policy, generation, number, until, ttl_ms,
                resources, granted, held, settled)
           WHERE o.tenant = n.tenant AND o.admission_id = n.admission_id"#,
        &all.tenants,
        &all.ids,
        &all.digests,
        &all.states,
        &all.pools,
        &all.epochs,
        &all.policies,
        &all.generations,
        &all.numbers,
        &all.until,
        &all.ttls,
        &all.resources,
        &all.granted,
        &all.held,
        &all.settled,
    )
    .execute(tx)
    .await?
    .rows_affected();
    exactly("update admissions", changed.len(), rows)
}

/// Moves admissions to where those stand that are over. `there` says which of them stood among the open ones.
pub(super) async fn end(
    tx: &mut PgConnection,
    scope: &str,
    ended: &[&Admission],
    there: usize,
) -> Result<(), Error> {
    if ended.is_empty() {
        return Ok(());
    }
    let all = Columns::of(ended.iter().copied());
    let gone = sqlx::query_scalar!(
        r#"WITH gone AS (
               DELETE FROM admissions_open o USING unnest($2::text[], $3::uuid[]) AS k(tenant, admission_id)
               WHERE o.tenant = k.tenant AND o.admission_id = k.admission_id RETURNING 1
           ), kept AS (
               INSERT INTO admissions_done (scope, tenant, admission_id, digest, state, reason, pool, descriptor_epoch,
                   policy_generation, fence_generation, fence_number, created_at, ended_at, resources, granted, settled)
               SELECT $1, tenant, admission_id, digest, state, reason, pool, epoch, policy, generation, number, created_at,
                      until, resources::integer[], granted::bigint[], settled::bigint[]
               FROM unnest($2::text[], $3::uuid[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                    $9::bigint[], $10::integer[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::text[],
                    $15::text[], $16::text[])
                    AS n(tenant, admission_id, digest, state, reason, pool, epoch, policy, generation, number, created_at,
                    until, resources, granted, settled)
           )
           SELECT count(*) AS "count!" FROM gone"#,
        scope,
        &all.tenants,
        &all.ids,
        &all.digests,
        &all.states,
        &all.reasons as &[Option<String>],
        &all.pools,
        &all.epochs,
        &all.policies,
        &all.generations,
        &all.numbers,
        &all.created,
        &all.until,
        &all.resources,
        &all.granted,
        &all.settled,
    )
    .fetch_one(tx)
    .await?;
    exactly("end admissions", there, u64::try_from(gone).unwrap_or(0))
}

fn exactly(statement: &'static str, expected: usize, changed: u64) -> Result<(), Error> {
    let expected = expected as u64;
    if changed == expected {
        return Ok(());
    }
    Err(Error::RowCount {
        statement,
        expected,
        changed,
    })
}
