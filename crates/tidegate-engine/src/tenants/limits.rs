//! Every limit that holds for a tenant, with where it comes from and how far it reaches (R1.9, R15.2).

use serde_json::{Value, json};
use tidegate_model::{
    TenantId,
    api::{LimitScope, LimitView, LimitsView},
    run::QuotaBucket,
};
use tidegate_policy::{
    buckets::effective_cap,
    tiers::{Shares, Source},
};

use crate::{Engine, Error, Principal, settings::Settings};

/// The limits of a tenant; for its own administrator and for the operator.
pub async fn limits(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
) -> Result<LimitsView, Error> {
    super::get(engine, principal, tenant).await?;
    effective(engine, tenant).await
}

/// The limits in force.
pub(crate) async fn effective(engine: &Engine, tenant: &TenantId) -> Result<LimitsView, Error> {
    let shares = engine.tiers().await?.of(tenant);
    Ok(view(engine.settings(), tenant, &shares))
}

fn view(settings: &Settings, tenant: &TenantId, shares: &Shares) -> LimitsView {
    let mut limits = vec![
        LimitView {
            name: "foregroundRunsMax".to_owned(),
            value: json!(cap(settings, shares, QuotaBucket::Foreground)),
            source: source(settings, &shares.foreground.source),
            scope: LimitScope::Cluster,
        },
        LimitView {
            name: "backgroundRunsMax".to_owned(),
            value: json!(cap(settings, shares, QuotaBucket::Background)),
            source: source(settings, &shares.background.source),
            scope: LimitScope::Cluster,
        },
        LimitView {
            name: "weight".to_owned(),
            value: json!(shares.weight.value),
            source: shares.weight.source.to_string(),
            scope: LimitScope::Cluster,
        },
    ];
    limits.extend(of_settings(settings));
    LimitsView {
        tenant: tenant.clone(),
        limits,
    }
}

/// The cap of a bucket, as claims keep it.
pub(crate) fn cap(settings: &Settings, shares: &Shares, bucket: QuotaBucket) -> Option<i64> {
    effective_cap(bucket, shares.caps().cap(bucket), settings.run_fairness)
}

fn source(settings: &Settings, source: &Source) -> String {
    if settings.run_fairness {
        source.to_string()
    } else {
        "RUN_FAIRNESS=off".to_owned()
    }
}

/// Limits that are the same for every tenant; the table of settings says how far each reaches.
fn of_settings(settings: &Settings) -> Vec<LimitView> {
    let values: [(&str, &str, Value); 9] = [
        ("attemptsMax", "max_attempts", json!(settings.max_attempts)),
        (
            "queueAgeMaxMs",
            "queue_max_age_ms",
            json!(settings.queue_max_age_ms),
        ),
        (
            "unroutableGraceMs",
            "unroutable_grace_ms",
            json!(settings.unroutable_grace_ms),
        ),
        (
            "instanceRunsMax",
            "run_execution_concurrency",
            json!(settings.run_execution_concurrency),
        ),
        (
            "instanceBackgroundRunsMax",
            "run_execution_background_concurrency",
            json!(settings.run_execution_background_concurrency),
        ),
        (
            "providerCallsInFlightMax",
            "llm_provider_max_in_flight",
            json!(settings.llm_provider_max_in_flight),
        ),
        (
            "providerCallsPerMinuteMax",
            "llm_provider_rpm",
            json!(settings.llm_provider_rpm),
        ),
        (
            "providerCallsQueuedMax",
            "llm_provider_max_queue",
            json!(settings.llm_provider_max_queue),
        ),
        (
            "providerCallWaitMaxMs",
            "llm_provider_queue_timeout_ms",
            json!(settings.llm_provider_queue_timeout_ms),
        ),
    ];
    values
        .into_iter()
        .filter_map(|(name, setting, value)| {
            let entry = crate::settings::table().find(|entry| entry.name == setting)?;
            Some(LimitView {
                name: name.to_owned(),
                value,
                source: format!("setting {}", entry.env),
                scope: entry.scope,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R1.9, R15.2: every limit has its source and its scope; what is per instance says so.
    #[test]
    fn limits_say_where_they_come_from_and_how_far_they_reach() {
        let tenant: TenantId = "acme".parse().unwrap();
        let standard = tidegate_policy::tiers::Tiers::default().of(&tenant);
        let shown = view(&Settings::default(), &tenant, &standard);
        let find = |name: &str| {
            shown
                .limits
                .iter()
                .find(|limit| limit.name == name)
                .unwrap()
        };
        assert_eq!(
            shown.limits.len(),
            12,
            "no setting is missing from the table"
        );
        let foreground = find("foregroundRunsMax");
        assert_eq!(
            (&foreground.value, foreground.scope),
            (&json!(2), LimitScope::Cluster)
        );
        assert_eq!(foreground.source, "built-in tier standard");
        assert_eq!(find("instanceRunsMax").scope, LimitScope::Instance);
        assert_eq!(find("providerCallsPerMinuteMax").value, Value::Null);
        let unfair = Settings {
            run_fairness: false,
            ..Settings::default()
        };
        let shown = view(&unfair, &tenant, &standard);
        assert_eq!(shown.limits[0].value, Value::Null);
        assert_eq!(shown.limits[1].value, json!(1));
        assert_eq!(shown.limits[0].source, "RUN_FAIRNESS=off");
    }
}
