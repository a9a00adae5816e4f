//! The binary: command line, `serve`, `dev`, `demo`, and the place where the parts of a server are put together.
//!
//! Not done here: rules. A command either speaks HTTP through `tidegate-client` or, where it needs the database, calls
//! one function of the engine.
//!
//! Invariants: only [`output`] writes to the terminal; a command that fails says what was wrong and what to do, and ends
//! with a documented exit code; no secret is ever shown except a new key, once.

mod cli;
mod commands;
mod compose;
mod connection;
mod demo;
mod dev;
mod events;
mod exit;
mod failure;
mod files;
mod flags;
mod output;
mod profile;
mod shell;
mod signals;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::Cli,
    exit::Exit,
    failure::{Failure, Outcome},
    output::Output,
};

/// Servers allocate small things all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version are answers.
        Err(error) if error.use_stderr() && cli::asks_for_json(std::env::args_os()) => {
            return Output::new(true).failure(&Failure::from(&error)).into();
        }
        Err(error) => error.exit(),
    };
    let output = Output::new(cli.json);
    let exit = match run(cli, output) {
        Ok(exit) => exit,
        Err(failure) => output.failure(&failure),
    };
    exit.into()
}

fn run(cli: Cli, output: Output) -> Outcome {
    // TLS needs a provider of primitives for the whole process; nobody has chosen one before us.
    let _raced = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::caused(Exit::Failed, "cannot start the runtime", &error))?;
    let exit = runtime.block_on(cli.run(output));
    // What still blocks a thread (a name look-up, a read of standard input) must not hold the end up.
    runtime.shutdown_background();
    exit
}
