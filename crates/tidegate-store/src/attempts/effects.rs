//! Effects of attempts that are being closed, of which nobody knows whether they happened (R4.5).

use std::collections::HashMap;

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::locked::Locked;
use crate::Error;

/// The facts of a review, by run; empty without a statement where no attempt intended an effect. The leases are locked,
/// so that no intent and no outcome comes in between.
pub(super) async fn unknown_effects(
    tx: &mut PgConnection,
    leases: &[Locked],
) -> Result<HashMap<Uuid, Vec<Value>>, Error> {
    let mut tenants = Vec::new();
    let mut runs = Vec::new();
    for lease in leases.iter().filter(|lease| lease.has_effects) {
        tenants.push(lease.lease.key.tenant.as_str().to_owned());
        runs.push(lease.lease.key.run_id.as_uuid());
    }
    let mut unknown: HashMap<Uuid, Vec<Value>> = HashMap::new();
    if runs.is_empty() {
        return Ok(unknown);
    }
    let rows = sqlx::query!(
        r#"SELECT e.run_id, e.call_id, e.tool, e.intended_at
           FROM unnest($1::text[], $2::uuid[]) AS k(tenant, run_id)
           JOIN run_effects e ON e.tenant = k.tenant AND e.run_id = k.run_id
           WHERE e.outcome IS NULL AND NOT e.idempotent ORDER BY e.intended_at, e.call_id"#,
        &tenants,
        &runs,
    )
    .fetch_all(tx)
    .await?;
    for row in rows {
        unknown
            .entry(row.run_id)
            .or_default()
            .push(json!({"callId": row.call_id, "tool": row.tool, "intendedAt": row.intended_at}));
    }
    Ok(unknown)
}
