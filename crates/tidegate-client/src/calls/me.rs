//! What a key may know about itself and its tenant (R2.6).

use tidegate_model::api::{LimitsView, MeView, UsageView};

use crate::{Client, Result, request::Call};

impl Client {
    /// `GET /v1/me`.
    pub async fn me(&self) -> Result<MeView> {
        self.json(Call::get("/v1/me")).await
    }

    /// `GET /v1/me/limits`: each limit with its source and scope.
    pub async fn my_limits(&self) -> Result<LimitsView> {
        self.json(Call::get("/v1/me/limits")).await
    }

    /// `GET /v1/me/usage`: what is queued and running now.
    pub async fn my_usage(&self) -> Result<UsageView> {
        self.json(Call::get("/v1/me/usage")).await
    }
}
