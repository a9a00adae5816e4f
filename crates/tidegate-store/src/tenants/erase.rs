//! Erasing what a deleted tenant leaves (R2.6).
//!
//! The tables are walked from the schema, so that a table that a later migration adds is erased without anybody
//! remembering it here. Kept are the tenant's row (the name is never given away again), the audit log without what was
//! written, and the log of revisions, which holds ids only.
//!
//! A statement about one table at a time and at most [`BATCH_ROWS`] rows, each committed by itself: a tenant with
//! millions of events holds no lock for long. The state `deleted` is committed before, so that nothing new comes in;
//! what a transaction in flight still adds is found by the next pass, and by the sweep that repeats the erasure.

use sqlx::AssertSqlSafe;
use tidegate_model::TenantId;

use crate::{Error, Fleet, error::stored};

/// Tables with a column `tenant` whose rows stay.
const KEPT: [&str; 3] = ["tenants", "audit_log", "config_revisions"];
/// Tables whose rows may hold resources: those that do are given back by the ledger first.
const HOLDERS: [&str; 2] = ["admissions_open", "run_leases"];
/// Rows that one statement deletes.
const BATCH_ROWS: i64 = 5_000;
/// Passes over all tables before the rest is left to the sweep.
const PASSES_MAX: u32 = 5;

/// What an erasure did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Rows that are gone.
    pub rows: u64,
    /// Whether the last pass found nothing more.
    pub complete: bool,
}

impl Fleet {
    /// Erases the content of a deleted tenant; does nothing to any other. Running leases go with it: their holders are
    /// told `lost` at the next renewal, and nothing they write is accepted.
    pub async fn erase_tenant(&self, tenant: &TenantId) -> Result<Erased, Error> {
        let deleted = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM tenants WHERE tenant = $1 AND state = 'deleted') AS "deleted!""#,
            tenant.as_str(),
        )
        .fetch_one(self.pool())
        .await?;
        let mut erased = Erased::default();
        if !deleted {
            return Ok(erased);
        }
        let tables = self.tenant_tables().await?;
        for _ in 0..PASSES_MAX {
            let mut rows = 0;
            self.end_holdings(tenant).await?;
            for table in &tables {
                rows += self.erase_table(table, tenant).await?;
            }
            erased.rows += rows;
            if rows == 0 {
                erased.complete = true;
                break;
            }
        }
        self.forget_audited(tenant).await?;
        if erased.complete {
            self.note_erased(tenant).await?;
        }
        Ok(erased)
    }

    /// Closes an erasure that found nothing more, once no transaction can be in flight that began before the deletion.
    async fn note_erased(&self, tenant: &TenantId) -> Result<(), Error> {
        sqlx::query!(
            "UPDATE tenants SET erased_at = clock_timestamp()
             WHERE tenant = $1 AND state = 'deleted' AND erased_at IS NULL
               AND deleted_at < clock_timestamp() - interval '1 hour'",
            tenant.as_str(),
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }

    /// Deleted tenants of which something may be left: an erasure may have been cut short, or overtaken by a transaction
    /// in flight.
    pub async fn to_erase(&self) -> Result<Vec<TenantId>, Error> {
        sqlx::query_scalar!(
            "SELECT tenant FROM tenants WHERE state = 'deleted' AND erased_at IS NULL ORDER BY tenant"
        )
        .fetch_all(self.pool())
        .await?
        .iter()
        .map(|tenant| stored(tenant, "tenants.tenant"))
        .collect()
    }

    /// Every table with a column `tenant` but the kept ones, those that refer to others first.
    pub async fn tenant_tables(&self) -> Result<Vec<String>, Error> {
        let kept: Vec<String> = KEPT.iter().map(|table| (*table).to_owned()).collect();
        let mut rest = sqlx::query_scalar!(
            // Not information_schema: that hides what this role may not touch, and it would be left behind quietly.
            r#"SELECT c.relname::text AS "table!" FROM pg_class c
               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
               WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = current_schema()::regnamespace
                 AND NOT c.relname = ANY($1)
               ORDER BY 1"#,
            &kept,
        )
        .fetch_all(self.pool())
        .await?;
        let references: Vec<(String, String)> = sqlx::query!(
            r#"SELECT c.conrelid::regclass::text AS "from!", c.confrelid::regclass::text AS "to!" FROM pg_constraint c
               WHERE c.contype = 'f' AND c.conrelid <> c.confrelid AND c.connamespace = current_schema()::regnamespace"#
        )
        .fetch_all(self.pool())
        .await?
        .into_iter()
        .map(|row| (row.from, row.to))
        .collect();
        let mut order = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let free = rest.iter().position(|table| {
                !references
                    .iter()
                    .any(|(from, to)| to == table && rest.contains(from))
            });
            // Tables that refer to each other in a circle do not exist; were there one, the database would refuse.
            order.push(rest.remove(free.unwrap_or(0)));
        }
        Ok(order)
    }

    async fn erase_table(&self, table: &str, tenant: &TenantId) -> Result<u64, Error> {
        // The name comes from the catalogue of this database and is quoted; the tenant is bound.
        let name = format!("\"{}\"", table.replace('"', "\"\""));
        // What a transaction in flight has added since is left for the next pass, which gives it back.
        let idle = if HOLDERS.contains(&table) {
            " AND resources IS NULL"
        } else {
            ""
        };
        let statement = format!(
            "/* tenant:erase */ DELETE FROM {name} WHERE ctid = ANY(ARRAY(
                 SELECT ctid FROM {name} WHERE tenant = $1{idle} LIMIT {BATCH_ROWS}))"
        );
        let mut rows = 0;
        loop {
            let done = sqlx::query(AssertSqlSafe(statement.clone()))
                .bind(tenant.as_str())
                .execute(self.pool())
                .await?
                .rows_affected();
            rows += done;
            if done == 0 {
                return Ok(rows);
            }
        }
    }

    /// Takes out of the audit log what was written; who did what and when stays.
    async fn forget_audited(&self, tenant: &TenantId) -> Result<(), Error> {
        sqlx::query!(
            r#"UPDATE audit_log SET before = '"erased"', after = '"erased"'
               WHERE tenant = $1 AND (before <> '"erased"' OR after <> '"erased"')"#,
            tenant.as_str(),
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }
}
