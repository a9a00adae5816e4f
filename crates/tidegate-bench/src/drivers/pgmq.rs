//! PGMQ: its SQL, driven as we drive ours: a hundred messages per read, deleted as an array.
//!
//! `PGMQ_SQL` names the file that installs it; `bench/queue/install` says where that is.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::future::join_all;
use tokio_postgres::types::Type;

use super::{Driver, payload, progress::Progress};
use crate::postgres::connect;

const READ: &str = "SELECT msg_id, message FROM pgmq.read('q', 30, $1)";
// The server looks again every 10 ms, for a second.
const READ_WAITING: &str = "SELECT msg_id, message FROM pgmq.read_with_poll('q', 30, $1, 1, 10)";
const DELETE: &str = "SELECT count(*) FROM pgmq.delete('q', $1::bigint[])";
const SEND: &str = "SELECT pgmq.send('q', $1::jsonb)";
const SEND_MANY: &str = "SELECT count(*) FROM pgmq.send_batch('q', $1::jsonb[])";

const BATCH: i32 = 100;
const MESSAGES_PER_SEND: usize = 1_000;
const LOADERS: usize = 4;
/// Connections that submit at a steady rate, so that one commit does not wait for the one before.
const SENDERS: usize = 4;

pub(super) struct Pgmq {
    url: String,
}

impl Pgmq {
    pub(super) const fn new(url: String) -> Self {
        Self { url }
    }

    async fn worker(&self, read: &str, batch: i32, progress: Progress) {
        let client = connect(&self.url).await;
        let read = client
            .prepare_typed(read, &[Type::INT4])
            .await
            .expect("read");
        let delete = client.prepare(DELETE).await.expect("delete");
        while !progress.all_started() {
            let rows = client.query(&read, &[&batch]).await.expect("read");
            let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
            for row in &rows {
                ids.push(row.get(0));
                progress.start(&row.get(1));
            }
            if !ids.is_empty() {
                client.query(&delete, &[&ids]).await.expect("delete");
                progress.finish(ids.len());
            }
        }
    }
}

#[async_trait]
impl Driver for Pgmq {
    async fn setup(&self, _tenants: usize) {
        let path = std::env::var("PGMQ_SQL").expect("PGMQ_SQL names the file that installs PGMQ");
        let sql = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let client = connect(&self.url).await;
        client.batch_execute(&sql).await.expect("pgmq");
        client
            .batch_execute("SELECT pgmq.create('q')")
            .await
            .expect("a queue");
    }

    async fn load(&self, runs: usize, tenants: usize) -> Duration {
        let clients = join_all((0..LOADERS).map(|_| connect(&self.url))).await;
        let started = Instant::now();
        join_all(
            clients
                .into_iter()
                .enumerate()
                .map(|(loader, client)| async move {
                    let send = client.prepare(SEND_MANY).await.expect("send");
                    let mine: Vec<usize> = (loader..runs).step_by(LOADERS).collect();
                    for numbers in mine.chunks(MESSAGES_PER_SEND) {
                        let messages: Vec<_> = numbers
                            .iter()
                            .map(|n| payload(n % tenants, *n, 0))
                            .collect();
                        client.query(&send, &[&messages]).await.expect("send");
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
                let send = client.prepare(SEND).await.expect("send");
                for number in 0..runs / clients {
                    client
                        .query(&send, &[&payload(0, number, 0)])
                        .await
                        .expect("send");
                }
            })
        });
        join_all(tasks).await;
        started.elapsed()
    }

    async fn drain(&self, runs: usize, workers: usize) -> Duration {
        let progress = Progress::new(runs);
        let started = Instant::now();
        join_all((0..workers).map(|_| self.worker(READ, BATCH, progress.clone()))).await;
        assert!(progress.is_done(), "a message was lost");
        started.elapsed()
    }

    async fn latency(&self, rate: usize, seconds: usize) -> Vec<f64> {
        let progress = Progress::new(rate * seconds);
        for _ in 0..2 {
            let (one, progress) = (Self::new(self.url.clone()), progress.clone());
            tokio::spawn(async move { one.worker(READ_WAITING, 10, progress).await });
        }
        let mut senders = Vec::new();
        for _ in 0..SENDERS {
            let client = Arc::new(connect(&self.url).await);
            senders.push((
                Arc::clone(&client),
                client.prepare(SEND).await.expect("send"),
            ));
        }
        let mut ticks =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).expect("a rate"));
        for number in 0..rate * seconds {
            ticks.tick().await;
            let (client, send) = senders[number % SENDERS].clone();
            let message = payload(0, number, progress.now_us());
            tokio::spawn(async move {
                client.query(&send, &[&message]).await.expect("send");
            });
        }
        progress.waits_after(rate).await
    }
}
