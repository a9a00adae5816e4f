//! What this release can do, and what of it is on (R1.4, `tidegate config features`).

use serde::Serialize;

use super::Settings;

/// A feature of the product.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether this release has it.
    pub built: bool,
    /// Whether it is on where nobody says anything.
    pub on_by_default: bool,
    /// Whether it is on with these settings.
    pub on_here: bool,
    /// How to switch it.
    pub switch: &'static str,
}

type OnHere = fn(&Settings) -> bool;

/// Name, built, on by default, on with given settings, how to switch.
pub const FEATURES: &[(&str, bool, bool, OnHere, &str)] = &[
    (
        "tenants' API",
        true,
        true,
        |s| s.roles.chat,
        "TIDEGATE_ROLES",
    ),
    (
        "administration API",
        true,
        true,
        |s| s.roles.admin,
        "TIDEGATE_ROLES",
    ),
    (
        "built-in executor",
        true,
        true,
        |s| s.roles.chat && s.run_execution_concurrency > 0,
        "RUN_EXECUTION_CONCURRENCY",
    ),
    (
        "workers elsewhere, over HTTP",
        true,
        true,
        |s| s.roles.chat,
        "TIDEGATE_ROLES",
    ),
    (
        "fair order between tenants",
        true,
        true,
        |s| s.run_fairness,
        "RUN_FAIRNESS",
    ),
    (
        "background runs on this instance",
        true,
        true,
        |s| s.roles.chat && s.run_execution_background_concurrency > 0,
        "RUN_EXECUTION_BACKGROUND_CONCURRENCY",
    ),
    (
        "tools over MCP (child processes)",
        true,
        true,
        |s| s.mcp_max_processes > 0,
        "TIDEGATE_MCP_MAX_PROCESSES",
    ),
    (
        "tools over MCP (streamable HTTP) and plain HTTP",
        true,
        true,
        |_| true,
        "tidegate tool set; private addresses need TIDEGATE_TOOL_NETWORKS",
    ),
    (
        "provider limiter",
        true,
        true,
        |_| true,
        "always on; LLM_PROVIDER_*",
    ),
    (
        "sealed secrets and rotation",
        true,
        true,
        |_| true,
        "always on; CONFIG_ENC_KEY",
    ),
    (
        "children, waits and answers of people",
        true,
        true,
        |_| true,
        "always on; TIDEGATE_AGENT_ASK_USER for the models' questions",
    ),
    (
        "schedules of runs",
        true,
        true,
        |_| true,
        "always on; tidegate schedule put",
    ),
    (
        "effect journal and write tools",
        true,
        true,
        |_| true,
        "always on; tidegate tool set",
    ),
    (
        "retention of ended runs and their events",
        true,
        true,
        |s| s.run_retention_days > 0 || s.run_event_retention_days > 0,
        "RUN_RETENTION_DAYS, RUN_EVENT_RETENTION_DAYS",
    ),
    (
        "resource tiers and overrides",
        true,
        true,
        |_| true,
        "read where the tables are; tidegate migrate --with tenant-resource-tiers",
    ),
    (
        "TLS on the API",
        true,
        false,
        |s| s.tls_cert.is_some(),
        "TIDEGATE_TLS_CERT, TIDEGATE_TLS_KEY",
    ),
    (
        "metrics listener",
        true,
        false,
        |s| s.metrics_listen.is_some(),
        "TIDEGATE_METRICS_LISTEN",
    ),
    (
        "Redis connection check",
        true,
        false,
        |s| s.rate_limit_redis_url.is_some(),
        "RATE_LIMIT_REDIS_URL",
    ),
    (
        "tenant request limits",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "routing by requirements",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "admission ledger",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "LLM gateway",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "LLM credits",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "background work from conversations",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "load shedding by stages",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "rollout modes (off, shadow, enforce)",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "external resource owners",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "traces over OTLP",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "simulator and load generator",
        false,
        false,
        |_| false,
        "not in this release",
    ),
    (
        "web console",
        false,
        false,
        |_| false,
        "not in this release",
    ),
];

/// The features under these settings.
pub fn features(settings: &Settings) -> Vec<Feature> {
    FEATURES
        .iter()
        .map(|(name, built, on_by_default, on_here, switch)| Feature {
            name,
            built: *built,
            on_by_default: *on_by_default,
            on_here: on_here(settings),
            switch,
        })
        .collect()
}
