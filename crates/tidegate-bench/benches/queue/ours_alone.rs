//! What is asked of ourselves alone: what caps and fairness cost, whether a claim grows dearer with the backlog, with
//! tenants, behind a pinned snapshot; what a run writes; where the time goes; what an idle server uses.

use std::time::Duration;

use tidegate_bench::{
    accounts,
    postgres::{Postgres, connect, quiesce},
    process::{Program, Step, step},
    report::{print_table, range, shown},
};

use crate::{
    Args,
    compare::{Figures, record, words},
    subjects::own,
};

const MULTIPLY: &str = include_str!("../../../tidegate-testkit/src/multiply.sql");
/// Runs that are claimed and completed in one measurement on a standing backlog.
const WINDOW: usize = 8_000;

/// A database of ours with a backlog that no submission had to make.
pub struct Backlog {
    pub tenants: usize,
    pub runs: usize,
    /// In the account that caps count, where runs of this kind are not.
    pub counted: bool,
}

impl Backlog {
    pub async fn make(&self, server: &Postgres, program: &Program) -> Result<String, String> {
        let url = server.fresh().await;
        step(server, program, &url, &words("setup", [1])).await?;
        step(server, program, &url, &words("load", [1, 1])).await?;
        let client = connect(&url).await;
        if self.counted {
            client
                .batch_execute("UPDATE run_queue SET bucket = 0")
                .await
                .expect("counted");
        }
        client.batch_execute(MULTIPLY).await.expect("multiply");
        let multiply = format!(
            "SELECT pg_temp.multiply((SELECT run_id FROM run_queue), 'tenant-', {}, {})",
            self.tenants,
            self.runs - 1
        );
        client.batch_execute(&multiply).await.expect("multiply");
        quiesce(&url).await;
        Ok(url)
    }
}

fn add(figures: &mut Figures, name: &str, runs: usize, step: &Step) {
    let per_run = 1_000.0 / runs as f64;
    figures.add(name, "rate", step.number("rate"));
    figures.add(name, "server_ms", Some(step.server_cpu_s * per_run));
    figures.add(name, "client_ms", Some(step.client_cpu_s * per_run));
}

fn rows(figures: &Figures, names: &[&str]) -> Vec<Vec<String>> {
    names
        .iter()
        .map(|name| {
            vec![
                (*name).to_owned(),
                shown(figures.median(name, "rate")),
                range(figures.all(name, "rate")),
                shown(figures.ratio(name, names[0], "rate")),
                shown(figures.median(name, "server_ms")),
                shown(figures.ratio(name, names[0], "server_ms")),
                shown(figures.median(name, "client_ms")),
            ]
        })
        .collect()
}

const COLUMNS: [&str; 7] = [
    "",
    "drained /s",
    "range",
    "/ first line",
    "server CPU ms/run",
    "/ first line",
    "driver CPU ms/run",
];

/// Caps and fairness against neither: the same runs of 400 tenants, so that no cap binds.
pub async fn caps(server: &Postgres, args: &Args) -> Result<(), String> {
    const VARIANTS: [(&str, bool, bool); 3] = [
        ("neither (RUN_FAIRNESS=off, not counted)", false, false),
        ("fairness, not counted", true, false),
        ("fairness and caps", true, true),
    ];
    let runs = args.runs.min(40_000);
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        for (name, fair, counted) in VARIANTS {
            let mut program = own("ours")?;
            if !fair {
                program
                    .env
                    .push(("BENCH_FAIRNESS".to_owned(), "off".to_owned()));
            }
            let backlog = Backlog {
                tenants: 400,
                runs,
                counted,
            };
            let url = backlog.make(server, &program).await?;
            let done = step(
                server,
                &program,
                &url,
                &words("drain", [runs, args.workers]),
            )
            .await?;
            record(args, "caps", round, name, &done);
            add(&mut figures, name, runs, &done);
            server.drop(&url).await;
        }
    }
    print_table(
        "## What caps and fairness cost, 400 tenants",
        &COLUMNS,
        &rows(&figures, &VARIANTS.map(|(name, ..)| name)),
    );
    Ok(())
}

/// The cost of claiming and completing against backlog and tenants.
pub async fn backlog(server: &Postgres, args: &Args) -> Result<(), String> {
    const VARIANTS: [(&str, usize, usize); 4] = [
        ("10,000 queued, 10 tenants", 10, 10_000),
        ("1,000,000 queued, 10 tenants", 10, 1_000_000),
        ("10,000 queued, 10,000 tenants", 10_000, 10_000),
        ("1,000,000 queued, 10,000 tenants", 10_000, 1_000_000),
    ];
    let mut figures = Figures::default();
    let program = own("ours")?;
    for round in 0..args.rounds {
        for (name, tenants, runs) in VARIANTS {
            let backlog = Backlog {
                tenants,
                runs,
                counted: false,
            };
            let url = backlog.make(server, &program).await?;
            let done = step(
                server,
                &program,
                &url,
                &words("drain", [WINDOW, args.workers]),
            )
            .await?;
            record(args, "backlog", round, name, &done);
            add(&mut figures, name, WINDOW, &done);
            server.drop(&url).await;
        }
    }
    print_table(
        &format!("## Backlog and tenants: the first {WINDOW} runs"),
        &COLUMNS,
        &rows(&figures, &VARIANTS.map(|(name, ..)| name)),
    );
    Ok(())
}

/// After 100,000 runs, which leave 200,000 dead rows in queue and leases, that a snapshot keeps from being removed.
pub async fn pinned(server: &Postgres, args: &Args) -> Result<(), String> {
    const BEFORE: usize = 100_000;
    const VARIANTS: [(&str, bool); 2] = [("nothing pinned", false), ("a snapshot pinned", true)];
    let program = own("ours")?;
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        for (name, pin) in VARIANTS {
            let backlog = Backlog {
                tenants: 10,
                runs: BEFORE + WINDOW,
                counted: false,
            };
            let url = backlog.make(server, &program).await?;
            let holder = connect(&url).await;
            if pin {
                let snapshot =
                    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenants";
                holder.batch_execute(snapshot).await.expect("a snapshot");
            }
            step(
                server,
                &program,
                &url,
                &words("drain", [BEFORE, args.workers]),
            )
            .await?;
            let done = step(
                server,
                &program,
                &url,
                &words("drain", [WINDOW - 1_000, args.workers]),
            )
            .await?;
            record(args, "pinned", round, name, &done);
            add(&mut figures, name, WINDOW - 1_000, &done);
            drop(holder);
            server.drop(&url).await;
        }
    }
    print_table(
        "## Behind 200,000 dead rows",
        &COLUMNS,
        &rows(&figures, &VARIANTS.map(|(name, _)| name)),
    );
    Ok(())
}

/// What an idle server uses.
pub async fn idle(server: &Postgres, args: &Args) -> Result<(), String> {
    const WARM_UP: Duration = Duration::from_secs(5);
    const WATCHED: Duration = Duration::from_secs(30);
    let Some(binary) = tidegate() else {
        println!(
            "\n- NOT MEASURED: idle: no tidegate binary beside this one; `make bench-queue` builds it"
        );
        return Ok(());
    };
    let program = own("ours")?;
    let url = server.fresh().await;
    step(server, &program, &url, &words("setup", [args.tenants])).await?;
    let client = connect(&url).await;
    let name = url.rsplit('/').next().unwrap_or_default();
    let count = format!(
        "CREATE EXTENSION pg_stat_statements; ALTER DATABASE {name} SET pg_stat_statements.track = 'top'"
    );
    client
        .batch_execute(&count)
        .await
        .expect("statements are counted");
    let mut command =
        tidegate_embedded::tied::command(&binary, tidegate_embedded::tied::Farewell::Kill);
    command
        .arg("serve")
        .envs([
            ("CONFIG_DB_URL", url.as_str()),
            ("CONFIG_ENC_KEY", tidegate_bench::drivers::ENC_KEY),
            ("TIDEGATE_LISTEN", "127.0.0.1:0"),
            ("TIDEGATE_LOG_LEVEL", "warn"),
        ])
        .stdout(std::process::Stdio::null());
    let process = tidegate_embedded::tied::spawn(command, tidegate_embedded::tied::Farewell::Kill)
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    tokio::time::sleep(WARM_UP).await;
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s
                 JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()";
    let before = tidegate_bench::postgres::number(&client, calls).await;
    let (own_cpu, server_cpu) = (accounts::process_cpu_s(process.id()), server.cpu_s());
    tokio::time::sleep(WATCHED).await;
    let seconds = WATCHED.as_secs_f64();
    let statements =
        (tidegate_bench::postgres::number(&client, calls).await - before) as f64 / seconds;
    let share = |used: f64| format!("{:.2} %", 100.0 * used / seconds);
    print_table(
        "## An idle server",
        &[
            "resident MiB",
            "CPU of a core",
            "statements /s",
            "PostgreSQL's CPU of a core",
        ],
        &[vec![
            shown(accounts::resident_mib(process.id())),
            share(accounts::process_cpu_s(process.id()) - own_cpu),
            shown(Some(statements)),
            share(server.cpu_s() - server_cpu),
        ]],
    );
    drop(process);
    Ok(())
}

/// The binary beside this one, as `cargo build` leaves it.
fn tidegate() -> Option<std::path::PathBuf> {
    let me = std::env::current_exe().ok()?;
    let found = me.ancestors().nth(2)?.join("tidegate");
    found.is_file().then_some(found)
}
