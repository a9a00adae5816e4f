//! Claims, takeovers, cancels and requeues over the same few tenants at once (O-31).

#![expect(clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

mod rig;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rig::{
    DAY_MS, World,
    family::{FAILED, on},
    held, report_of, rules, tenant,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tidegate_model::{
    Code, ConversationId, RunId, TenantId,
    run::{QuotaBucket, RunKind, WaitMode},
};
use tidegate_policy::retry::Report;
use tidegate_store::{
    Store,
    attempts::{
        close::{CloseReport, Closer},
        open::OpenedLease,
    },
    runs::SubmittedChild,
};
use tokio::task::JoinSet;

/// How long the mixed load goes on.
const LOAD: Duration = Duration::from_secs(6);
const CLAIMERS: usize = 8;

struct Load {
    world: World,
    tenants: Vec<TenantId>,
    conversations: Vec<(TenantId, ConversationId)>,
    done: AtomicBool,
    completed: AtomicU64,
    parents: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    /// Submits turns into few conversations, so that each waits for the ones before.
    async fn produce(self: Arc<Self>) {
        let mut next = 0;
        while self.goes_on() {
            let (tenant, conversation) = &self.conversations[next % self.conversations.len()];
            self.world.submit_turn(tenant, *conversation).await;
            next += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn claim(self: Arc<Self>, number: usize) {
        while self.goes_on() {
            for tenant in &self.tenants {
                let leases = self
                    .world
                    .claim(tenant, QuotaBucket::Foreground, 4, Some(4), 300)
                    .await;
                if number == 0 {
                    // This one loses what it takes: work for the recovery loops.
                    continue;
                }
                let mut leases = leases;
                leases.extend(
                    self.world
                        .claim(tenant, QuotaBucket::Uncounted, 4, None, 300)
                        .await,
                );
                let mut reports: Vec<CloseReport> = Vec::with_capacity(leases.len());
                for (place, lease) in leases.iter().enumerate() {
                    reports.push(match (number + place) % 3 {
                        0 => self.parked(lease).await,
                        1 => report_of(lease, FAILED),
                        _ => report_of(lease, Report::Completed),
                    });
                }
                let fleet = self.world.store.fleet();
                let closed = fleet
                    .close_attempts(reports, Closer::Holder, &rules())
                    .await;
                self.completed
                    .fetch_add(closed.expect("close").len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Starts children under a lease and waits for them.
    async fn parked(&self, lease: &OpenedLease) -> CloseReport {
        let mut runs = Vec::new();
        for key in ["a", "b"] {
            match self.world.try_child(lease, key).await {
                SubmittedChild::Repeated(run) => runs.push(run),
                SubmittedChild::Accepted { .. } | SubmittedChild::Refused(_) => {}
                // Taken over or cancelled meanwhile.
                SubmittedChild::LeaseLost | SubmittedChild::ParentStops => break,
                other => panic!("{other:?}"),
            }
        }
        let known = self.world.store.fleet().awaitable(&held(lease), None).await;
        runs.extend(known.expect("children"));
        if runs.is_empty() {
            return report_of(lease, Report::Completed);
        }
        self.parents.fetch_add(1, Ordering::Relaxed);
        CloseReport {
            wait: Some(on(WaitMode::Any, &runs)),
            ..report_of(lease, Report::Waiting)
        }
    }

    async fn recover(self: Arc<Self>) {
        while self.goes_on() {
            let fleet = self.world.store.fleet();
            let lost = fleet.expired_leases("main", 50).await.expect("expired");
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
            let taken = fleet
                .close_attempts(reports, Closer::Takeover, &rules())
                .await;
            taken.expect("takeover");
            fleet.wake_due("main", DAY_MS, 50).await.expect("wake");
            fleet.stop_orphans("main").await.expect("orphans");
            let stopped = fleet
                .leases_past_grace("main", 0, 50)
                .await
                .expect("stopped");
            let reports: Vec<_> = stopped
                .into_iter()
                .map(|lease| CloseReport {
                    lease,
                    report: Report::FencedOff,
                    detail: None,
                    tokens: 0,
                    result: None,
                    messages: Vec::new(),
                    wait: None,
                })
                .collect();
            let grace = Closer::Grace { grace_ms: 0 };
            let fenced = fleet.close_attempts(reports, grace, &rules()).await;
            fenced.expect("fence off");
        }
    }

    /// Cancels everything of one tenant, queued, parked and running, and puts dead letters back.
    async fn cancel_all(self: Arc<Self>) {
        let mut round = 0;
        while self.goes_on() {
            let tenant = &self.tenants[round % self.tenants.len()];
            let scoped = self.world.store.tenant(tenant);
            let runs: Vec<RunId> = sqlx::query_scalar(
                "SELECT run_id FROM agent_runs a WHERE tenant = $1
                 AND NOT EXISTS (SELECT FROM run_ends e WHERE e.run_id = a.run_id) ORDER BY random() LIMIT 40",
            )
            .bind(tenant.as_str())
            .fetch_all(self.world.db.pool())
            .await
            .expect("runs")
            .into_iter()
            .map(RunId::from_uuid)
            .collect();
            scoped
                .cancel_runs(runs.clone(), DAY_MS, None)
                .await
                .expect("cancel");
            scoped
                .reopen(runs, "operator".to_owned(), DAY_MS, None)
                .await
                .expect("reopen");
            round += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// O-31: eight claimers, two recovery loops and cancels over four tenants, with turns that start children and wait for
/// them: no deadlock, no lost run, work goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_recovery_and_cancels_do_not_deadlock() {
    let names = ["acme", "globex", "acme-2", "globex-2"];
    let world = World::new(&names).await;
    let tenants: Vec<TenantId> = names.iter().map(|name| tenant(name)).collect();
    let mut conversations = Vec::new();
    for tenant in &tenants {
        for _ in 0..5 {
            conversations.push((tenant.clone(), world.conversation(tenant).await));
        }
    }
    let load = Arc::new(Load {
        world,
        tenants,
        conversations,
        done: AtomicBool::new(false),
        completed: AtomicU64::new(0),
        parents: AtomicU64::new(0),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&load).produce());
    for number in 0..CLAIMERS {
        tasks.spawn(Arc::clone(&load).claim(number));
    }
    for _ in 0..2 {
        tasks.spawn(Arc::clone(&load).recover());
        tasks.spawn(Arc::clone(&load).cancel_all());
    }
    tokio::time::sleep(LOAD).await;
    load.done.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no task fails");
    }
    let completed = load.completed.load(Ordering::Relaxed);
    assert!(
        completed > 50,
        "work goes on beside cancels: {completed} runs were completed"
    );
    let parents = load.parents.load(Ordering::Relaxed);
    assert!(parents > 5, "{parents} parents waited");
    // The counters of a session reach the view when it has been idle for a moment.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(load.world.count(deadlocks).await, 0);
    load.world.audit().await;
}

/// R4.2, R4.3: a holder ends its attempt while its lease is just being renewed. The close waits for that and is accepted,
/// whether it is a plain success or a failure.
#[tokio::test]
async fn a_close_waits_for_a_renewal_and_counts() {
    let failed = Report::Failed {
        code: Code::WorkerFailed,
        retryable: true,
        retry_after_ms: 0,
    };
    for report in [Report::Completed, failed] {
        let world = World::new(&["acme"]).await;
        let acme = tenant("acme");
        world.submit(&acme, RunKind::BusinessTask).await;
        let lease = world
            .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
            .await
            .remove(0);
        let mut renewal = world.db.pool().begin().await.expect("begin");
        sqlx::query("UPDATE run_leases SET lease_until = lease_until + interval '1 second'")
            .execute(&mut *renewal)
            .await
            .expect("renew");
        let closed = world.close_behind(renewal, report_of(&lease, report)).await;
        assert_eq!(closed.len(), 1, "the lease was held all the time");
        world.audit().await;
    }
}

/// A transaction that stands in for a renewal or a closing of several leases: it has locked one and comes to a later one.
struct InOrder(sqlx::Transaction<'static, sqlx::Postgres>);

impl InOrder {
    async fn holding(world: &World, lease: &OpenedLease) -> Self {
        let mut this = Self(world.db.pool().begin().await.expect("begin"));
        assert!(this.lock(lease).await, "nobody else holds the first");
        this
    }

    /// Whether the lease could be locked without waiting.
    async fn lock(&mut self, lease: &OpenedLease) -> bool {
        sqlx::query("SELECT FROM run_leases WHERE run_id = $1 FOR UPDATE NOWAIT")
            .bind(lease.run_id.as_uuid())
            .execute(&mut *self.0)
            .await
            .is_ok()
    }
}

/// A running business task and a running turn. The task is older and stands before the turn in the table, and behind it in
/// the order of the key.
async fn task_and_turn(world: &World) -> (OpenedLease, OpenedLease) {
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BusinessTask).await;
    let task = world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    let conversation = world.conversation(&acme).await;
    world.submit_turn(&acme, conversation).await;
    let turn = world
        .claim(&acme, QuotaBucket::Foreground, 1, None, 30_000)
        .await
        .remove(0);
    (task, turn)
}

/// A store whose statements find rows in the order in which they were written, as they may once the planner thinks it
/// cheaper: that the key's index gives them in its order must not be what a lock order rests on.
fn without_indexes(world: &World) -> Store {
    let options = world.db.pool().connect_options();
    let options = PgConnectOptions::clone(&options).options([
        ("enable_seqscan", "on"),
        ("enable_indexscan", "off"),
        ("enable_bitmapscan", "off"),
    ]);
    Store::new(PgPoolOptions::new().connect_lazy_with(options))
}

/// R3.10, R3.11, O-31: whatever marks several leases waits for the first in the order of the key and holds none of the
/// later ones meanwhile, so that it and a renewal of both cannot wait for each other.
#[tokio::test]
async fn stop_marks_lock_leases_in_the_order_of_the_key() {
    for overdue in [false, true] {
        let world = World::new(&["acme"]).await;
        let (task, turn) = task_and_turn(&world).await;
        if overdue {
            sqlx::query("UPDATE run_leases SET must_end_at = clock_timestamp()")
                .execute(world.db.pool())
                .await
                .expect("overdue");
        }
        let mut renewal = InOrder::holding(&world, &turn).await;
        let store = without_indexes(&world);
        let (scoped, fleet) = (store.tenant(&turn.tenant), store.fleet());
        let marks = async {
            if overdue {
                return fleet.stop_overdue("main").await.expect("overdue");
            }
            let both = vec![task.run_id, turn.run_id];
            let cancelled = scoped.cancel_runs(both, DAY_MS, None).await;
            cancelled.expect("cancel").requested
        };
        let goes_on = async {
            world.until_somebody_waits().await;
            assert!(renewal.lock(&task).await, "the later one is free");
            renewal.0.commit().await.expect("commit");
        };
        let (marked, ()) = tokio::join!(marks, goes_on);
        assert_eq!(marked, 2, "overdue: {overdue}");
    }
}

/// R3.10, O-31: an end marks the leases of descendants; a cancel waits for no lease while it holds those.
#[tokio::test]
async fn a_cancel_holds_no_lease_of_a_child_while_it_waits_for_another() {
    let world = World::new(&["acme"]).await;
    let (parent, turn) = task_and_turn(&world).await;
    world.child(&parent, "a").await;
    let child = world
        .claim(&parent.tenant, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .remove(0);
    world
        .wait(&parent, on(WaitMode::All, &[child.run_id]))
        .await;
    let mut renewal = InOrder::holding(&world, &turn).await;
    let scoped = world.store.tenant(&turn.tenant);
    let both = vec![parent.run_id, turn.run_id];
    let goes_on = async {
        world.until_somebody_waits().await;
        assert!(renewal.lock(&child).await, "the child's lease is free");
        renewal.0.commit().await.expect("commit");
    };
    let (cancelled, ()) = tokio::join!(scoped.cancel_runs(both, DAY_MS, None), goes_on);
    let cancelled = cancelled.expect("cancel");
    assert_eq!((cancelled.ended, cancelled.requested), (1, 1));
    let told = "SELECT count(*) FROM run_leases WHERE stop_reason = 'parent_ended'";
    assert_eq!(world.count(told).await, 1);
}
