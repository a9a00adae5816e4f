//! Making a cluster with `initdb`, all or nothing.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::{AtPath, EmbeddedError};
use crate::layout::{Layout, write_private};
use crate::options::Durability;
use crate::tied::{self, Farewell};

/// Name of the role that owns everything in the cluster.
pub(crate) const SUPERUSER: &str = "tidegate";
const PASSWORD_BYTES: usize = 24;
/// How much of initdb's output an error shows.
const OUTPUT_CHARS: usize = 1_500;

/// Makes `data/` if there is none. It is made aside and renamed, so that an interrupted attempt
/// leaves nothing that looks like data.
pub(crate) fn ensure(
    layout: &Layout,
    binaries: &Binaries,
    account: &Account,
    durability: Durability,
) -> Result<(), EmbeddedError> {
    layout.wipe(false)?;
    if layout.data_major()?.is_some() {
        return Ok(());
    }
    let aside = layout.private_dir(&format!("init-{}", std::process::id()), account)?;
    let password = new_password()?;
    let password_file = aside.join("password");
    write_private(&password_file, &password)?;
    account.own(&password_file)?;
    let data = aside.join("data");
    run_initdb(&data, &password_file, layout, binaries, account, durability)?;
    write_private(&layout.password(), &password)?;
    fs::rename(&data, layout.data()).at("rename", &data)?;
    fs::remove_dir_all(&aside).at("remove", &aside)
}

fn run_initdb(
    data: &Path,
    password_file: &Path,
    layout: &Layout,
    binaries: &Binaries,
    account: &Account,
    durability: Durability,
) -> Result<(), EmbeddedError> {
    let mut command = tied::command(binaries.program("initdb"), Farewell::Kill);
    command
        .arg("-D")
        .arg(data)
        .arg("--pwfile")
        .arg(password_file)
        .args(["--username", SUPERUSER])
        // The socket directory is private, so whoever reaches the socket is the owner.
        .args(["--auth-local", "trust", "--auth-host", "scram-sha-256"])
        .args(["--encoding", "UTF8", "--locale", "C.UTF-8"])
        .arg("--no-instructions");
    if durability == Durability::Throwaway {
        command.arg("--no-sync");
    }
    let log = layout.open_log()?;
    let log_copy = log.try_clone().at("open", layout.log())?;
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(log))
        .stderr(Stdio::from(log_copy));
    account.apply(&mut command);
    let system = |source| EmbeddedError::System {
        what: "run initdb",
        source,
    };
    let mut child = tied::spawn(command, Farewell::Kill).map_err(system)?;
    let status = child.child_mut().wait().map_err(system)?;
    if status.success() {
        return Ok(());
    }
    let output = layout.log_tail();
    let start = output.len().saturating_sub(OUTPUT_CHARS);
    let start = output.ceil_char_boundary(start);
    Err(EmbeddedError::Initdb {
        dir: layout.root().to_owned(),
        output: output[start..].to_owned(),
    })
}

/// Hex, so that it needs no escaping in an address.
fn new_password() -> Result<String, EmbeddedError> {
    use std::fmt::Write as _;
    let mut bytes = [0_u8; PASSWORD_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| EmbeddedError::System {
        what: "get random bytes for a password",
        source: std::io::Error::other(error.to_string()),
    })?;
    let mut text = String::with_capacity(2 * PASSWORD_BYTES);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
