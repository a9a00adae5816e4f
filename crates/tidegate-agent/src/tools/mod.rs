//! Tools: MCP servers that run as child processes of this instance and speak over stdio (R20.1).
//!
//! [`ToolHost`] keeps them running, [`Offer`] is what one attempt may use, frozen when the attempt began.
//!
//! Invariants:
//! * a tool is usable only if it was offered *and* still is what was offered: marked `read`, available to the tenant,
//!   with the same schema; a server's own hints can only take away (O-21);
//! * a call ends at its total time limit whatever the server sends meanwhile (O-26);
//! * never more child processes than stated, each with its process group, killed and reaped with its host.

mod host;
mod mounted;
mod names;
mod offer;
mod output;
mod process;
mod scrub;
mod server;
mod spec;

pub use host::{ToolHost, ToolLimits};
pub use mounted::ToolStatus;
pub use offer::{Offer, Reached, ToolAnswer};
pub(crate) use output::bounded;
pub use server::{ServerState, ToolServerStatus};
pub use spec::ToolServerSpec;
