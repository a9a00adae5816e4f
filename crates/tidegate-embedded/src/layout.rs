//! The files of a cluster directory, and where such a directory is by default.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::error::{AtPath, EmbeddedError};
use crate::wait;

/// Longest path of a unix socket (`sun_path` holds 108 bytes with the final zero).
const SOCKET_PATH_MAX: usize = 107;
/// A log above this size is put aside at the next start.
const LOG_MAX_BYTES: u64 = 10 << 20;
/// How much of the log an error shows.
const LOG_TAIL_BYTES: u64 = 2_000;
const LOCK_POLL: Duration = Duration::from_millis(50);
const FORMAT: u32 = 1;

/// Where a cluster called `name` lives unless the user says otherwise: `/var/lib/tidegate/NAME`
/// for root (whose home the unprivileged account cannot enter), else below the XDG data home.
pub fn default_data_dir(name: &str) -> Result<PathBuf, EmbeddedError> {
    if Uid::effective().is_root() {
        return Ok(Path::new("/var/lib/tidegate").join(name));
    }
    let absolute = |variable| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("tidegate").join(name))
        .ok_or_else(|| EmbeddedError::Access {
            path: PathBuf::from("~/.local/share"),
            reason: "HOME and XDG_DATA_HOME are unset; set one or give --data-dir".into(),
        })
}

/// Proof that a directory is a cluster of ours, so that `--fresh` may delete in it.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    /// A socket directory outside of this one, where ours would make the path too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket_dir: Option<PathBuf>,
}

/// The paths of one cluster, and the lock that makes this process its owner.
#[derive(Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    _lock: File,
}

impl Layout {
    /// Makes or opens the directory and becomes its owner.
    pub(crate) fn open(dir: &Path, patience: Duration) -> Result<Self, EmbeddedError> {
        let dir = std::path::absolute(dir).at("resolve", dir)?;
        let mode = if Uid::effective().is_root() {
            0o755
        } else {
            0o700
        };
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&dir)
            .at("create", &dir)?;
        let root = fs::canonicalize(&dir).at("resolve", &dir)?;
        let marked = root.join("tidegate-cluster.json").exists();
        if !marked && has_foreign_entries(&root)? {
            return Err(EmbeddedError::NotOurs { dir: root });
        }
        let lock = take_lock(&root, patience)?;
        let layout = Self { root, _lock: lock };
        if !marked {
            layout.write_marker(None)?;
        }
        Ok(layout)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log/postgres.log")
    }

    pub(crate) fn password(&self) -> PathBuf {
        self.root.join("password")
    }

    fn marker(&self) -> PathBuf {
        self.root.join("tidegate-cluster.json")
    }

    /// The major version that made the data, if there is any.
    pub(crate) fn data_major(&self) -> Result<Option<u32>, EmbeddedError> {
        let path = self.data().join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", path),
        }
    }

    /// Throws the data away, and what interrupted starts left behind.
    pub(crate) fn wipe(&self, everything: bool) -> Result<(), EmbeddedError> {
        for entry in fs::read_dir(&self.root).at("list", &self.root)? {
            let path = entry.at("list", &self.root)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let data = matches!(name.as_ref(), "data" | "run" | "log");
            if name.starts_with("init-") || (everything && data) {
                fs::remove_dir_all(&path).at("remove", &path)?;
            }
        }
        Ok(())
    }

    /// A directory below the root for `account` alone.
    pub(crate) fn private_dir(
        &self,
        name: &str,
        account: &Account,
    ) -> Result<PathBuf, EmbeddedError> {
        let path = self.root.join(name);
        make_private(&path)?;
        account.own(&path)?;
        Ok(path)
    }

    /// A directory for the socket whose path is short enough. Where ours is not, a temporary one
    /// is made and written down, so that the next start can remove it.
    pub(crate) fn socket_dir(
        &self,
        account: &Account,
        port: u16,
    ) -> Result<PathBuf, EmbeddedError> {
        self.remove_outside_socket_dir()?;
        let own = self.private_dir("run", account)?;
        if fits(&own, port) {
            return Ok(own);
        }
        let outside = tempfile::Builder::new()
            .prefix("tidegate-")
            .tempdir_in("/tmp")
            .at("create a directory in", "/tmp")?
            .keep();
        account.own(&outside)?;
        self.write_marker(Some(outside.clone()))?;
        Ok(outside)
    }

    /// Removes the temporary socket directory of this or an earlier start.
    pub(crate) fn remove_outside_socket_dir(&self) -> Result<(), EmbeddedError> {
        let path = self.marker();
        let text = fs::read_to_string(&path).at("read", &path)?;
        let marker = serde_json::from_str::<Marker>(&text).ok();
        if let Some(dir) = marker.and_then(|marker| marker.socket_dir)
            && dir.parent() == Some(Path::new("/tmp"))
        {
            // It may be gone already, since /tmp is cleaned at boot.
            let _ = fs::remove_dir_all(dir);
            self.write_marker(None)?;
        }
        Ok(())
    }

    fn write_marker(&self, socket_dir: Option<PathBuf>) -> Result<(), EmbeddedError> {
        let marker = Marker {
            format: FORMAT,
            socket_dir,
        };
        let text = serde_json::to_string(&marker).map_err(|source| EmbeddedError::System {
            what: "write down the socket directory",
            source: source.into(),
        })?;
        write_private(&self.marker(), &text)
    }

    /// Opens the log for appending; a large one is put aside first.
    pub(crate) fn open_log(&self) -> Result<File, EmbeddedError> {
        let path = self.log();
        make_private(&self.root.join("log"))?;
        if fs::metadata(&path).is_ok_and(|meta| meta.len() > LOG_MAX_BYTES) {
            fs::rename(&path, path.with_extension("log.1")).at("put aside", &path)?;
        }
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .at("open", path)
    }

    /// The last lines of the log, for an error.
    pub(crate) fn log_tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(std::io::SeekFrom::Start(
                length.saturating_sub(LOG_TAIL_BYTES),
            ))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
    }
}

/// Writes a file that only the caller may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), EmbeddedError> {
    let aside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().at("write", path)
}

fn make_private(path: &Path) -> Result<(), EmbeddedError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        done => done.at("create", path),
    }
}

fn fits(dir: &Path, port: u16) -> bool {
    let socket = dir.join(format!(".s.PGSQL.{port}"));
    socket.as_os_str().len() <= SOCKET_PATH_MAX
}

fn has_foreign_entries(root: &Path) -> Result<bool, EmbeddedError> {
    for entry in fs::read_dir(root).at("list", root)? {
        let name = entry.at("list", root)?.file_name();
        // The lock and a half-written marker are what a crash right after creation leaves.
        if name != "lock" && name != "tidegate-cluster.new" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The lock is the kernel's, so it ends with its owner; the number inside is for messages only.
fn take_lock(root: &Path, patience: Duration) -> Result<File, EmbeddedError> {
    let path = root.join("lock");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .at("open", &path)?;
    let free = wait::until(patience, LOCK_POLL, || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error).at("lock", &path),
    })?;
    if !free {
        let owner = fs::read_to_string(&path).unwrap_or_default();
        return Err(EmbeddedError::Owned {
            dir: root.to_owned(),
            owner: owner.trim().to_owned(),
        });
    }
    let write = |file: &mut File| -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).at("write", path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    #[test]
    fn one_owner_per_directory_and_the_error_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = Layout::open(dir.path(), NO_WAIT).unwrap();
        let error = Layout::open(dir.path(), NO_WAIT).unwrap_err();
        let text = error.to_string();
        let me = format!("process {}", std::process::id());
        assert!(text.contains(&me) && text.contains("--data-dir"), "{text}");
        drop(first);
        Layout::open(dir.path(), NO_WAIT).unwrap();
    }

    #[test]
    fn a_directory_with_other_things_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let error = Layout::open(dir.path(), NO_WAIT).unwrap_err();
        assert!(matches!(error, EmbeddedError::NotOurs { .. }), "{error}");
    }

    #[test]
    fn a_long_path_gets_a_short_socket_directory_which_the_next_start_removes() {
        let top = tempfile::tempdir().unwrap();
        let layout = Layout::open(&top.path().join("d".repeat(100)), NO_WAIT).unwrap();
        let mut account = Account::choose(None, None).unwrap();
        account.dropped = false;
        let first = layout.socket_dir(&account, 5432).unwrap();
        assert!(fits(&first, 5432) && first.starts_with("/tmp"));
        let second = layout.socket_dir(&account, 5432).unwrap();
        assert!(!first.exists() && second.exists());
        layout.remove_outside_socket_dir().unwrap();
        assert!(!second.exists());
    }
}
