//! Load while everything goes wrong in turn: servers killed and frozen, workers that vanish, PostgreSQL restarted, a
//! snapshot that pins what vacuum may remove. The history alone is judged.
//!
//! Half a minute in `make test`; `make soak` lets it run for MINUTES and until there were CLAIMS. The seed is printed and repeats the order of what
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

/// How many claims there must have been: `TIDEGATE_SOAK_CLAIMS`, else any number.
fn claims() -> i64 {
    std::env::var("TIDEGATE_SOAK_CLAIMS").map_or(0, |text| {
        text.parse()
            .expect("TIDEGATE_SOAK_CLAIMS is a number of claims")
    })
}

/// How long nothing goes wrong between two faults: the longer the soak, the more work is done.
fn calm() -> Duration {
    if claims() > 0 {
        Duration::from_secs(10)
    } else {
        duration() / 360
    }
}

/// Claims so far: attempts that have ended, and leases.
async fn claimed(world: &World) -> i64 {
    let sql = "SELECT (SELECT count(*) FROM run_attempts) + (SELECT count(*) FROM run_leases)";
    // The database may be down at this moment; what was is there when it is up again.
    sqlx::query_scalar(sql)
        .fetch_one(world.db.pool())
        .await
        .unwrap_or(0)
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
    let (wanted, mut made) = (claims(), 0);
    while Instant::now() < until || made < wanted || !faults.each_has_come() {
        let fault = faults.next();
        println!("{fault:?} after {} runs, {made} claims", load.accepted());
        faults.inflict(fault, &mut world, &cluster).await;
        load.serve(&world);
        let before = load.accepted();
        load.until_accepted(before + TENANTS, &world).await;
        tokio::time::sleep(calm()).await;
        made = claimed(&world).await;
    }
    faults.end(&mut world).await;
    load.serve(&world);
    let accepted = load.stop().await;
    judge::judge(&world, &accepted).await;
}
