//! Tiers and overrides (R15.1): what each tenant may have, as this instance knows it, and giving a tenant its own.

use std::sync::Arc;

use tidegate_model::{
    Code, ConfigKind, TenantId,
    api::{LimitsView, PutTenantOverride},
};
use tidegate_policy::{buckets, tiers::Tiers};
use tidegate_store::{catalog::Delete, tenants::tiers::PutOverride};

use crate::{Engine, Error, Principal};

/// The highest soft cap of foreground runs.
const FOREGROUND_MAX: i64 = 10_000;
/// The greatest weight.
const WEIGHT_MAX: i64 = 1_000;

impl Engine {
    /// Tiers and overrides, at most the cache's time old.
    pub(crate) async fn tiers(&self) -> Result<Arc<Tiers>, Error> {
        let load = || async { Ok(Arc::new(self.store().resource_tiers().await?)) };
        self.platform().caches.tiers.get_or_load((), load).await
    }
}

/// Gives a tenant its tier and values of its own, in place of what it had (R2.3); answers its limits.
pub async fn put_override(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
    request: PutTenantOverride,
) -> Result<LimitsView, Error> {
    principal.require_operator()?;
    // As a whole it would take everything away, which has a call of its own.
    if request == PutTenantOverride::default() {
        return Err(Error::refused(
            Code::InvalidArgument,
            "give at least one of tier, foregroundRunsMax, backgroundRunsMax and weight; DELETE takes the override away",
        ));
    }
    for (field, value, most) in [
        (
            "foregroundRunsMax",
            request.foreground_runs_max,
            FOREGROUND_MAX,
        ),
        (
            "backgroundRunsMax",
            request.background_runs_max,
            buckets::BACKGROUND_CAP_MAX,
        ),
        ("weight", request.weight, WEIGHT_MAX),
    ] {
        if let Some(value) = value
            && !(1..=most).contains(&i64::from(value))
        {
            return Err(Error::invalid(
                field,
                format!("{field} must be 1 to {most}, found {value}"),
            ));
        }
    }
    let tier = request.tier.clone().unwrap_or_default();
    let written = engine
        .store()
        .put_override(tenant, request, &principal.author())
        .await?;
    match engine.written(ConfigKind::Tier, written).await {
        PutOverride::Stored => {}
        PutOverride::NoTenant => return Err(Error::not_found("tenant")),
        PutOverride::NoTier => {
            return Err(Error::invalid(
                "tier",
                format!("the table tenant_resource_tiers has no tier {tier:?}"),
            ));
        }
        PutOverride::NoTables => {
            return Err(Error::refused(
                Code::StateConflict,
                "this database has no tables of tiers; add them with `tidegate migrate --with tenant-resource-tiers`",
            ));
        }
    }
    // A higher cap may let something start.
    engine.work_changed();
    super::limits::effective(engine, tenant).await
}

/// Takes away what a tenant has of its own: from then on its tier is `standard` and gives every value.
pub async fn delete_override(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
) -> Result<(), Error> {
    principal.require_operator()?;
    let written = engine
        .store()
        .delete_override(tenant, &principal.author())
        .await?;
    match engine.written(ConfigKind::Tier, written).await {
        Delete::NotFound => Err(Error::not_found("override")),
        Delete::Deleted | Delete::Used(_) => {
            // The tier may give more than the override did.
            engine.work_changed();
            Ok(())
        }
    }
}
