//! The reservation ledger (R7): counters of resources, admissions, and what leases hold.
//!
//! Every writer takes the book's lock first (after the lease rows that it closes, see rule 7 of `ARCHITECTURE.md`), reads
//! what it needs in a statement after that, lets the policy decide, and writes once. Counters change by what a batch
//! changes in all. A transaction that only gives back reads no counter.

pub mod audit;
pub mod batch;
pub mod expire;
pub mod resources;
mod rows;

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tidegate_model::{
    AdmissionId, Fence, PoolId, TenantId,
    admission::{AdmissionState, EndReason},
    digest::Digest,
};
use tidegate_policy::ledger::{Counter, Held, book::Aside};

use crate::Error;

pub(crate) use rows::numbers_as_text;

/// Which admission.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdmissionKey {
    /// Whose.
    pub tenant: TenantId,
    /// Its id, unique in its tenant.
    pub id: AdmissionId,
}

/// An admission as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Which.
    pub key: AdmissionKey,
    /// Of its requirements.
    pub digest: Digest,
    /// Where it stands.
    pub state: AdmissionState,
    /// The pool that it was admitted to.
    pub pool: PoolId,
    /// Under which epoch of the pool.
    pub descriptor_epoch: i64,
    /// Under which policy generation.
    pub policy_generation: i64,
    /// What its holder shows.
    pub fence: Fence,
    /// When it was admitted.
    pub created_at: DateTime<Utc>,
    /// When it ends by itself.
    pub expires_at: DateTime<Utc>,
    /// How long it lasts without being renewed, in milliseconds.
    pub ttl_ms: i64,
    /// Its vector, by resource.
    pub grants: Vec<Held>,
    /// When and why it ended.
    pub ended: Option<(DateTime<Utc>, EndReason)>,
}

/// Takes the lock of a scope's book until the transaction ends. What is read after it, in a statement of its own, is as
/// the writer before left it.
pub(crate) async fn lock_book(tx: &mut PgConnection, scope: &str) -> Result<(), Error> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtext('tidegate ledger'), hashtext($1))",
        scope
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Counters by resource; those that are not there are left out.
pub(crate) async fn read_counters(
    tx: &mut PgConnection,
    resources: &[i32],
) -> Result<Vec<(i32, Counter)>, Error> {
    let rows = sqlx::query!(
        r#"SELECT r.resource AS "resource!", r.capacity AS "capacity!", r.in_use AS "in_use!",
                  CASE WHEN r.aside_until > clock_timestamp() THEN r.aside_class END AS aside_class,
                  r.aside_amount, r.removed_at IS NOT NULL AS "going!"
           FROM unnest($1::integer[]) AS k(resource)
           CROSS JOIN LATERAL (SELECT r.* FROM resources r WHERE r.resource = k.resource OFFSET 0) r"#,
        resources,
    )
    .fetch_all(tx)
    .await?;
    let counters = rows.into_iter().map(|row| {
        let aside = row.aside_class.map(|class| Aside {
            class,
            amount: row.aside_amount.unwrap_or(0),
        });
        let counter = Counter {
            capacity: row.capacity,
            in_use: row.in_use,
            aside,
            going: row.going,
        };
        (row.resource, counter)
    });
    Ok(counters.collect())
}

/// Those of some resources that are slots: taken once by whoever is admitted, and given back with the admission only.
pub(crate) async fn slots_among(
    tx: &mut PgConnection,
    resources: &[i32],
) -> Result<HashSet<i32>, Error> {
    let slots = sqlx::query_scalar!(
        "SELECT resource FROM resources WHERE resource = ANY ($1)
         AND (name LIKE 'pool/%' OR name LIKE 'sandbox/%' OR name LIKE 'tenant/%/slots')",
        resources,
    )
    .fetch_all(tx)
    .await?;
    Ok(slots.into_iter().collect())
}

/// Applies what a batch changed in all, and raises the version of the book; the version that holds now.
pub(crate) async fn apply_changes(
    tx: &mut PgConnection,
    scope: &str,
    changes: impl Iterator<Item = (i32, i64)>,
) -> Result<i64, Error> {
    let (resources, amounts): (Vec<i32>, Vec<i64>) = changes.unzip();
    let expected = resources.len() as u64;
    let written = sqlx::query!(
        r#"WITH counted AS (
               UPDATE resources r SET in_use = r.in_use + c.change,
                   over_since = CASE WHEN r.in_use + c.change > r.capacity
                       THEN coalesce(r.over_since, clock_timestamp()) END
               FROM unnest($2::integer[], $3::bigint[]) AS c(resource, change)
               WHERE r.resource = c.resource
               RETURNING r.resource
           ), raised AS (
               INSERT INTO ledger_books AS b (scope, version) VALUES ($1, 1)
               ON CONFLICT (scope) DO UPDATE SET version = b.version + 1 RETURNING version
           )
           SELECT (SELECT count(*) FROM counted) AS "counted!", (SELECT version FROM raised) AS "version!""#,
        scope,
        &resources,
        &amounts,
    )
    .fetch_one(tx)
    .await?;
    let counted = u64::try_from(written.counted).unwrap_or(0);
    if counted == expected {
        Ok(written.version)
    } else {
        Err(Error::RowCount {
            statement: "count resources",
            expected,
            changed: counted,
        })
    }
}
