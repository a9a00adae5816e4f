//! Providers, models and tool servers. Needs the role `super_admin`.

use tidegate_model::{
    api::{
        ModelView, Page, PageQuery, ProviderView, PutModel, PutProvider, PutToolServer,
        ToolServerView,
    },
    ids::CatalogName,
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `PUT /v1/admin/providers/{name}`.
    pub async fn put_provider(
        &self,
        name: &CatalogName,
        body: &PutProvider,
    ) -> Result<ProviderView> {
        let path = format!("/v1/admin/providers/{name}");
        self.json(Call::put(path).body(body)?).await
    }

    /// `GET /v1/admin/providers`.
    pub async fn providers(&self, page: &PageQuery) -> Result<Page<ProviderView>> {
        self.json(Call::get("/v1/admin/providers").query(page)?)
            .await
    }

    /// `DELETE /v1/admin/providers/{name}`.
    pub async fn delete_provider(&self, name: &CatalogName) -> Result<()> {
        self.done(Call::delete(format!("/v1/admin/providers/{name}")))
            .await
    }

    /// `PUT /v1/admin/models/{name}`.
    pub async fn put_model(&self, name: &CatalogName, body: &PutModel) -> Result<ModelView> {
        let path = format!("/v1/admin/models/{name}");
        self.json(Call::put(path).body(body)?).await
    }

    /// `GET /v1/admin/models`.
    pub async fn models(&self, page: &PageQuery) -> Result<Page<ModelView>> {
        self.json(Call::get("/v1/admin/models").query(page)?).await
    }

    /// `DELETE /v1/admin/models/{name}`.
    pub async fn delete_model(&self, name: &CatalogName) -> Result<()> {
        self.done(Call::delete(format!("/v1/admin/models/{name}")))
            .await
    }

    /// `PUT /v1/admin/tool-servers/{name}`.
    pub async fn put_tool_server(
        &self,
        name: &CatalogName,
        body: &PutToolServer,
    ) -> Result<ToolServerView> {
        let path = format!("/v1/admin/tool-servers/{name}");
        self.json(Call::put(path).body(body)?).await
    }

    /// `GET /v1/admin/tool-servers`.
    pub async fn tool_servers(&self, page: &PageQuery) -> Result<Page<ToolServerView>> {
        self.json(Call::get("/v1/admin/tool-servers").query(page)?)
            .await
    }

    /// `DELETE /v1/admin/tool-servers/{name}`.
    pub async fn delete_tool_server(&self, name: &CatalogName) -> Result<()> {
        self.done(Call::delete(format!("/v1/admin/tool-servers/{name}")))
            .await
    }
}
