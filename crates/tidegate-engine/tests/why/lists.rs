//! Lists of runs: by state, by page, of one's own tenant only.

use std::collections::BTreeSet;

use tidegate_engine::runs;
use tidegate_model::{
    Code, ConversationId, PoolId, RunId,
    api::{Page, RunFilter, RunView},
    run::RunState,
};

use crate::rig::{World, member, settings, task};

async fn list(world: &World, filter: RunFilter) -> Page<RunView> {
    runs::list::list(&world.engine, &member("acme"), filter)
        .await
        .expect("list")
}

async fn ids(world: &World, filter: RunFilter) -> BTreeSet<RunId> {
    let page = list(world, filter).await;
    page.items.iter().map(|item| item.run_id).collect()
}

/// Runs of acme in different places.
struct Places {
    conversation: ConversationId,
    turns: [RunId; 2],
    dead: RunId,
    done: RunId,
    running: RunId,
    queued: RunId,
    cancelled: RunId,
}

async fn places(world: &World) -> Places {
    let conversation = world.conversation().await;
    let turns = [
        world.turn(conversation).await,
        world.turn(conversation).await,
    ];
    let mut dying = task("chat");
    dying.max_attempts = Some(1);
    let dead = world.submit(dying).await;
    let done = world.submit(task("chat")).await;
    let running = world.submit(task("chat")).await;
    for lease in world.claim(&PoolId::builtin(), 10).await {
        let run = lease.run.run_id;
        if run == dead {
            world.fail(run, lease.fence, Code::WorkerFailed, 0).await;
        } else if run == done {
            world.complete(&lease).await;
        }
    }
    let queued = world.submit(task("other")).await;
    let cancelled = world.submit(task("other")).await;
    runs::cancel::cancel(&world.engine, &member("acme"), cancelled)
        .await
        .expect("cancel");
    Places {
        conversation,
        turns,
        dead,
        done,
        running,
        queued,
        cancelled,
    }
}

/// R3.1: each state is found by its filter.
#[tokio::test]
async fn runs_are_found_by_state() {
    let world = World::new(settings()).await;
    let made = places(&world).await;
    for (state, expected) in [
        // The second turn waits for the first, which is claimed like the business tasks.
        (RunState::Queued, vec![made.queued, made.turns[1]]),
        (RunState::Running, vec![made.running, made.turns[0]]),
        (RunState::Succeeded, vec![made.done]),
        (RunState::Failed, vec![made.dead]),
        (RunState::Cancelled, vec![made.cancelled]),
        (RunState::Expired, vec![]),
        (RunState::Waiting, vec![]),
        (RunState::Review, vec![]),
    ] {
        let filter = RunFilter {
            state: Some(state),
            ..RunFilter::default()
        };
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(ids(&world, filter).await, expected, "{state}");
    }
}

/// R3.11: dead letters, capabilities and conversations are found by their filters, everything without one.
#[tokio::test]
async fn runs_are_found_by_what_they_are() {
    let world = World::new(settings()).await;
    let made = places(&world).await;
    let none = RunFilter::default;
    let dead_letters = RunFilter {
        dead_letters: Some(true),
        ..none()
    };
    let capability = RunFilter {
        capability: Some("other".parse().expect("capability")),
        ..none()
    };
    let conversation = RunFilter {
        conversation_id: Some(made.conversation),
        ..none()
    };
    let mut all = made.turns.to_vec();
    all.extend([
        made.dead,
        made.done,
        made.running,
        made.queued,
        made.cancelled,
    ]);
    for (filter, expected) in [
        (dead_letters, vec![made.dead]),
        (capability, vec![made.queued, made.cancelled]),
        (conversation, made.turns.to_vec()),
        (none(), all),
    ] {
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(ids(&world, filter.clone()).await, expected, "{filter:?}");
    }
    let dead_letter = world.get(made.dead).await;
    assert_eq!(dead_letter.code, Some(Code::AttemptsExhausted));
}

/// Pages are complete and in order; absurd ones are refused with the field's name.
#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat() {
    let world = World::new(settings()).await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(world.submit(task("chat")).await);
    }
    all.reverse();
    for state in [None, Some(RunState::Queued)] {
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let filter = RunFilter {
                state,
                limit: Some(3),
                cursor: cursor.clone(),
                ..RunFilter::default()
            };
            let page = list(&world, filter).await;
            seen.extend(page.items.iter().map(|item| item.run_id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }
    for (limit, cursor, field) in [
        (Some(0), None, "limit"),
        (Some(201), None, "limit"),
        (None, Some("run_1".to_owned()), "cursor"),
    ] {
        let filter = RunFilter {
            limit,
            cursor,
            ..RunFilter::default()
        };
        let error = runs::list::list(&world.engine, &member("acme"), filter)
            .await
            .expect_err("refused");
        assert_eq!(error.problem().field.as_deref(), Some(field));
    }
}

/// R2.2: another tenant's run is not found, by no way of reading.
#[tokio::test]
async fn foreign_runs_are_not_found() {
    let world = World::new(settings()).await;
    let run = world.submit(task("chat")).await;
    let globex = member("globex");
    let get = runs::get::get(&world.engine, &globex, run).await;
    assert_eq!(get.expect_err("foreign").code(), Code::NotFound);
    let explain = runs::explain::explain(&world.engine, &globex, run).await;
    assert_eq!(explain.expect_err("foreign").code(), Code::NotFound);
    let tail = tidegate_engine::events::tail::tail(&world.engine, &globex, run, 0).await;
    assert_eq!(tail.err().expect("foreign").code(), Code::NotFound);
    let page = runs::list::list(&world.engine, &globex, RunFilter::default())
        .await
        .expect("list");
    assert!(page.items.is_empty());
}
