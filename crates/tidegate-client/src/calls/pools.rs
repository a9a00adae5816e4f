//! Pools and their descriptors (R5).

use tidegate_model::{
    PoolId,
    api::{DescriptorEpochView, Page, PageQuery, PoolView, SetEpoch},
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

    /// `GET /v1/pools`.
    pub async fn pools(&self, page: &PageQuery) -> Result<Page<PoolView>> {
        self.json(Call::get("/v1/pools").query(page)?).await
    }
}
