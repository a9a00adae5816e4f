//! Every limit that holds for a tenant, with where it comes from and how far it reaches (R1.9, R15.2).
//!
//! Tiers and overrides are tables of a later migration; until a tenant can be given another one, the built-in tier
//! `standard` is its source.

use serde_json::{Value, json};
use tidegate_model::{
    TenantId,
    api::{LimitScope, LimitView, LimitsView},
    run::QuotaBucket,
};
use tidegate_policy::buckets::{STANDARD, effective_cap};

use crate::{Engine, Error, Principal, settings::Settings};

/// The limits of a tenant; for its own administrator and for the operator.
pub async fn limits(
    engine: &Engine,
    principal: &Principal,
    tenant: &TenantId,
) -> Result<LimitsView, Error> {
    super::get(engine, principal, tenant).await?;
    Ok(effective(engine.settings(), tenant))
}

/// The limits in force.
pub(crate) fn effective(settings: &Settings, tenant: &TenantId) -> LimitsView {
    let mut limits = vec![
        bucket(settings, "foregroundRunsMax", QuotaBucket::Foreground),
        bucket(settings, "backgroundRunsMax", QuotaBucket::Background),
    ];
    limits.extend(of_settings(settings));
    LimitsView {
        tenant: tenant.clone(),
        limits,
    }
}

/// The cap of a bucket, as claims keep it.
pub(crate) fn cap(settings: &Settings, bucket: QuotaBucket) -> Option<i64> {
    effective_cap(bucket, STANDARD.cap(bucket), settings.run_fairness)
}

fn bucket(settings: &Settings, name: &str, bucket: QuotaBucket) -> LimitView {
    let source = if settings.run_fairness {
        format!("built-in tier {}", STANDARD.name)
    } else {
        "RUN_FAIRNESS=off".to_owned()
    };
    LimitView {
        name: name.to_owned(),
        value: json!(cap(settings, bucket)),
        source,
        scope: LimitScope::Cluster,
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
        let view = effective(&Settings::default(), &tenant);
        let find = |name: &str| view.limits.iter().find(|limit| limit.name == name).unwrap();
        assert_eq!(
            view.limits.len(),
            11,
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
        let view = effective(&unfair, &tenant);
        assert_eq!(view.limits[0].value, Value::Null);
        assert_eq!(view.limits[1].value, json!(1));
        assert_eq!(view.limits[0].source, "RUN_FAIRNESS=off");
    }
}
