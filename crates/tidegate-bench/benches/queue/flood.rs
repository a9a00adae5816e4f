//! What one tenant's flood costs nine others that ask for a little.

use tidegate_bench::{
    postgres::Postgres,
    process::step,
    report::{print_table, shown},
};

use crate::{
    Args,
    compare::{Figures, record, words},
    ours_alone::Backlog,
    subjects::own,
};

/// How long a run takes.
const TAKES_MS: usize = 20;
/// What the flooding tenant has queued: nothing, runs that take every worker, runs of which its cap lets two.
const VARIANTS: [(&str, bool, bool); 3] = [
    ("nobody floods", false, false),
    ("flooded, every worker busy", true, false),
    ("flooded up to its cap, workers free", true, true),
];

pub async fn flood(server: &Postgres, args: &Args) -> Result<(), String> {
    let mut figures = Figures::default();
    let program = own("ours")?;
    for round in 0..args.rounds {
        for (name, flooded, counted) in VARIANTS {
            let url = if flooded {
                let backlog = Backlog {
                    tenants: 1,
                    runs: args.runs,
                    counted,
                };
                backlog.make(server, &program).await?
            } else {
                let url = server.fresh().await;
                step(server, &program, &url, &words("setup", [1])).await?;
                url
            };
            let verb = words("flood", [args.workers, TAKES_MS]);
            let done = step(server, &program, &url, &verb).await?;
            record(args, "flood", round, name, &done);
            for figure in ["mean_ms", "p50_ms", "p99_ms", "max_ms"] {
                figures.add(name, figure, done.number(figure));
            }
            server.drop(&url).await;
        }
    }
    let shown_of = |name: &str, figure| shown(figures.median(name, figure));
    let rows: Vec<Vec<String>> = VARIANTS
        .iter()
        .map(|(name, ..)| {
            vec![
                (*name).to_owned(),
                shown_of(name, "mean_ms"),
                shown_of(name, "p50_ms"),
                shown_of(name, "p99_ms"),
                shown_of(name, "max_ms"),
            ]
        })
        .collect();
    let share = TAKES_MS as f64 / args.workers as f64;
    print_table(
        &format!(
            "## Nine tenants with 50 runs each beside a flood of {}; a worker comes free every {share} ms",
            args.runs
        ),
        &["", "mean wait ms", "p50 ms", "p99 ms", "max ms"],
        &rows,
    );
    Ok(())
}
