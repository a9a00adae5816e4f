//! `cargo xtask sqlx`: makes or compares the committed metadata of checked queries.
//!
//! The store is compiled against a private PostgreSQL with this tree's migrations, and the macros write what they
//! learned into a folder of their own; that folder is then compared with `.sqlx/` or takes its place.

#[cfg(feature = "database")]
mod database;
#[cfg(any(feature = "database", test))]
mod prepared;

use std::{io::Write, path::Path};

use crate::error::Error;

/// Builds itself again with what starts a PostgreSQL, and lets that do the work.
#[cfg(not(feature = "database"))]
pub fn run(root: &Path, check: bool, _out: &mut dyn Write) -> Result<bool, Error> {
    let mut again = std::process::Command::new("cargo");
    again
        .args(["run", "--quiet", "--locked", "--package", "xtask"])
        .args(["--features", "database", "--", "sqlx"])
        .args(check.then_some("--check"))
        .current_dir(root);
    let status = again
        .status()
        .map_err(|error| Error::command("cargo run", error.to_string()))?;
    Ok(status.success())
}

#[cfg(feature = "database")]
pub fn run(root: &Path, check: bool, out: &mut dyn Write) -> Result<bool, Error> {
    let made = database::prepared(root)?;
    prepared::settle(root, &made, check, out)
}
