//! What a caller sees of itself (R2.6).

use tidegate_model::api::{BucketUsage, LimitsView, MeView, UsageView};

use crate::{Engine, Error, Principal, tenants};

/// The key that was used. Any key may ask.
pub fn me(principal: &Principal) -> MeView {
    MeView {
        key_id: principal.key_id,
        role: principal.role,
        tenant: principal.tenant.clone(),
        pool: principal.pool.clone(),
        user: principal.user.clone(),
        scopes: principal.scopes.clone(),
        expires_at: principal.expires_at,
    }
}

/// The limits of the caller's tenant.
pub async fn limits(engine: &Engine, principal: &Principal) -> Result<LimitsView, Error> {
    let tenant = principal.require_tenant()?;
    tenants::limits::effective(engine, tenant).await
}

/// What the caller's tenant has queued and running now. Any key of the tenant may ask: a coordinator decides by it what to
/// submit next.
pub async fn usage(engine: &Engine, principal: &Principal) -> Result<UsageView, Error> {
    let tenant = principal.require_tenant()?;
    let shares = engine.tiers().await?.of(tenant);
    let counts = engine.store().tenant(tenant).usage().await?;
    Ok(UsageView {
        tenant: tenant.clone(),
        buckets: counts
            .into_iter()
            .map(|count| BucketUsage {
                bucket: count.bucket,
                queued: count.queued,
                running: count.running,
                cap: tenants::limits::cap(engine.settings(), &shares, count.bucket),
            })
            .collect(),
    })
}
