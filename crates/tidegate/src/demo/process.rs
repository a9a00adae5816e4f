//! A process of the demo: started from this very program, ready when it says so, killed or stopped by its id.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tidegate_embedded::tied::{self, Farewell, Tied};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    exit::Exit,
    failure::{Failure, Outcome},
};

/// How long a process may take to be ready.
const READY: Duration = Duration::from_mins(1);
/// How long a process may take to end in its own order.
const ENDING: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Variables of ours must come from the demo, not from the shell it was started in.
const OURS: [&str; 5] = [
    "TIDEGATE_",
    "CONFIG_",
    "RUN_EXECUTION_",
    "LLM_PROVIDER_",
    "RATE_LIMIT_",
];

/// A running process; it ends with the demo, however the demo ends.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Tied,
    ready: Value,
}

impl Process {
    /// Starts `tidegate ARGS --json` and waits for its first line.
    pub async fn start(
        name: &'static str,
        args: &[&str],
        environment: &[(&str, String)],
        log: &Path,
    ) -> Outcome<Self> {
        let failed = |error: std::io::Error| {
            Failure::caused(Exit::Failed, format!("cannot start {name}"), &error)
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = tied::command(program, Farewell::Kill);
        for (variable, _) in std::env::vars_os() {
            let ours = variable
                .to_str()
                .is_some_and(|text| OURS.iter().any(|prefix| text.starts_with(prefix)));
            if ours {
                command.env_remove(variable);
            }
        }
        command
            .args(args)
            .arg("--json")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log).map_err(failed)?);
        let mut child = tied::spawn(command, Farewell::Kill).map_err(failed)?;
        let Some(pipe) = child.child_mut().stdout.take() else {
            return Err(Failure::failed(format!("{name} has no standard output")));
        };
        let first = tokio::task::spawn_blocking(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = String::new();
            // An answer for people may take several lines; the first document ends where it parses.
            while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                if let Ok(value) = serde_json::from_str::<Value>(&line) {
                    return Some(value);
                }
            }
            None
        });
        match timeout(READY, first).await {
            Ok(Ok(Some(ready))) => Ok(Self { name, child, ready }),
            _ => Err(Failure::failed(format!(
                "{name} did not become ready; its log is {}: {}",
                log.display(),
                tail(log)
            ))),
        }
    }

    /// Its name in the story.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said when it was ready.
    pub fn ready(&self, field: &str) -> &str {
        self.ready[field].as_str().unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill9(&mut self) -> Outcome<()> {
        self.signal(Signal::SIGKILL)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Asks it to end and waits; in the end it is killed.
    pub async fn stop(mut self) -> Outcome<()> {
        self.signal(Signal::SIGTERM)?;
        let deadline = Instant::now() + ENDING;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return self.signal(Signal::SIGKILL);
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Outcome<()> {
        self.child.signal(signal).map_err(|error| {
            Failure::caused(
                Exit::Failed,
                format!("cannot signal {} (process {})", self.name, self.child.id()),
                &error,
            )
        })
    }
}

/// The end of a log, in one line.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}
