//! What can be looked at without a server: settings, files, database, secrets, Redis.

use std::{path::Path, time::Duration};

use tidegate_engine::{
    redis_link::{self, RedisState},
    secrets,
    settings::Settings,
    vitals,
};
use tidegate_policy::vitals::{Alarm, alarms};
use tidegate_store::{
    Store,
    migrate::{self, MigrationState},
};
use tokio::time::timeout;

use super::Finding;
use crate::{
    cli::Context,
    compose::{database, local},
    failure::chain,
};

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every local check.
pub async fn look(context: &Context) -> Vec<Finding> {
    let loaded = match context.settings() {
        Ok(loaded) => loaded,
        Err(failure) => {
            return failure
                .messages
                .into_iter()
                .map(|problem| {
                    Finding::fail(
                        "configuration",
                        problem,
                        "correct it; nothing else was looked at",
                    )
                })
                .collect();
        }
    };
    let mut findings = vec![Finding::ok("configuration", "every setting is valid")];
    for remark in loaded.remarks() {
        findings.push(Finding::warn("configuration", remark, ""));
    }
    let settings = &loaded.settings;
    findings.extend(files(settings));
    findings.extend(database_checks(settings).await);
    findings.push(redis(settings).await);
    findings
}

fn files(settings: &Settings) -> Vec<Finding> {
    [
        ("TIDEGATE_TLS_CERT", &settings.tls_cert),
        ("TIDEGATE_TLS_KEY", &settings.tls_key),
    ]
    .into_iter()
    .filter_map(|(variable, path)| Some((variable, path.as_deref()?)))
    .chain(local::authorities(settings))
    .map(|(variable, path)| file(variable, path))
    .collect()
}

fn file(variable: &'static str, path: &Path) -> Finding {
    let shown = path.display();
    match local::pem(path) {
        Ok(()) => Finding::ok(variable, shown.to_string()),
        Err(found) => Finding::fail(
            variable,
            format!("{shown} {found}"),
            "name a PEM file that the server may read",
        ),
    }
}

async fn database_checks(settings: &Settings) -> Vec<Finding> {
    if settings.database_url.is_none() {
        return vec![Finding::skip(
            "database",
            "CONFIG_DB_URL is not set; `tidegate dev` needs none, `tidegate serve` does",
        )];
    }
    let store = match database::open(settings) {
        Ok(store) => store,
        Err(failure) => {
            return vec![Finding::fail(
                "database",
                failure.messages.join("; "),
                failure.remedy.unwrap_or_default(),
            )];
        }
    };
    let mut findings = vec![];
    let Ok(served) = timeout(PATIENCE, schema(&store, &mut findings)).await else {
        findings.push(Finding::fail(
            "database",
            format!("no answer within {} s", PATIENCE.as_secs()),
            "check that PostgreSQL runs, that CONFIG_DB_URL names it, and the network in between",
        ));
        return findings;
    };
    if served && let Ok(found) = timeout(PATIENCE, sealed(settings, &store)).await {
        findings.extend(found);
    }
    if served && let Ok(found) = timeout(PATIENCE, hot_tables(settings, &store)).await {
        findings.extend(found);
    }
    findings
}

/// Whether the database can be served as it is.
async fn schema(store: &Store, findings: &mut Vec<Finding>) -> bool {
    let version = env!("CARGO_PKG_VERSION");
    let status = match migrate::status(store.pool()).await {
        Ok(status) => status,
        Err(error) => {
            let failure = database::migrate_failure(&error);
            findings.push(Finding::fail(
                "database",
                failure.messages.join("; "),
                failure.remedy.unwrap_or_default(),
            ));
            return false;
        }
    };
    findings.push(Finding::ok("database", "answers"));
    let applied = status
        .iter()
        .filter(|migration| migration.state == MigrationState::Applied)
        .count();
    match migrate::check(store.pool(), version).await {
        Ok(report) => {
            findings.push(match report.warning {
                None => Finding::ok("migrations", format!("all {applied} are applied")),
                Some(warning) => Finding::warn("migrations", warning, "upgrade this server"),
            });
            true
        }
        Err(error) => {
            findings.push(Finding::fail(
                "migrations",
                chain(&error),
                error
                    .remedy()
                    .unwrap_or("`tidegate migrate status` shows each"),
            ));
            false
        }
    }
}

/// Whether vacuum follows where rows come and go, and what keeps it from that.
async fn hot_tables(settings: &Settings, store: &Store) -> Vec<Finding> {
    const CHECK: &str = "hot tables";
    let vitals = match store.vitals().await {
        Ok(vitals) => vitals,
        Err(error) => return vec![Finding::fail(CHECK, chain(&error), "")],
    };
    let alarms = alarms(&vitals, vitals::bounds(settings));
    if alarms.is_empty() {
        let dead: i64 = vitals.tables.iter().map(|table| table.dead_rows).sum();
        let bytes: i64 = vitals.tables.iter().map(|table| table.bytes).sum();
        let found = format!("{dead} dead rows, {} kB in all", bytes / 1_024);
        return vec![Finding::ok(CHECK, found)];
    }
    let warn = |alarm: Alarm| Finding::warn(CHECK, alarm.found, alarm.remedy);
    alarms.into_iter().map(warn).collect()
}

async fn sealed(settings: &Settings, store: &Store) -> Vec<Finding> {
    if settings.enc_key.is_none() {
        return vec![Finding::fail(
            "encryption key",
            "CONFIG_ENC_KEY is not set",
            "set the key that this database was sealed with; a new one: `openssl rand -base64 32`",
        )];
    }
    let keyring = match database::keyring(settings) {
        Ok(keyring) => keyring,
        Err(failure) => {
            return vec![Finding::fail(
                "encryption key",
                failure.messages.join("; "),
                "",
            )];
        }
    };
    if let Err(failure) = database::check_key(store, &keyring).await {
        return vec![Finding::fail(
            "encryption key",
            failure.messages.join("; "),
            "find the key of this database",
        )];
    }
    let mut findings = vec![Finding::ok("encryption key", "it is this database's")];
    match secrets::idle_previous_key(store, &keyring).await {
        Ok(None) => {}
        Ok(Some(idle)) => findings.push(Finding::warn(
            "encryption key",
            idle,
            "docs/how-to/rotate-the-key.md has the steps",
        )),
        Err(error) => findings.push(Finding::fail("encryption key", chain(&error), "")),
    }
    match secrets::status(store, &keyring).await {
        Ok(status) => {
            for row in &status.unreadable {
                let (table, name) = (row.table.as_str(), &row.name);
                findings.push(Finding::fail(
                    "sealed secrets",
                    format!(
                        "{table} {name} cannot be opened (sealed with key {})",
                        row.key_id
                    ),
                    secrets::stored_again(row.table),
                ));
            }
            let old: i64 = status
                .counts
                .iter()
                .filter(|count| count.key_id != status.current)
                .map(|count| count.rows)
                .sum();
            findings.push(if old == 0 {
                Finding::ok("sealed secrets", "all under the current key")
            } else {
                Finding::warn(
                    "sealed secrets",
                    format!("{old} under an earlier key"),
                    "`tidegate secrets rotate`",
                )
            });
        }
        Err(error) => findings.push(Finding::fail("sealed secrets", chain(&error), "")),
    }
    findings
}

async fn redis(settings: &Settings) -> Finding {
    match redis_link::probe(settings).await {
        RedisState::Unused => Finding::skip("redis", "not configured"),
        RedisState::Known { ok: true, detail } => Finding::ok("redis", detail),
        RedisState::Known { ok: false, detail } => Finding::warn(
            "redis",
            detail,
            "correct RATE_LIMIT_REDIS_URL or Redis; the server works without it, each instance counting for itself",
        ),
    }
}
