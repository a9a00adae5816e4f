//! Reading the audit log (R2.5); it is written by [`crate::written`] only.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use tidegate_model::{TenantId, api::AuditView};

use crate::{Error, Store, error::stored};

impl Store {
    /// A page of the audit log, newest first; of one tenant where given.
    pub async fn list_audit(
        &self,
        tenant: Option<&TenantId>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<AuditView>, Error> {
        let tenant = tenant.map(|tenant| tenant.as_str().to_owned());
        let rows = self
            .planned_read("list_audit", move |tx| {
                let tenant = tenant.clone();
                Box::pin(async move { page(tx, tenant, before, limit).await })
            })
            .await?;
        rows.into_iter()
            .map(|row| {
                Ok(AuditView {
                    seq: row.seq,
                    at: row.at,
                    actor: row.actor,
                    tenant: row
                        .tenant
                        .map(|tenant| stored(&tenant, "audit_log.tenant"))
                        .transpose()?,
                    action: row.action,
                    subject: row.subject,
                    before: row.before,
                    after: row.after,
                    request_id: row.request_id,
                })
            })
            .collect()
    }
}

struct Row {
    seq: i64,
    at: DateTime<Utc>,
    actor: String,
    tenant: Option<String>,
    action: String,
    subject: String,
    before: Value,
    after: Value,
    request_id: Option<String>,
}

async fn page(
    tx: &mut PgConnection,
    tenant: Option<String>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Row>, Error> {
    Ok(sqlx::query_as!(
        Row,
        "SELECT seq, at, actor, tenant, action, subject, before, after, request_id FROM audit_log
         WHERE ($1::text IS NULL OR tenant = $1) AND ($2::bigint IS NULL OR seq < $2)
         ORDER BY seq DESC LIMIT $3",
        tenant,
        before,
        limit,
    )
    .fetch_all(tx)
    .await?)
}
