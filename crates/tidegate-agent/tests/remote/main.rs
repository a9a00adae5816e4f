//! Tools that are reached over HTTP: MCP behind a URL, plain HTTP APIs, and the addresses they may be at.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod addresses;
mod api;
mod mcp;
mod reference;
mod rig;
#[path = "../support/mod.rs"]
mod support;
