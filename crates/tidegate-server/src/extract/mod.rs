//! Input at the edge: each extractor either gives a value that the engine may use or a problem that names the field.

mod body;
mod caller;
mod credential;
mod idempotency;
mod last_event_id;
mod media;
mod nul;
mod path;
mod query;

pub(crate) use body::whole;
pub use body::{JsonBody, LargeBody, NoBody};
pub use caller::Caller;
pub use credential::Credential;
pub use idempotency::{HEADER as IDEMPOTENCY_HEADER, IdempotencyKey, read as idempotency_key};
pub use last_event_id::LastEventId;
pub use media::WantsStream;
pub use path::PathId;
pub use query::QueryOf;
