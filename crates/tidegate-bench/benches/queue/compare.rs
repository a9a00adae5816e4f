//! The comparisons: rounds in which all take turns, medians, ratios.

use std::{collections::BTreeMap, io::Write as _};

use serde_json::json;
use tidegate_bench::{
    accounts,
    postgres::{Postgres, quiesce},
    process::{Step, step},
    report::{median, print_table, range, shown},
};

use crate::{Args, subjects::Subject};

/// What is kept of all rounds, by subject and name of the figure.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<(String, &'static str), Vec<f64>>);

impl Figures {
    pub fn add(&mut self, subject: &str, name: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.0
                .entry((subject.to_owned(), name))
                .or_default()
                .push(value);
        }
    }

    pub fn all(&self, subject: &str, name: &'static str) -> &[f64] {
        self.0
            .get(&(subject.to_owned(), name))
            .map_or(&[], Vec::as_slice)
    }

    pub fn median(&self, subject: &str, name: &'static str) -> Option<f64> {
        median(self.all(subject, name))
    }

    pub fn ratio(&self, subject: &str, to: &str, name: &'static str) -> Option<f64> {
        Some(self.median(subject, name)? / self.median(to, name)?)
    }
}

pub fn words<const N: usize>(verb: &str, numbers: [usize; N]) -> Vec<String> {
    std::iter::once(verb.to_owned())
        .chain(numbers.iter().map(ToString::to_string))
        .collect()
}

pub fn record(args: &Args, section: &str, round: usize, subject: &str, step: &Step) {
    let line = json!({
        "section": section, "round": round, "subject": subject, "said": step.said, "wall_s": step.wall_s,
        "client_cpu_s": step.client_cpu_s, "server_cpu_s": step.server_cpu_s, "load": accounts::load_average(),
    });
    eprintln!("{line}");
    if let Some(path) = &args.out {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("--out");
        writeln!(file, "{line}").expect("--out");
    }
}

/// Drains a full queue, per round and subject on a database of its own.
pub async fn drain(server: &Postgres, subjects: &[Subject], args: &Args) -> Result<(), String> {
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        for subject in subjects {
            drain_once(server, subject, args, round, &mut figures).await?;
        }
    }
    print_drains(subjects, &figures);
    Ok(())
}

async fn drain_once(
    server: &Postgres,
    subject: &Subject,
    args: &Args,
    round: usize,
    figures: &mut Figures,
) -> Result<(), String> {
    let (name, program) = (subject.name.as_str(), &subject.program);
    let runs = args.runs.min(subject.runs_max);
    let per_run = 1_000.0 / runs as f64;
    let url = server.fresh().await;
    step(server, program, &url, &words("setup", [args.tenants])).await?;
    let load = words("load", [runs, args.tenants]);
    let loaded = step(server, program, &url, &load).await?;
    record(args, "load", round, name, &loaded);
    figures.add(name, "load", loaded.number("rate"));
    figures.add(name, "load_ms", Some(loaded.server_cpu_s * per_run));
    quiesce(&url).await;
    let drain = words("drain", [runs, args.workers]);
    let drained = step(server, program, &url, &drain).await?;
    record(args, "drain", round, name, &drained);
    figures.add(name, "rate", drained.number("rate"));
    figures.add(name, "server_ms", Some(drained.server_cpu_s * per_run));
    figures.add(name, "client_ms", Some(drained.client_cpu_s * per_run));
    server.drop(&url).await;
    Ok(())
}

fn print_drains(subjects: &[Subject], figures: &Figures) {
    let rows: Vec<Vec<String>> = subjects
        .iter()
        .map(|subject| {
            let name = subject.name.as_str();
            vec![
                name.to_owned(),
                shown(figures.median(name, "load")),
                shown(figures.median(name, "load_ms")),
                shown(figures.median(name, "rate")),
                range(figures.all(name, "rate")),
                shown(figures.ratio(name, "floor", "rate")),
                shown(figures.ratio(name, "floor-full", "rate")),
                shown(figures.median(name, "server_ms")),
                shown(figures.median(name, "client_ms")),
            ]
        })
        .collect();
    print_table(
        "## Drain",
        &[
            "",
            "submitted in bulk /s",
            "server CPU ms/run",
            "drained /s",
            "range",
            "/ floor",
            "/ floor-full",
            "server CPU ms/run",
            "driver CPU ms/run",
        ],
        &rows,
    );
    if let Some(ratio) = figures.ratio("floor-full", "floor", "server_ms") {
        let verdict = if ratio <= 1.2 { "valid" } else { "NOT valid" };
        println!(
            "floor-full / floor, server CPU per run: {ratio:.2} (a floor up to 1.2: {verdict})"
        );
    }
}

/// Submits one by one from 16 clients.
pub async fn submit(server: &Postgres, subjects: &[Subject], args: &Args) -> Result<(), String> {
    const CLIENTS: usize = 16;
    let mut figures = Figures::default();
    let runs = (args.runs / 5).clamp(1_600, 20_000);
    for round in 0..args.rounds {
        for subject in subjects.iter().filter(|subject| subject.submit) {
            let url = server.fresh().await;
            step(
                server,
                &subject.program,
                &url,
                &words("setup", [args.tenants]),
            )
            .await?;
            quiesce(&url).await;
            let done = step(
                server,
                &subject.program,
                &url,
                &words("submit", [runs, CLIENTS]),
            )
            .await?;
            record(args, "submit", round, &subject.name, &done);
            let per_run = 1_000.0 / runs as f64;
            figures.add(&subject.name, "rate", done.number("rate"));
            figures.add(
                &subject.name,
                "server_ms",
                Some(done.server_cpu_s * per_run),
            );
            figures.add(
                &subject.name,
                "client_ms",
                Some(done.client_cpu_s * per_run),
            );
            server.drop(&url).await;
        }
    }
    let rows: Vec<Vec<String>> = subjects
        .iter()
        .filter(|subject| subject.submit)
        .map(|subject| {
            let name = subject.name.as_str();
            vec![
                name.to_owned(),
                shown(figures.median(name, "rate")),
                range(figures.all(name, "rate")),
                shown(figures.ratio("ours", name, "rate")),
                shown(figures.median(name, "server_ms")),
                shown(figures.median(name, "client_ms")),
            ]
        })
        .collect();
    print_table(
        "## Submit, one by one, 16 clients",
        &[
            "",
            "submitted /s",
            "range",
            "ours / this",
            "server CPU ms/run",
            "driver CPU ms/run",
        ],
        &rows,
    );
    Ok(())
}

/// From submission to start at a steady rate.
pub async fn latency(server: &Postgres, subjects: &[Subject], args: &Args) -> Result<(), String> {
    const RATE: usize = 200;
    const SECONDS: usize = 10;
    let mut figures = Figures::default();
    for round in 0..args.rounds {
        for subject in subjects.iter().filter(|subject| subject.latency) {
            let url = server.fresh().await;
            step(
                server,
                &subject.program,
                &url,
                &words("setup", [args.tenants]),
            )
            .await?;
            quiesce(&url).await;
            let done = step(
                server,
                &subject.program,
                &url,
                &words("latency", [RATE, SECONDS]),
            )
            .await?;
            record(args, "latency", round, &subject.name, &done);
            for name in ["p50_ms", "p99_ms", "max_ms"] {
                figures.add(&subject.name, name, done.number(name));
            }
            let share = |seconds: f64| Some(100.0 * seconds / SECONDS as f64);
            figures.add(&subject.name, "server", share(done.server_cpu_s));
            figures.add(&subject.name, "client", share(done.client_cpu_s));
            server.drop(&url).await;
        }
    }
    let rows: Vec<Vec<String>> = subjects
        .iter()
        .filter(|subject| subject.latency)
        .map(|subject| {
            let name = subject.name.as_str();
            vec![
                name.to_owned(),
                shown(figures.median(name, "p50_ms")),
                shown(figures.median(name, "p99_ms")),
                range(figures.all(name, "p99_ms")),
                shown(figures.ratio(name, "floor", "p50_ms")),
                shown(figures.ratio(name, "floor", "p99_ms")),
                shown(figures.median(name, "server")),
                shown(figures.median(name, "client")),
            ]
        })
        .collect();
    print_table(
        "## From submission to start, 200 runs/s",
        &[
            "",
            "p50 ms",
            "p99 ms",
            "range of p99",
            "p50 / floor",
            "p99 / floor",
            "server CPU % of a core",
            "driver CPU % of a core",
        ],
        &rows,
    );
    Ok(())
}
