use tidegate_engine::repeats::forget;

use crate::rig::World;

/// R3.1: a key is remembered for 24 hours at least, and forgotten in batches after that.
#[tokio::test]
async fn keys_are_forgotten_after_their_time() {
    let world = World::new().await;
    let engine = world.engine(World::settings()).await;
    sqlx::query(
        "INSERT INTO idempotency_records (owner, idempotency_key, route, request_digest, answer, finished, created_at)
         SELECT '', 'key-' || n, 'POST /v1/admin/tenants', sha256('x'), 'null', true,
                now() - CASE WHEN n <= 6000 THEN interval '25 hours' ELSE interval '23 hours' END
         FROM generate_series(1, 6010) n",
    )
    .execute(world.db.pool())
    .await
    .unwrap();
    assert_eq!(forget::pass(&engine).await.unwrap(), 6_000);
    assert_eq!(forget::pass(&engine).await.unwrap(), 0);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_records")
        .fetch_one(world.db.pool())
        .await
        .unwrap();
    assert_eq!(left, 10);
}
