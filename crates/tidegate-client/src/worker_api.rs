//! The worker protocol as a trait (R4): over HTTP by [`Client`], in process by the server. Whoever executes runs sees
//! this and nothing else, so that no executor has a door of its own.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_model::{
    RunId,
    api::{
        AppendEvents, AttemptAnswer, ChildAccepted, ClaimAnswer, ClaimRequest, CompleteRun,
        ContextAnswer, ContextRequest, FailRun, IntentAnswer, RecordIntent, RecordOutcome,
        ReleaseRun, RenewAnswer, RenewRequest, SubmitChild, WaitRun,
    },
    effect::CallId,
};

use crate::{Client, Result, limits, request::Call};

/// What an attempt may do. Every write carries the fence of its lease; a stale one is `LEASE_LOST`.
#[async_trait]
pub trait WorkerApi: Send + Sync + std::fmt::Debug {
    /// Asks for work and waits for it.
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer>;
    /// Keeps leases.
    async fn renew(&self, request: RenewRequest) -> Result<RenewAnswer>;
    /// Adds events; the same numbers twice are written once.
    async fn append_events(&self, run_id: RunId, request: AppendEvents) -> Result<()>;
    /// Records that a call is about to be made that may change something (R4.5); the answer says what is known of it.
    async fn record_intent(&self, run_id: RunId, request: RecordIntent) -> Result<IntentAnswer>;
    /// Records what came of a call.
    async fn record_outcome(
        &self,
        run_id: RunId,
        call_id: CallId,
        request: RecordOutcome,
    ) -> Result<()>;
    /// Reads what an attempt goes on from: the conversation of a turn, what earlier attempts left, children, answers of
    /// people.
    async fn context(&self, run_id: RunId, request: ContextRequest) -> Result<ContextAnswer>;
    /// Ends the run well.
    async fn complete(&self, run_id: RunId, request: CompleteRun) -> Result<AttemptAnswer>;
    /// Ends the attempt badly; the answer says what became of the run.
    async fn fail(&self, run_id: RunId, request: FailRun) -> Result<AttemptAnswer>;
    /// Hands the run back.
    async fn release(&self, run_id: RunId, request: ReleaseRun) -> Result<AttemptAnswer>;
    /// Starts a child; the same key is the same child.
    async fn submit_child(&self, run_id: RunId, request: SubmitChild) -> Result<ChildAccepted>;
    /// Ends the attempt until what is waited for is there.
    async fn wait(&self, run_id: RunId, request: WaitRun) -> Result<AttemptAnswer>;
}

#[async_trait]
impl WorkerApi for Client {
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer> {
        // Never repeated under the same call: leases of a lost answer come back by themselves, and the caller claims
        // in a loop anyway.
        let wait = Duration::from_millis(request.wait_ms) + limits::CLAIM_MARGIN;
        let call = Call::post("/v1/worker/claim").body(&request)?;
        self.json(call.once().try_timeout(wait)).await
    }

    async fn renew(&self, request: RenewRequest) -> Result<RenewAnswer> {
        // The worker loop repeats renewals itself: it knows when they are too late.
        let call = Call::post("/v1/worker/renew").body(&request)?;
        self.json(call.once()).await
    }

    async fn append_events(&self, run_id: RunId, request: AppendEvents) -> Result<()> {
        self.done(attempt_call(run_id, "events").body(&request)?)
            .await
    }

    async fn context(&self, run_id: RunId, request: ContextRequest) -> Result<ContextAnswer> {
        self.json(attempt_call(run_id, "context").body(&request)?)
            .await
    }

    async fn record_intent(&self, run_id: RunId, request: RecordIntent) -> Result<IntentAnswer> {
        self.json(attempt_call(run_id, "effects").body(&request)?)
            .await
    }

    async fn record_outcome(
        &self,
        run_id: RunId,
        call_id: CallId,
        request: RecordOutcome,
    ) -> Result<()> {
        let call = attempt_call(run_id, &format!("effects/{call_id}"));
        self.done(call.body(&request)?).await
    }

    async fn complete(&self, run_id: RunId, request: CompleteRun) -> Result<AttemptAnswer> {
        self.json(attempt_call(run_id, "complete").body(&request)?)
            .await
    }

    async fn fail(&self, run_id: RunId, request: FailRun) -> Result<AttemptAnswer> {
        self.json(attempt_call(run_id, "fail").body(&request)?)
            .await
    }

    async fn release(&self, run_id: RunId, request: ReleaseRun) -> Result<AttemptAnswer> {
        self.json(attempt_call(run_id, "release").body(&request)?)
            .await
    }

    async fn submit_child(&self, run_id: RunId, request: SubmitChild) -> Result<ChildAccepted> {
        self.json(attempt_call(run_id, "children").body(&request)?)
            .await
    }

    async fn wait(&self, run_id: RunId, request: WaitRun) -> Result<AttemptAnswer> {
        self.json(attempt_call(run_id, "wait").body(&request)?)
            .await
    }
}

fn attempt_call(run_id: RunId, verb: &str) -> Call {
    Call::post(format!("/v1/worker/runs/{run_id}/{verb}"))
}
