//! The vocabulary of Tidegate: typed ids, states and their transitions, versioned contracts, codes, digests and the
//! shapes on the wire.
//!
//! Nothing here does I/O, knows a clock or decides anything that needs a snapshot; that is `tidegate-policy`.
//!
//! Invariants: every enum that is stored has exactly one text form (`as_str`), which is also its JSON form; a
//! transition that is not listed in [`run::RunState::may_become`] does not exist; a request type refuses unknown
//! fields; what others wrote is read through [`strict`].

pub mod admission;
pub mod api;
pub mod codes;
pub mod config;
pub mod contracts;
pub mod digest;
pub mod effect;
pub mod event;
pub mod fence;
pub mod ids;
pub mod lasting;
pub mod limits;
pub mod pool_reason;
pub mod principal;
pub mod prompt;
pub mod queue_reason;
pub mod run;
pub mod schedule;
pub mod strict;
pub mod text_enum;
mod text_form;
pub mod words;

pub use codes::Code;
pub use config::ConfigKind;
pub use fence::Fence;
pub use ids::{
    AdmissionId, Capability, ConversationId, InstanceId, KeyId, PoolId, RequestId, RunId, TenantId,
    WorkerId,
};
