//! The resolved configuration of a provider, as the engine's config bus pushes it: secrets opened, defaults filled in.

use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;
use tidegate_model::{Code, ids::CatalogName};
use tidegate_policy::limiter::LimiterSettings;

use crate::limits;

/// One provider.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name in the catalogue.
    pub id: CatalogName,
    /// Where its API is, for example `https://api.example/v1`. Nothing is ever sent anywhere else: neither redirects
    /// nor proxies of the environment are followed.
    pub base_url: String,
    /// Its key; readable in this crate only. `None` for endpoints without one.
    pub api_key: Option<SecretString>,
    /// A PEM file with certificate authorities that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether figures are asked for in a stream (`stream_options.include_usage`). Switch off for the few servers that
    /// refuse the field; calls then end with [`crate::Usage::Unknown`].
    pub ask_for_usage: bool,
    /// Its limits on this instance.
    pub limits: LimiterSettings,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// How often a request is repeated.
    pub retry: RetryPolicy,
}

impl ProviderConfig {
    /// A provider with default limits and no key.
    pub fn new(id: CatalogName, base_url: impl Into<String>) -> Self {
        Self {
            id,
            base_url: base_url.into(),
            api_key: None,
            ca_file: None,
            ask_for_usage: true,
            limits: LimiterSettings::default(),
            timeouts: Timeouts::default(),
            retry: RetryPolicy::default(),
        }
    }
}

/// Time limits of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection is up.
    pub connect: Duration,
    /// Until the first piece of an answer.
    pub first_content: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// In all, waits and tries included.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: limits::CONNECT_TIMEOUT,
            first_content: limits::FIRST_CONTENT_TIMEOUT,
            idle: limits::IDLE_TIMEOUT,
            total: limits::TOTAL_TIMEOUT,
        }
    }
}

/// Retries before the first piece of an answer (R13.5); none after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Requests in all; 1 means no retry.
    pub tries: u32,
    /// The first backoff; doubles, fully jittered.
    pub base: Duration,
    /// The longest backoff.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: limits::TRIES,
            base: limits::BACKOFF_BASE,
            max: limits::BACKOFF_MAX,
        }
    }
}

impl RetryPolicy {
    /// One request and no more.
    pub const NONE: Self = Self {
        tries: 1,
        base: limits::BACKOFF_BASE,
        max: limits::BACKOFF_MAX,
    };

    /// The wait before the try after `done` tries; `unit` is a random number in [0, 1). It stays fully jittered at its
    /// greatest value, so that callers do not come back together.
    pub fn backoff(&self, done: u32, unit: f64) -> Duration {
        let doublings = done.saturating_sub(1).min(20);
        self.base
            .saturating_mul(1 << doublings)
            .min(self.max)
            .mul_f64(unit.clamp(0.0, 1.0))
    }
}

/// A name under which callers ask for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRoute {
    /// The name callers use.
    pub alias: CatalogName,
    /// The provider that serves it.
    pub provider: CatalogName,
    /// The provider's own name of the model.
    pub model: String,
}

/// A provider that cannot be used, and why. It affects calls to its own models only (R1.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableProvider {
    /// The provider.
    pub id: CatalogName,
    /// What is wrong, in one sentence without secrets.
    pub reason: String,
    /// The code of calls to its models: `SECRET_UNREADABLE` where its key does not open, which another server or a restart
    /// may do; `MODEL_NOT_CONFIGURED` where the configuration must be changed.
    pub code: Code,
}

/// All providers and models, as of one revision.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// The providers.
    pub providers: Vec<ProviderConfig>,
    /// Providers whose secret could not be opened.
    pub unusable: Vec<UnusableProvider>,
    /// The models.
    pub models: Vec<ModelRoute>,
}
