//! A small world on a fresh database: tenants, runs, claimers.

#![allow(dead_code, reason = "each test binary uses its part of the rig")]

pub mod due;
pub mod family;

use std::sync::Arc;

use serde_json::json;
use tidegate_model::{
    Capability, ConversationId, InstanceId, PoolId, RunId, TenantId,
    contracts::{Needs, TaskRequirements},
    digest::canonical_digest,
    run::{PrioritySource, QuotaBucket, RunKind},
};
use tidegate_policy::retry::{Report, after_attempt};
use tidegate_store::{
    Author, Store,
    attempts::{
        HeldLease, LeaseKey,
        close::{CloseReport, Closed, Closer, Rules},
        open::{Holder, LaneAsk, OpenedLease, Place},
    },
    runs::{NewRun, Submitted, Turn},
};
use tidegate_testkit::TestDb;

/// The epoch that the pool `builtin` gets in a fresh database.
pub const EPOCH: i64 = 1;
pub const DAY_MS: i64 = 24 * 3_600_000;

pub struct World {
    pub db: TestDb,
    pub store: Store,
    pub instance: InstanceId,
}

impl World {
    pub async fn new(tenants: &[&str]) -> Self {
        let db = TestDb::new().await;
        for tenant in tenants {
            sqlx::query("INSERT INTO tenants (tenant) VALUES ($1)")
                .bind(tenant)
                .execute(db.pool())
                .await
                .expect("insert tenant");
        }
        Self::of(db).await
    }

    /// A world on a database that stands already, with the pool `builtin` published.
    pub async fn of(db: TestDb) -> Self {
        let store = Store::new(db.pool().clone());
        let builtin = PoolId::builtin();
        let published = store
            .ensure_descriptor("main", &builtin, &[Capability::chat()], &Author::system())
            .await
            .expect("published");
        assert_eq!(published.value, EPOCH);
        Self {
            db,
            store,
            instance: InstanceId::new(),
        }
    }

    pub fn holder(&self, worker: &str, lease_ms: i64) -> Holder {
        Holder {
            scope: "main".to_owned(),
            pool: PoolId::builtin(),
            epoch: EPOCH,
            worker: worker.to_owned(),
            incarnation: 1,
            instance: self.instance,
            lease_ms,
        }
    }

    pub async fn class(&self, tenant: &TenantId) -> i32 {
        let requirements =
            TaskRequirements::new(tenant.clone(), Capability::chat(), Needs::default());
        let digest = canonical_digest(&requirements).expect("digest");
        self.store
            .tenant(tenant)
            .requirement_class(&requirements, &digest, false)
            .await
            .expect("class")
            .expect("not too many")
    }

    pub async fn new_run(&self, tenant: &TenantId, kind: RunKind) -> NewRun {
        NewRun {
            run_id: RunId::new(),
            scope: "main".to_owned(),
            kind,
            capability: Capability::chat(),
            class: self.class(tenant).await,
            service_class: kind.default_service_class(),
            priority: 0,
            priority_source: PrioritySource::Default,
            turn: None,
            idempotency_key: None,
            request_digest: [7; 32],
            max_attempts: 3,
            backoff_base_ms: 1,
            backoff_max_ms: 5,
            budget_tokens: None,
            budget_ms: None,
            run_at: None,
            deadline: None,
            created_by: None,
            user: None,
            input: json!({"n": 1}),
        }
    }

    /// Accepts a run and answers its id.
    pub async fn submit(&self, tenant: &TenantId, kind: RunKind) -> RunId {
        let run = self.new_run(tenant, kind).await;
        let id = run.run_id;
        let submitted = self
            .store
            .tenant(tenant)
            .submit_run(run, DAY_MS)
            .await
            .expect("submit");
        assert!(
            matches!(submitted, Submitted::Accepted { .. }),
            "{submitted:?}"
        );
        id
    }

    pub async fn conversation(&self, tenant: &TenantId) -> ConversationId {
        let id = ConversationId::new();
        self.store
            .tenant(tenant)
            .create_conversation(id, None, None, None)
            .await
            .expect("conversation")
            .expect("active tenant");
        id
    }

    pub async fn submit_turn(&self, tenant: &TenantId, conversation: ConversationId) -> RunId {
        let mut run = self.new_run(tenant, RunKind::ConversationTurn).await;
        run.turn = Some(Turn {
            conversation_id: conversation,
            message: json!({"text": "hello"}),
        });
        let id = run.run_id;
        let submitted = self
            .store
            .tenant(tenant)
            .submit_run(run, DAY_MS)
            .await
            .expect("submit");
        assert!(
            matches!(submitted, Submitted::Accepted { .. }),
            "{submitted:?}"
        );
        id
    }

    pub async fn ask(
        &self,
        tenant: &TenantId,
        bucket: QuotaBucket,
        take: i32,
        cap: Option<i32>,
    ) -> LaneAsk {
        LaneAsk {
            bucket,
            tenant: tenant.clone(),
            class: self.class(tenant).await,
            take,
            cap,
            cost: 1_000,
            from: Place::FIRST,
        }
    }

    /// Claims up to `take` runs of one lane.
    pub async fn claim(
        &self,
        tenant: &TenantId,
        bucket: QuotaBucket,
        take: i32,
        cap: Option<i32>,
        lease_ms: i64,
    ) -> Vec<OpenedLease> {
        let asks = [self.ask(tenant, bucket, take, cap).await];
        let fleet = self.store.fleet();
        let holder = self.holder("w", lease_ms);
        if bucket == QuotaBucket::Background {
            fleet.open_background(&holder, &asks).await
        } else {
            fleet.open_foreground(&holder, &asks).await
        }
        .expect("claim")
    }

    pub async fn close(&self, lease: &OpenedLease, report: Report, closer: Closer) -> Vec<Closed> {
        self.store
            .fleet()
            .close_attempts(vec![report_of(lease, report)], closer, &rules())
            .await
            .expect("close")
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(self.db.pool())
            .await
            .expect("count")
    }

    /// Moves the end of every lease into the past.
    pub async fn expire_leases(&self) {
        sqlx::query("UPDATE run_leases SET lease_until = clock_timestamp() - interval '1 second'")
            .execute(self.db.pool())
            .await
            .expect("expire");
    }

    /// Everything adds up.
    pub async fn audit(&self) {
        tidegate_testkit::audit(self.db.pool()).await;
    }
}

pub fn rules() -> Rules {
    Rules {
        scope: "main".to_owned(),
        decide: Arc::new(|facts, report| after_attempt(facts, report, 0.5)),
        queue_max_age_ms: DAY_MS,
    }
}

pub fn held(lease: &OpenedLease) -> HeldLease {
    HeldLease {
        key: LeaseKey {
            bucket: lease.bucket,
            tenant: lease.tenant.clone(),
            run_id: lease.run_id,
            conversation_id: lease.conversation_id,
            pool: PoolId::builtin(),
        },
        fence: lease.fence,
    }
}

pub fn report_of(lease: &OpenedLease, report: Report) -> CloseReport {
    CloseReport {
        lease: held(lease),
        report,
        detail: None,
        tokens: 1,
        result: Some(json!({"ok": true})),
        messages: Vec::new(),
        wait: None,
    }
}

pub fn tenant(name: &str) -> TenantId {
    name.parse().expect("tenant")
}

impl World {
    /// Makes every parked run due.
    pub async fn db_due(&self) {
        sqlx::query("UPDATE run_parked SET due = clock_timestamp() WHERE due IS NOT NULL")
            .execute(self.db.pool())
            .await
            .expect("due");
    }

    /// Closes an attempt that has to wait for what `held` has locked, and lets go of that meanwhile.
    pub async fn close_behind(
        &self,
        held: sqlx::Transaction<'_, sqlx::Postgres>,
        report: CloseReport,
    ) -> Vec<Closed> {
        let fleet = self.store.fleet();
        let rules = rules();
        let close = fleet.close_attempts(vec![report], Closer::Holder, &rules);
        let release = async {
            self.until_somebody_waits().await;
            held.commit().await.expect("commit");
        };
        let (closed, ()) = tokio::join!(close, release);
        closed.expect("close")
    }

    /// Waits until some session of the database waits for a lock.
    pub async fn until_somebody_waits(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let waiting = self
                .count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
                .await;
            if waiting > 0 {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "nobody waits");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

impl World {
    async fn until(&self, what: &str, sql: &'static str, done: impl Fn(i64) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !done(self.count(sql).await) {
            assert!(std::time::Instant::now() < deadline, "never {what}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Waits until no session of the database is inside a transaction.
    pub async fn until_quiet(&self) {
        self.until(
            "quiet",
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
             AND (state LIKE 'idle in transaction%' OR state = 'active') AND backend_type = 'client backend'",
            |count| count == 0,
        )
        .await;
    }
}
