//! What a crashed owner or a crashed PostgreSQL left behind.
//!
//! Runs with the directory's lock held, so there is no other owner. A process belongs to this
//! cluster if it is a `postgres` whose working directory is the data directory; a mere number in
//! `postmaster.pid` proves nothing, since numbers are reused after a reboot.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{AtPath, EmbeddedError};
use crate::wait;

/// How long children of a dead postmaster get to notice by themselves.
const NOTICE: Duration = Duration::from_secs(2);
/// How long each kind of shutdown gets before the next harder one.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Stops every PostgreSQL process that still uses `data`, then removes stale lock files.
pub(crate) fn clear(data: &Path, socket_dir: &Path) -> Result<(), EmbeddedError> {
    if let Some(postmaster) = recorded_postmaster(data)
        && processes_in(data).contains(&postmaster)
    {
        tracing::warn!(
            pid = postmaster,
            "stopping the PostgreSQL of an earlier owner"
        );
        send(postmaster, Signal::SIGINT);
        wait_until_none(data, PATIENCE);
    } else {
        wait_until_none(data, NOTICE);
    }
    for signal in [Signal::SIGQUIT, Signal::SIGKILL] {
        let left = processes_in(data);
        if left.is_empty() {
            break;
        }
        for pid in left {
            send(pid, signal);
        }
        wait_until_none(data, PATIENCE);
    }
    if let Some(&pid) = processes_in(data).first() {
        return Err(EmbeddedError::Leftover {
            pid,
            dir: data.to_owned(),
        });
    }
    remove_stale_files(data, socket_dir)
}

/// PostgreSQL refuses to start while the number in its lock file belongs to any living process
/// of its account. We know better here: nobody uses the directory.
fn remove_stale_files(data: &Path, socket_dir: &Path) -> Result<(), EmbeddedError> {
    let reused = recorded_postmaster(data).is_some_and(is_alive);
    let mut stale: Vec<PathBuf> = Vec::new();
    if reused {
        stale.push(data.join("postmaster.pid"));
    }
    if let Ok(entries) = fs::read_dir(socket_dir) {
        let ours = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(".s.PGSQL."))
        };
        stale.extend(entries.flatten().map(|entry| entry.path()).filter(ours));
    }
    for path in stale {
        fs::remove_file(&path).at("remove", &path)?;
    }
    Ok(())
}

fn recorded_postmaster(data: &Path) -> Option<i32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn is_alive(pid: i32) -> bool {
    pid > 0 && !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// A process that has ended in the meantime is what we want.
fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

fn wait_until_none(data: &Path, patience: Duration) {
    let none = || Ok::<_, Infallible>(processes_in(data).is_empty());
    let Ok(_) = wait::until(patience, POLL, none);
}

/// PostgreSQL processes that work in `data`. Ended ones that nobody has reaped have no working
/// directory any more, so they do not count.
fn processes_in(data: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let process = PathBuf::from(format!("/proc/{pid}"));
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == data)
                && fs::read_link(process.join("exe")).is_ok_and(|exe| is_postgres(&exe))
        })
        .collect()
}

/// The kernel appends " (deleted)" after an upgrade of the package.
fn is_postgres(exe: &Path) -> bool {
    exe.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("postgres"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_does_not_keep_the_cluster_from_starting() {
        let data = tempfile::tempdir().unwrap();
        let run = tempfile::tempdir().unwrap();
        let pid_file = data.path().join("postmaster.pid");
        fs::write(&pid_file, format!("{}\n/elsewhere\n", std::process::id())).unwrap();
        fs::write(run.path().join(".s.PGSQL.5432.lock"), "1\n").unwrap();
        fs::write(run.path().join("unrelated"), "").unwrap();
        clear(data.path(), run.path()).unwrap();
        assert!(!pid_file.exists());
        let left: Vec<_> = fs::read_dir(run.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn a_dead_number_is_left_to_postgresql() {
        let data = tempfile::tempdir().unwrap();
        let pid_file = data.path().join("postmaster.pid");
        fs::write(&pid_file, "4194999\n").unwrap();
        clear(data.path(), &data.path().join("none")).unwrap();
        assert!(pid_file.exists());
    }
}
