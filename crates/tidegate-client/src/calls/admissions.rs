//! Admissions and the resources of the ledger (R7, R10).

use tidegate_model::{
    AdmissionId,
    api::{
        AdmissionExplanation, AdmissionView, AdmitRequest, EndPhase, ExplainAdmission,
        GrantVerdict, HolderView, LedgerAudit, Page, PageQuery, PutResource, ReleaseAdmission,
        RenewAdmission, ResourceView, VerifyGrant,
    },
    contracts::ResourceName,
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `POST /v1/admissions`: reserves everything or nothing. A lost answer is asked for again with the same id; what is short is
    /// said at once.
    pub async fn admit(&self, body: &AdmitRequest) -> Result<AdmissionView> {
        self.json(Call::post("/v1/admissions").body(body)?).await
    }

    /// `POST /v1/admissions/explain`: what an admission would meet.
    pub async fn explain_admission(&self, body: &ExplainAdmission) -> Result<AdmissionExplanation> {
        self.json(Call::post("/v1/admissions/explain").body(body)?)
            .await
    }

    /// `GET /v1/admissions/{admissionId}`.
    pub async fn admission(&self, id: AdmissionId) -> Result<AdmissionView> {
        self.json(Call::get(format!("/v1/admissions/{id}"))).await
    }

    /// `POST /v1/admissions/{admissionId}/renew`.
    pub async fn renew_admission(
        &self,
        id: AdmissionId,
        body: &RenewAdmission,
    ) -> Result<AdmissionView> {
        let path = format!("/v1/admissions/{id}/renew");
        self.json(Call::post(path).body(body)?).await
    }

    /// `POST /v1/admissions/{admissionId}/phase`.
    pub async fn end_phase(&self, id: AdmissionId, body: &EndPhase) -> Result<AdmissionView> {
        let path = format!("/v1/admissions/{id}/phase");
        self.json(Call::post(path).body(body)?).await
    }

    /// `POST /v1/admissions/{admissionId}/release`.
    pub async fn release_admission(
        &self,
        id: AdmissionId,
        body: &ReleaseAdmission,
    ) -> Result<AdmissionView> {
        let path = format!("/v1/admissions/{id}/release");
        self.json(Call::post(path).body(body)?).await
    }

    /// `POST /v1/admissions/{admissionId}/verify`: whether a grant may be consumed now.
    pub async fn verify_grant(&self, id: AdmissionId, body: &VerifyGrant) -> Result<GrantVerdict> {
        let path = format!("/v1/admissions/{id}/verify");
        self.json(Call::post(path).body(body)?).await
    }

    /// `PUT /v1/admin/resources/{resource}`: makes a resource, or changes how much there is of it.
    pub async fn put_resource(&self, name: &ResourceName, capacity: i64) -> Result<ResourceView> {
        let body = PutResource { capacity };
        self.json(Call::put(resource(name)).body(&body)?).await
    }

    /// `GET /v1/admin/resources/{resource}`.
    pub async fn resource(&self, name: &ResourceName) -> Result<ResourceView> {
        self.json(Call::get(resource(name))).await
    }

    /// `DELETE /v1/admin/resources/{resource}`: it goes with its last grant.
    pub async fn delete_resource(&self, name: &ResourceName) -> Result<ResourceView> {
        self.json(Call::delete(resource(name))).await
    }

    /// `GET /v1/admin/resources/{resource}/holders`.
    pub async fn resource_holders(&self, name: &ResourceName) -> Result<Vec<HolderView>> {
        self.json(Call::get(format!("{}/holders", resource(name))))
            .await
    }

    /// `GET /v1/admin/resources`.
    pub async fn resources(&self, page: &PageQuery) -> Result<Page<ResourceView>> {
        self.json(Call::get("/v1/admin/resources").query(page)?)
            .await
    }

    /// `GET /v1/admin/ledger`: whether every counter is the sum of what is held.
    pub async fn audit_ledger(&self) -> Result<LedgerAudit> {
        self.json(Call::get("/v1/admin/ledger")).await
    }
}

/// A name has slashes, which a path would take for its own.
fn resource(name: &ResourceName) -> String {
    format!("/v1/admin/resources/{}", name.as_str().replace('/', "%2F"))
}
