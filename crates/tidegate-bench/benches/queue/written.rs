//! What a run writes, by table, and which statements take the time.

use tidegate_bench::{
    postgres::{Postgres, connect, quiesce},
    process::step,
    report::{print_table, shown},
};
use tokio_postgres::Client;

use crate::{Args, compare::words, subjects::own};

/// Bytes of write-ahead log by table; what an index writes counts for its table.
const WAL: &str = "
    SELECT coalesce(t.relname, c.relname, '(no table)') AS name, sum(w.bytes)::bigint AS bytes, count(*) AS records
    FROM (SELECT record_length AS bytes, (regexp_match(block_ref, 'rel [0-9]+/[0-9]+/([0-9]+)'))[1]::oid AS node
          FROM pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn)) w
    LEFT JOIN pg_class c ON c.relfilenode = w.node
    LEFT JOIN pg_index i ON i.indexrelid = c.oid
    LEFT JOIN pg_class t ON t.oid = i.indrelid
    GROUP BY 1 ORDER BY 2 DESC";
const ROWS: &str = "SELECT relname::text, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables";
const STATEMENTS: &str = "
    SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 90), calls, total_exec_time, rows,
           shared_blks_hit + shared_blks_read, wal_bytes::bigint
    FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND calls > 1 ORDER BY total_exec_time DESC LIMIT 14";

async fn lsn(client: &Client) -> String {
    client
        .query_one("SELECT pg_current_wal_lsn()::text", &[])
        .await
        .expect("lsn")
        .get(0)
}

async fn rows_of(client: &Client) -> std::collections::BTreeMap<String, [i64; 3]> {
    client
        .query(ROWS, &[])
        .await
        .expect("rows")
        .iter()
        .map(|row| (row.get(0), [row.get(1), row.get(2), row.get(3)]))
        .collect()
}

/// One submission, claim and completion of ours, averaged over a few thousand.
pub async fn written(server: &Postgres, args: &Args) -> Result<(), String> {
    let runs = args.runs.min(10_000);
    let program = own("ours")?;
    let url = server.fresh().await;
    step(server, &program, &url, &words("setup", [args.tenants])).await?;
    quiesce(&url).await;
    let client = connect(&url).await;
    let name = url.rsplit('/').next().unwrap_or_default();
    let count = format!(
        "CREATE EXTENSION pg_stat_statements; CREATE EXTENSION pg_walinspect;
         ALTER DATABASE {name} SET pg_stat_statements.track = 'top'"
    );
    client
        .batch_execute(&count)
        .await
        .map_err(|error| error.to_string())?;
    for verb in ["load", "drain"] {
        let (from, before) = (lsn(&client).await, rows_of(&client).await);
        client
            .batch_execute("SELECT pg_stat_statements_reset()")
            .await
            .expect("reset");
        let numbers = if verb == "load" {
            args.tenants
        } else {
            args.workers
        };
        step(server, &program, &url, &words(verb, [runs, numbers])).await?;
        let to = lsn(&client).await;
        print_writes(&client, verb, runs, (&from, &to), &before).await;
        print_statements(&client, verb, runs).await;
    }
    server.drop(&url).await;
    Ok(())
}

async fn print_writes(
    client: &Client,
    verb: &str,
    runs: usize,
    (from, to): (&str, &str),
    before: &std::collections::BTreeMap<String, [i64; 3]>,
) {
    let per_run = |number: i64| shown(Some(number as f64 / runs as f64));
    let after = rows_of(client).await;
    let mut rows = Vec::new();
    for row in client.query(WAL, &[&from, &to]).await.expect("wal") {
        let (name, bytes, records): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let old = before.get(&name).copied().unwrap_or_default();
        let new = after.get(&name).copied().unwrap_or(old);
        if bytes / i64::try_from(runs).expect("few") == 0 {
            continue;
        }
        rows.push(vec![
            name,
            per_run(new[0] - old[0]),
            per_run(new[1] - old[1]),
            per_run(new[2] - old[2]),
            per_run(bytes),
            per_run(records),
        ]);
    }
    print_table(
        &format!("## Written per run by `{verb}`"),
        &[
            "table",
            "inserted",
            "updated",
            "deleted",
            "WAL bytes",
            "WAL records",
        ],
        &rows,
    );
}

async fn print_statements(client: &Client, verb: &str, runs: usize) {
    let per_run = |number: f64| shown(Some(number / runs as f64));
    let rows: Vec<Vec<String>> = client
        .query(STATEMENTS, &[])
        .await
        .expect("statements")
        .iter()
        .map(|row| {
            let (calls, ms): (i64, f64) = (row.get(1), row.get(2));
            vec![
                format!("`{}`", row.get::<_, String>(0).replace('|', "/")),
                calls.to_string(),
                shown(Some(ms / calls as f64)),
                per_run(ms),
                per_run(row.get::<_, i64>(4) as f64),
                per_run(row.get::<_, i64>(5) as f64),
            ]
        })
        .collect();
    print_table(
        &format!("## Statements of `{verb}` by the time that they ran"),
        &[
            "statement",
            "calls",
            "ms/call",
            "ms/run",
            "buffers/run",
            "WAL bytes/run",
        ],
        &rows,
    );
}
