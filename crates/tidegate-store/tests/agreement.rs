//! Policy and SQL decide the same (architecture: two truths per decision).
//!
//! Each of 10,000 random states is written into a scope of its own. Half of them are planned: the view is read, the
//! policy plans on it, and the claim statements must take exactly the runs that the plan foretells, in its order. Half
//! are asked wildly (stale caps, too many, lanes that do not exist, suspended tenants, expired runs), and must take what
//! `buckets::take` allows.

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

mod rig;
#[path = "agreement/state.rs"]
mod state;

use std::{collections::BTreeSet, sync::Arc};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rig::World;
use state::{Lane, Run, State, TENANTS};
use tidegate_model::{RunId, TenantId, run::QuotaBucket};
use tidegate_policy::{
    buckets::{self, Tier},
    fairness::{self, Ask, LaneView},
};
use tidegate_store::{
    attempts::open::{LaneAsk, Place},
    lanes::views::LaneRow,
};

const STATES: u32 = 10_000;
/// States that are written together.
const BATCH: u32 = 200;
/// Batches that are decided at the same time.
const TASKS: u32 = 4;

/// R3.3, R3.4, R3.5: what SQL takes is what the policy says.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn policy_and_sql_agree_on_ten_thousand_random_states() {
    let seed = std::env::var("AGREEMENT_SEED").map_or_else(
        |_| RunId::new().as_uuid().as_u64_pair().1,
        |text| text.parse().expect("AGREEMENT_SEED is a number"),
    );
    println!("seed: AGREEMENT_SEED={seed}");
    let world = Arc::new(World::new(&TENANTS).await);
    sqlx::query("UPDATE tenants SET state = 'suspended' WHERE tenant = $1")
        .bind(TENANTS[TENANTS.len() - 1])
        .execute(world.db.pool())
        .await
        .expect("suspend");
    let classes = state::make_classes(&world).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (world, classes) = (Arc::clone(&world), classes.clone());
        tasks.spawn(async move {
            let mut decided = (0, 0);
            for batch in (task..STATES / BATCH).step_by(TASKS as usize) {
                let mut rng = SmallRng::seed_from_u64(seed ^ u64::from(batch));
                let states: Vec<State> = (0..BATCH)
                    .map(|n| State::random(&mut rng, &classes, batch * BATCH + n))
                    .collect();
                state::write(&world, &states).await;
                for state in &states {
                    let (asked, taken) = decide(&world, state, &mut rng, seed).await;
                    decided = (decided.0 + asked, decided.1 + taken);
                }
            }
            decided
        });
    }
    let mut total = (0, 0);
    while let Some(decided) = tasks.join_next().await {
        let (asked, taken) = decided.expect("a batch panicked");
        total = (total.0 + asked, total.1 + taken);
    }
    println!("lanes asked: {}, runs taken: {}", total.0, total.1);
    assert!(
        total.0 > STATES as usize && total.1 > STATES as usize,
        "too little was decided to mean anything"
    );
    assert_nothing_above_the_hard_cap(&world).await;
}

/// Lets SQL decide a state and compares; answers how many lanes were asked and runs taken.
async fn decide(world: &World, state: &State, rng: &mut SmallRng, seed: u64) -> (usize, usize) {
    let what = format!("AGREEMENT_SEED={seed}, state {}: {state:#?}", state.scope);
    let asks = if state.planned {
        planned_asks(world, state, rng, &what).await
    } else {
        wild_asks(state, rng)
    };
    let expected: BTreeSet<_> = asks.iter().flat_map(|ask| foretold(state, ask)).collect();
    let (background, counted): (Vec<_>, Vec<_>) = asks
        .iter()
        .cloned()
        .partition(|ask| ask.bucket == QuotaBucket::Background);
    let mut holder = world.holder("w", 600_000);
    holder.scope.clone_from(&state.scope);
    let fleet = world.store.fleet();
    let mut opened = fleet
        .open_foreground(&holder, &counted)
        .await
        .unwrap_or_else(|error| panic!("{error:?}: {what}"));
    let more = fleet
        .open_background(&holder, &background)
        .await
        .unwrap_or_else(|error| panic!("{error:?}: {what}"));
    let in_order: Vec<RunId> = counted
        .iter()
        .flat_map(|ask| foretold(state, ask))
        .collect();
    let opened_order: Vec<RunId> = opened.iter().map(|lease| lease.run_id).collect();
    assert_eq!(opened_order, in_order, "order of the counted lanes, {what}");
    opened.extend(more);
    let taken: BTreeSet<_> = opened.iter().map(|lease| lease.run_id).collect();
    assert_eq!(taken, expected, "asks {asks:#?}, {what}");
    assert_eq!(taken.len(), opened.len(), "twice, {what}");
    (asks.len(), taken.len())
}

/// The runs that an ask takes by the rules of the policy, first one first.
fn foretold(state: &State, ask: &LaneAsk) -> Vec<RunId> {
    let Some(lane) = state.lane(ask.bucket, &ask.tenant, ask.class) else {
        return Vec::new();
    };
    if state::is_suspended(&ask.tenant) {
        return Vec::new();
    }
    let runnable: Vec<&Run> = lane.runs.iter().filter(|run| !run.expired).collect();
    let take = buckets::take(
        u32::try_from(ask.take).expect("take"),
        i64::try_from(runnable.len()).expect("queued"),
        ask.cap.map(i64::from),
        state.running(ask.bucket, &ask.tenant),
    );
    runnable
        .iter()
        .take(take as usize)
        .map(|run| run.id)
        .collect()
}

/// Reads the view, checks it against the state, plans on it. What the plan takes must then be what is taken.
async fn planned_asks(
    world: &World,
    state: &State,
    rng: &mut SmallRng,
    what: &str,
) -> Vec<LaneAsk> {
    let fairness_on = rng.random_bool(0.7);
    let upcoming = if fairness_on { 0 } else { 100 };
    let rows = world
        .store
        .fleet()
        .lane_views(&state.scope, None, 1_000, upcoming)
        .await
        .unwrap_or_else(|error| panic!("{error:?}: {what}"))
        .lanes;
    let lanes: Vec<&Lane> = state
        .lanes
        .iter()
        .filter(|lane| !state::is_suspended(&lane.tenant))
        .collect();
    assert_eq!(rows.len(), lanes.len(), "lanes in view, {what}");
    let tier: Tier = state.tier;
    let mut views = Vec::new();
    for row in rows {
        let lane = state
            .lane(row.bucket, &row.tenant, row.class)
            .unwrap_or_else(|| panic!("no such lane {row:?}, {what}"));
        let head = &lane.runs[0];
        let seen = (row.head, row.head_rank, row.head_urgency, row.queued);
        let queued = Some(i64::try_from(lane.runs.len()).expect("queued"));
        assert_eq!(seen, (head.id, head.rank, head.urgency, queued), "{what}");
        assert_eq!(
            row.running,
            state.running(row.bucket, &row.tenant),
            "{what}"
        );
        let created: Vec<_> = lane.runs.iter().skip(1).map(|run| run.created_ms).collect();
        let weight = state.weight(&row.tenant);
        let pass = state.pass(&row.tenant);
        let view = view_of(&row, tier, weight, pass);
        assert_eq!(view.head_created_ms, head.created_ms, "{what}");
        if !fairness_on {
            assert_eq!(view.next_created_ms, created, "{what}");
        }
        views.push(view);
    }
    let want = rng.random_range(1..20);
    let want_background = rng.random_range(0..4);
    let plan = fairness::plan(&views, want, want_background, fairness_on);
    plan.into_iter()
        .map(|ask| {
            let ask = ask_of(&views[ask.lane], ask);
            let taken = foretold(state, &ask).len();
            assert_eq!(
                i32::try_from(taken),
                Ok(ask.take),
                "a plan on a fresh view is met, {what}"
            );
            ask
        })
        .collect()
}

fn view_of(row: &LaneRow, tier: Tier, weight: u32, pass: u64) -> LaneView {
    LaneView {
        of_background: row.of_background,
        bucket: row.bucket,
        tenant: row.tenant.clone(),
        class: row.class,
        weight,
        running: row.running,
        cap: tier.cap(row.bucket),
        head_rank: row.head_rank,
        head_urgency: row.head_urgency,
        head_position: row.head_position,
        head_created_ms: row.head_created_at.timestamp_millis(),
        next_created_ms: row
            .next_created_at
            .iter()
            .map(chrono::DateTime::timestamp_millis)
            .collect(),
        queued_hint: row.queued.unwrap_or(i64::MAX),
        pass,
        cost: 1_000,
    }
}

fn ask_of(view: &LaneView, ask: Ask) -> LaneAsk {
    LaneAsk {
        bucket: view.bucket,
        tenant: view.tenant.clone(),
        class: view.class,
        take: i32::try_from(ask.take).expect("take"),
        cap: ask.cap.map(|cap| i32::try_from(cap).expect("cap")),
        cost: 1_000,
        // The head that was read: the statement starts there.
        from: Place {
            rank: view.head_rank,
            urgency: view.head_urgency,
            position: view.head_position,
        },
    }
}

/// Asks that no plan would make.
fn wild_asks(state: &State, rng: &mut SmallRng) -> Vec<LaneAsk> {
    let mut asks: Vec<LaneAsk> = Vec::new();
    let mut background_asked: BTreeSet<TenantId> = BTreeSet::new();
    for lane in &state.lanes {
        if rng.random_bool(0.2) {
            continue;
        }
        // The second statement of the background claim counts a tenant once, hence one lane per tenant.
        if lane.bucket == QuotaBucket::Background && !background_asked.insert(lane.tenant.clone()) {
            continue;
        }
        let cap = match lane.bucket {
            QuotaBucket::Background => Some(rng.random_range(1..5)),
            QuotaBucket::Foreground | QuotaBucket::Uncounted => {
                rng.random_bool(0.7).then(|| rng.random_range(0..8))
            }
        };
        let class = if rng.random_bool(0.05) {
            -1
        } else {
            lane.class
        };
        asks.push(LaneAsk {
            bucket: lane.bucket,
            tenant: lane.tenant.clone(),
            class,
            take: rng.random_range(0..6),
            cap,
            cost: 1_000,
            from: Place::FIRST,
        });
    }
    asks
}

/// R3.4: no tenant of any scope holds more background leases than the highest cap that was ever asked with, and every
/// lease has its slot.
async fn assert_nothing_above_the_hard_cap(world: &World) {
    let unslotted = world
        .count(
            "SELECT count(*) FROM (SELECT scope, tenant, run_id FROM run_leases WHERE bucket = 1) l
             FULL JOIN background_slots s USING (scope, tenant, run_id) WHERE l.run_id IS NULL OR s.run_id IS NULL",
        )
        .await;
    assert_eq!(unslotted, 0, "leases without slot or slots without lease");
}
