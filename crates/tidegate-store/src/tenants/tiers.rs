//! The optional tables of tiers and overrides (R15.1). Where they are absent nothing is read and nothing can be written.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{ConfigKind, TenantId, api::PutTenantOverride};
use tidegate_policy::tiers::{Override, TierRow, Tiers};

use crate::{
    Error, Store,
    catalog::Delete,
    error::stored,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// What came of writing an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutOverride {
    /// It is stored.
    Stored,
    /// There is no such tenant, or it is deleted.
    NoTenant,
    /// The table has no such tier.
    NoTier,
    /// The tables are absent.
    NoTables,
}

impl Outcome for PutOverride {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Stored)
    }
}

fn weight(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or(1)
}

impl Store {
    /// Every tier and override; nothing where the tables are absent.
    pub async fn resource_tiers(&self) -> Result<Tiers, Error> {
        let mut connection = self.pool().acquire().await?;
        if !there(&mut connection).await? {
            return Ok(Tiers::default());
        }
        let rows = sqlx::query!(
            "SELECT tier, max_concurrent_foreground_runs, max_concurrent_background_runs, weight
             FROM tenant_resource_tiers ORDER BY tier"
        )
        .fetch_all(&mut *connection)
        .await?;
        let overrides = sqlx::query!(
            "SELECT tenant, tier, max_concurrent_foreground_runs, max_concurrent_background_runs, weight
             FROM tenant_resource_overrides"
        )
        .fetch_all(&mut *connection)
        .await?;
        Ok(Tiers {
            rows: rows
                .into_iter()
                .map(|row| TierRow {
                    name: row.tier.into(),
                    foreground: row.max_concurrent_foreground_runs.into(),
                    background: row.max_concurrent_background_runs.into(),
                    weight: weight(row.weight),
                })
                .collect(),
            overrides: overrides
                .into_iter()
                .map(|row| {
                    let tenant = stored(&row.tenant, "tenant_resource_overrides.tenant")?;
                    let own = Override {
                        tier: row.tier,
                        foreground: row.max_concurrent_foreground_runs.map(i64::from),
                        background: row.max_concurrent_background_runs.map(i64::from),
                        weight: row.weight.map(weight),
                    };
                    Ok((tenant, own))
                })
                .collect::<Result<_, Error>>()?,
        })
    }

    /// Makes or replaces what a tenant has of its own.
    pub async fn put_override(
        &self,
        tenant: &TenantId,
        own: PutTenantOverride,
        author: &Author,
    ) -> Result<Written<PutOverride>, Error> {
        let tenant = tenant.clone();
        self.write("tenant.override", author, move |tx, author| {
            let (tenant, own) = (tenant.clone(), own.clone());
            Box::pin(async move { put(tx, &tenant, &own, &author).await })
        })
        .await
    }

    /// Takes away what a tenant has of its own.
    pub async fn delete_override(
        &self,
        tenant: &TenantId,
        author: &Author,
    ) -> Result<Written<Delete>, Error> {
        let tenant = tenant.clone();
        self.write("tenant.override.delete", author, move |tx, author| {
            let tenant = tenant.clone();
            Box::pin(async move { delete(tx, &tenant, &author).await })
        })
        .await
    }
}

/// Whether the optional migration was executed.
async fn there(connection: &mut PgConnection) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT to_regclass('tenant_resource_tiers') IS NOT NULL
              AND to_regclass('tenant_resource_overrides') IS NOT NULL AS "there!""#
    )
    .fetch_one(connection)
    .await?)
}

/// A tenant's own, as the audit log shows it.
async fn lock(tx: &mut PgConnection, tenant: &TenantId) -> Result<Option<Value>, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT jsonb_build_object('tier', tier, 'foregroundRunsMax', max_concurrent_foreground_runs,
                  'backgroundRunsMax', max_concurrent_background_runs, 'weight', weight) AS "before!"
           FROM tenant_resource_overrides WHERE tenant = $1 FOR UPDATE"#,
        tenant.as_str()
    )
    .fetch_optional(tx)
    .await?)
}

async fn delete(
    tx: &mut PgConnection,
    tenant: &TenantId,
    author: &Author,
) -> Result<Written<Delete>, Error> {
    let before = if there(tx).await? {
        lock(tx, tenant).await?
    } else {
        None
    };
    let Some(before) = before else {
        return Ok(Written::unchanged(Delete::NotFound));
    };
    sqlx::query!(
        "DELETE FROM tenant_resource_overrides WHERE tenant = $1",
        tenant.as_str()
    )
    .execute(&mut *tx)
    .await?;
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Tier,
            action: "tenant.override.delete",
            subject: tenant.as_str(),
            tenant: Some(tenant),
            before,
            after: Value::Null,
        },
    )
    .await?;
    Ok(Written {
        value: Delete::Deleted,
        revision: Some(revision),
    })
}

async fn put(
    tx: &mut PgConnection,
    tenant: &TenantId,
    own: &PutTenantOverride,
    author: &Author,
) -> Result<Written<PutOverride>, Error> {
    if !there(tx).await? {
        return Ok(Written::unchanged(PutOverride::NoTables));
    }
    let known = sqlx::query_scalar!(
        r#"SELECT true AS "known!" FROM tenants WHERE tenant = $1 AND state <> 'deleted' FOR SHARE"#,
        tenant.as_str()
    )
    .fetch_optional(&mut *tx)
    .await?;
    if known.is_none() {
        return Ok(Written::unchanged(PutOverride::NoTenant));
    }
    if let Some(tier) = &own.tier {
        let known = sqlx::query_scalar!(
            r#"SELECT true AS "known!" FROM tenant_resource_tiers WHERE tier = $1 FOR KEY SHARE"#,
            tier
        )
        .fetch_optional(&mut *tx)
        .await?;
        if known.is_none() {
            return Ok(Written::unchanged(PutOverride::NoTier));
        }
    }
    let before = lock(tx, tenant).await?;
    sqlx::query!(
        "INSERT INTO tenant_resource_overrides (tenant, tier, max_concurrent_foreground_runs,
             max_concurrent_background_runs, weight)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (tenant) DO UPDATE SET tier = $2, max_concurrent_foreground_runs = $3,
             max_concurrent_background_runs = $4, weight = $5, updated_at = clock_timestamp()",
        tenant.as_str(),
        own.tier,
        own.foreground_runs_max,
        own.background_runs_max,
        own.weight,
    )
    .execute(&mut *tx)
    .await?;
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Tier,
            action: "tenant.override",
            subject: tenant.as_str(),
            tenant: Some(tenant),
            before: before.unwrap_or(Value::Null),
            after: json!({
                "tier": own.tier, "foregroundRunsMax": own.foreground_runs_max,
                "backgroundRunsMax": own.background_runs_max, "weight": own.weight,
            }),
        },
    )
    .await?;
    Ok(Written {
        value: PutOverride::Stored,
        revision: Some(revision),
    })
}
