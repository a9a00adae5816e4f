//! The worker protocol without HTTP, for the executor that the process carries.
//!
//! It calls the same use cases with a principal of the role `worker` and sees the same problems; there is no door that a
//! worker over HTTP does not have.

use async_trait::async_trait;
use tidegate_client::{Error, Result, WorkerApi};
use tidegate_engine::{
    Engine, Principal,
    worker::{children, close, context, effects, events, renew, wait},
};
use tidegate_model::{
    RunId,
    api::{
        AppendEvents, AttemptAnswer, ChildAccepted, ClaimAnswer, ClaimRequest, CompleteRun,
        ContextAnswer, ContextRequest, FailRun, IntentAnswer, RecordIntent, RecordOutcome,
        ReleaseRun, RenewAnswer, RenewRequest, SubmitChild, WaitRun,
    },
    effect::CallId,
};

use crate::{claim, shutdown::Shutdown};

/// The transport of the built-in executor.
#[derive(Clone)]
pub struct InProcessWorker {
    engine: Engine,
    principal: Principal,
    shutdown: Shutdown,
}

impl InProcessWorker {
    /// A transport for this principal, whose role must be `worker`.
    pub const fn new(engine: Engine, principal: Principal, shutdown: Shutdown) -> Self {
        Self {
            engine,
            principal,
            shutdown,
        }
    }
}

impl std::fmt::Debug for InProcessWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcessWorker")
            .field("pool", &self.principal.pool)
            .finish_non_exhaustive()
    }
}

/// What a worker over HTTP would read.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn told(error: tidegate_engine::Error) -> Error {
    error.problem().into()
}

#[async_trait]
impl WorkerApi for InProcessWorker {
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer> {
        let (engine, principal) = (self.engine.clone(), self.principal.clone());
        let held = claim::wait(engine, principal, None, self.shutdown.clone(), request).await;
        held.map(claim::Held::into_answer).map_err(told)
    }

    async fn renew(&self, request: RenewRequest) -> Result<RenewAnswer> {
        renew::renew(&self.engine, &self.principal, request)
            .await
            .map_err(told)
    }

    async fn append_events(&self, run_id: RunId, request: AppendEvents) -> Result<()> {
        let written = events::append(&self.engine, &self.principal, run_id, request).await;
        written.map_err(told)
    }

    async fn context(&self, run_id: RunId, request: ContextRequest) -> Result<ContextAnswer> {
        context::context(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn record_intent(&self, run_id: RunId, request: RecordIntent) -> Result<IntentAnswer> {
        effects::intend(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn record_outcome(
        &self,
        run_id: RunId,
        call_id: CallId,
        request: RecordOutcome,
    ) -> Result<()> {
        effects::settle(&self.engine, &self.principal, run_id, call_id, request)
            .await
            .map_err(told)
    }

    async fn complete(&self, run_id: RunId, request: CompleteRun) -> Result<AttemptAnswer> {
        close::complete(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn fail(&self, run_id: RunId, request: FailRun) -> Result<AttemptAnswer> {
        close::fail(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn release(&self, run_id: RunId, request: ReleaseRun) -> Result<AttemptAnswer> {
        close::release(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn submit_child(&self, run_id: RunId, request: SubmitChild) -> Result<ChildAccepted> {
        children::submit_child(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }

    async fn wait(&self, run_id: RunId, request: WaitRun) -> Result<AttemptAnswer> {
        wait::wait(&self.engine, &self.principal, run_id, request)
            .await
            .map_err(told)
    }
}
