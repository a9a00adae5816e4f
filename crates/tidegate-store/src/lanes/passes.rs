//! What tenants have been charged, over all instances and restarts (R3.12).

use tidegate_model::TenantId;
use tidegate_policy::fairness::PassChange;

use crate::{Error, Fleet, error::stored};

/// Passes after they were stored, with what other instances have added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPasses {
    /// The floor.
    pub floor: u64,
    /// The passes that were changed.
    pub passes: Vec<(TenantId, u64)>,
}

impl Fleet {
    /// Adds changes to the stored passes. A pass below the floor starts at the floor: a tenant that was away does not
    /// catch up. `changes` are in the order of the tenants, so that two instances cannot wait for each other.
    pub async fn add_passes(
        &self,
        scope: &str,
        floor: u64,
        changes: &[PassChange],
    ) -> Result<StoredPasses, Error> {
        let tenants: Vec<String> = changes
            .iter()
            .map(|change| change.tenant.as_str().to_owned())
            .collect();
        let deltas: Vec<i64> = changes.iter().map(|change| change.change).collect();
        let floor = i64::try_from(floor).unwrap_or(i64::MAX);
        let rows = sqlx::query!(
            r#"WITH floor AS (
                INSERT INTO run_pass_floors (scope, pass) VALUES ($1, $2)
                ON CONFLICT (scope) DO UPDATE SET pass = greatest(run_pass_floors.pass, excluded.pass)
                RETURNING pass
            ), given AS (
                -- Added as numeric, so that no sum can overflow.
                SELECT g.tenant, g.delta::numeric AS delta FROM unnest($3::text[], $4::bigint[]) AS g(tenant, delta)
                JOIN tenants t ON t.tenant = g.tenant AND t.state <> 'deleted'
            ), added AS (
                INSERT INTO run_passes (scope, tenant, pass)
                SELECT $1, g.tenant, least(greatest(f.pass + g.delta, 0), 9223372036854775807)::bigint
                FROM given g CROSS JOIN floor f ORDER BY g.tenant
                ON CONFLICT (scope, tenant) DO UPDATE SET pass = least(greatest(
                    greatest(run_passes.pass, (SELECT pass FROM floor)) +
                    (SELECT g.delta FROM given g WHERE g.tenant = run_passes.tenant), 0), 9223372036854775807)::bigint
                RETURNING tenant, pass
            )
            SELECT f.pass AS "floor!", a.tenant AS "tenant?", a.pass AS "pass?" FROM floor f LEFT JOIN added a ON true"#,
            scope,
            floor,
            &tenants,
            &deltas,
        )
        .fetch_all(self.pool())
        .await?;
        let mut answer = StoredPasses {
            floor: 0,
            passes: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            answer.floor = u64::try_from(row.floor).unwrap_or(0);
            if let (Some(tenant), Some(pass)) = (row.tenant, row.pass) {
                let pass = u64::try_from(pass).unwrap_or(0);
                answer
                    .passes
                    .push((stored(&tenant, "run_passes.tenant")?, pass));
            }
        }
        Ok(answer)
    }
}
