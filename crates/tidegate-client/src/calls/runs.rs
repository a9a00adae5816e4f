//! Runs as their tenant sees them. Their events are in [`crate::RunEvents`].

use tidegate_model::{
    RunId,
    api::{
        AnswerInput, BulkOutcome, Page, ResolveRun, RunExplain, RunFilter, RunTree, RunView,
        SubmitRun,
    },
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `POST /v1/runs`: a business task; the key needs the scope `runs:business`. See [`Client::submit_turn`] for `key`.
    pub async fn submit_run(&self, body: &SubmitRun, key: Option<&str>) -> Result<RunView> {
        self.json(Call::post("/v1/runs").key(key).body(body)?).await
    }

    /// `GET /v1/runs`, newest first.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Page<RunView>> {
        self.json(Call::get("/v1/runs").query(filter)?).await
    }

    /// `GET /v1/runs/{id}`.
    pub async fn run(&self, run_id: RunId) -> Result<RunView> {
        self.json(Call::get(format!("/v1/runs/{run_id}"))).await
    }

    /// `GET /v1/runs/{id}/explain`: why it is where it is.
    pub async fn explain_run(&self, run_id: RunId) -> Result<RunExplain> {
        self.json(Call::get(format!("/v1/runs/{run_id}/explain")))
            .await
    }

    /// `GET /v1/runs/{id}/children`: all descendants of a run.
    pub async fn run_children(&self, run_id: RunId) -> Result<RunTree> {
        self.json(Call::get(format!("/v1/runs/{run_id}/children")))
            .await
    }

    /// `POST /v1/runs/{id}/inputs`: answers what a waiting run asked. With `ask_no` it may be sent again.
    pub async fn answer_input(&self, run_id: RunId, body: &AnswerInput) -> Result<RunView> {
        self.json(Call::post(format!("/v1/runs/{run_id}/inputs")).body(body)?)
            .await
    }

    /// `POST /v1/runs/{id}/cancel`: a queued run ends at once, a running one within the grace.
    pub async fn cancel_run(&self, run_id: RunId) -> Result<RunView> {
        self.json(Call::post(format!("/v1/runs/{run_id}/cancel")))
            .await
    }

    /// `POST /v1/runs/{id}/requeue`: puts a dead letter back.
    pub async fn requeue_run(&self, run_id: RunId) -> Result<RunView> {
        self.json(Call::post(format!("/v1/runs/{run_id}/requeue")))
            .await
    }

    /// `POST /v1/runs/{id}/resolve`: what a person found out about a run in review.
    pub async fn resolve_run(&self, run_id: RunId, body: &ResolveRun) -> Result<RunView> {
        self.json(Call::post(format!("/v1/runs/{run_id}/resolve")).body(body)?)
            .await
    }

    /// `POST /v1/runs:cancel`: all that the filter selects.
    pub async fn cancel_runs(&self, filter: &RunFilter) -> Result<BulkOutcome> {
        self.json(Call::post("/v1/runs:cancel").body(filter)?).await
    }

    /// `POST /v1/runs:requeue`: the dead letters that the filter selects.
    pub async fn requeue_runs(&self, filter: &RunFilter) -> Result<BulkOutcome> {
        self.json(Call::post("/v1/runs:requeue").body(filter)?)
            .await
    }
}
