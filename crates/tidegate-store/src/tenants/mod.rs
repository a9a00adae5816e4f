//! Tenants and their states (R2.6).

pub mod erase;
pub mod tiers;
pub mod usage;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tidegate_model::{
    ConfigKind, TenantId,
    api::{CreateTenant, TenantView},
    principal::TenantState,
};

use crate::{
    Error, Store,
    error::stored,
    repeats::Outcome,
    written::{Author, Record, Written, record},
};

/// What came of a change of state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetState {
    /// The tenant is in the state that was asked for.
    Set(TenantView),
    /// A deleted tenant stays deleted.
    Deleted,
    /// There is no such tenant.
    NotFound,
}

impl Outcome for TenantView {
    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant)
    }
}

impl Outcome for SetState {
    fn is_refusal(&self) -> bool {
        !matches!(self, Self::Set(_))
    }

    /// That a tenant was deleted is no content of it, and outlives its erasure.
    fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Set(view) if view.state != TenantState::Deleted => Some(&view.tenant),
            _ => None,
        }
    }
}

struct TenantRow {
    tenant: String,
    display_name: Option<String>,
    state: String,
    created_at: DateTime<Utc>,
}

impl TenantRow {
    fn view(self) -> Result<TenantView, Error> {
        Ok(TenantView {
            tenant: stored(&self.tenant, "tenants.tenant")?,
            display_name: self.display_name,
            state: stored(&self.state, "tenants.state")?,
            created_at: self.created_at,
        })
    }
}

fn audited(tenant: &TenantView) -> Value {
    json!({"displayName": tenant.display_name, "state": tenant.state})
}

const fn action(state: TenantState) -> &'static str {
    match state {
        TenantState::Active => "tenant.resume",
        TenantState::Suspended => "tenant.suspend",
        TenantState::Deleted => "tenant.delete",
    }
}

impl Store {
    /// Makes a tenant; `None` where the name is or was taken.
    pub async fn create_tenant(
        &self,
        tenant: CreateTenant,
        author: &Author,
    ) -> Result<Written<Option<TenantView>>, Error> {
        self.write("tenant.create", author, move |tx, author| {
            let tenant = tenant.clone();
            Box::pin(async move { create(tx, &tenant, &author).await })
        })
        .await
    }

    /// Tenants by name.
    pub async fn list_tenants(
        &self,
        after: Option<&TenantId>,
        limit: i64,
    ) -> Result<Vec<TenantView>, Error> {
        let rows = sqlx::query_as!(
            TenantRow,
            "SELECT tenant, display_name, state, created_at FROM tenants
             WHERE $1::text IS NULL OR tenant > $1 ORDER BY tenant LIMIT $2",
            after.map(TenantId::as_str),
            limit,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(TenantRow::view).collect()
    }

    /// One tenant.
    pub async fn get_tenant(&self, tenant: &TenantId) -> Result<Option<TenantView>, Error> {
        sqlx::query_as!(
            TenantRow,
            "SELECT tenant, display_name, state, created_at FROM tenants WHERE tenant = $1",
            tenant.as_str(),
        )
        .fetch_optional(self.pool())
        .await?
        .map(TenantRow::view)
        .transpose()
    }

    /// Suspends, resumes, or marks as deleted; what a deleted tenant leaves is erased by [`crate::Fleet::erase_tenant`].
    pub async fn set_tenant_state(
        &self,
        tenant: &TenantId,
        state: TenantState,
        author: &Author,
    ) -> Result<Written<SetState>, Error> {
        let tenant = tenant.clone();
        self.write("tenant.set_state", author, move |tx, author| {
            let tenant = tenant.clone();
            Box::pin(async move { set_state(tx, &tenant, state, &author).await })
        })
        .await
    }
}

async fn create(
    tx: &mut PgConnection,
    tenant: &CreateTenant,
    author: &Author,
) -> Result<Written<Option<TenantView>>, Error> {
    let row = sqlx::query_as!(
        TenantRow,
        "INSERT INTO tenants (tenant, display_name) VALUES ($1, $2) ON CONFLICT DO NOTHING
         RETURNING tenant, display_name, state, created_at",
        tenant.tenant.as_str(),
        tenant.display_name,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else {
        return Ok(Written::unchanged(None));
    };
    let view = row.view()?;
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Tenant,
            action: "tenant.create",
            subject: view.tenant.as_str(),
            tenant: Some(&view.tenant),
            before: Value::Null,
            after: audited(&view),
        },
    )
    .await?;
    Ok(Written {
        value: Some(view),
        revision: Some(revision),
    })
}

async fn set_state(
    tx: &mut PgConnection,
    tenant: &TenantId,
    state: TenantState,
    author: &Author,
) -> Result<Written<SetState>, Error> {
    let row = sqlx::query_as!(
        TenantRow,
        "SELECT tenant, display_name, state, created_at FROM tenants WHERE tenant = $1 FOR UPDATE",
        tenant.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(before) = row.map(TenantRow::view).transpose()? else {
        return Ok(Written::unchanged(SetState::NotFound));
    };
    if before.state == state {
        return Ok(Written::unchanged(SetState::Set(before)));
    }
    if before.state == TenantState::Deleted {
        return Ok(Written::unchanged(SetState::Deleted));
    }
    let deleted = state == TenantState::Deleted;
    sqlx::query!(
        "UPDATE tenants SET state = $2, deleted_at = CASE WHEN $3 THEN clock_timestamp() END,
                display_name = CASE WHEN $3 THEN NULL ELSE display_name END
         WHERE tenant = $1",
        tenant.as_str(),
        state.as_str(),
        deleted,
    )
    .execute(&mut *tx)
    .await?;
    let after = TenantView {
        state,
        display_name: before.display_name.clone().filter(|_| !deleted),
        ..before.clone()
    };
    let revision = record(
        tx,
        Record {
            author,
            kind: ConfigKind::Tenant,
            action: action(state),
            subject: tenant.as_str(),
            tenant: Some(tenant),
            before: audited(&before),
            after: audited(&after),
        },
    )
    .await?;
    Ok(Written {
        value: SetState::Set(after),
        revision: Some(revision),
    })
}
