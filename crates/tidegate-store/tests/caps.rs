//! Caps under claimers that race, pause and die, judged by the history that the database wrote.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};
use rig::{DAY_MS, World, report_of, rules, tenant};
use tidegate_model::{
    Code, TenantId,
    run::{QuotaBucket, RunKind},
};
use tidegate_policy::retry::Report;
use tidegate_store::{
    ConnectOptions, Store,
    attempts::{
        close::{CloseReport, Closer},
        open::{Holder, LaneAsk},
    },
    connect,
};
use tokio::task::JoinHandle;

const TENANTS: usize = 50;
const INSTANCES: usize = 4;
const CLAIMERS: usize = 8;
const RUNS_PER_TENANT: usize = 16;
const LEASE_MS: i64 = 400;

/// The cap of a tenant: 1 to 3.
fn cap_of(index: usize) -> i32 {
    i32::try_from(index % 3 + 1).expect("small")
}

struct Claimer {
    store: Store,
    holder: Holder,
    asks: Vec<LaneAsk>,
    rng: StdRng,
    done: Arc<AtomicBool>,
}

impl Claimer {
    /// Claims, holds and ends runs in every way there is, until told that all is done.
    async fn work(mut self) {
        while !self.done.load(Ordering::Relaxed) {
            let from = self.rng.random_range(0..self.asks.len());
            let asks: Vec<LaneAsk> = self
                .asks
                .iter()
                .cycle()
                .skip(from)
                .take(10)
                .cloned()
                .collect();
            // A claim that fails has taken nothing; one that we do not hear of is taken over.
            let Ok(leases) = self
                .store
                .fleet()
                .open_background(&self.holder, &asks)
                .await
            else {
                continue;
            };
            for lease in leases {
                let hold = Duration::from_millis(self.rng.random_range(0..12));
                tokio::time::sleep(hold).await;
                let fleet = self.store.fleet();
                match self.rng.random_range(0..20) {
                    // Dies: nobody closes.
                    0 => {}
                    // Pauses beyond its lease and then writes all the same.
                    1 => {
                        tokio::time::sleep(Duration::from_millis(600)).await;
                        let late = report_of(&lease, Report::Completed);
                        let closed = fleet
                            .close_attempts(vec![late], Closer::Holder, &rules())
                            .await;
                        assert!(
                            closed.map_or(0, |closed| closed.len()) == 0,
                            "a late holder wrote"
                        );
                    }
                    2 => {
                        let released = report_of(&lease, Report::Released);
                        let _gone = fleet
                            .close_attempts(vec![released], Closer::Holder, &rules())
                            .await;
                    }
                    3 => {
                        let failed = Report::Failed {
                            code: Code::WorkerFailed,
                            retryable: true,
                            retry_after_ms: 0,
                        };
                        let failed = report_of(&lease, failed);
                        let _gone = fleet
                            .close_attempts(vec![failed], Closer::Holder, &rules())
                            .await;
                    }
                    _ => {
                        let completed = report_of(&lease, Report::Completed);
                        let _gone = fleet
                            .close_attempts(vec![completed], Closer::Holder, &rules())
                            .await;
                    }
                }
            }
        }
    }
}

/// Takes over what is lost and wakes what is due, as every instance does.
async fn sweep(store: Store, done: Arc<AtomicBool>) {
    while !done.load(Ordering::Relaxed) {
        let fleet = store.fleet();
        if let Ok(lost) = fleet.expired_leases("main", 100).await {
            let reports: Vec<_> = lost
                .into_iter()
                .map(|lease| CloseReport {
                    lease,
                    report: Report::LeaseLost,
                    detail: None,
                    tokens: 0,
                    result: None,
                    messages: Vec::new(),
                    wait: None,
                })
                .collect();
            let _swept = fleet
                .close_attempts(reports, Closer::Takeover, &rules())
                .await;
        }
        let _woken = fleet.wake_due("main", DAY_MS, 100).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// R3.4, R3.5: with 4 instances of 8 claimers, 50 tenants, deaths and pauses, no tenant is ever above its background cap,
/// by the database's own history; every run ends, none twice; slots are live leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_tenant_is_ever_above_its_background_cap() {
    let seed = tidegate_testkit::seed();
    let (world, tenants, asks) = flooded_world().await;
    let done = Arc::new(AtomicBool::new(false));
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sweeps = Vec::new();
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        let mut options = ConnectOptions::new(world.db.url());
        options.max_connections = 9;
        let store = Store::new(connect(&options).expect("pool"));
        sweeps.push(tokio::spawn(sweep(store.clone(), Arc::clone(&done))));
        stores.push(store);
    }
    let spawn = |instance: usize, number: usize, rng: &mut StdRng| {
        let claimer = Claimer {
            store: stores[instance].clone(),
            holder: world.holder(&format!("w-{instance}-{number}"), LEASE_MS),
            asks: asks.clone(),
            rng: StdRng::seed_from_u64(rng.next_u64()),
            done: Arc::clone(&done),
        };
        tokio::spawn(claimer.work())
    };
    let mut claimers = Vec::new();
    for instance in 0..INSTANCES {
        for number in 0..CLAIMERS {
            claimers.push((instance, number, spawn(instance, number, &mut rng)));
        }
    }
    kill_until_all_ended(&world, &mut claimers, &mut rng, spawn).await;
    done.store(true, Ordering::Relaxed);
    for (_, _, claimer) in claimers {
        claimer.await.expect("claimer");
    }
    for sweep in sweeps {
        sweep.await.expect("sweep");
    }
    world.audit().await;
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_ends WHERE state <> 'succeeded'")
            .await,
        0
    );
    judge(&world, &tenants).await;
}

/// Tenants with more background runs than they may run, and the lanes to ask.
async fn flooded_world() -> (World, Vec<TenantId>, Vec<LaneAsk>) {
    let names: Vec<String> = (0..TENANTS)
        .map(|index| format!("tenant-{index}"))
        .collect();
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(&refs).await;
    let tenants: Vec<TenantId> = names.iter().map(|name| tenant(name)).collect();
    let mut asks = Vec::new();
    for (index, tenant) in tenants.iter().enumerate() {
        asks.push(
            world
                .ask(tenant, QuotaBucket::Background, 4, Some(cap_of(index)))
                .await,
        );
        for _ in 0..RUNS_PER_TENANT {
            let mut run = world.new_run(tenant, RunKind::BackgroundWork).await;
            run.max_attempts = 100;
            world
                .store
                .tenant(tenant)
                .submit_run(run, DAY_MS)
                .await
                .expect("submit");
        }
    }
    (world, tenants, asks)
}

/// A claimer is killed where it stands and another one starts, until every run has ended.
async fn kill_until_all_ended(
    world: &World,
    claimers: &mut [(usize, usize, JoinHandle<()>)],
    rng: &mut StdRng,
    spawn: impl Fn(usize, usize, &mut StdRng) -> JoinHandle<()>,
) {
    let expected = i64::try_from(TENANTS * RUNS_PER_TENANT).expect("small");
    let deadline = Instant::now() + Duration::from_secs(90);
    while world.count("SELECT count(*) FROM run_ends").await < expected {
        assert!(
            Instant::now() < deadline,
            "runs are left: {:?}",
            world.count("SELECT count(*) FROM run_ends").await
        );
        let victim = rng.random_range(0..claimers.len());
        claimers[victim].2.abort();
        let (instance, number) = (claimers[victim].0, claimers[victim].1);
        if let Err(error) =
            std::mem::replace(&mut claimers[victim].2, spawn(instance, number, rng)).await
        {
            assert!(error.is_cancelled(), "{error}");
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(5..40))).await;
    }
}

/// Tenant, start, end, slot.
type Attempt = (String, DateTime<Utc>, DateTime<Utc>, Option<i16>);

/// Recomputes from the attempts alone how many ran at once.
async fn judge(world: &World, tenants: &[TenantId]) {
    let attempts: Vec<Attempt> =
        sqlx::query_as("SELECT tenant, started_at, ended_at, background_slot FROM run_attempts")
            .fetch_all(world.db.pool())
            .await
            .expect("attempts");
    let mut edges: HashMap<&str, Vec<(DateTime<Utc>, i32)>> = HashMap::new();
    for (tenant, started, ended, _) in &attempts {
        let edges = edges.entry(tenant).or_default();
        edges.push((*started, 1));
        edges.push((*ended, -1));
    }
    let mut at_cap = 0;
    for (index, tenant) in tenants.iter().enumerate() {
        let edges = edges
            .get_mut(tenant.as_str())
            .expect("attempts of every tenant");
        edges.sort();
        let mut running = 0;
        let mut most = 0;
        for (_, step) in edges.iter() {
            running += step;
            most = most.max(running);
        }
        assert!(
            most <= cap_of(index),
            "{tenant} had {most} running with cap {}",
            cap_of(index)
        );
        at_cap += usize::from(most == cap_of(index));
    }
    assert!(
        at_cap * 2 > tenants.len(),
        "the caps were hardly ever reached: the test could not fail"
    );
    for (tenant, _, _, slot) in &attempts {
        let index = tenants
            .iter()
            .position(|known| known.as_str() == tenant)
            .expect("known");
        let slot = slot.expect("every background attempt had a slot");
        assert!(
            i32::from(slot) <= cap_of(index),
            "{tenant} used slot {slot}"
        );
    }
}
