//! What tenants do to each other: floods, full ones, many, and who comes back. Judged by the order of starts, which does
//! not depend on how busy the machine is.

use std::collections::{HashMap, VecDeque};

use futures::future::join_all;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tidegate_engine::{Engine, Principal, claims, runs, tenants, worker};
use tidegate_model::{
    Capability, PoolId, RunId, TenantId,
    api::{AttemptUsage, CompleteRun, CreateTenant, Lease},
    queue_reason::QueueReason,
    run::RunKind,
};

use crate::rig::{World, claim_on, member, operator, settings, task};

const MULTIPLY: &str = include_str!("../../../tidegate-testkit/src/multiply.sql");
/// What each run uses here, so much that the milliseconds it takes do not count beside it.
const TOKENS: i64 = 1_000_000;

async fn finish(engine: &Engine, lease: &Lease) {
    let request = CompleteRun {
        fence: lease.fence,
        result: json!({}),
        messages: Vec::new(),
        usage: AttemptUsage { tokens: TOKENS },
    };
    let principal = Principal::built_in_worker(PoolId::builtin());
    worker::close::complete(engine, &principal, lease.run.run_id, request)
        .await
        .expect("complete");
}

async fn finish_all(engine: &Engine, leases: &[Lease]) {
    join_all(leases.iter().map(|lease| finish(engine, lease))).await;
}

async fn claim(engine: &Engine, max: u32) -> Vec<Lease> {
    claim_on(engine, &PoolId::builtin(), max, 5_000).await
}

fn of(leases: &[Lease], tenant: &str) -> usize {
    let of_tenant = |lease: &&Lease| lease.run.tenant.as_str() == tenant;
    leases.iter().filter(of_tenant).count()
}

impl World {
    async fn tenant(&self, name: &str) {
        let request = CreateTenant {
            tenant: name.parse().expect("tenant"),
            display_name: None,
        };
        tenants::create(&self.engine, &operator(), request)
            .await
            .expect("tenant");
    }

    /// Business tasks of a tenant, submitted at once.
    async fn tasks(&self, tenant: &str, runs: usize) {
        let member = member(tenant);
        let submit = || runs::submit::submit(&self.engine, &member, task("chat"), None);
        for submitted in join_all((0..runs).map(|_| submit())).await {
            submitted.expect("submit");
        }
    }

    async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(self.db.pool())
            .await
            .expect("execute");
    }

    /// Queues so many copies of a run for the tenants `prefix`0 and on.
    async fn multiply(&self, model: RunId, prefix: &str, tenants: i64, runs: i64) {
        let model = model.as_uuid();
        self.execute(&format!(
            "{MULTIPLY} SELECT pg_temp.multiply('{model}', '{prefix}', {tenants}, {runs}); ANALYZE run_queue, agent_runs"
        ))
        .await;
    }
}

/// R3.8, R3.12: whoever has nothing running comes next, however much another one floods; who asks for as much as the flood
/// gets as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_delays_nobody_by_more_than_the_next_free_worker() {
    const WORKERS: usize = 4;
    let world = World::new(settings()).await;
    let small: Vec<String> = (0..9).map(|n| format!("small-{n}")).collect();
    for name in &small {
        world.tenant(name).await;
    }
    world.tasks("acme", 5_000).await;
    let mut held: VecDeque<Lease> = claim(&world.engine, 4).await.into();
    assert_eq!(held.len(), WORKERS);
    // One at a time: the next worker that comes free takes it.
    for name in &small {
        world.tasks(name, 1).await;
        finish(&world.engine, &held.pop_front().expect("held")).await;
        let next = claim(&world.engine, 1).await.remove(0);
        assert_eq!(next.run.tenant.as_str(), name);
        finish(&world.engine, &next).await;
        held.extend(claim(&world.engine, 1).await);
        assert_eq!(held.back().expect("next").run.tenant.as_str(), "acme");
    }
    // Fifty of each.
    for name in &small {
        world.tasks(name, 50).await;
    }
    let mut started = Vec::new();
    while started.len() < 480 {
        finish(&world.engine, &held.pop_front().expect("held")).await;
        let next = claim(&world.engine, 1).await.remove(0);
        started.push(next.run.tenant.to_string());
        held.push_back(next);
        let floods = started.iter().filter(|tenant| *tenant == "acme").count();
        assert!(
            floods <= started.len() / 10 + WORKERS,
            "{floods} of {} were of the flood",
            started.len()
        );
    }
    let mut first: Vec<&String> = started.iter().take(9).collect();
    first.sort_unstable();
    assert!(first.iter().copied().eq(&small), "each at once: {first:?}");
    // Beside free workers nobody waits at all.
    world.tasks(&small[0], 5).await;
    let free = claim(&world.engine, 100).await;
    assert!(of(&free, &small[0]) >= 5, "all that asked");
}

/// R3.8: of 10,000 tenants each one is served before another one is served again by the same instance, and an instance
/// that starts later goes on where the others were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tenants_are_served_in_turn() {
    const TENANTS: usize = 10_000;
    let world = World::new(settings()).await;
    let model = world.submit(task("chat")).await;
    world.multiply(model, "many-", 10_000, 30_000).await;
    let mut served: HashMap<TenantId, usize> = HashMap::new();
    let mut note = |leases: &[Lease]| {
        for lease in leases {
            *served.entry(lease.run.tenant.clone()).or_default() += 1;
        }
        (served.len(), served.values().copied().max().unwrap_or(0))
    };
    // Two in turn, each with a view of its own.
    let mut settings = settings();
    settings.view_age_ms = 500;
    let other = world.instance(settings.clone()).await;
    for engine in [&world.engine, &other].into_iter().cycle().take(40) {
        let leases = claim(engine, 100).await;
        finish_all(engine, &leases).await;
        claims::passes::write(engine).await.expect("store");
        let (_, most) = note(&leases);
        assert!(most <= 2, "once by each instance");
    }
    // One that starts now favours nobody, and somebody new comes after those who were there, not after their backlog.
    world.tasks("globex", 3).await;
    let restarted = world.instance(settings).await;
    let before = note(&[]).0;
    assert!(before < TENANTS, "{before} were served already");
    let mut newcomer = false;
    while note(&[]).0 < TENANTS + 2 {
        let served = note(&[]).0;
        let leases = claim(&restarted, 100).await;
        finish_all(&restarted, &leases).await;
        claims::passes::write(&restarted).await.expect("store");
        newcomer |= of(&leases, "globex") > 0;
        let (now, most) = note(&leases);
        let last = now == TENANTS + 2;
        assert!(
            last || now == served + leases.len(),
            "somebody was served again"
        );
        assert!(most <= 2);
    }
    assert!(newcomer);
}

/// O-03, R3.3: a tenant at its cap with an older, more urgent backlog is in nobody's way, of whatever length it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_tenant_fills_no_window_o_03() {
    for backlog in [1_000, 100_000] {
        let world = World::new(settings()).await;
        let model = world.submit(task("chat")).await;
        world.multiply(model, "full-", 1, backlog).await;
        // Into the account that is capped, where runs of this kind are not.
        world
            .execute("UPDATE run_queue SET bucket = 0, urgency = -5; DELETE FROM run_queue WHERE tenant = 'acme'")
            .await;
        let mut full = VecDeque::from(claim(&world.engine, 32).await);
        assert_eq!(full.len(), 2, "the standard tier");
        world.tasks("globex", 10).await;
        world
            .execute("UPDATE run_queue SET bucket = 0 WHERE tenant = 'globex'")
            .await;
        let mut globex = Vec::new();
        for round in 0..5 {
            // The full one is never blocked for long.
            if round % 2 == 1 {
                finish(&world.engine, &full.pop_front().expect("held")).await;
            }
            let leases = claim(&world.engine, 32).await;
            assert_eq!(of(&leases, "globex"), 2, "in the one next claim");
            let (own, rest): (Vec<Lease>, Vec<Lease>) = leases
                .into_iter()
                .partition(|lease| lease.run.tenant.as_str() == "globex");
            finish_all(&world.engine, &own).await;
            globex.extend(own);
            full.extend(rest);
            assert!(full.len() <= 2);
        }
        assert_eq!(globex.len(), 10);
    }
}

/// O-04, R3.3: alone a tenant goes above its soft cap by claims that race and by nothing else, and is told so; workers that
/// are free serve whoever else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soft_cap_is_passed_by_races_alone_o_04() {
    let world = World::new(settings()).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        let conversation = world.conversation().await;
        runs.push(world.turn(conversation).await);
    }
    let pool = PoolId::builtin();
    let race = join_all((0..8).map(|_| claim_on(&world.engine, &pool, 1, 200))).await;
    let held: Vec<Lease> = race.into_iter().flatten().collect();
    assert!((2..=8).contains(&held.len()), "{} started", held.len());
    world.expect_no_start(&pool).await;
    let waits = *runs.last().expect("the last one");
    world
        .expect_reason(waits, QueueReason::TenantForegroundCap)
        .await;
    world.tasks("globex", 4).await;
    let leases = claim(&world.engine, 4).await;
    assert_eq!(of(&leases, "globex"), 4, "the rest of the workers");
    // Nothing that ran was given up for it.
    for lease in &held {
        world.complete(lease).await;
    }
    assert_eq!(of(&claim(&world.engine, 8).await, "acme"), 2);
}

/// O-04, R3.2: what is not capped lends all workers to whoever asks, and each one that comes free goes to who comes later
/// until both have the same. Who waits for a worker is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lent_workers_come_back_one_by_one_o_04() {
    let world = World::new(settings()).await;
    world.tasks("acme", 20).await;
    let mut held: VecDeque<Lease> = claim(&world.engine, 8).await.into();
    assert_eq!(held.len(), 8, "all workers");
    let waits = world.submit(task("chat")).await;
    world
        .expect_reason(waits, QueueReason::WaitingForWorker)
        .await;
    world.tasks("globex", 8).await;
    for number in 1..=4 {
        finish(&world.engine, &held.pop_front().expect("held")).await;
        let next = claim(&world.engine, 1).await;
        assert_eq!(of(&next, "globex"), 1, "free worker number {number}");
    }
    // Equal now: the smaller pass decides, and acme has been charged more.
    finish(&world.engine, &held.pop_front().expect("held")).await;
    assert_eq!(of(&claim(&world.engine, 1).await, "acme"), 1);
    for lease in held {
        finish(&world.engine, &lease).await;
    }
}

/// O-04, R3.4: of background work never more than the hard cap runs, however many workers are free and race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hard_cap_lends_nothing_o_04() {
    let world = World::new(settings()).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        let run = task(Capability::chat().as_str());
        let caller = member("acme");
        let submitted =
            runs::submit::submit_as(&world.engine, &caller, RunKind::BackgroundWork, run).await;
        runs.push(submitted.expect("submit").run_id);
    }
    let pool = PoolId::builtin();
    for _ in 0..3 {
        let race = join_all((0..8).map(|_| claim_on(&world.engine, &pool, 1, 200))).await;
        let held: Vec<Lease> = race.into_iter().flatten().collect();
        assert_eq!(held.len(), 1);
        world.expect_no_start(&pool).await;
        let waits = *runs.last().expect("the last one");
        world
            .expect_reason(waits, QueueReason::TenantBackgroundCap)
            .await;
        finish_all(&world.engine, &held).await;
    }
}
