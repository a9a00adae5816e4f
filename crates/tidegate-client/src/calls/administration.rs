//! Tenants, keys and what operators read. Needs the role `super_admin`, keys of one's own tenant also `tenant_admin`.

use tidegate_model::{
    KeyId, TenantId,
    api::{
        AuditView, CreateKey, CreateTenant, CreatedKey, InstanceView, KeyView, LimitsView, Page,
        PageQuery, PutTenantOverride, RecoveryView, RevisionView, SetTenantState, TenantView,
    },
    principal::TenantState,
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `POST /v1/admin/tenants`.
    pub async fn create_tenant(&self, body: &CreateTenant) -> Result<TenantView> {
        self.json(Call::post("/v1/admin/tenants").body(body)?).await
    }

    /// `GET /v1/admin/tenants`.
    pub async fn tenants(&self, page: &PageQuery) -> Result<Page<TenantView>> {
        self.json(Call::get("/v1/admin/tenants").query(page)?).await
    }

    /// `GET /v1/admin/tenants/{id}`.
    pub async fn tenant(&self, tenant: &TenantId) -> Result<TenantView> {
        self.json(Call::get(format!("/v1/admin/tenants/{tenant}")))
            .await
    }

    /// `POST /v1/admin/tenants/{id}/state`; `deleted` erases all content and cannot be undone.
    pub async fn set_tenant_state(
        &self,
        tenant: &TenantId,
        state: TenantState,
    ) -> Result<TenantView> {
        let call = Call::post(format!("/v1/admin/tenants/{tenant}/state"));
        self.json(call.body(&SetTenantState { state })?).await
    }

    /// `GET /v1/admin/tenants/{id}/limits`.
    pub async fn tenant_limits(&self, tenant: &TenantId) -> Result<LimitsView> {
        self.json(Call::get(format!("/v1/admin/tenants/{tenant}/limits")))
            .await
    }

    /// `PUT /v1/admin/tenants/{id}/override`: its tier and values of its own, as a whole.
    pub async fn put_tenant_override(
        &self,
        tenant: &TenantId,
        body: &PutTenantOverride,
    ) -> Result<LimitsView> {
        let call = Call::put(format!("/v1/admin/tenants/{tenant}/override"));
        self.json(call.body(body)?).await
    }

    /// `DELETE /v1/admin/tenants/{id}/override`: everything comes from the tier `standard` again.
    pub async fn delete_tenant_override(&self, tenant: &TenantId) -> Result<()> {
        self.done(Call::delete(format!("/v1/admin/tenants/{tenant}/override")))
            .await
    }

    /// `POST /v1/admin/keys`: the secret is in this answer and nowhere else.
    pub async fn create_key(&self, body: &CreateKey) -> Result<CreatedKey> {
        self.json(Call::post("/v1/admin/keys").body(body)?).await
    }

    /// `GET /v1/admin/keys`.
    pub async fn keys(&self, page: &PageQuery) -> Result<Page<KeyView>> {
        self.json(Call::get("/v1/admin/keys").query(page)?).await
    }

    /// `DELETE /v1/admin/keys/{id}`: revokes it everywhere.
    pub async fn revoke_key(&self, key: KeyId) -> Result<()> {
        self.done(Call::delete(format!("/v1/admin/keys/{key}")))
            .await
    }

    /// `GET /v1/admin/audit`, newest first.
    pub async fn audit(&self, page: &PageQuery) -> Result<Page<AuditView>> {
        self.json(Call::get("/v1/admin/audit").query(page)?).await
    }

    /// `GET /v1/admin/revisions`, newest first.
    pub async fn revisions(&self, page: &PageQuery) -> Result<Page<RevisionView>> {
        self.json(Call::get("/v1/admin/revisions").query(page)?)
            .await
    }

    /// `GET /v1/admin/instances`.
    pub async fn instances(&self, page: &PageQuery) -> Result<Page<InstanceView>> {
        self.json(Call::get("/v1/admin/instances").query(page)?)
            .await
    }

    /// `GET /v1/admin/recovery`: what dangles after a restore or promotion (R4.7).
    pub async fn recovery(&self) -> Result<RecoveryView> {
        self.json(Call::get("/v1/admin/recovery")).await
    }
}
