//! One prepared call per admission, a connection per caller up to 32.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Measured;
use futures::future::join_all;
use tidegate_bench::postgres::{Postgres, connect, quiesce};
use tidegate_model::AdmissionId;
use tokio::sync::Semaphore;

/// As many as are worth it; more only queue in the server.
const CONNECTIONS: usize = 32;

pub(crate) async fn measure(
    server: &Postgres,
    url: &str,
    callers: usize,
    length: Duration,
) -> Measured {
    let client = connect(url).await;
    let made = client.batch_execute(include_str!("naive.sql")).await;
    made.expect("the naive ledger");
    quiesce(url).await;
    let mut clients = Vec::new();
    for _ in 0..callers.min(CONNECTIONS) {
        let client = connect(url).await;
        let sql = "SELECT naive_admit($1, $2, $3, $4, $5)";
        let statement = client.prepare(sql).await.expect("prepared");
        clients.push((client, statement, Semaphore::new(1)));
    }
    let clients = Arc::new(clients);
    let before = server.cpu_s();
    let started = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let clients = Arc::clone(&clients);
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut number = caller;
            while started.elapsed() < length {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let tenant = i32::try_from(number % 1_000).expect("small") + 1;
                let tool = i32::try_from((number >> 20) % 10).expect("small") + 3;
                let digest = number.to_le_bytes().repeat(4);
                let (wanted, amounts) = (vec![1, 2, tool, 1_000 + tenant], vec![1_i64, 1, 1, 500]);
                let called = Instant::now();
                let (client, statement, turn) = &clients[caller % clients.len()];
                let _turn = turn.acquire().await.expect("open");
                let id = AdmissionId::new().as_uuid();
                let admitted = client
                    .query_one(statement, &[&id, &tenant, &digest, &wanted, &amounts])
                    .await
                    .expect("admitted");
                assert_eq!(admitted.get::<_, String>(0), "ACTIVE");
                latencies.push(called.elapsed().as_secs_f64() * 1_000.0);
            }
            latencies
        })
    });
    let latencies = join_all(tasks).await;
    Measured {
        elapsed_s: started.elapsed().as_secs_f64(),
        server_cpu_s: server.cpu_s() - before,
        latencies: latencies
            .into_iter()
            .flat_map(|own| own.expect("a caller"))
            .collect(),
    }
}
