//! One child process with its process group: started with a bare environment, killed and reaped whatever happens.

use std::{process::Stdio, sync::Arc};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncReadExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use super::{scrub::Scrubber, spec::ToolServerSpec};
use crate::{ambient, limits};

/// How much of a server's last words is kept, in bytes.
const LAST_WORDS_BYTES: usize = 2 << 10;

/// A running child process. Its whole group dies with this value.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    group: Option<Pid>,
    stderr: Arc<Mutex<Vec<u8>>>,
    drain: AbortOnDropHandle<()>,
}

impl ServerProcess {
    /// Starts the server's program.
    pub(super) fn start(spec: &ToolServerSpec) -> std::io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = Command::new(&spec.command);
        command
            .args(&spec.args)
            .env_clear()
            .envs(ambient::child_environment())
            .envs(
                spec.env
                    .iter()
                    .map(|(name, value)| (name, value.expose_secret())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: children of the server die with it, and a Ctrl-C in our terminal is ours alone.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(std::io::Error::other("the pipes of the child are missing"));
        };
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(Pid::from_raw);
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let drain = AbortOnDropHandle::new(tokio::spawn(drain(stderr, Arc::clone(&last_words))));
        metrics::gauge!("tidegate_tool_processes").increment(1);
        let process = Self {
            child,
            group,
            stderr: last_words,
            drain,
        };
        Ok((process, stdin, stdout))
    }

    /// Lets it leave by itself for a moment, then kills what is left of its group and reaps it. Its input must have
    /// been closed before. Returns how it ended.
    pub(super) async fn end(&mut self) -> String {
        let left = timeout(limits::LEAVE_GRACE, self.child.wait()).await;
        self.kill_group();
        let status = match left {
            Ok(status) => status,
            Err(_) => self.child.wait().await,
        };
        status.map_or_else(|_| "unknown status".to_owned(), |status| status.to_string())
    }

    /// The last line it wrote to its standard error before it ended. Only for servers that were never called: afterwards it may hold
    /// what they were called with.
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
