//! Attempts that their holders end at the same time.

use std::time::Duration;

use tidegate_model::{Code, PoolId, run::RunState};

use crate::rig::{World, settings, task};

/// R4.2, R4.3: endings that are closed together are closed step by step. What an earlier step has closed stays closed and
/// answered where a later one fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_told_to_those_it_concerns() {
    let world = World::new(settings()).await;
    for _ in 0..3 {
        world.submit(task("chat")).await;
    }
    let leases = world.claim(&PoolId::builtin(), 3).await;
    for sql in [
        "CREATE FUNCTION refuse_failures() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'check_violation'; END $$",
        "CREATE TRIGGER refuse_failures BEFORE INSERT ON run_attempts
         FOR EACH ROW WHEN (NEW.outcome = 'failed') EXECUTE FUNCTION refuse_failures()",
    ] {
        let made = sqlx::query(sql).execute(world.db.pool()).await;
        made.expect("trigger");
    }
    // The first ending is away and waits for this lock; the others gather behind it.
    let mut held = world.db.pool().begin().await.expect("begin");
    sqlx::query("SELECT FROM run_leases WHERE run_id = $1 FOR UPDATE")
        .bind(leases[0].run.run_id.as_uuid())
        .execute(&mut *held)
        .await
        .expect("lock");
    let later = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let release = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            held.commit().await.expect("release");
        };
        let failing = &leases[2];
        tokio::join!(
            world.try_complete(&leases[1]),
            world.try_fail(failing.run.run_id, failing.fence, Code::WorkerFailed, 0),
            release
        )
    };
    let (first, (completed, failed, ())) = tokio::join!(world.try_complete(&leases[0]), later);
    for answer in [first, completed] {
        assert_eq!(answer.expect("closed").state, RunState::Succeeded);
    }
    let error = failed.expect_err("refused by the trigger");
    assert_ne!(error.code(), Code::LeaseLost, "it still holds its lease");
    assert_eq!(
        world.get(leases[2].run.run_id).await.state,
        RunState::Running
    );
}
