//! Reading the audit log (R2.5); it is written by [`crate::written`] only.

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
        let rows = sqlx::query!(
            "SELECT seq, at, actor, tenant, action, subject, before, after, request_id FROM audit_log
             WHERE ($1::text IS NULL OR tenant = $1) AND ($2::bigint IS NULL OR seq < $2)
             ORDER BY seq DESC LIMIT $3",
            tenant.map(TenantId::as_str),
            before,
            limit,
        )
        .fetch_all(self.pool())
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
