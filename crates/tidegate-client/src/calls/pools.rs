//! Pools and their descriptors (R5).

use tidegate_model::{
    PoolId,
    api::{
        DescriptorEpochView, LeavePool, Page, PageQuery, PolicyGeneration, PoolView,
        RegisterWorker, RevokeEpoch, SetEpoch, SetPolicyGeneration, WorkerHeartbeat, WorkerView,
    },
    contracts::CapabilityDescriptor,
};

use crate::{Client, Result, request::Call};

impl Client {
    /// `PUT /v1/pools/{poolId}/descriptors/{epoch}`: publishes an immutable descriptor.
    pub async fn publish_descriptor(
        &self,
        descriptor: &CapabilityDescriptor,
    ) -> Result<DescriptorEpochView> {
        let (pool, epoch) = (&descriptor.pool_id, descriptor.descriptor_epoch);
        let path = format!("/v1/pools/{pool}/descriptors/{epoch}");
        self.json(Call::put(path).body(descriptor)?).await
    }

    /// `POST /v1/pools/{poolId}/epoch`: compare-and-set of the active epoch.
    pub async fn set_pool_epoch(&self, pool: &PoolId, body: &SetEpoch) -> Result<PoolView> {
        let path = format!("/v1/pools/{pool}/epoch");
        self.json(Call::post(path).body(body)?).await
    }

    /// `POST /v1/pools/{poolId}/revoke`: takes an epoch away for good.
    pub async fn revoke_pool_epoch(&self, pool: &PoolId, epoch: i64) -> Result<PoolView> {
        let path = format!("/v1/pools/{pool}/revoke");
        self.json(Call::post(path).body(&RevokeEpoch { epoch })?)
            .await
    }

    /// `POST /v1/worker/register`: a worker joins the pool of its key.
    pub async fn register_worker(&self, body: &RegisterWorker) -> Result<WorkerView> {
        self.json(Call::post("/v1/worker/register").body(body)?)
            .await
    }

    /// `POST /v1/worker/heartbeat`: how many runs a worker works on.
    pub async fn worker_heartbeat(&self, body: &WorkerHeartbeat) -> Result<WorkerView> {
        self.json(Call::post("/v1/worker/heartbeat").body(body)?)
            .await
    }

    /// `DELETE /v1/worker/registration`: a worker leaves its pool.
    pub async fn leave_pool(&self, body: &LeavePool) -> Result<WorkerView> {
        self.json(Call::delete("/v1/worker/registration").body(body)?)
            .await
    }

    /// `GET /v1/admin/policy-generation`.
    pub async fn policy_generation(&self) -> Result<PolicyGeneration> {
        self.json(Call::get("/v1/admin/policy-generation")).await
    }

    /// `POST /v1/admin/policy-generation`: compare-and-set; never lowered.
    pub async fn set_policy_generation(
        &self,
        body: &SetPolicyGeneration,
    ) -> Result<PolicyGeneration> {
        self.json(Call::post("/v1/admin/policy-generation").body(body)?)
            .await
    }

    /// `GET /v1/pools`.
    pub async fn pools(&self, page: &PageQuery) -> Result<Page<PoolView>> {
        self.json(Call::get("/v1/pools").query(page)?).await
    }
}
