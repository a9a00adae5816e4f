//! Sockets: listeners, TLS, limits of a connection, trusted proxies.

mod local;
mod proxies;
mod serve;
mod stall;
mod tls;

pub use local::Local;
pub use proxies::Proxies;
pub use serve::{ServeError, ServerParts, serve};
pub use tls::{TlsError, load as load_tls};
