//! Parents, children and waits in the small world.

use std::sync::Arc;

use serde_json::json;
use tidegate_model::{
    Capability, Code, RunId,
    api::Ask,
    run::{AskKind, QuotaBucket, RunState, WaitMode, WaitOn},
};
use tidegate_policy::{retry::Report, waitgraph::ChildAsk};
use tidegate_store::{
    attempts::{
        close::{CloseReport, Closed, Closer},
        open::OpenedLease,
        waits::Wait,
    },
    runs::{NewChild, SubmittedChild},
};

use super::{DAY_MS, World, held, report_of, rules};

/// A failure that no attempt can cure.
pub const FAILED: Report = Report::Failed {
    code: Code::WorkerFailed,
    retryable: false,
    retry_after_ms: 0,
};

/// Waits on these children.
pub fn on(mode: WaitMode, runs: &[RunId]) -> Wait {
    Wait {
        on: WaitOn::Children,
        mode,
        runs: runs.to_vec(),
        ask: None,
        until: None,
    }
}

/// Asks a person.
pub fn question(kind: AskKind) -> Wait {
    Wait {
        on: WaitOn::Input,
        mode: WaitMode::Any,
        runs: Vec::new(),
        ask: Some(Ask {
            kind,
            prompt: "which?".to_owned(),
            choices: Vec::new(),
            call_id: None,
        }),
        until: None,
    }
}

impl World {
    pub async fn new_child(&self, parent: &OpenedLease, key: &str) -> NewChild {
        NewChild {
            run_id: RunId::new(),
            key: key.to_owned(),
            capability: Capability::chat(),
            class: self.class(&parent.tenant).await,
            request_digest: [7; 32],
            ask: ChildAsk::default(),
            max_attempts: 3,
            backoff_base_ms: 1,
            backoff_max_ms: 5,
            run_at: None,
            input: json!({"n": 1}),
            queue_max_age_ms: DAY_MS,
            unservable: None,
        }
    }

    pub async fn try_child(&self, parent: &OpenedLease, key: &str) -> SubmittedChild {
        let child = self.new_child(parent, key).await;
        self.submit_child(parent, child).await
    }

    pub async fn submit_child(&self, parent: &OpenedLease, child: NewChild) -> SubmittedChild {
        self.store
            .fleet()
            .submit_child(held(parent), child)
            .await
            .expect("submit child")
    }

    /// Starts a child, which must be accepted.
    pub async fn child(&self, parent: &OpenedLease, key: &str) -> RunId {
        let child = self.new_child(parent, key).await;
        let id = child.run_id;
        let submitted = self.submit_child(parent, child).await;
        assert!(
            matches!(submitted, SubmittedChild::Accepted { .. }),
            "{submitted:?}"
        );
        id
    }

    /// Ends an attempt as waiting.
    pub async fn wait(&self, lease: &OpenedLease, wait: Wait) -> Closed {
        let report = CloseReport {
            wait: Some(wait),
            result: None,
            ..report_of(lease, Report::Waiting)
        };
        self.store
            .fleet()
            .close_attempts(vec![report], Closer::Holder, &rules())
            .await
            .expect("wait")
            .pop()
            .expect("held")
    }

    pub async fn end(&self, lease: &OpenedLease, report: Report) {
        assert_eq!(self.close(lease, report, Closer::Holder).await.len(), 1);
    }

    /// Claims the one run of a lane, which must be there.
    pub async fn take(&self, parent: &OpenedLease, bucket: QuotaBucket) -> OpenedLease {
        let mut leases = self.claim(&parent.tenant, bucket, 1, Some(1), 30_000).await;
        leases.pop().expect("a run to claim")
    }

    /// Claims an uncounted run of the parent's tenant: a child.
    pub async fn take_child(&self, parent: &OpenedLease) -> OpenedLease {
        let mut leases = self
            .claim(&parent.tenant, QuotaBucket::Uncounted, 1, None, 30_000)
            .await;
        leases.pop().expect("a child to claim")
    }

    pub async fn state(&self, of: &OpenedLease, run: RunId) -> (RunState, Option<Code>) {
        let row = self.store.tenant(&of.tenant).run(run).await.expect("run");
        let row = row.expect("a run of the tenant");
        let code = match &row.place {
            tidegate_store::read::runs::RunPlace::Ended(ended) => ended.code,
            _ => None,
        };
        (row.state(), code)
    }

    /// The database's clock.
    pub async fn clock(&self) -> chrono::DateTime<chrono::Utc> {
        sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(self.db.pool())
            .await
            .expect("clock")
    }

    pub async fn events_of(&self, run: RunId, kind: &'static str) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM run_events WHERE run_id = $1 AND kind = $2")
            .bind(run.as_uuid())
            .bind(kind)
            .fetch_one(self.db.pool())
            .await
            .expect("events")
    }

    /// Both at the same time, whichever comes first.
    pub async fn both<A, B>(
        self: &Arc<Self>,
        one: impl Future<Output = A> + Send + 'static,
        other: impl Future<Output = B> + Send + 'static,
    ) -> (A, B)
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        let (one, other) = (tokio::spawn(one), tokio::spawn(other));
        (one.await.expect("one"), other.await.expect("other"))
    }
}
