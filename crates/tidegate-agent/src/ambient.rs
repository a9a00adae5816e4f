//! The one place that reads randomness and the environment of the process.

use std::{env, ffi::OsString};

/// A number in [0, 1).
#[expect(
    clippy::disallowed_methods,
    reason = "the one source of randomness of this crate"
)]
pub(crate) fn unit() -> f64 {
    rand::random::<f64>()
}

/// What a child process is given of our own environment: where programs are, and where its user lives. Everything else
/// may hold secrets.
pub(crate) fn child_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ["PATH", "HOME"]
        .into_iter()
        .filter_map(|name| env::var_os(name).map(|value| (name, value)))
}
