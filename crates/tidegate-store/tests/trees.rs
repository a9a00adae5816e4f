//! Children, waits, and ends that go down and up a tree of runs.

#![expect(clippy::expect_used, reason = "tests fail loudly")]

mod rig;

use std::sync::Arc;

use chrono::Duration;
use rig::{
    DAY_MS, World,
    family::{FAILED, on, question},
    held, tenant,
};
use tidegate_model::{
    Code, KeyId, RunId,
    api::AnswerInput,
    run::{AskKind, QuotaBucket, RunKind, RunState, WaitMode, WaitOn},
};
use tidegate_policy::{retry::Report, waitgraph::ChildRefusal};
use tidegate_store::{
    attempts::{
        close::Closer,
        end_queued::EndQueued,
        open::OpenedLease,
        waits::{Answered, Answerer, Wait},
    },
    runs::SubmittedChild,
};

const TASK: RunKind = RunKind::BusinessTask;

/// A running business task of acme: whoever starts children.
async fn parent(world: &World) -> OpenedLease {
    let acme = tenant("acme");
    world.submit(&acme, TASK).await;
    world
        .claim(&acme, QuotaBucket::Uncounted, 1, None, 30_000)
        .await
        .pop()
        .expect("the parent")
}

/// R3.13, R3.5, O-08: parent, child and grandchild finish with one worker and a cap of 1; who waits holds nothing.
#[tokio::test]
async fn a_chain_finishes_with_one_worker_and_a_cap_of_one() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    let conversation = world.conversation(&acme).await;
    let top = world.submit_turn(&acme, conversation).await;
    let turn = world
        .claim(&acme, QuotaBucket::Foreground, 1, Some(1), 30_000)
        .await
        .remove(0);
    let child = world.child(&turn, "a").await;
    assert_eq!(
        world.wait(&turn, on(WaitMode::Any, &[child])).await.state(),
        RunState::Waiting
    );
    assert_eq!(world.count("SELECT count(*) FROM run_leases").await, 0);
    let middle = world.take_child(&turn).await;
    let grandchild = world.child(&middle, "a").await;
    world.wait(&middle, on(WaitMode::All, &[grandchild])).await;
    let bottom = world.take_child(&turn).await;
    assert_eq!(bottom.run_id, grandchild);
    world.end(&bottom, Report::Completed).await;
    let middle = world.take_child(&turn).await;
    // Waiting cost no attempt, and the fence rose.
    assert_eq!((middle.run_id, middle.attempt), (child, 1));
    assert_eq!(middle.fence.number, 2);
    world.end(&middle, Report::Completed).await;
    let resumed = world.take(&turn, QuotaBucket::Foreground).await;
    assert_eq!((resumed.run_id, resumed.attempt), (top, 1));
    world.end(&resumed, Report::Completed).await;
    assert_eq!(
        world
            .count("SELECT count(*) FROM run_ends WHERE state = 'succeeded'")
            .await,
        3
    );
    world.audit().await;
}

/// R3.13, O-07: every way in which a child ends wakes its parent, once, at the head of its tenant.
#[tokio::test]
async fn any_end_of_a_child_wakes_its_parent_once() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    for (how, state, code) in [
        ("completes", RunState::Succeeded, None),
        ("fails", RunState::Failed, Some(Code::WorkerFailed)),
        ("is cancelled", RunState::Cancelled, Some(Code::Cancelled)),
        ("is unroutable", RunState::Failed, Some(Code::Unsatisfiable)),
        (
            "waits too long",
            RunState::Expired,
            Some(Code::QueueExpired),
        ),
    ] {
        let lease = parent(&world).await;
        let child = world.child(&lease, "a").await;
        let claimed = match how {
            "completes" | "fails" => Some(world.take_child(&lease).await),
            _ => None,
        };
        world.wait(&lease, on(WaitMode::Any, &[child])).await;
        world.submit(&acme, TASK).await;
        match (how, &claimed) {
            ("completes", Some(claimed)) => world.end(claimed, Report::Completed).await,
            (_, Some(claimed)) => world.end(claimed, FAILED).await,
            (_, None) => {
                let end = EndQueued {
                    tenant: acme.clone(),
                    run_id: child,
                    state,
                    code: code.expect("a code"),
                    detail: None,
                };
                let ended = world.store.fleet().end_queued(vec![end], DAY_MS).await;
                assert_eq!(ended.expect("end").len(), 1);
            }
        }
        assert_eq!(world.state(&lease, child).await, (state, code), "{how}");
        let next = world.take_child(&lease).await;
        assert_eq!(next.run_id, lease.run_id, "{how}: before what came first");
        assert_eq!(world.events_of(lease.run_id, "run.woken").await, 1);
        world.end(&next, Report::Completed).await;
        let other = world.take_child(&lease).await;
        world.end(&other, Report::Completed).await;
    }
    world.audit().await;
}

/// R3.13: `any` is over with the first end, `all` with the last, and what has ended before is not waited for.
#[tokio::test]
async fn waits_are_over_when_enough_children_have_ended() {
    let world = World::new(&["acme"]).await;
    let lease = parent(&world).await;
    let mut runs = Vec::new();
    for key in ["a", "b", "c"] {
        runs.push(world.child(&lease, key).await);
    }
    world.wait(&lease, on(WaitMode::All, &runs)).await;
    for left in (0..3).rev() {
        let child = world.take_child(&lease).await;
        world.end(&child, Report::Completed).await;
        let expected = if left == 0 {
            RunState::Queued
        } else {
            RunState::Waiting
        };
        assert_eq!(world.state(&lease, lease.run_id).await.0, expected);
    }
    let again = world.take_child(&lease).await;
    // All have ended before the run is parked: parking finds it.
    let fleet = world.store.fleet();
    let known = fleet.awaitable(&held(&again), Some(&runs[..1])).await;
    assert_eq!(known.expect("awaitable"), runs[..1]);
    assert_eq!(
        fleet.awaitable(&held(&again), None).await.expect("none"),
        []
    );
    let closed = world.wait(&again, on(WaitMode::Any, &runs)).await;
    assert_eq!(closed.state(), RunState::Queued);
    let again = world.take_child(&lease).await;
    let closed = world.wait(&again, on(WaitMode::All, &runs)).await;
    assert_eq!(closed.state(), RunState::Queued);
    let again = world.take_child(&lease).await;
    world.end(&again, Report::Completed).await;
    world.audit().await;
}

/// R3.13: a child that ends while its parent parks wakes it, whoever of the two is first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_parking_and_an_end() {
    let world = Arc::new(World::new(&["acme"]).await);
    for round in 0..60 {
        let lease = parent(&world).await;
        let child = world.child(&lease, "a").await;
        let claimed = world.take_child(&lease).await;
        let (parks, ends) = (Arc::clone(&world), Arc::clone(&world));
        let parking = lease.clone();
        world
            .both(
                async move { parks.wait(&parking, on(WaitMode::Any, &[child])).await },
                async move { ends.end(&claimed, Report::Completed).await },
            )
            .await;
        assert_eq!(
            world.state(&lease, lease.run_id).await.0,
            RunState::Queued,
            "round {round}"
        );
        let resumed = world.take_child(&lease).await;
        world.end(&resumed, Report::Completed).await;
    }
    world.audit().await;
}

/// R3.10: a run that ends without success takes its descendants along, wherever they stand; a success does not.
#[tokio::test]
async fn an_end_without_success_ends_descendants() {
    let world = World::new(&["acme"]).await;
    for report in [FAILED, Report::Completed] {
        let lease = parent(&world).await;
        let waiting = world.child(&lease, "waiting").await;
        let middle = world.take_child(&lease).await;
        let running = world.child(&middle, "running").await;
        let bottom = world.take_child(&lease).await;
        let queued = world.child(&middle, "queued").await;
        world
            .wait(&middle, on(WaitMode::All, &[running, queued]))
            .await;
        let mut later = world.new_child(&lease, "later").await;
        later.run_at = Some(world.clock().await + Duration::hours(1));
        let later_id = later.run_id;
        world.submit_child(&lease, later).await;
        world.end(&lease, report).await;
        let told = world
            .count("SELECT count(*) FROM run_leases WHERE stop_reason = 'parent_ended'")
            .await;
        if report == Report::Completed {
            assert_eq!(told, 0);
            assert_eq!(world.state(&lease, waiting).await.0, RunState::Waiting);
            world.end(&bottom, Report::Completed).await;
            assert_eq!(world.state(&lease, running).await.0, RunState::Succeeded);
            assert_eq!(world.state(&lease, queued).await.0, RunState::Queued);
        } else {
            assert_eq!(told, 1);
            let ended = (RunState::Cancelled, Some(Code::ParentEnded));
            for run in [waiting, queued, later_id] {
                assert_eq!(world.state(&lease, run).await, ended);
            }
            // Whatever its holder reports, it was told to stop.
            world.end(&bottom, Report::Completed).await;
            assert_eq!(world.state(&lease, running).await, ended);
        }
        world.audit().await;
    }
}

/// R3.10: a child comes before its parent's end and ends with it, or it is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_child_outlives_the_race_with_its_parents_end() {
    let world = Arc::new(World::new(&["acme"]).await);
    let mut accepted = 0;
    for _ in 0..60 {
        let lease = parent(&world).await;
        let child = world.new_child(&lease, "a").await;
        let id = child.run_id;
        let (submits, ends) = (Arc::clone(&world), Arc::clone(&world));
        let (submitting, ending) = (lease.clone(), lease.clone());
        let (submitted, ()) = world
            .both(
                async move { submits.submit_child(&submitting, child).await },
                async move { ends.end(&ending, FAILED).await },
            )
            .await;
        match submitted {
            SubmittedChild::Accepted { .. } => {
                accepted += 1;
                let ended = (RunState::Cancelled, Some(Code::ParentEnded));
                assert_eq!(world.state(&lease, id).await, ended);
            }
            other => assert_eq!(other, SubmittedChild::LeaseLost),
        }
        let fleet = world.store.fleet();
        let pool = "builtin".parse().expect("pool");
        let attempt = fleet.ended_attempt(&pool, lease.run_id, lease.fence).await;
        assert!(attempt.expect("look").expect("there").run_ended);
    }
    assert!(accepted > 0, "the child was never first");
    world.audit().await;
}

/// R3.13, O-08: a wide tree stops at its limit and goes on when children have ended.
#[tokio::test]
async fn a_wide_tree_stops_at_its_limits() {
    let world = World::new(&["acme", "globex"]).await;
    let globex = tenant("globex");
    let lease = parent(&world).await;
    for number in 0..32 {
        world.child(&lease, &format!("c{number}")).await;
    }
    let first = world.take_child(&lease).await;
    for from in [&lease, &first] {
        assert_eq!(
            world.try_child(from, "one more").await,
            SubmittedChild::Refused(ChildRefusal::TooManyOpen { most: 32 })
        );
    }
    // The same key is the same child, at the limit too.
    assert_eq!(
        world.try_child(&lease, "c0").await,
        SubmittedChild::Repeated(first.run_id)
    );
    let other = world.submit(&globex, RunKind::BusinessTask).await;
    let claimed = world
        .claim(&globex, QuotaBucket::Uncounted, 1, None, 30_000)
        .await;
    assert_eq!(claimed[0].run_id, other, "another tenant is not held up");
    world.end(&first, Report::Completed).await;
    world.child(&lease, "one more").await;
    let mut deep = lease.clone();
    world.end(&lease, FAILED).await;
    for depth in 1..=8 {
        deep = if depth == 1 {
            parent(&world).await
        } else {
            deep
        };
        world.child(&deep, "down").await;
        deep = world.take_child(&deep).await;
    }
    assert_eq!(
        world.try_child(&deep, "down").await,
        SubmittedChild::Refused(ChildRefusal::TooDeep { most: 8 })
    );
    world.audit().await;
}

/// R3.13: a root has 512 descendants in its life.
#[tokio::test]
async fn a_tree_has_a_total() {
    let world = World::new(&["acme"]).await;
    let lease = parent(&world).await;
    for number in 0..512 {
        world.child(&lease, &format!("c{number}")).await;
        if number % 32 == 31 {
            let children = world
                .claim(&lease.tenant, QuotaBucket::Uncounted, 32, None, 30_000)
                .await;
            for child in children {
                world.end(&child, Report::Completed).await;
            }
        }
    }
    assert_eq!(
        world.try_child(&lease, "one more").await,
        SubmittedChild::Refused(ChildRefusal::TooMany { most: 512 })
    );
}

/// R3.2, O-07: a key names one child; a stopped parent, a suspended tenant and a stale fence start none.
#[tokio::test]
async fn children_are_refused_at_once() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    let lease = parent(&world).await;
    let first = world.child(&lease, "a").await;
    assert_eq!(
        world.try_child(&lease, "a").await,
        SubmittedChild::Repeated(first)
    );
    let mut other = world.new_child(&lease, "a").await;
    other.request_digest = [8; 32];
    assert_eq!(
        world.submit_child(&lease, other).await,
        SubmittedChild::Conflict
    );
    let mut unservable = world.new_child(&lease, "b").await;
    unservable.unservable = Some("no pool".to_owned());
    assert_eq!(
        world.submit_child(&lease, unservable).await,
        SubmittedChild::Unservable("no pool".to_owned())
    );
    let mut stale = lease.clone();
    stale.fence.number += 1;
    assert_eq!(
        world.try_child(&stale, "b").await,
        SubmittedChild::LeaseLost
    );
    let set = |state: &'static str| {
        sqlx::query("UPDATE tenants SET state = $1")
            .bind(state)
            .execute(world.db.pool())
    };
    set("suspended").await.expect("suspend");
    assert_eq!(
        world.try_child(&lease, "b").await,
        SubmittedChild::TenantInactive
    );
    set("active").await.expect("resume");
    world
        .store
        .tenant(&acme)
        .cancel_runs(vec![lease.run_id], DAY_MS, None)
        .await
        .expect("stop");
    assert_eq!(
        world.try_child(&lease, "b").await,
        SubmittedChild::ParentStops
    );
    world.audit().await;
}

/// R3.10: a parent that backs off or waits is cancelled with its children; a lost lease of a parent leaves them alone.
#[tokio::test]
async fn a_parent_without_a_lease_takes_its_children_along() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    let lease = parent(&world).await;
    let child = world.child(&lease, "a").await;
    world.expire_leases().await;
    let taken = world
        .close(&lease, Report::LeaseLost, Closer::Takeover)
        .await;
    assert_eq!(taken[0].state(), RunState::Queued);
    assert_eq!(world.state(&lease, child).await.0, RunState::Queued);
    let second = world.take_child(&lease).await;
    assert_eq!(second.run_id, lease.run_id);
    assert_eq!(
        world.try_child(&second, "a").await,
        SubmittedChild::Repeated(child)
    );
    world.wait(&second, on(WaitMode::Any, &[child])).await;
    let mine = world.store.tenant(&acme);
    let cancelled = mine.cancel_runs(vec![lease.run_id], DAY_MS, None).await;
    assert_eq!(cancelled.expect("cancel").ended, 1);
    let ended = (RunState::Cancelled, Some(Code::ParentEnded));
    assert_eq!(world.state(&lease, child).await, ended);
    world.audit().await;
}

/// R3.10, R3.11: a dead child under a parent that failed stays dead, and a lease that its parent's end has passed over is
/// found by the sweep.
#[tokio::test]
async fn orphans_are_stopped_and_stay_dead() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    let lease = parent(&world).await;
    let dead = world.child(&lease, "dead").await;
    let claimed = world.take_child(&lease).await;
    world.end(&claimed, FAILED).await;
    world.child(&lease, "orphan").await;
    world.take_child(&lease).await;
    world.end(&lease, FAILED).await;
    sqlx::query("UPDATE run_leases SET stop_reason = NULL, stop_requested_at = NULL")
        .execute(world.db.pool())
        .await
        .expect("as if it had been passed over");
    let fleet = world.store.fleet();
    assert_eq!(fleet.stop_orphans("main").await.expect("sweep"), 1);
    assert_eq!(fleet.stop_orphans("main").await.expect("sweep"), 0);
    let reopened = world
        .store
        .tenant(&acme)
        .reopen(vec![dead], "me".to_owned(), DAY_MS, None)
        .await;
    assert_eq!(reopened.expect("reopen"), Vec::<RunId>::new());
    world.audit().await;
}

/// R3.15: of two answers one is taken; the same one again changes nothing; a time wakes by itself, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_and_times_wake_once() {
    let world = Arc::new(World::new(&["acme"]).await);
    let lease = parent(&world).await;
    let run = lease.run_id;
    world.wait(&lease, question(AskKind::Confirmation)).await;
    let answer = |world: Arc<World>, confirmed: bool, ask_no: i64| async move {
        let answer = AnswerInput {
            ask_no: Some(ask_no),
            confirmed: Some(confirmed),
            ..AnswerInput::default()
        };
        let by = Answerer {
            key: KeyId::new(),
            user: Some("ann".to_owned()),
        };
        let acme = world.store.tenant(&tenant("acme"));
        acme.answer_input(run, answer, by, DAY_MS, None)
            .await
            .expect("answer")
    };
    assert_eq!(
        answer(Arc::clone(&world), true, 7).await,
        Answered::NotAsked
    );
    let (one, other) = world
        .both(
            answer(Arc::clone(&world), true, 1),
            answer(Arc::clone(&world), false, 1),
        )
        .await;
    let mut outcomes = [format!("{one:?}"), format!("{other:?}")];
    outcomes.sort();
    assert_eq!(outcomes, ["Differs", "Taken"]);
    let yes = one == Answered::Taken;
    assert_eq!(answer(Arc::clone(&world), yes, 1).await, Answered::Repeated);
    assert_eq!(world.events_of(run, "run.woken").await, 1);
    let inputs = world
        .store
        .tenant(&lease.tenant)
        .inputs(run)
        .await
        .expect("inputs");
    assert_eq!((inputs.len(), inputs[0].answer.confirmed), (1, Some(yes)));
    let resumed = world.take_child(&lease).await;
    let until = Wait {
        on: WaitOn::Time,
        until: Some(world.clock().await - Duration::seconds(1)),
        ask: None,
        ..question(AskKind::Text)
    };
    assert_eq!(world.wait(&resumed, until).await.state(), RunState::Waiting);
    let fleet = world.store.fleet();
    let (one, other) = tokio::join!(
        fleet.wake_waits_due("main", DAY_MS, 10),
        fleet.wake_waits_due("main", DAY_MS, 10)
    );
    assert_eq!(one.expect("wake") + other.expect("wake"), 1);
    assert_eq!(world.events_of(run, "run.woken").await, 2);
    world.audit().await;
}

/// R3.6: a child of a background root takes no slot of its tenant and stands in a lane of its own.
#[tokio::test]
async fn children_of_background_roots_take_no_slot() {
    let world = World::new(&["acme"]).await;
    let acme = tenant("acme");
    world.submit(&acme, RunKind::BackgroundWork).await;
    let root = world
        .claim(&acme, QuotaBucket::Background, 1, Some(1), 30_000)
        .await
        .remove(0);
    let fleet = world.store.fleet();
    let parentage = fleet.parentage(&acme, root.run_id).await.expect("look");
    assert!(parentage.expect("known").children_of_background);
    let child = world.child(&root, "a").await;
    let claimed = world.take_child(&root).await;
    assert_eq!((claimed.run_id, claimed.of_background), (child, true));
    assert_eq!(claimed.parent_run_id, Some(root.run_id));
    assert_eq!(
        world.count("SELECT count(*) FROM background_slots").await,
        1
    );
    let grandchild = world.child(&claimed, "b").await;
    let below = world
        .store
        .tenant(&acme)
        .descendants(root.run_id, true)
        .await;
    let below: Vec<_> = below
        .expect("tree")
        .iter()
        .map(|kin| (kin.run_id, kin.depth))
        .collect();
    assert_eq!(below, [(child, 1), (grandchild, 2)]);
    world.wait(&root, on(WaitMode::Any, &[child])).await;
    assert_eq!(
        world.count("SELECT count(*) FROM background_slots").await,
        0
    );
    world.audit().await;
}
