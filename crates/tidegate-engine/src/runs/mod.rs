//! Runs as their tenant handles them.

pub mod accept;
pub mod bulk;
pub mod cancel;
pub mod children;
pub mod explain;
pub mod get;
pub mod input;
pub mod list;
pub mod requeue;
pub mod resolve;
pub mod submit;
pub(crate) mod view;
