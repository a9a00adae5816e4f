//! What a failed model call means for its run.

use tidegate_client::worker::Failure;
use tidegate_llm::{
    LlmError,
    catalogue::{Locale, llm_busy_until},
};

use crate::ExecutorSettings;

/// A code, a text that may be shown, and whether another attempt may help. Texts of providers were cleaned of keys and
/// of what was asked before they came here.
pub(crate) fn of_model(error: &LlmError, settings: &ExecutorSettings) -> Failure {
    let detail = match error {
        LlmError::Busy { retry_after, .. } => {
            llm_busy_until(settings.locale, &settings.brand, *retry_after)
        }
        other => other.to_string(),
    };
    Failure {
        code: error.code(),
        detail,
        retryable: error.is_transient(),
        retry_after: error.retry_after(),
    }
}

/// The language of texts that people read.
pub(crate) const DEFAULT_LOCALE: Locale = Locale::En;
