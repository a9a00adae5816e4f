//! Everything that can go wrong with a model call, told apart so that callers can decide without reading texts.

use std::time::Duration;

use tidegate_model::{Code, ids::CatalogName};
use tidegate_policy::limiter::BusyCause;

/// Why a call gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// The provider's limiter refused the call (`LLM_BUSY`); the provider was not asked.
    #[error("provider {provider} is busy ({}); try again in {} s", cause.as_str(), retry_after.as_secs_f64().ceil())]
    Busy {
        /// The provider.
        provider: CatalogName,
        /// Queue full, or wait over.
        cause: BusyCause,
        /// When to come back.
        retry_after: Duration,
    },
    /// The provider refused, failed or broke off.
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    /// The caller's deadline passed first.
    #[error("the deadline of the call passed before the model had answered")]
    DeadlineExceeded,
    /// No model goes by this name.
    #[error("no model {alias:?} is configured; `tidegate model list` shows those that are")]
    UnknownModel {
        /// The name asked for.
        alias: String,
    },
    /// The model's provider is configured in a way that cannot work.
    #[error("provider {provider} cannot be used: {reason}")]
    Unusable {
        /// The provider.
        provider: CatalogName,
        /// What to repair.
        reason: String,
        /// `MODEL_NOT_CONFIGURED`, or `SECRET_UNREADABLE`.
        code: Code,
    },
}

impl LlmError {
    /// The code of a problem, or of a run that ends with this.
    pub const fn code(&self) -> Code {
        match self {
            Self::Busy { .. } => Code::LlmBusy,
            Self::Provider(_) => Code::ProviderFailed,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::UnknownModel { .. } => Code::ModelNotConfigured,
            Self::Unusable { code, .. } => *code,
        }
    }

    /// When trying again makes sense, where that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => Some(*retry_after),
            Self::Provider(fault) => fault.retry_after,
            _ => None,
        }
    }

    /// Whether the same call may go well later, without a change by the caller or of the configuration: a key that this
    /// server cannot open may be open to another, or to this one after its restart.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::Provider(fault) => fault.kind.is_transient(),
            Self::Unusable { code, .. } => matches!(code, Code::SecretUnreadable),
            _ => false,
        }
    }
}

/// What kind of failure of a provider it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It asks for fewer requests (429).
    Throttled,
    /// The account with the provider is empty.
    CreditExhausted,
    /// The conversation does not fit the model's context.
    TooLong,
    /// It does not accept the key.
    Auth,
    /// It does not accept the request: an unknown model, a bad parameter.
    Refused,
    /// It is overloaded or broken (5xx).
    Overloaded,
    /// It cannot be reached.
    Unreachable,
    /// It answered in a way that makes no sense.
    BadAnswer,
    /// The answer broke off.
    CutStream,
    /// It took too long.
    Timeout,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Throttled,
        Self::CreditExhausted,
        Self::TooLong,
        Self::Auth,
        Self::Refused,
        Self::Overloaded,
        Self::Unreachable,
        Self::BadAnswer,
        Self::CutStream,
        Self::Timeout,
    ];

    /// The text form, for metrics, logs and error bodies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::CreditExhausted => "credit_exhausted",
            Self::TooLong => "too_long",
            Self::Auth => "auth",
            Self::Refused => "refused",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::BadAnswer => "bad_answer",
            Self::CutStream => "cut_stream",
            Self::Timeout => "timeout",
        }
    }

    /// Whether trying again may help.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Throttled
                | Self::Overloaded
                | Self::Unreachable
                | Self::CutStream
                | Self::Timeout
        )
    }

    /// What the person who runs the server can do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Throttled => "wait, or lower LLM_PROVIDER_RPM to what the provider grants",
            Self::CreditExhausted => "top up the account with the provider",
            Self::TooLong => "shorten the conversation or choose a model with a larger context",
            Self::Auth => "check the provider's key (`tidegate provider set`)",
            Self::Refused => "check the model name and the request",
            Self::Overloaded => "wait; the provider has a problem of its own",
            Self::Unreachable => {
                "check base_url, network and certificate authority of the provider"
            }
            Self::BadAnswer => "check that base_url points at an OpenAI-compatible API",
            Self::CutStream => "try again; the connection to the provider broke off",
            Self::Timeout => "try again, or raise the provider's timeouts",
        }
    }
}

/// A failure of a provider. Texts are cleaned of its key and of what was asked ([`crate::scrub`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderFault {
    /// The provider, once known.
    pub provider: Option<CatalogName>,
    /// What kind it was.
    pub kind: FaultKind,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The provider's own code, where it named one.
    pub provider_code: Option<String>,
    /// What the provider or the connection said.
    pub message: String,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl ProviderFault {
    /// A fault without an HTTP status.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            provider: None,
            kind,
            status: None,
            provider_code: None,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether the provider wants fewer requests: a 429, or a 5xx that says when to come back.
    pub const fn asks_for_less(&self) -> bool {
        match self.kind {
            FaultKind::Throttled => true,
            FaultKind::Overloaded => self.retry_after.is_some(),
            _ => false,
        }
    }

    /// Names the provider.
    #[must_use]
    pub fn of(mut self, provider: &CatalogName) -> Self {
        self.provider = Some(provider.clone());
        self
    }
}

impl std::error::Error for ProviderFault {}

impl std::fmt::Display for ProviderFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("provider")?;
        if let Some(provider) = &self.provider {
            write!(f, " {provider}")?;
        }
        write!(f, ": {}", self.kind.as_str())?;
        if let Some(status) = self.status {
            write!(f, ", status {status}")?;
        }
        if let Some(code) = &self.provider_code {
            write!(f, ", code {code}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        write!(f, "; {}", self.kind.remedy())
    }
}
