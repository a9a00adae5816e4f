//! What anyone may ask.

use serde_json::Value;
use tidegate_model::api::Readiness;

use crate::{Client, Error, Result, request::Call};

impl Client {
    /// `GET /livez`: whether the process answers at all.
    pub async fn live(&self) -> Result<()> {
        self.done(Call::get("/livez")).await
    }

    /// `GET /readyz`: whether traffic should come here, with each check. Not being ready is an answer, no error.
    pub async fn ready(&self) -> Result<Readiness> {
        let call = Call::get("/readyz").once().success_or(503);
        self.json(call).await
    }

    /// `GET /openapi.json`: the contract.
    pub async fn openapi(&self) -> Result<Value> {
        self.json(Call::get("/openapi.json")).await
    }

    /// `GET /metrics`: needs the key scope `metrics:read`.
    pub async fn metrics(&self) -> Result<String> {
        let bytes = self.send(Call::get("/metrics")).await?;
        String::from_utf8(bytes.into()).map_err(|_| Error::BadAnswer {
            detail: "/metrics: not UTF-8".to_owned(),
        })
    }
}
