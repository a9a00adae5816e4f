//! Lists of runs: by state, by page, of one's own tenant only.

use std::collections::BTreeSet;

use tidegate_engine::runs;
use tidegate_model::{
    Code, PoolId, RunId,
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

/// R3.1, R3.11: each state is found by its filter, dead letters by theirs, a conversation by its.
#[tokio::test]
async fn runs_are_found_by_state_capability_and_conversation() {
    let world = World::new(settings()).await;
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

    let state = |state| RunFilter {
        state: Some(state),
        ..RunFilter::default()
    };
    for (filter, expected) in [
        // The second turn waits for the first, which is claimed like the business tasks.
        (state(RunState::Queued), vec![queued, turns[1]]),
        (state(RunState::Running), vec![running, turns[0]]),
        (state(RunState::Succeeded), vec![done]),
        (state(RunState::Failed), vec![dead]),
        (state(RunState::Cancelled), vec![cancelled]),
        (state(RunState::Expired), vec![]),
        (state(RunState::Waiting), vec![]),
        (state(RunState::Review), vec![]),
        (
            RunFilter {
                dead_letters: Some(true),
                ..RunFilter::default()
            },
            vec![dead],
        ),
        (
            RunFilter {
                capability: Some("other".parse().expect("capability")),
                ..RunFilter::default()
            },
            vec![queued, cancelled],
        ),
        (
            RunFilter {
                conversation_id: Some(conversation),
                ..RunFilter::default()
            },
            turns.to_vec(),
        ),
        (
            RunFilter::default(),
            vec![turns[0], turns[1], dead, done, running, queued, cancelled],
        ),
    ] {
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(ids(&world, filter.clone()).await, expected, "{filter:?}");
    }
    let dead_letter = world.get(dead).await;
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
