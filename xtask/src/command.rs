//! Runs a program and hands back what it printed.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::error::Error;

/// Runs to the end and returns standard output; a failure carries what the program said.
pub fn output(program: &str, args: &[&str], dir: &Path) -> Result<String, Error> {
    let shown = || format!("{program} {}", args.join(" "));
    let out = Command::new(program)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::command(shown(), format!("cannot be started: {error}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(Error::command(
            shown(),
            format!("ended with {}: {}", out.status, said.trim()),
        ));
    }
    String::from_utf8(out.stdout).map_err(|error| Error::parse(shown(), error))
}
