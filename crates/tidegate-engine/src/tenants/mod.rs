//! Tenants (R2.6): one verb per file.

mod create;
pub mod erasure;
mod get;
pub mod limits;
mod list;
mod set_state;
pub mod tiers;

pub use create::create;
pub use get::get;
pub use limits::limits;
pub use list::list;
pub use set_state::set_state;
pub use tiers::{delete_override, put_override};
