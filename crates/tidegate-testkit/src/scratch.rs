//! Directories that are gone when this process is, even after `kill -9`.
//!
//! Statics are never dropped and a killed process drops nothing, so a small shell does the
//! removing: it learns the names over a pipe and acts when the pipe closes. What survives even
//! that (the shell was killed too) is removed by the next test process that starts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

const PREFIX: &str = "tidegate-test-";
/// Younger directories are left alone: their owner may be about to take the lock.
const STALE_AFTER: Duration = Duration::from_mins(2);

/// Waits for PostgreSQL to end by itself (it has been told to), at most 10 s, then removes.
const REAPER: &str = r#"
trap '' INT TERM HUP
set --
while IFS= read -r dir; do set -- "$@" "$dir"; done
for dir in "$@"; do
    tries=0
    while [ -e "$dir/pg/data/postmaster.pid" ] && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    if [ -e "$dir/pg/data/postmaster.pid" ]; then
        kill -QUIT "$(head -n 1 "$dir/pg/data/postmaster.pid")" && sleep 1
    fi
    rm -rf -- "$dir"
done
"#;

/// A new directory for `purpose`, which the account of a dropped server may enter.
pub fn directory(purpose: &str) -> PathBuf {
    static SWEPT: OnceLock<()> = OnceLock::new();
    SWEPT.get_or_init(|| remove_stale(&std::env::temp_dir()));
    let dir = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{purpose}-"))
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory below TMPDIR")
        .keep();
    remove_at_exit(&dir);
    dir
}

fn remove_at_exit(dir: &Path) {
    static REAPER_PROCESS: OnceLock<Mutex<Child>> = OnceLock::new();
    let reaper = REAPER_PROCESS.get_or_init(|| {
        let child = Command::new("/bin/sh")
            .args(["-c", REAPER])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the tests.
            .process_group(0)
            .spawn()
            .expect("/bin/sh to remove test directories at the end");
        Mutex::new(child)
    });
    let mut reaper = reaper.lock().expect("the reaper's pipe");
    let pipe = reaper.stdin.as_mut().expect("the reaper's pipe");
    writeln!(pipe, "{}", dir.display()).expect("the reaper reads names until we end");
}

/// Removes directories of dead test processes: those whose cluster lock nobody holds.
fn remove_stale(temp: &Path) {
    let Ok(entries) = fs::read_dir(temp) else {
        return;
    };
    for dir in entries.flatten().map(|entry| entry.path()) {
        let ours = dir
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if ours && is_abandoned(&dir) {
            // Another test process may be at the same; the directory is gone either way.
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

fn is_abandoned(dir: &Path) -> bool {
    let old = fs::metadata(dir)
        .and_then(|meta| meta.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE_AFTER));
    let free = || match File::open(dir.join("pg/lock")) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(_) => false,
    };
    old && free()
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use super::*;

    fn aged(dir: &Path) {
        let long_ago = fs::metadata(dir).unwrap().modified().unwrap() - 2 * STALE_AFTER;
        let times = FileTimes::new().set_modified(long_ago);
        File::open(dir).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn only_old_directories_without_an_owner_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = temp.path().join(name);
            fs::create_dir_all(dir.join("pg")).unwrap();
            fs::write(dir.join("pg/lock"), "1").unwrap();
            dir
        };
        let dead = make("tidegate-test-dead");
        let owned = make("tidegate-test-owned");
        let young = make("tidegate-test-young");
        let foreign = make("someone-else");
        let lock = File::open(owned.join("pg/lock")).unwrap();
        lock.lock().unwrap();
        for dir in [&dead, &owned, &foreign] {
            aged(dir);
        }
        remove_stale(temp.path());
        assert!(!dead.exists());
        assert!(owned.exists() && young.exists() && foreign.exists());
    }
}
