//! API keys (R2.1): one verb per file.

mod bootstrap;
mod create;
pub mod last_used;
mod list;
mod revoke;
pub(crate) mod secret;

pub use bootstrap::{bootstrap, recover, take_back_bootstrap};
pub use create::create;
pub use list::list;
pub use revoke::revoke;
