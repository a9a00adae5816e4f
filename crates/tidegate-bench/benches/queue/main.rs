//! `make bench-queue`: the run queue beside the best queues on PostgreSQL, in one run on one server.
//!
//! Everybody takes turns within a round, so that the moods of the machine fall on all; a figure is the median of the
//! rounds. Rates on shared machines say little: server CPU per run is the column to compare by.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot go on stops and says why; its output is its purpose"
)]

mod compare;
mod flood;
mod ours_alone;
mod subjects;
mod written;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use tidegate_bench::{accounts, drivers, postgres::Postgres};

/// As the server has it; all drivers in this binary are measured with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares the run queue with others, everybody on the same PostgreSQL.
#[derive(Debug, Parser)]
#[command(name = "bench-queue")]
struct Args {
    /// What to measure; everything unless given.
    sections: Vec<Section>,
    /// Runs of one drain.
    #[arg(long, default_value_t = 100_000)]
    runs: usize,
    /// Rounds, in each of which all take turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Tenants that own the runs.
    #[arg(long, default_value_t = 10)]
    tenants: usize,
    /// Workers that drain, where a driver does not have a number of its own.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Only these, by name and separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Appends every measurement to this file, a line of JSON each.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// 100,000 queued runs through claim and completion.
    Drain,
    /// Submissions one by one, from 16 clients.
    Submit,
    /// From submission to start at 200 runs per second.
    Latency,
    /// What caps and fairness cost.
    Caps,
    /// Claims against 10,000 and 1,000,000 queued runs of 10 and of 10,000 tenants.
    Backlog,
    /// Claims behind 200,000 dead rows that a snapshot pins.
    Pinned,
    /// Waits of nine small tenants while one floods.
    Flood,
    /// Rows, WAL and statements per run.
    Written,
    /// What an idle server uses.
    Idle,
}

impl Section {
    const ALL: [Self; 9] = [
        Self::Drain,
        Self::Submit,
        Self::Latency,
        Self::Caps,
        Self::Backlog,
        Self::Pinned,
        Self::Flood,
        Self::Written,
        Self::Idle,
    ];

    /// Whether others take part.
    const fn compares(self) -> bool {
        matches!(self, Self::Drain | Self::Submit | Self::Latency)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    if args.get(1).is_some_and(|word| word == "driver") {
        let name = args.get(2).expect("a driver's name").clone();
        runtime.block_on(drivers::run(&name, &args[3..]));
        return ExitCode::SUCCESS;
    }
    let args = Args::parse();
    match runtime.block_on(run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-queue: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let sections = if args.sections.is_empty() {
        &Section::ALL[..]
    } else {
        &args.sections
    };
    let compared = sections.iter().any(|section| section.compares());
    let subjects = if compared {
        subjects::find(&args.only)?
    } else {
        Vec::new()
    };
    let server = Postgres::start().await;
    println!("# bench-queue\n");
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
        "- {} rounds, {} runs of {} tenants, {} workers",
        args.rounds, args.runs, args.tenants, args.workers
    );
    for section in sections {
        match section {
            Section::Drain => compare::drain(&server, &subjects, args).await?,
            Section::Submit => compare::submit(&server, &subjects, args).await?,
            Section::Latency => compare::latency(&server, &subjects, args).await?,
            Section::Caps => ours_alone::caps(&server, args).await?,
            Section::Backlog => ours_alone::backlog(&server, args).await?,
            Section::Pinned => ours_alone::pinned(&server, args).await?,
            Section::Flood => flood::flood(&server, args).await?,
            Section::Written => written::written(&server, args).await?,
            Section::Idle => ours_alone::idle(&server, args).await?,
        }
    }
    server.stop().await;
    Ok(())
}
