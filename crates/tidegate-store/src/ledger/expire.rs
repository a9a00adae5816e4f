//! Admissions whose time has run out, and those of tenants that end (R7.5).

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;
use tidegate_model::{TenantId, admission::EndReason};

use super::{apply_changes, lock_book};
use crate::{Error, Fleet};

/// What one look ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// Admissions.
    pub admissions: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Fleet {
    /// Ends admissions whose time has run out by the database's clock: at most so many, those that ran out first.
    pub async fn expire_admissions(&self, scope: &str, most: i64) -> Result<Expired, Error> {
        let scope = scope.to_owned();
        self.store()
            .transaction("expire_admissions", move |tx| {
                let scope = scope.clone();
                Box::pin(async move {
                    lock_book(tx, &scope).await?;
                    let late = sqlx::query_scalar!(
                        r#"SELECT ctid::text AS "at!" FROM admissions_open
                           WHERE scope = $1 AND expires_at <= clock_timestamp() ORDER BY expires_at LIMIT $2"#,
                        scope,
                        most,
                    )
                    .fetch_all(&mut *tx)
                    .await?;
                    end_chosen(tx, &scope, &late, EndReason::TimeOut).await?;
                    fail::fail_point!("expire_before_commit", |_| Err(Error::injected()));
                    Ok(Expired {
                        admissions: late.len() as u64,
                        more: i64::try_from(late.len()).is_ok_and(|late| late >= most),
                    })
                })
            })
            .await
    }

    /// Whether there is an admission whose time has run out.
    pub async fn has_expired_admissions(&self) -> Result<bool, Error> {
        let first = sqlx::query_scalar!(
            r#"SELECT coalesce((SELECT expires_at <= clock_timestamp() FROM admissions_open
                                ORDER BY expires_at LIMIT 1), false) AS "late!""#
        )
        .fetch_one(self.pool())
        .await?;
        Ok(first)
    }

    /// Ends everything that a tenant holds; for one that is being erased. The leases themselves go with its other rows.
    pub(crate) async fn end_holdings(&self, tenant: &TenantId) -> Result<(), Error> {
        let tenant = tenant.clone();
        self.store()
            .transaction("end_holdings", move |tx| {
                let tenant = tenant.clone();
                Box::pin(async move { end_holdings(tx, &tenant).await })
            })
            .await
    }
}

async fn end_holdings(tx: &mut PgConnection, tenant: &TenantId) -> Result<(), Error> {
    // Leases before the book, like whoever closes them.
    let leases = sqlx::query!(
        r#"SELECT ctid::text AS "at!", scope, resources AS "resources!", held AS "held!" FROM run_leases
           WHERE tenant = $1 AND resources IS NOT NULL ORDER BY scope, bucket, run_id FOR UPDATE"#,
        tenant.as_str(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let admissions = sqlx::query_scalar!(
        "SELECT DISTINCT scope FROM admissions_open WHERE tenant = $1",
        tenant.as_str()
    )
    .fetch_all(&mut *tx)
    .await?;
    let scopes: BTreeSet<String> = leases
        .iter()
        .map(|lease| lease.scope.clone())
        .chain(admissions)
        .collect();
    for scope in &scopes {
        lock_book(tx, scope).await?;
        let chosen = sqlx::query_scalar!(
            r#"SELECT ctid::text AS "at!" FROM admissions_open WHERE scope = $1 AND tenant = $2"#,
            scope,
            tenant.as_str(),
        )
        .fetch_all(&mut *tx)
        .await?;
        end_chosen(tx, scope, &chosen, EndReason::Tenant).await?;
        let mut back: BTreeMap<i32, i64> = BTreeMap::new();
        let mut places = Vec::new();
        for lease in leases.iter().filter(|lease| lease.scope == *scope) {
            places.push(lease.at.clone());
            for (resource, held) in lease.resources.iter().zip(&lease.held) {
                *back.entry(*resource).or_default() -= held;
            }
        }
        if !back.is_empty() {
            sqlx::query!(
                "UPDATE run_leases SET resources = NULL, held = NULL WHERE ctid = ANY ($1::text[]::tid[])",
                &places
            )
            .execute(&mut *tx)
            .await?;
            apply_changes(tx, scope, back.into_iter()).await?;
        }
    }
    Ok(())
}

/// Ends the admissions at some places, which are theirs as long as the book is locked, and counts what they held.
async fn end_chosen(
    tx: &mut PgConnection,
    scope: &str,
    places: &[String],
    reason: EndReason,
) -> Result<(), Error> {
    if places.is_empty() {
        return Ok(());
    }
    let held = sqlx::query!(
        r#"WITH gone AS (
               DELETE FROM admissions_open WHERE ctid = ANY ($2::text[]::tid[]) RETURNING *
           ), kept AS (
               INSERT INTO admissions_done (scope, tenant, admission_id, digest, state, reason, pool, descriptor_epoch,
                   policy_generation, fence_generation, fence_number, created_at, ended_at, resources, granted, settled)
               SELECT scope, tenant, admission_id, digest, 'EXPIRED', $3, pool, descriptor_epoch, policy_generation,
                      (SELECT generation FROM cluster),
                      coalesce((SELECT version FROM ledger_books WHERE scope = $1), 0) + 1, created_at, clock_timestamp(),
                      resources, granted, settled
               FROM gone
           )
           SELECT u.resource AS "resource!", sum(u.held)::bigint AS "held!"
           FROM gone g CROSS JOIN LATERAL unnest(g.resources, g.held) AS u(resource, held)
           GROUP BY u.resource ORDER BY u.resource"#,
        scope,
        places,
        reason.as_str(),
    )
    .fetch_all(&mut *tx)
    .await?;
    apply_changes(tx, scope, held.iter().map(|row| (row.resource, -row.held))).await?;
    Ok(())
}
