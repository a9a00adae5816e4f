//! The floor with everything a run of ours leaves behind, in bare statements: insert-only runs with an idempotency key,
//! narrow queue and leases, attempts, ends and events. It is what our tables cost when nobody decides anything.
//!
//! It only counts as a floor while its server CPU per run is at most 1.2 times that of the plain floor in the same
//! rounds; the comparison prints that.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use tidegate_model::RunId;
use uuid::Uuid;

use super::{Driver, payload, progress::Progress};
use crate::postgres::{connect, number};

const SCHEMA: &str = "
    CREATE TABLE agent_runs (
        tenant integer NOT NULL, run_id uuid NOT NULL, bucket smallint NOT NULL, kind smallint NOT NULL,
        priority smallint NOT NULL, conversation uuid, parent uuid, root uuid NOT NULL, class integer NOT NULL,
        idempotency_key text, request_digest bytea NOT NULL, created_at timestamptz NOT NULL, deadline timestamptz,
        payload jsonb NOT NULL, PRIMARY KEY (tenant, run_id));
    CREATE UNIQUE INDEX agent_runs_key ON agent_runs (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
    CREATE TABLE run_queue (
        bucket smallint NOT NULL, tenant integer NOT NULL, run_id uuid NOT NULL, attempt integer NOT NULL,
        fence bigint NOT NULL, queued_at timestamptz NOT NULL, PRIMARY KEY (bucket, tenant, run_id))
        WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
    CREATE TABLE run_leases (
        bucket smallint NOT NULL, tenant integer NOT NULL, run_id uuid NOT NULL, attempt integer NOT NULL,
        fence bigint NOT NULL, holder integer NOT NULL, started_at timestamptz NOT NULL,
        lease_until timestamptz NOT NULL, PRIMARY KEY (bucket, tenant, run_id))
        WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
              autovacuum_vacuum_cost_delay = 0);
    CREATE TABLE run_attempts (
        tenant integer NOT NULL, run_id uuid NOT NULL, attempt integer NOT NULL, fence bigint NOT NULL,
        holder integer NOT NULL, started_at timestamptz NOT NULL, ended_at timestamptz NOT NULL,
        outcome smallint NOT NULL, PRIMARY KEY (tenant, run_id, attempt));
    CREATE TABLE run_ends (
        tenant integer NOT NULL, run_id uuid NOT NULL, state smallint NOT NULL, ended_at timestamptz NOT NULL,
        result jsonb, PRIMARY KEY (tenant, run_id));
    CREATE INDEX run_ends_dead ON run_ends (tenant, run_id) WHERE state = 2;
    CREATE TABLE run_events (
        tenant integer NOT NULL, run_id uuid NOT NULL, seq integer NOT NULL, at timestamptz NOT NULL,
        kind smallint NOT NULL, body jsonb NOT NULL, PRIMARY KEY (tenant, run_id, seq));";
const SUBMIT: &str = "
    WITH given AS (
        SELECT g.*, clock.now FROM unnest($1::integer[], $2::uuid[], $3::text[], $4::jsonb[])
            AS g(tenant, run_id, key, payload) CROSS JOIN (SELECT clock_timestamp() AS now) clock
    ), new AS (
        INSERT INTO agent_runs (tenant, run_id, bucket, kind, priority, root, class, idempotency_key, request_digest,
            created_at, payload)
        SELECT tenant, run_id, 0, 0, 0, run_id, 1, key, decode(md5(key), 'hex'), now, payload FROM given
        ON CONFLICT DO NOTHING RETURNING tenant, run_id, created_at
    ), queued AS (
        INSERT INTO run_queue SELECT 0, tenant, run_id, 0, 0, created_at FROM new
    )
    INSERT INTO run_events SELECT tenant, run_id, 1, created_at, 1, '{}' FROM new";
const CLAIM: &str = "
    WITH asked AS (
        SELECT * FROM unnest($1::integer[], $2::integer[]) AS a(tenant, take)
    ), heads AS MATERIALIZED (
        SELECT q.* FROM asked a CROSS JOIN LATERAL (
            SELECT q.ctid AS at, q.tenant, q.run_id, q.attempt, q.fence FROM run_queue q
            WHERE q.bucket = 0 AND q.tenant = a.tenant ORDER BY q.run_id LIMIT a.take FOR UPDATE SKIP LOCKED) q
    ), gone AS (
        DELETE FROM run_queue WHERE ctid = ANY (ARRAY (SELECT at FROM heads))
    ), leased AS (
        INSERT INTO run_leases
        SELECT 0, h.tenant, h.run_id, h.attempt + 1, h.fence + 1, $3, clock.now, clock.now + interval '30 seconds'
        FROM heads h CROSS JOIN (SELECT clock_timestamp() AS now) clock
    )
    -- A scalar query is always a look-up by key; a join may become a scan of all runs.
    SELECT h.tenant, h.run_id, h.fence + 1,
           (SELECT r.payload FROM agent_runs r WHERE r.tenant = h.tenant AND r.run_id = h.run_id)
    FROM heads h";
const COMPLETE: &str = "
    WITH given AS (
        SELECT * FROM unnest($1::integer[], $2::uuid[], $3::bigint[]) AS g(tenant, run_id, fence)
    ), gone AS (
        DELETE FROM run_leases l WHERE l.ctid = ANY (ARRAY (
            SELECT (SELECT k.ctid FROM run_leases k WHERE k.bucket = 0 AND k.tenant = g.tenant
                    AND k.run_id = g.run_id AND k.fence = g.fence) FROM given g))
        RETURNING l.*, clock_timestamp() AS now
    ), attempts AS (
        INSERT INTO run_attempts SELECT tenant, run_id, attempt, fence, holder, started_at, now, 1 FROM gone
    ), ends AS (
        INSERT INTO run_ends SELECT tenant, run_id, 1, now, '{\"ok\": true}' FROM gone
    ), told AS (
        INSERT INTO run_events SELECT tenant, run_id, 2, now, 2, '{\"state\": \"succeeded\"}' FROM gone
    )
    SELECT count(*) FROM gone";

const BATCH: usize = 100;
const LOADERS: usize = 4;

pub(super) struct FloorFull {
    url: String,
}

impl FloorFull {
    pub(super) const fn new(url: String) -> Self {
        Self { url }
    }

    async fn tenants(&self) -> Vec<i32> {
        let client = connect(&self.url).await;
        let highest = number(&client, "SELECT max(tenant)::bigint FROM run_queue").await;
        (0..=i32::try_from(highest).expect("few")).collect()
    }

    /// Claims of equal shares, the tenants in turn, until all have started.
    async fn worker(&self, holder: i32, mut tenants: Vec<i32>, progress: Progress) {
        let client = connect(&self.url).await;
        let claim = client.prepare(CLAIM).await.expect("claim");
        let complete = client.prepare(COMPLETE).await.expect("complete");
        let share = BATCH.div_ceil(tenants.len());
        let takes = vec![i32::try_from(share).expect("small"); BATCH / share];
        while !progress.all_started() {
            let lanes = takes.len().min(tenants.len());
            tenants.rotate_left(lanes);
            let asked = &tenants[..lanes];
            let rows = client
                .query(&claim, &[&asked, &&takes[..asked.len()], &holder])
                .await
                .expect("claim");
            let (mut owners, mut runs, mut fences) =
                (Vec::<i32>::new(), Vec::<Uuid>::new(), Vec::<i64>::new());
            for row in &rows {
                owners.push(row.get(0));
                runs.push(row.get(1));
                fences.push(row.get(2));
                progress.start(&row.get(3));
            }
            if !runs.is_empty() {
                let row = client
                    .query_one(&complete, &[&owners, &runs, &fences])
                    .await
                    .expect("complete");
                assert_eq!(
                    row.get::<_, i64>(0),
                    i64::try_from(runs.len()).expect("small")
                );
                progress.finish(runs.len());
            }
        }
    }
}

#[async_trait]
impl Driver for FloorFull {
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
                    let submit = client.prepare(SUBMIT).await.expect("submit");
                    let mine: Vec<usize> = (loader..runs).step_by(LOADERS).collect();
                    for numbers in mine.chunks(BATCH) {
                        let owners: Vec<i32> = numbers
                            .iter()
                            .map(|n| i32::try_from(n % tenants).expect("few"))
                            .collect();
                        let ids: Vec<Uuid> =
                            numbers.iter().map(|_| RunId::new().as_uuid()).collect();
                        let keys: Vec<String> =
                            numbers.iter().map(|n| format!("key-{n}")).collect();
                        let payloads: Vec<_> = numbers
                            .iter()
                            .map(|n| payload(n % tenants, *n, 0))
                            .collect();
                        client
                            .execute(&submit, &[&owners, &ids, &keys, &payloads])
                            .await
                            .expect("submit");
                    }
                }),
        )
        .await;
        started.elapsed()
    }

    async fn submit(&self, runs: usize, clients: usize) -> Duration {
        let connections = join_all((0..clients).map(|_| connect(&self.url))).await;
        let started = Instant::now();
        let tasks = connections.into_iter().enumerate().map(|(caller, client)| {
            tokio::spawn(async move {
                let submit = client.prepare(SUBMIT).await.expect("submit");
                for number in 0..runs / clients {
                    let (ids, keys) = (
                        vec![RunId::new().as_uuid()],
                        vec![format!("{caller}-{number}")],
                    );
                    let payloads = vec![payload(0, number, 0)];
                    client
                        .execute(&submit, &[&vec![0_i32], &ids, &keys, &payloads])
                        .await
                        .expect("submit");
                }
            })
        });
        join_all(tasks).await;
        started.elapsed()
    }

    async fn drain(&self, runs: usize, workers: usize) -> Duration {
        let tenants = self.tenants().await;
        let progress = Progress::new(runs);
        let started = Instant::now();
        join_all((0..workers).map(|worker| {
            self.worker(
                i32::try_from(worker).expect("few"),
                tenants.clone(),
                progress.clone(),
            )
        }))
        .await;
        assert!(progress.is_done(), "the floor has lost a run");
        started.elapsed()
    }

    async fn latency(&self, _rate: usize, _seconds: usize) -> Vec<f64> {
        panic!("the latency to compare with is that of the plain floor")
    }
}
