//! Model providers.

use std::ops::RangeInclusive;

use tidegate_model::{
    ConfigKind,
    api::{ProviderView, PutProvider},
    ids::CatalogName,
};
use tidegate_store::{
    catalog::{SecretChange, StoredProvider},
    secrets::SealedTable,
};

use super::{deleted, place, secret_state};
use crate::{Engine, Error, Principal, checks, secrets::seal_for_all};

/// The longest address.
const URL_MAX: usize = 2_000;
/// The longest key.
const KEY_MAX: usize = 10_000;
/// The bounds of a provider's limiter are those of the deployment's settings (`LLM_PROVIDER_*`).
const IN_FLIGHT_MAX: u32 = 10_000;
/// As above.
const RPM_MAX: u32 = 10_000_000;
/// As above.
const QUEUE_MAX: u32 = 100_000;
/// As above; no call waits for longer than an hour.
const QUEUE_TIMEOUT_MAX_MS: u64 = 3_600_000;

/// Makes or replaces a provider.
pub async fn put_provider(
    engine: &Engine,
    principal: &Principal,
    name: CatalogName,
    request: PutProvider,
) -> Result<ProviderView, Error> {
    principal.require_operator()?;
    check_url(&request.base_url)?;
    let secret = match request.api_key.as_deref() {
        None => SecretChange::Keep,
        Some("") => SecretChange::Remove,
        Some(key) => {
            checks::text("apiKey", key, KEY_MAX)?;
            let place = place(SealedTable::Providers, &name);
            SecretChange::Set(seal_for_all(engine, place, key.as_bytes()).await?)
        }
    };
    let provider = StoredProvider {
        name,
        kind: request.kind,
        base_url: request.base_url,
        secret: None,
        max_in_flight: within(&(1..=IN_FLIGHT_MAX), "maxInFlight", request.max_in_flight)?,
        rpm: within(&(1..=RPM_MAX), "rpm", request.rpm)?,
        max_queue: within(&(0..=QUEUE_MAX), "maxQueue", request.max_queue)?,
        queue_timeout_ms: within(
            &(0..=QUEUE_TIMEOUT_MAX_MS),
            "queueTimeoutMs",
            request.queue_timeout_ms,
        )?,
    };
    let written = engine
        .store()
        .put_provider(provider, secret, &principal.author())
        .await?;
    let provider = engine.written(ConfigKind::Provider, written).await;
    Ok(view(engine, provider))
}

/// Every provider, without keys. A key that cannot be opened is shown as such, and the list still loads.
pub async fn list_providers(
    engine: &Engine,
    principal: &Principal,
) -> Result<Vec<ProviderView>, Error> {
    principal.require_operator()?;
    let providers = engine.store().list_providers().await?;
    Ok(providers
        .into_iter()
        .map(|provider| view(engine, provider))
        .collect())
}

/// Deletes a provider that no model uses.
pub async fn delete_provider(
    engine: &Engine,
    principal: &Principal,
    name: &CatalogName,
) -> Result<(), Error> {
    principal.require_operator()?;
    let written = engine
        .store()
        .delete_provider(name, &principal.author())
        .await?;
    deleted(
        engine.written(ConfigKind::Provider, written).await,
        "provider",
    )
}

fn view(engine: &Engine, provider: StoredProvider) -> ProviderView {
    let api_key = secret_state(
        engine,
        SealedTable::Providers,
        &provider.name,
        provider.secret.as_ref(),
    );
    ProviderView {
        name: provider.name,
        kind: provider.kind,
        base_url: provider.base_url,
        api_key,
        max_in_flight: provider.max_in_flight.map(i32::unsigned_abs),
        rpm: provider.rpm.map(i32::unsigned_abs),
        max_queue: provider.max_queue.map(i32::unsigned_abs),
        queue_timeout_ms: provider.queue_timeout_ms.map(i64::unsigned_abs),
    }
}

/// A number within its bounds, as the database takes it.
fn within<N, S>(
    bounds: &RangeInclusive<N>,
    field: &str,
    value: Option<N>,
) -> Result<Option<S>, Error>
where
    N: Copy + PartialOrd + std::fmt::Display,
    S: TryFrom<N>,
{
    let Some(value) = value else { return Ok(None) };
    let stored = S::try_from(value).ok();
    stored
        .filter(|_| bounds.contains(&value))
        .map(Some)
        .ok_or_else(|| {
            let (least, most) = (bounds.start(), bounds.end());
            Error::invalid(
                field,
                format!("{field} must be {least} to {most}, found {value}"),
            )
        })
}

/// An address that calls can be sent to, without a place for secrets in it.
fn check_url(url: &str) -> Result<(), Error> {
    let invalid = |why: &str| {
        Err(Error::invalid(
            "baseUrl",
            format!("baseUrl {why}; give it as https://api.example/v1"),
        ))
    };
    checks::filled("baseUrl", url, URL_MAX)?;
    let Some(rest) = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
    else {
        return invalid("must begin with https:// or http://");
    };
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return invalid("must not hold a user or password (use apiKey)");
    }
    if authority.is_empty() || authority.starts_with(':') {
        return invalid("has no host");
    }
    if url.contains(['?', '#', ' ', '\\']) {
        return invalid("must not hold a query, a fragment, a space or a backslash");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in [
            "https://api.example/v1",
            "http://127.0.0.1:8081/v1",
            "http://[::1]:80",
        ] {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "api.example",
            "ftp://x",
            "https://",
            "https://:80/v1",
            "https://u:p@api.example/v1",
            "https://api.example/v1?key=1",
            "https://a b/v1",
            "https://a\0/v1",
        ] {
            assert!(check_url(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn absurd_numbers_are_refused_by_name() {
        assert_eq!(
            within::<u32, i32>(&(1..=9), "rpm", Some(5)).unwrap(),
            Some(5)
        );
        for bad in [0, u32::MAX] {
            let error = within::<u32, i32>(&(1..=9), "rpm", Some(bad)).unwrap_err();
            assert_eq!(error.problem().field.as_deref(), Some("rpm"));
        }
    }
}
