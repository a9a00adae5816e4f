//! The one trait of the stack. A provider, the limiter around it and the retries around that all implement it.

use std::fmt::Debug;

use async_trait::async_trait;
use tidegate_model::{RunId, TenantId, ids::CatalogName};
use tidegate_policy::limiter::CallClass;
use tokio::time::Instant;

use crate::{
    chat::{ChatRequest, ChatStream},
    error::LlmError,
};

/// Who asks, and until when.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Which queue of the limiter the call stands in.
    pub class: CallClass,
    /// The tenant that pays, if any.
    pub tenant: Option<TenantId>,
    /// The run the call belongs to, if any.
    pub run: Option<RunId>,
    /// When the caller stops waiting, on the local monotonic clock.
    pub deadline: Option<Instant>,
    /// Which request of the call it is, from 1; set by [`crate::Retried`].
    pub try_number: u32,
}

impl CallContext {
    /// A call without tenant, run and deadline.
    pub const fn new(class: CallClass) -> Self {
        Self {
            class,
            tenant: None,
            run: None,
            deadline: None,
            try_number: 1,
        }
    }
}

/// Something that answers questions.
///
/// `chat` returns once the answer has begun, or fails. The stream yields pieces and then exactly one
/// [`crate::Delta::Finished`] or one error; nothing comes after either. Dropping the future or the stream aborts.
#[async_trait]
pub trait Provider: Send + Sync + Debug {
    /// The provider's name in the catalogue.
    fn id(&self) -> &CatalogName;

    /// Asks.
    async fn chat(&self, request: &ChatRequest, call: &CallContext)
    -> Result<ChatStream, LlmError>;
}
