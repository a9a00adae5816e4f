//! How settings are shown: rows for `tidegate config`, a page for the documentation.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_model::api::LimitScope;

use super::{Loaded, Settings, setting::Takes, table::ENTRIES};

/// One setting with its value.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The variable.
    pub env: &'static str,
    /// The key in the file.
    pub key: &'static str,
    /// The value; secrets are redacted; absent where it is not set.
    pub value: Option<String>,
    /// Where the value came from.
    pub source: String,
    /// Whether it governs this process or what all share.
    pub scope: LimitScope,
    /// Whether its value is never shown.
    pub secret: bool,
    /// What it means.
    pub meaning: &'static str,
    /// What is allowed.
    pub allowed: String,
}

impl Loaded {
    /// Every setting with value and source, in the order of the table.
    pub fn rows(&self) -> Vec<Row> {
        ENTRIES
            .iter()
            .map(|entry| Row {
                name: entry.setting.name,
                env: entry.setting.env,
                key: entry.setting.key,
                value: (entry.show)(&self.settings),
                source: self.source(entry.setting.name).to_string(),
                scope: entry.setting.scope,
                secret: entry.setting.secret,
                meaning: entry.setting.meaning,
                allowed: entry.setting.allowed(),
            })
            .collect()
    }

    /// What an operator should know about these settings although nothing is wrong with them.
    pub fn remarks(&self) -> Vec<String> {
        let settings = &self.settings;
        let mut remarks = Vec::new();
        if settings.rate_limit_redis_url.is_none() {
            remarks.push(
                "no RATE_LIMIT_REDIS_URL: each instance counts requests for itself and grants the full limit"
                    .to_owned(),
            );
        }
        if !settings.listen.ip().is_loopback() && settings.tls_cert.is_none() {
            remarks.push(format!(
                "{} is not loopback and has no TLS: set TIDEGATE_TLS_CERT and TIDEGATE_TLS_KEY, or keep it behind a \
                 proxy that has",
                settings.listen
            ));
        }
        if settings.run_execution_background_concurrency > settings.run_execution_concurrency {
            remarks.push(
                "RUN_EXECUTION_BACKGROUND_CONCURRENCY exceeds RUN_EXECUTION_CONCURRENCY, which bounds it".to_owned(),
            );
        }
        remarks
    }
}

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let defaults = Settings::default();
    let mut page = String::from(
        "# Configuration\n\n<!-- Made by `tidegate config --markdown`; do not edit. -->\n\n\
         Sources, weakest first: defaults, the file (`--config FILE`, `TIDEGATE_CONFIG`, else `tidegate.toml` in the \
         working directory), the environment, flags. An empty variable counts as not set. Unknown keys and unknown \
         `TIDEGATE_*`, `RUN_EXECUTION_*`, `RUN_RETENTION_*`, `RUN_EVENT_*` and `LLM_PROVIDER_*` variables are errors that name the nearest known one.\n\n\
         Every setting that is no secret has a flag of `tidegate serve`: its name with dashes (`lease_ms` is \
         `--lease-ms`). Secrets have none, because flags are visible in the list of processes.\n\n\
         Scope `instance` governs one process: three processes grant three times as much. Scope `cluster` governs what \
         all processes share through the database; give all of them the same value.\n\n\
         | variable | key in the file | default | scope | allowed | meaning |\n|---|---|---|---|---|---|\n",
    );
    for entry in ENTRIES {
        let setting = &entry.setting;
        let default = match (entry.show)(&defaults) {
            Some(text) if setting.takes == Takes::Text && text.len() > 60 => {
                "a short prompt".to_owned()
            }
            Some(text) => format!("`{text}`"),
            None => "not set".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {default} | {} | {} | {} |",
            setting.env,
            setting.key,
            setting.scope,
            setting.allowed().replace('|', "\\|"),
            setting.meaning,
        );
    }
    page
}
