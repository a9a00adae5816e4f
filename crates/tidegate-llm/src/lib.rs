//! Model calls: providers behind one trait, and the layers around them.
//!
//! The stack reads from the inside out: a [`Provider`] (here [`OpenAi`], for every OpenAI-compatible endpoint) →
//! [`Limited`] (a slot of the provider's limiter, time limits, one record per request) → [`Retried`] (asks again before
//! the first piece of an answer). [`Providers`] holds the stacks by name and swaps them when the configuration changes.
//! The gateway and the built-in executor use the same stack; there is no way round it.
//!
//! Not here: what the limiter decides (`tidegate-policy`), prices and credits, fallbacks, storing keys, HTTP routes.
//!
//! Invariants:
//! - a provider's key is readable in this crate only, and is taken out of everything the provider says;
//! - a request that waits, streams, stalls, panics or is dropped gives back its slot exactly once and is recorded
//!   exactly once;
//! - nothing is asked again once a piece of an answer has been handed on;
//! - nothing is sent anywhere but to the configured `base_url`;
//! - there is no cache of answers.

pub mod catalogue;
pub mod chat;
pub mod config;
pub mod dice;
pub mod error;
pub mod limited;
pub mod limiter;
pub mod limits;
pub mod openai;
pub mod provider;
pub mod record;
pub mod registry;
pub mod retried;
mod scrub;

pub use chat::{
    Answer, ChatRequest, ChatStream, Delta, Finish, FinishReason, Message, TokenCounts, ToolCall,
    ToolChoice, ToolSpec, Usage, collect,
};
pub use config::{Catalogue, ModelRoute, ProviderConfig, RetryPolicy, Timeouts, UnusableProvider};
pub use dice::Dice;
pub use error::{FaultKind, LlmError, ProviderFault};
pub use limited::Limited;
pub use limiter::{ProviderLimiter, Slot};
pub use openai::OpenAi;
pub use provider::{CallContext, Provider};
pub use record::{CallOutcome, CallRecord, CallRecorder, describe_metrics};
pub use registry::{Model, ProviderView, Providers};
pub use retried::Retried;
pub use scrub::Scrubber;
pub use tidegate_policy::limiter::{CallClass, LimiterSettings, LimiterView};
