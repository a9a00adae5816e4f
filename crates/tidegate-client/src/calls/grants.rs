//! Keys that sign grants (R9.1).

use tidegate_model::api::{GrantKeyList, PublishedGrantKeys};

use crate::{Client, Result, request::Call};

impl Client {
    /// `GET /.well-known/tidegate-keys`: by which anybody can check grants.
    pub async fn published_grant_keys(&self) -> Result<PublishedGrantKeys> {
        self.json(Call::get("/.well-known/tidegate-keys")).await
    }

    /// `GET /v1/admin/grant-keys`.
    pub async fn grant_keys(&self) -> Result<GrantKeyList> {
        self.json(Call::get("/v1/admin/grant-keys")).await
    }

    /// `POST /v1/admin/grant-keys/rotate`: lets the next key sign.
    pub async fn rotate_grant_keys(&self) -> Result<GrantKeyList> {
        self.json(Call::post("/v1/admin/grant-keys/rotate")).await
    }
}
