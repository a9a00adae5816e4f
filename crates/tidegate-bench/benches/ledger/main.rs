//! `make bench-ledger`: durable admissions of a vector of four resources, beside one prepared call per admission.
//!
//! Everybody takes turns within a round; a figure is the median of the rounds. Rates on shared machines say little: the
//! server's CPU per admission is the column to compare by.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot go on stops and says why; its output is its purpose"
)]

mod naive;
mod ours;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tidegate_bench::{
    accounts,
    postgres::{Postgres, quiesce},
    report::{median, print_table, quantile, shown},
};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares admissions with the naive ledger, on the same PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "bench-ledger")]
struct Args {
    /// What to measure; everything unless given.
    sections: Vec<Section>,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Rounds, in each of which all take turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Callers at once.
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// Many callers on one hot pool, one instance and four.
    Hot,
    /// One caller alone.
    Lone,
    /// Admit and release.
    Pairs,
    /// Admissions over 10 and over 1,000,000 rows of history, and over 10 and 10,000 resources.
    Flat,
}

/// What one measurement gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// Of each call, in milliseconds.
    pub(crate) latencies: Vec<f64>,
    pub(crate) elapsed_s: f64,
    pub(crate) server_cpu_s: f64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed_s
    }

    fn cpu_ms(&self) -> f64 {
        self.server_cpu_s * 1_000.0 / self.latencies.len().max(1) as f64
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, share).unwrap_or(f64::NAN)
    }
}

/// Who admits, and how.
#[derive(Debug, Clone, Copy)]
struct Subject {
    name: &'static str,
    instances: usize,
    callers: usize,
    release: bool,
    history: i64,
    resources: i64,
}

impl Subject {
    const fn ours(name: &'static str, instances: usize, callers: usize) -> Self {
        Self {
            name,
            instances,
            callers,
            release: false,
            history: 0,
            resources: 10,
        }
    }

    /// 0 instances are the naive ledger.
    const fn naive(callers: usize) -> Self {
        Self::ours("naive", 0, callers)
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let args = Args::parse();
    match runtime.block_on(run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-ledger: {error}");
            ExitCode::FAILURE
        }
    }
}

fn subjects(section: Section, callers: usize) -> Vec<Subject> {
    let one = Subject::ours("ours", 1, callers);
    match section {
        Section::Hot => vec![
            Subject::naive(callers),
            one,
            Subject::ours("ours, 4 instances", 4, callers),
        ],
        Section::Lone => vec![Subject::naive(1), Subject::ours("ours", 1, 1)],
        Section::Pairs => vec![Subject {
            release: true,
            ..one
        }],
        Section::Flat => vec![
            Subject {
                name: "10 rows of history, 10 resources",
                history: 10,
                ..one
            },
            Subject {
                name: "1,000,000 rows of history",
                history: 1_000_000,
                ..one
            },
            Subject {
                name: "10,000 resources",
                resources: 10_000,
                ..one
            },
        ],
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let all = [Section::Hot, Section::Lone, Section::Pairs, Section::Flat];
    let sections = if args.sections.is_empty() {
        &all[..]
    } else {
        &args.sections
    };
    let server = Postgres::start().await;
    println!("# bench-ledger\n");
    println!(
        "- machine: {}, load {}",
        accounts::machine(),
        accounts::load_average()
    );
    println!(
        "- PostgreSQL {}: {}",
        server.version(),
        Postgres::settings()
    );
    println!(
        "- {} rounds of {} s, {} callers",
        args.rounds, args.seconds, args.callers
    );
    for section in sections {
        let subjects = subjects(*section, args.callers);
        let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); subjects.len()];
        for _ in 0..args.rounds {
            for (subject, measured) in subjects.iter().zip(&mut rounds) {
                measured.push(measure(&server, *subject, args.seconds).await);
            }
        }
        show(*section, &subjects, &rounds);
    }
    server.stop().await;
    Ok(())
}

async fn measure(server: &Postgres, subject: Subject, seconds: u64) -> Measured {
    let url = server.fresh().await;
    let length = Duration::from_secs(seconds);
    let measured = if subject.instances == 0 {
        naive::measure(server, &url, subject.callers, length).await
    } else {
        let plan = ours::Plan {
            instances: subject.instances,
            callers: subject.callers,
            release: subject.release,
            history: subject.history,
            resources: subject.resources,
        };
        ours::measure(server, &url, plan, length).await
    };
    quiesce(&url).await;
    server.drop(&url).await;
    measured
}

fn show(section: Section, subjects: &[Subject], rounds: &[Vec<Measured>]) {
    let of = |measured: &[Measured], figure: fn(&Measured) -> f64| {
        median(&measured.iter().map(figure).collect::<Vec<_>>())
    };
    let first = rounds.first().map(Vec::as_slice).unwrap_or_default();
    let (rate, cpu, p50) = (
        of(first, Measured::rate),
        of(first, Measured::cpu_ms),
        of(first, |one| one.quantile(0.5)),
    );
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let rows: Vec<Vec<String>> = subjects
        .iter()
        .zip(rounds)
        .map(|(subject, measured)| {
            let (own_rate, own_cpu) =
                (of(measured, Measured::rate), of(measured, Measured::cpu_ms));
            let own_p50 = of(measured, |one| one.quantile(0.5));
            vec![
                subject.name.to_owned(),
                shown(own_rate),
                shown(ratio(own_rate, rate)),
                shown(own_p50),
                shown(ratio(own_p50, p50)),
                shown(of(measured, |one| one.quantile(0.99))),
                shown(own_cpu),
                shown(ratio(cpu, own_cpu)),
            ]
        })
        .collect();
    let columns = [
        "who",
        "per second",
        "× the first",
        "p50 ms",
        "× the first",
        "p99 ms",
        "server CPU ms each",
        "of which the first has ×",
    ];
    print_table(&format!("## {section:?}"), &columns, &rows);
}
