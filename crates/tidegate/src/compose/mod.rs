//! The place where the parts of a server are put together: database, engine, loops, model providers, tools, the
//! built-in executor, the HTTP edge, and the order in which they end.

pub mod catalogue;
pub mod database;
mod executor;
pub mod local;
pub mod server;
pub mod telemetry;
mod tools;

pub use server::Server;
