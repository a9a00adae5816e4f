//! The error of every use case: what the caller is told, and apart from it what is logged.

use std::sync::Arc;

use tidegate_model::{Code, api::Problem};
use tidegate_store as store;

/// Why a use case did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be; the refusal says what and what to do.
    #[error("{}: {}", .0.code, .0.detail)]
    Refused(Box<Refusal>),
    /// The database did not do its part.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The error of a batch, told to each of its callers.
    #[error(transparent)]
    Shared(Arc<Self>),
    /// A defect; `what` is for the log.
    #[error("internal error: {what}")]
    Internal {
        /// Where, without contents.
        what: &'static str,
    },
}

/// A refusal that the caller can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What a client matches on.
    pub code: Code,
    /// What was wrong, and the remedy.
    pub detail: String,
    /// What is at fault, as a JSON path, header or parameter.
    pub field: Option<String>,
    /// When to try again, where that can help.
    pub retry_after_ms: Option<u64>,
    /// Every reason, where there are several.
    pub reasons: Vec<String>,
    /// The first event that is kept, where those before it are gone.
    pub first_seq: Option<i64>,
}

impl Error {
    /// A refusal.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Box::new(Refusal {
            code,
            detail: detail.into(),
            field: None,
            retry_after_ms: None,
            reasons: Vec::new(),
            first_seq: None,
        }))
    }

    /// A refusal that may be over after a time.
    pub fn refused_until(code: Code, detail: impl Into<String>, retry_after_ms: u64) -> Self {
        Self::Refused(Box::new(Refusal {
            code,
            detail: detail.into(),
            field: None,
            retry_after_ms: Some(retry_after_ms),
            reasons: Vec::new(),
            first_seq: None,
        }))
    }

    /// A refusal of one field.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Refused(Box::new(Refusal {
            code: Code::InvalidArgument,
            detail: detail.into(),
            field: Some(field.into()),
            retry_after_ms: None,
            reasons: Vec::new(),
            first_seq: None,
        }))
    }

    /// A refusal of a field that is not known.
    pub fn unknown_field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        match Self::invalid(field, detail) {
            Self::Refused(mut refusal) => {
                refusal.code = Code::UnknownField;
                Self::Refused(refusal)
            }
            other => other,
        }
    }

    /// A refusal that may name a field.
    pub fn refused_field(
        code: Code,
        field: Option<&'static str>,
        detail: impl Into<String>,
    ) -> Self {
        Self::Refused(Box::new(Refusal {
            code,
            detail: detail.into(),
            field: field.map(str::to_owned),
            retry_after_ms: None,
            reasons: Vec::new(),
            first_seq: None,
        }))
    }

    /// The same error with the first event that is kept.
    #[must_use]
    pub fn with_first_seq(mut self, first_seq: i64) -> Self {
        if let Self::Refused(refusal) = &mut self {
            refusal.first_seq = Some(first_seq);
        }
        self
    }

    /// The same error of a field that stands within another one.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        if let Self::Refused(refusal) = &mut self
            && let Some(field) = &mut refusal.field
        {
            *field = format!("{outer}.{field}");
        }
        self
    }

    /// No such thing, or somebody else's: the caller cannot tell which (R2.2).
    pub fn not_found(what: &str) -> Self {
        Self::refused(Code::NotFound, format!("no such {what}"))
    }

    /// The code that the caller sees.
    pub fn code(&self) -> Code {
        match self {
            Self::Shared(error) => error.code(),
            Self::Refused(refusal) => refusal.code,
            Self::Store(error) if error.is_unavailable() => Code::DatabaseUnavailable,
            Self::Store(store::Error::IdempotencyConflict) => Code::IdempotencyConflict,
            Self::Store(_) | Self::Internal { .. } => Code::Internal,
        }
    }

    /// What the caller is told; nothing of the database's own words.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Shared(error) => error.problem(),
            Self::Refused(refusal) => {
                let mut problem = Problem::new(refusal.code, refusal.detail.clone());
                if let Some(field) = &refusal.field {
                    problem = problem.with_field(field);
                }
                problem.retry_after_ms = refusal.retry_after_ms;
                problem.reasons.clone_from(&refusal.reasons);
                problem.first_seq = refusal.first_seq;
                problem
            }
            Self::Store(error) if error.is_unavailable() => Problem::new(
                Code::DatabaseUnavailable,
                "the database cannot be reached or does not accept writes; send the request again",
            )
            .with_retry_after_ms(1_000),
            Self::Store(store::Error::IdempotencyConflict) => Problem::new(
                Code::IdempotencyConflict,
                "this Idempotency-Key was used with another request; use a new key for a new request",
            )
            .with_field("idempotency-key"),
            Self::Store(_) | Self::Internal { .. } => Problem::new(
                Code::Internal,
                "the server met a defect; its log has the cause under this request id",
            ),
        }
    }
}
