//! The repository's own tasks: `cargo xtask tidy | docs | sqlx | openapi | config`.
//!
//! `tidy` judges the tree by the rules of the house without building it, in a few seconds. The others write files that
//! are committed, or with `--check` compare them. Nothing here ships, and nothing here runs the product's tests: that
//! is `make test`.

mod catalogue;
mod checks;
mod command;
mod error;
mod generate;
mod items;
mod lexer;
mod markdown;
mod metadata;
mod report;
#[cfg(test)]
mod scratch;
mod spdx;
mod sql;
mod sqlx;
mod tidy;
mod tree;

use std::{
    env,
    error::Error as _,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use error::Error;
use generate::{CONFIGURATION, OPENAPI};

const USAGE: &str = "usage: cargo xtask TASK
  tidy              check every rule of the house (sizes, ranks, words, docs, citations, licences, statements)
  docs              rewrite the generated lists in docs/
  sqlx [--check]    write .sqlx from a private PostgreSQL, or compare it
  openapi [--check] write openapi/tidegate.json from the code, or compare it
  config [--check]  write docs/configuration.md from the code, or compare it";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    match run(&args, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let mut err = io::stderr().lock();
            let _ = writeln!(err, "xtask: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                let _ = writeln!(err, "  because: {cause}");
                source = cause.source();
            }
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str], out: &mut dyn Write) -> Result<bool, Error> {
    let root = root()?;
    match args {
        ["tidy"] => tidy::run(&root, out),
        ["docs"] => generate::docs(&root, out),
        ["sqlx"] => sqlx::run(&root, false, out),
        ["sqlx", "--check"] => sqlx::run(&root, true, out),
        ["openapi"] => generate::printed(&root, OPENAPI, false, out),
        ["openapi", "--check"] => generate::printed(&root, OPENAPI, true, out),
        ["config"] => generate::printed(&root, CONFIGURATION, false, out),
        ["config", "--check"] => generate::printed(&root, CONFIGURATION, true, out),
        _ => Err(Error::Usage(USAGE.to_owned())),
    }
}

/// The folder above this package. Cargo names the package when it runs us; what was compiled in may be another checkout
/// that shares a target folder with this one.
fn root() -> Result<PathBuf, Error> {
    let package = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| Error::Usage("run this as `cargo xtask`".to_owned()))
}
