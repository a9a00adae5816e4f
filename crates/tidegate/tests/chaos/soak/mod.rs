//! Load while everything goes wrong in turn: servers killed and frozen, workers that vanish, PostgreSQL restarted, a
//! snapshot that pins what vacuum may remove. The history alone is judged.
//!
//! Half a minute in `make test`; `make soak` lets it run for MINUTES. The seed is printed and repeats the order of what
//! goes wrong, not the timing.

mod faults;
mod judge;
mod load;

use std::time::{Duration, Instant};

use rand::{SeedableRng as _, rngs::StdRng};

use crate::rig::{World, own_database};

const SERVERS: usize = 3;
const TENANTS: usize = 8;

/// How long things go wrong: `TIDEGATE_SOAK_SECONDS`, else half a minute.
fn duration() -> Duration {
    let seconds = std::env::var("TIDEGATE_SOAK_SECONDS").map_or(30, |text| {
        text.parse()
            .expect("TIDEGATE_SOAK_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds)
}

/// R3.4, R4.2, R4.4 under load with kills, pauses, a pinned xmin and restarts: no accepted run is lost, each ends once, no
/// cap is exceeded, by what the database wrote down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_adds_up_whatever_goes_wrong() {
    let seed = tidegate_testkit::seed();
    let (cluster, db) = own_database().await;
    let mut world = World::new(db, SERVERS, 8, TENANTS, Duration::from_millis(100)).await;
    let load = load::Load::start(&world, seed).await;
    let until = Instant::now() + duration();
    let mut faults = faults::Faults::new(StdRng::seed_from_u64(seed));
    // Each kind goes wrong at least once, however short this is.
    while Instant::now() < until || !faults.each_has_come() {
        let fault = faults.next();
        println!("{:?} after {} runs", fault, load.accepted());
        faults.inflict(fault, &mut world, &cluster).await;
        load.serve(&world);
        let before = load.accepted();
        load.until_accepted(before + TENANTS, &world).await;
    }
    faults.end(&mut world).await;
    load.serve(&world);
    let accepted = load.stop().await;
    judge::judge(&world, &accepted).await;
}
