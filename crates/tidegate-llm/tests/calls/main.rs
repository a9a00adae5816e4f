//! The whole stack over real HTTP on the loopback interface, against the scripted provider.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod answers;
mod faults;
mod layers;
mod leaving;
mod limiter;
mod metrics;
mod reconfigure;
mod secrets;
mod support;
mod tls;
