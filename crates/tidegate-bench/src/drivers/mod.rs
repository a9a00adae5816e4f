//! Drivers: ourselves in process and over HTTP, and what PostgreSQL can do with bare statements.
//!
//! Every driver does the same with a run that does nothing and carries about 300 bytes of JSON. Verbs: `setup`,
//! `load RUNS TENANTS` (as fast as it goes in), `submit RUNS CLIENTS` (one by one), `drain RUNS WORKERS`, `latency RATE
//! SECONDS`. Drivers of others, outside of this program, have the same verbs. We alone have `flood WORKERS MS`: small
//! tenants beside what is queued already.

mod flood;
mod floor;
mod floor_full;
mod ours;
mod ours_http;
mod pgmq;
mod progress;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

pub use ours::ENC_KEY;

use crate::report::quantile;

/// The drivers of this program.
pub const NAMES: [&str; 5] = ["ours", "ours-http", "floor", "floor-single", "floor-full"];

/// What a driver can do; each verb on a database of its own.
#[async_trait]
trait Driver: Send + Sync {
    /// Makes tables and tenants.
    async fn setup(&self, tenants: usize);
    /// Submits as fast as it goes, for later draining.
    async fn load(&self, runs: usize, tenants: usize) -> Duration;
    /// Submits one by one, by so many clients.
    async fn submit(&self, runs: usize, clients: usize) -> Duration;
    /// Claims and completes everything.
    async fn drain(&self, runs: usize, workers: usize) -> Duration;
    /// Submits at a rate; from each submission to its start.
    async fn latency(&self, rate: usize, seconds: usize) -> Vec<f64>;
}

/// Runs one verb of a driver and prints its line.
pub async fn run(name: &str, args: &[String]) {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL names the database to measure on");
    let number = |index: usize, or: usize| {
        args.get(index).map_or(or, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text} is not a number"))
        })
    };
    if args.first().is_some_and(|verb| verb == "flood") {
        let waits = flood::flood(url, number(1, 4), number(2, 20)).await;
        println!("{}", latency(waits));
        return;
    }
    let driver: Box<dyn Driver> = match name {
        "ours" => Box::new(ours::Ours::new(url)),
        "ours-http" => Box::new(ours_http::OursHttp::new(url)),
        "floor" => Box::new(floor::Floor::batched(url)),
        "floor-single" => Box::new(floor::Floor::single(url)),
        "floor-full" => Box::new(floor_full::FloorFull::new(url)),
        "pgmq" => Box::new(pgmq::Pgmq::new(url)),
        other => panic!("no driver {other}; there are {NAMES:?}"),
    };
    let line = match args.first().map(String::as_str) {
        Some("setup") => {
            driver.setup(number(1, 10)).await;
            json!({})
        }
        Some("load") => rate(number(1, 0), driver.load(number(1, 0), number(2, 10)).await),
        Some("submit") => rate(
            number(1, 0),
            driver.submit(number(1, 0), number(2, 16)).await,
        ),
        Some("drain") => rate(number(1, 0), driver.drain(number(1, 0), number(2, 4)).await),
        Some("latency") => latency(driver.latency(number(1, 200), number(2, 10)).await),
        other => panic!("no verb {other:?}"),
    };
    println!("{line}");
}

fn rate(runs: usize, took: Duration) -> Value {
    json!({"runs": runs, "seconds": took.as_secs_f64(), "rate": runs as f64 / took.as_secs_f64()})
}

fn latency(mut ms: Vec<f64>) -> Value {
    ms.sort_by(f64::total_cmp);
    let mean = ms.iter().sum::<f64>() / ms.len() as f64;
    json!({"count": ms.len(), "mean_ms": mean, "p50_ms": quantile(&ms, 0.5), "p99_ms": quantile(&ms, 0.99), "max_ms": ms.last()})
}

/// About 300 bytes; `at_us` is when it was submitted, by the driver's own clock.
fn payload(tenant: usize, number: usize, at_us: u64) -> Value {
    json!({"tenant": tenant, "number": number, "at": at_us, "text": "x".repeat(240)})
}
