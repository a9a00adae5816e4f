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
    /// Where tenants that come up start, as it was last stored.
    pub async fn pass_floor(&self, scope: &str) -> Result<u64, Error> {
        let floor = sqlx::query_scalar!("SELECT pass FROM run_pass_floors WHERE scope = $1", scope)
            .fetch_optional(self.pool())
            .await?;
        Ok(u64::try_from(floor.unwrap_or(0)).unwrap_or(0))
    }

    /// Adds changes to the stored passes, as `tidegate_policy::fairness::stored_pass` says. `changes` are in the order of
    /// the tenants, so that two instances cannot wait for each other.
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
        let froms: Vec<i64> = changes
            .iter()
            .map(|change| i64::try_from(change.from).unwrap_or(i64::MAX))
            .collect();
        let floor = i64::try_from(floor).unwrap_or(i64::MAX);
        let rows = sqlx::query!(
            r#"WITH floor AS (
                INSERT INTO run_pass_floors (scope, pass) VALUES ($1, $2)
                ON CONFLICT (scope) DO UPDATE SET pass = greatest(run_pass_floors.pass, excluded.pass)
                RETURNING pass
            ), given AS (
                -- Added as numeric, so that no sum can overflow.
                SELECT g.tenant, g.delta::numeric AS delta, g.start
                FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS g(tenant, delta, start)
                JOIN tenants t ON t.tenant = g.tenant AND t.state <> 'deleted'
            ), added AS (
                INSERT INTO run_passes (scope, tenant, pass)
                SELECT $1, g.tenant, least(greatest(g.start + g.delta, 0), 9223372036854775807)::bigint
                FROM given g ORDER BY g.tenant
                ON CONFLICT (scope, tenant) DO UPDATE SET pass = (
                    SELECT least(greatest(greatest(run_passes.pass, g.start) + g.delta, 0), 9223372036854775807)::bigint
                    FROM given g WHERE g.tenant = run_passes.tenant)
                RETURNING tenant, pass
            )
            SELECT f.pass AS "floor!", a.tenant AS "tenant?", a.pass AS "pass?" FROM floor f LEFT JOIN added a ON true"#,
            scope,
            floor,
            &tenants,
            &deltas,
            &froms,
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
