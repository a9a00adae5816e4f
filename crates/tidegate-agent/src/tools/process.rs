//! One child process with its process group: started with a bare environment, killed and reaped whatever happens.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tidegate_embedded::tied::{self, Farewell, Tied};
use tidegate_llm::Scrubber;
use tokio::{
    io::{AsyncReadExt, BufReader},
    process::{ChildStderr, ChildStdin, ChildStdout},
    time::{Instant, sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::spec::Program;
use crate::{ambient, limits};

/// How much of a server's last words is kept, in bytes.
const LAST_WORDS_BYTES: usize = 2 << 10;
/// How often it is looked whether a process that should leave has left.
const POLL: Duration = Duration::from_millis(10);

/// A running child process. Its whole group dies with this value, and the process itself with ours, `kill -9` included;
/// what it started outlives that, since the kernel ties a process to its parent only.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Option<Tied>,
    group: Option<Pid>,
    stderr: Arc<Mutex<Vec<u8>>>,
    drain: AbortOnDropHandle<()>,
}

impl ServerProcess {
    /// Starts the server's program, in a process group of its own: its children die with it, and a Ctrl-C in our
    /// terminal is ours alone.
    pub(super) fn start(program: &Program) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = tied::command(&program.command, Farewell::Kill);
        command
            .args(&program.args)
            .env_clear()
            .envs(ambient::child_environment())
            .envs(
                program
                    .env
                    .iter()
                    .map(|(name, value)| (name, value.expose_secret())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tied = tied::spawn(command, Farewell::Kill)?;
        let child = tied.child_mut();
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        metrics::gauge!("tidegate_tool_processes").increment(1);
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let mut process = Self {
            group: i32::try_from(tied.id()).ok().map(Pid::from_raw),
            child: Some(tied),
            stderr: Arc::clone(&stderr),
            drain: AbortOnDropHandle::new(tokio::spawn(async {})),
        };
        let (Some(stdin), Some(stdout), Some(last)) = pipes else {
            return Err(io::Error::other("the pipes of the child are missing"));
        };
        let drained = drain(ChildStderr::from_std(last)?, stderr);
        process.drain = AbortOnDropHandle::new(tokio::spawn(drained));
        let stdin = ChildStdin::from_std(stdin)?;
        Ok((process, stdin, ChildStdout::from_std(stdout)?))
    }

    /// Lets it leave by itself for a moment, then kills what is left of its group and reaps it. Its input must have
    /// been closed before. Returns how it ended.
    pub(super) async fn end(&mut self) -> String {
        let left = self.left_within(limits::LEAVE_GRACE).await;
        self.kill_group();
        let status = match left {
            Some(status) => Some(status),
            None => self.left_within(limits::LEAVE_GRACE).await,
        };
        status.map_or_else(
            || "it cannot be killed yet".to_owned(),
            |status| status.to_string(),
        )
    }

    /// Waits until it has ended, and reaps it.
    async fn left_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        let child = self.child.as_mut()?;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => sleep(POLL).await,
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// The last line it wrote to its standard error before it ended. Only for servers that were never called: afterwards
    /// it may hold what they were called with.
    pub(super) async fn last_line(&mut self, scrubber: &Scrubber) -> Option<String> {
        let _still_open = timeout(limits::LEAVE_GRACE, &mut self.drain).await;
        let words = self.stderr.lock();
        let text = String::from_utf8_lossy(&words);
        let line = text
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty())?;
        let printable: String = scrubber
            .clean(line)
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect();
        Some(printable)
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            // No such group: everybody has left already.
            let _gone = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill_group();
        metrics::gauge!("tidegate_tool_processes").decrement(1);
        if let Some(mut child) = self.child.take()
            && !matches!(child.try_wait(), Ok(Some(_)))
        {
            // Killed, but not reaped yet; that takes a moment in which no thread of the runtime should wait.
            let reap = move || {
                let _status = child.child_mut().wait();
            };
            let _reaper = thread::Builder::new()
                .name("tidegate-reaper".to_owned())
                .spawn(reap);
        }
    }
}

/// Reads standard error to its end, so that the child never blocks on it; keeps the last of it.
async fn drain(stderr: ChildStderr, last_words: Arc<Mutex<Vec<u8>>>) {
    let mut stderr = BufReader::new(stderr);
    let mut piece = [0_u8; 1_024];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut words = last_words.lock();
        words.extend_from_slice(&piece[..read]);
        let surplus = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..surplus);
    }
}
