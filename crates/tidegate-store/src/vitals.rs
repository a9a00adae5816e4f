//! What the database says of the hot tables and of who keeps vacuum from them.

use tidegate_policy::vitals::{HolderKind, SnapshotHolder, TableVitals, Vitals};

use crate::{Error, Store};

/// The tables whose rows come and go with every run. Their vacuum settings stand in the migrations.
pub const HOT_TABLES: [&str; 5] = [
    "run_queue",
    "run_leases",
    "run_parked",
    "background_slots",
    "run_passes",
];
/// The most holders of snapshots that are told.
const HOLDERS_MAX: i64 = 10;

impl Store {
    /// The state of the hot tables, and who holds snapshots of this database. Sessions of other users are seen with the
    /// rights of `pg_monitor` only.
    pub async fn vitals(&self) -> Result<Vitals, Error> {
        let tables: Vec<String> = HOT_TABLES.iter().map(|table| (*table).to_owned()).collect();
        let tables = sqlx::query_as!(
            TableVitals,
            r#"SELECT c.relname::text AS "table!", coalesce(s.n_live_tup, 0) AS "live_rows!",
                      coalesce(s.n_dead_tup, 0) AS "dead_rows!", pg_total_relation_size(c.oid) AS "bytes!"
               FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY ($1) ORDER BY 1"#,
            &tables,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(Vitals {
            tables,
            holders: self.snapshot_holders().await?,
        })
    }

    async fn snapshot_holders(&self) -> Result<Vec<SnapshotHolder>, Error> {
        let rows = sqlx::query!(
            r#"SELECT h.kind AS "kind!", h.name AS "name!", h."of",
                      (extract(epoch FROM clock_timestamp() - h.since) * 1000)::bigint AS held_ms, h.xids AS "xids!"
               FROM (
                   SELECT 0 AS kind, a.pid::text AS name,
                          concat_ws(', ', a.usename, nullif(a.application_name, ''), a.state) AS "of",
                          a.xact_start AS since, greatest(age(a.backend_xmin), age(a.backend_xid))::bigint AS xids
                   FROM pg_stat_activity a
                   WHERE coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL AND a.pid <> pg_backend_pid()
                     -- Vacuum itself holds nobody back.
                     AND a.backend_type <> 'autovacuum worker'
                     AND (a.datname = current_database() OR a.backend_type = 'walsender')
                   UNION ALL
                   SELECT 1, p.gid, p.owner::text, p.prepared, age(p.transaction)::bigint
                   FROM pg_prepared_xacts p WHERE p.database = current_database()
                   UNION ALL
                   SELECT 2, s.slot_name::text, CASE WHEN s.active THEN 'active' ELSE 'not active' END, NULL,
                          age(s.xmin)::bigint
                   FROM pg_replication_slots s WHERE s.xmin IS NOT NULL) h
               ORDER BY h.xids DESC, h.since LIMIT $1"#,
            HOLDERS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| SnapshotHolder {
                kind: match row.kind {
                    0 => HolderKind::Session,
                    1 => HolderKind::Prepared,
                    _ => HolderKind::Slot,
                },
                name: row.name,
                of: row.of,
                held_ms: row.held_ms,
                xids: row.xids,
            })
            .collect())
    }
}
