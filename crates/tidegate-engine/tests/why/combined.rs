//! Calls that come at the same time and share a statement.

use std::time::Duration;

use futures::future::join_all;

use crate::rig::{World, acme, settings, task};

/// How many transactions have written the tenant's runs.
async fn statements(world: &World) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT xmin::text) FROM agent_runs WHERE tenant = $1")
        .bind(acme().as_str())
        .fetch_one(world.db.pool())
        .await
        .expect("count")
}

/// R3.1: what one task submits in one go is one statement, whatever other threads are free to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_of_the_same_moment_share_a_statement() {
    let world = World::new(settings()).await;
    // The requirement class is looked up once.
    world.submit(task("chat")).await;
    assert_eq!(statements(&world).await, 1);
    join_all((0..40).map(|_| world.submit(task("chat")))).await;
    assert_eq!(statements(&world).await, 2);
}

/// R3.1: a caller that goes away before its batch has begun strands nobody who comes after it.
#[tokio::test]
async fn a_caller_that_goes_away_strands_nobody() {
    let world = World::new(settings()).await;
    world.submit(task("chat")).await;
    for polls in 1..4 {
        let mut left = Box::pin(world.submit(task("chat")));
        for _ in 0..polls {
            assert!(futures::poll!(&mut left).is_pending());
        }
        drop(left);
        let next = tokio::time::timeout(Duration::from_secs(10), world.submit(task("chat")));
        next.await.expect("answered");
    }
}
