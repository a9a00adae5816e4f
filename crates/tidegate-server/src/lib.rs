//! The HTTP edge: axum, one endpoint per file, OpenAPI, the gate, event streams, TLS, metrics, the steps of a shutdown.
//!
//! Not done here: rules. A handler translates a request into one call of the engine and its answer into JSON; what may
//! be done, and to what, is decided in engine and policy.
//!
//! Invariants:
//! * every route stands in [`routes::ROUTES`]; the gate refuses one that does not;
//! * the tenant comes from the key that was checked, never from a path or a body (R2.4);
//! * every answer that is not a success is a problem with a code and the id of its request;
//! * a client that goes away takes nothing with it: runs go on, leases that nobody received are handed back.

pub mod app;
mod claim;
pub mod endpoints;
pub mod extract;
mod in_process;
pub mod listen;
pub mod metrics;
pub mod middleware;
mod openapi;
mod paced;
mod page;
pub mod problem;
pub mod routes;
pub mod shutdown;
mod sse;
pub mod state;

pub use app::router;
pub use in_process::InProcessWorker;
pub use listen::{Local, ServeError, ServerParts, TlsError, serve};
pub use openapi::{openapi, openapi_text};
pub use shutdown::Shutdown;
pub use state::AppState;
