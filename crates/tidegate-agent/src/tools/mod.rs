//! Tools: MCP servers that run as child processes of this instance or answer behind a URL, and HTTP APIs whose calls
//! are described as tools (R20.1).
//!
//! [`ToolHost`] keeps them running, [`Offer`] is what one attempt may use, frozen when the attempt began.
//!
//! Invariants:
//! * a tool is usable only if it was offered *and* still is what was offered: marked `read`, available to the tenant,
//!   with the same schema; a server's own hints can only take away (O-21);
//! * a call ends at its total time limit whatever the server sends meanwhile (O-26);
//! * a connection goes only to an address that was itself checked, and no credential to another host (O-27);
//! * never more child processes than stated, each with its process group, killed and reaped with its host.

mod host;
mod http_api;
mod live;
mod mcp;
mod mounted;
mod network;
mod offer;
mod output;
mod process;
mod scrub;
mod server;
mod spec;
mod streamable;

pub use host::{ToolHost, ToolLimits};
pub use network::{Lookup, Network};
pub use offer::{Offer, Reached, ToolAnswer};
pub(crate) use output::bounded;
pub use server::{ServerState, ToolServerStatus};
pub use spec::{Endpoint, Program, ToolServerSpec, Transport};
