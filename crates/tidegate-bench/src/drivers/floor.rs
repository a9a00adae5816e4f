//! The floor: a table of runs with a lease and a number that fences, `FOR UPDATE SKIP LOCKED`, prepared statements. No
//! attempts, no events, no idempotency, no tenants in the order: what a queue on PostgreSQL can hardly be below.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::{Driver, payload, progress::Progress};
use crate::postgres::connect;

const SCHEMA: &str = "
    CREATE TABLE runs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        tenant integer NOT NULL,
        state smallint NOT NULL DEFAULT 0,
        attempt integer NOT NULL DEFAULT 0,
        lease_until timestamptz,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        payload jsonb NOT NULL);
    CREATE INDEX runs_ready ON runs (id) WHERE state = 0;
    CREATE INDEX runs_leased ON runs (lease_until) WHERE state = 1;";
const INSERT: &str = "INSERT INTO runs (tenant, payload) VALUES ($1, $2)";
const INSERT_AND_TELL: &str = "WITH new AS (INSERT INTO runs (tenant, payload) VALUES ($1, $2) RETURNING id) SELECT pg_notify('runs', '') FROM new";
const INSERT_MANY: &str =
    "INSERT INTO runs (tenant, payload) SELECT * FROM unnest($1::integer[], $2::jsonb[])";
const CLAIM: &str = "
    UPDATE runs r SET state = 1, attempt = attempt + 1, lease_until = clock_timestamp() + interval '30 seconds'
    FROM (SELECT id FROM runs WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) head
    WHERE r.id = head.id RETURNING r.id, r.attempt, r.payload";
// The state is asked for in words that only the primary key fits: `state = 1` would let the planner start from the index
// of all leases and compare each with each.
const COMPLETE: &str = "
    UPDATE runs r SET state = 2, lease_until = NULL
    FROM unnest($1::bigint[], $2::integer[]) AS done(id, attempt)
    WHERE r.id = done.id AND r.attempt = done.attempt AND r.lease_until IS NOT NULL";

const ROWS_PER_INSERT: usize = 1_000;
const LOADERS: usize = 4;
/// Connections that submit at a steady rate, so that one commit does not wait for the one before.
const SENDERS: usize = 4;

pub(super) struct Floor {
    url: String,
    batch: i64,
}

impl Floor {
    /// Claims and completes a hundred at a time.
    pub(super) const fn batched(url: String) -> Self {
        Self { url, batch: 100 }
    }

    /// Claims and completes one at a time.
    pub(super) const fn single(url: String) -> Self {
        Self { url, batch: 1 }
    }

    async fn worker(&self, progress: Progress, woken: Option<Arc<Notify>>) {
        let client = connect(&self.url).await;
        let claim = client.prepare(CLAIM).await.expect("claim");
        let complete = client.prepare(COMPLETE).await.expect("complete");
        loop {
            let taken = self.round(&client, &claim, &complete, &progress).await;
            match &woken {
                _ if taken > 0 => {}
                None => return,
                Some(woken) => {
                    let _ = tokio::time::timeout(Duration::from_secs(1), woken.notified()).await;
                }
            }
        }
    }

    async fn round(
        &self,
        client: &Client,
        claim: &Statement,
        complete: &Statement,
        progress: &Progress,
    ) -> usize {
        let rows = client.query(claim, &[&self.batch]).await.expect("claim");
        let (mut ids, mut attempts) = (Vec::<i64>::new(), Vec::<i32>::new());
        for row in &rows {
            progress.start(&row.get(2));
            ids.push(row.get(0));
            attempts.push(row.get(1));
        }
        if !ids.is_empty() {
            let done = client.execute(complete, &[&ids, &attempts]).await;
            assert_eq!(done.expect("complete"), ids.len() as u64);
            progress.finish(ids.len());
        }
        ids.len()
    }
}

#[async_trait]
impl Driver for Floor {
    async fn setup(&self, _tenants: usize) {
        let client = connect(&self.url).await;
        client.batch_execute(SCHEMA).await.expect("schema");
    }

    async fn load(&self, runs: usize, tenants: usize) -> Duration {
        let clients = join_all((0..LOADERS).map(|_| connect(&self.url))).await;
        let started = Instant::now();
        join_all(
            clients
                .into_iter()
                .enumerate()
                .map(|(loader, client)| async move {
                    let insert = client.prepare(INSERT_MANY).await.expect("insert");
                    let mine: Vec<usize> = (loader..runs).step_by(LOADERS).collect();
                    for numbers in mine.chunks(ROWS_PER_INSERT) {
                        let owners: Vec<i32> = numbers
                            .iter()
                            .map(|n| i32::try_from(n % tenants).expect("few"))
                            .collect();
                        let payloads: Vec<_> = numbers
                            .iter()
                            .map(|n| payload(n % tenants, *n, 0))
                            .collect();
                        client
                            .execute(&insert, &[&owners, &payloads])
                            .await
                            .expect("insert");
                    }
                }),
        )
        .await;
        started.elapsed()
    }

    async fn submit(&self, runs: usize, clients: usize) -> Duration {
        let connections = join_all((0..clients).map(|_| connect(&self.url))).await;
        let started = Instant::now();
        let tasks = connections.into_iter().map(|client| {
            tokio::spawn(async move {
                let insert = client.prepare(INSERT).await.expect("insert");
                for number in 0..runs / clients {
                    client
                        .execute(&insert, &[&0_i32, &payload(0, number, 0)])
                        .await
                        .expect("insert");
                }
            })
        });
        join_all(tasks).await;
        started.elapsed()
    }

    async fn drain(&self, runs: usize, workers: usize) -> Duration {
        let progress = Progress::new(runs);
        let started = Instant::now();
        join_all((0..workers).map(|_| self.worker(progress.clone(), None))).await;
        assert!(progress.is_done(), "the floor has lost a run");
        started.elapsed()
    }

    async fn latency(&self, rate: usize, seconds: usize) -> Vec<f64> {
        let progress = Progress::new(rate * seconds);
        let woken = Arc::new(Notify::new());
        listen(&self.url, Arc::clone(&woken)).await;
        // One at a time is what answers soonest.
        for _ in 0..4 {
            let (one, progress, woken) = (
                Self::single(self.url.clone()),
                progress.clone(),
                Arc::clone(&woken),
            );
            tokio::spawn(async move { one.worker(progress, Some(woken)).await });
        }
        let mut senders = Vec::new();
        for _ in 0..SENDERS {
            let client = Arc::new(connect(&self.url).await);
            senders.push((
                Arc::clone(&client),
                client.prepare(INSERT_AND_TELL).await.expect("insert"),
            ));
        }
        let mut ticks =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).expect("a rate"));
        for number in 0..rate * seconds {
            ticks.tick().await;
            let (client, insert) = senders[number % SENDERS].clone();
            let payload = payload(0, number, progress.now_us());
            tokio::spawn(async move {
                client
                    .query(&insert, &[&0_i32, &payload])
                    .await
                    .expect("insert");
            });
        }
        progress.waits_after(rate).await
    }
}

/// Wakes a worker for each notification.
async fn listen(url: &str, woken: Arc<Notify>) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.expect("listener");
    tokio::spawn(async move {
        while let Some(message) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notification(_) = message.expect("listener") {
                woken.notify_one();
            }
        }
    });
    client.batch_execute("LISTEN runs").await.expect("listen");
    // It must outlive this function; it goes with the process.
    std::mem::forget(client);
}
