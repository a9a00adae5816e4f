//! Redis, as far as this release needs it: whether it can be reached, over TLS where asked for, and whether it would drop
//! what is counted there (R1.10, R14.2). It is optional; nothing here is ever fatal.
//!
//! Not done here: counting requests, which comes with the limits of tenants.

use std::{path::Path, time::Duration};

use redis::{AsyncConnectionConfig, Client, RedisError, TlsCertificates};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::{Engine, settings::Settings};

/// The longest wait for a connection or an answer at start.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How often it is looked at again.
const EVERY: Duration = Duration::from_secs(30);

/// What is known of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisState {
    /// None is configured.
    Unused,
    /// What the last look found, without addresses or secrets.
    Known {
        /// Whether it can be used.
        ok: bool,
        /// What was found.
        detail: String,
    },
}

impl RedisState {
    pub(crate) fn of(settings: &Settings) -> Self {
        match settings.rate_limit_redis_url {
            None => Self::Unused,
            Some(_) => Self::Known {
                ok: false,
                detail: "not looked at yet".to_owned(),
            },
        }
    }
}

/// Looks at start and every half minute, where Redis is configured; says a change once.
pub async fn run(engine: Engine, stop: CancellationToken) {
    if engine.settings().rate_limit_redis_url.is_none() {
        return;
    }
    loop {
        let found = probe(engine.settings()).await;
        let before = std::mem::replace(&mut *engine.platform().redis.lock(), found.clone());
        if let RedisState::Known { ok, detail } = &found
            && found != before
        {
            metrics::gauge!("tidegate_redis_up").set(if *ok { 1.0 } else { 0.0 });
            if *ok && !detail.contains("evict") {
                tracing::info!(detail, "Redis");
            } else {
                tracing::warn!(
                    detail,
                    "Redis; each instance counts for itself where it cannot be used"
                );
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Connects, asks for a sign of life and for what it does when its memory is full.
pub async fn probe(settings: &Settings) -> RedisState {
    let Some(url) = &settings.rate_limit_redis_url else {
        return RedisState::Unused;
    };
    let asked = ask(url.expose_secret(), settings.rate_limit_redis_ca.as_deref());
    let found = match tokio::time::timeout(TIMEOUT * 2, asked).await {
        Ok(found) => found,
        Err(_) => Err("it does not answer; check RATE_LIMIT_REDIS_URL and the network".to_owned()),
    };
    match found {
        Ok(detail) => RedisState::Known { ok: true, detail },
        Err(detail) => RedisState::Known { ok: false, detail },
    }
}

async fn ask(url: &str, authorities: Option<&Path>) -> Result<String, String> {
    let client = client(url, authorities).await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| explain(&error))?;
    let _: String = redis::cmd("PING")
        .query_async(&mut connection)
        .await
        .map_err(|error| explain(&error))?;
    // Managed services often refuse CONFIG; that is no failure.
    let policy: Result<Vec<String>, RedisError> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("maxmemory-policy")
        .query_async(&mut connection)
        .await;
    Ok(match policy.ok().and_then(|pair| pair.into_iter().nth(1)) {
        None => "answers; its maxmemory-policy cannot be read, it must be noeviction".to_owned(),
        Some(policy) if policy == "noeviction" => "answers; keeps what is counted".to_owned(),
        Some(policy) => format!(
            "answers, but may evict counts when its memory is full (maxmemory-policy {policy}); set it to noeviction"
        ),
    })
}

async fn client(url: &str, authorities: Option<&Path>) -> Result<Client, String> {
    let malformed = |_| {
        "RATE_LIMIT_REDIS_URL is malformed; give it as redis://host:6379 or rediss://host:6379 (TLS)".to_owned()
    };
    let Some(path) = authorities else {
        return Client::open(url).map_err(malformed);
    };
    let pem = tokio::fs::read(path)
        .await
        .map_err(|error| format!("RATE_LIMIT_REDIS_CA cannot be read: {}", error.kind()))?;
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(pem),
    };
    Client::build_with_tls(url, certificates).map_err(|_| {
        "RATE_LIMIT_REDIS_CA holds no PEM certificates, or RATE_LIMIT_REDIS_URL does not begin with rediss://"
            .to_owned()
    })
}

/// What went wrong and what to do, without the address, which may hold a password.
fn explain(error: &RedisError) -> String {
    let text = error.to_string();
    if text.contains("certificate") {
        let cause = text
            .split("invalid peer certificate: ")
            .nth(1)
            .unwrap_or("not valid for its name");
        return format!(
            "its TLS certificate is refused ({cause}); put its authority's PEM file into RATE_LIMIT_REDIS_CA"
        );
    }
    if error.is_connection_refusal() {
        return "it refuses connections; check RATE_LIMIT_REDIS_URL and that it runs".to_owned();
    }
    if error.is_io_error() || error.is_timeout() {
        return "the connection broke; check RATE_LIMIT_REDIS_URL and whether it speaks TLS (rediss://)".to_owned();
    }
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => {
            "it refuses the password; check RATE_LIMIT_REDIS_URL".to_owned()
        }
        _ => format!("it answered with an error ({:?})", error.kind()),
    }
}
