//! Making a cluster, with `initdb` or as a copy of another, all or nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::account::Account;
use crate::binaries::Binaries;
use crate::error::{AtPath, EmbeddedError};
use crate::layout::{Layout, write_private};
use crate::options::{Durability, Options, Primary};
use crate::tied::{self, Farewell};

/// Name of the role that owns everything in the cluster.
pub(crate) const SUPERUSER: &str = "tidegate";
const PASSWORD_BYTES: usize = 24;

/// Makes `data/` if there is none. It is made aside and renamed, so that an interrupted attempt
/// leaves nothing that looks like data.
pub(crate) fn ensure(
    layout: &Layout,
    binaries: &Binaries,
    account: &Account,
    options: &Options,
) -> Result<(), EmbeddedError> {
    layout.wipe(false)?;
    if layout.data_major()?.is_some() {
        return Ok(());
    }
    let aside = layout.private_dir(&format!("init-{}", std::process::id()), account)?;
    let data = aside.join("data");
    let password = if let Some(primary) = &options.standby_of {
        let command = base_backup(primary, &data, binaries);
        run(command, layout, account)?;
        primary.password.clone()
    } else {
        let password = new_password()?;
        let password_file = aside.join("password");
        write_private(&password_file, &password)?;
        account.own(&password_file)?;
        let command = initdb(&data, &password_file, binaries, options.durability);
        run(command, layout, account)?;
        password
    };
    write_private(&layout.password(), &password)?;
    fs::rename(&data, layout.data()).at("rename", &data)?;
    fs::remove_dir_all(&aside).at("remove", &aside)
}

fn initdb(
    data: &Path,
    password_file: &Path,
    binaries: &Binaries,
    durability: Durability,
) -> Command {
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
    command
}

/// A copy of the primary that will follow it.
fn base_backup(primary: &Primary, data: &Path, binaries: &Binaries) -> Command {
    let mut command = tied::command(binaries.program("pg_basebackup"), Farewell::Kill);
    command
        .arg("-D")
        .arg(data)
        .arg("-h")
        .arg(&primary.socket_dir)
        .args(["-p", &primary.port.to_string(), "-U", SUPERUSER])
        .args(["--write-recovery-conf", "--wal-method=stream"])
        .args(["--checkpoint=fast", "--no-sync", "--no-password"]);
    command
}

/// Runs it under the account; its output goes to the log and, on failure, into the error.
fn run(mut command: Command, layout: &Layout, account: &Account) -> Result<(), EmbeddedError> {
    let log = layout.open_log()?;
    let log_copy = log.try_clone().at("open", layout.log())?;
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(log))
        .stderr(Stdio::from(log_copy));
    account.apply(&mut command);
    let system = |source| EmbeddedError::System {
        what: "run the program that makes a cluster",
        source,
    };
    let mut child = tied::spawn(command, Farewell::Kill).map_err(system)?;
    let status = child.child_mut().wait().map_err(system)?;
    if status.success() {
        return Ok(());
    }
    Err(EmbeddedError::NotMade {
        dir: layout.root().to_owned(),
        output: layout.log_tail(),
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
