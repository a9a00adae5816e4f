//! Child processes that end with their owner, however the owner ends.
//!
//! `kill -9` runs no destructor, so the kernel has to tell the child. `setpriv --pdeathsig`
//! (util-linux) asks it to. Two traps are closed here: the signal comes when the *thread* that
//! forked ends, so all children are forked by one thread that never does; and where `setpriv`
//! cannot do it, a small shell waits for the end of a pipe that only this process holds.
//!
//! Children get a process group of their own, so that Ctrl-C in a terminal reaches the owner
//! alone, which then stops them in its own order.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The signal that a child gets when its owner is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// Orderly end; for PostgreSQL a fast shutdown.
    Interrupt,
    /// At once.
    Kill,
}

impl Farewell {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Kill => "KILL",
        }
    }
}

/// A running child and, where the kernel does not do it, its watchdog.
#[derive(Debug)]
pub struct Tied {
    child: Child,
    watchdog: Option<Child>,
}

/// A command for `program` that will get `farewell` when this process ends.
pub fn command(program: impl AsRef<OsStr>, farewell: Farewell) -> Command {
    let mut command = match setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command
                .args(["--pdeathsig", farewell.name(), "--"])
                .arg(program);
            command
        }
        None => Command::new(program),
    };
    command.process_group(0);
    command
}

/// Starts a command that [`command`] made.
pub fn spawn(command: Command, farewell: Farewell) -> io::Result<Tied> {
    let mut child = fork_on_lasting_thread(command)?;
    let watchdog = if setpriv().is_some() {
        None
    } else {
        match watchdog(child.id(), farewell) {
            Ok(watchdog) => Some(watchdog),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        }
    };
    Ok(Tied { child, watchdog })
}

impl Tied {
    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipes, for whoever captures output.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status, once it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends a signal. The child has not been reaped, so its id is still its own.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill(pid(self.child.id()), signal).map_err(io::Error::from)
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            // Before the child's id can be used again; errors mean that it is gone already.
            let _ = watchdog.kill();
            let _ = watchdog.wait();
        }
    }
}

/// The process id as the signal calls want it.
pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap_or(i32::MAX))
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// Forks on a thread that lives as long as the process.
fn fork_on_lasting_thread(command: Command) -> io::Result<Child> {
    static FORKER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let started = std::thread::Builder::new()
            .name("tidegate-forker".into())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    // A caller that is gone drops the child handle; the child stays tied.
                    let _ = answer.send(command.spawn());
                }
            });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for child processes");
        }
        jobs
    });
    let (answer, child) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts child processes has ended");
    forker
        .send((command, answer))
        .map_err(|_| gone(mpsc::RecvError))?;
    child.recv().map_err(gone)?
}

/// Sends the farewell when the pipe closes, which the kernel does when this process ends.
fn watchdog(child: u32, farewell: Farewell) -> io::Result<Child> {
    let script = format!("read -r line; kill -{} {child}", farewell.name());
    Command::new("/bin/sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// A `setpriv` that knows `--pdeathsig`, found out once.
fn setpriv() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            ["/usr/bin/setpriv", "/bin/setpriv"]
                .into_iter()
                .map(PathBuf::from)
                .find(|path| {
                    Command::new(path)
                        .args(["--pdeathsig", "KILL", "--", "true"])
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status()
                        .is_ok_and(|status| status.success())
                })
        })
        .as_deref()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait;

    fn ended(child: &mut Child) -> bool {
        let patience = Duration::from_secs(10);
        let gone = || child.try_wait().map(|status| status.is_some());
        wait::until(patience, Duration::from_millis(10), gone).unwrap()
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut sleeper = command("sleep", Farewell::Kill);
        sleeper.arg("60");
        let tied = std::thread::spawn(|| spawn(sleeper, Farewell::Kill).unwrap());
        let mut tied = tied.join().unwrap();
        let early = || tied.try_wait().map(|status| status.is_some());
        let interval = Duration::from_millis(10);
        assert!(!wait::until(10 * interval, interval, early).unwrap());
        tied.signal(Signal::SIGKILL).unwrap();
        assert!(ended(tied.child_mut()));
    }

    #[test]
    fn the_watchdog_ends_the_child_when_its_pipe_closes() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut dog = watchdog(sleeper.id(), Farewell::Kill).unwrap();
        assert!(sleeper.try_wait().unwrap().is_none());
        drop(dog.stdin.take());
        assert!(ended(&mut sleeper));
        assert!(ended(&mut dog));
    }
}
