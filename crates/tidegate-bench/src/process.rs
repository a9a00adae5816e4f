//! A driver as a process of its own: started, bounded in time, its one line read, its CPU accounted.

use std::{
    io::Read,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tidegate_embedded::tied::{self, Farewell};

use crate::{accounts, postgres::Postgres};

/// The longest that one step of a driver may take.
const PATIENCE: Duration = Duration::from_mins(15);
/// Backends that ended are on the server's account a moment later.
const SETTLE: Duration = Duration::from_millis(200);

/// How a driver is started; the verb and its numbers follow.
#[derive(Debug, Clone)]
pub struct Program {
    /// What is started.
    pub path: PathBuf,
    /// Before the verb.
    pub args: Vec<String>,
    /// Besides our own environment and `DATABASE_URL`.
    pub env: Vec<(String, String)>,
}

/// What one step said and used.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its line.
    pub said: Value,
    /// From start to end, in seconds.
    pub wall_s: f64,
    /// CPU of the driver.
    pub client_cpu_s: f64,
    /// CPU of PostgreSQL meanwhile.
    pub server_cpu_s: f64,
}

impl Step {
    /// One number of its line.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.said.get(name)?.as_f64()
    }
}

/// Runs one step of a driver.
pub async fn step(
    server: &Postgres,
    program: &Program,
    url: &str,
    verb: &[String],
) -> Result<Step, String> {
    let server_before = server.cpu_s();
    let client_before = accounts::children_cpu_s();
    let started = Instant::now();
    let (program, url, verb) = (program.clone(), url.to_owned(), verb.to_vec());
    let said = tokio::task::spawn_blocking(move || run(&program, &url, &verb))
        .await
        .map_err(|error| error.to_string())??;
    let wall_s = started.elapsed().as_secs_f64();
    tokio::time::sleep(SETTLE).await;
    Ok(Step {
        said,
        wall_s,
        client_cpu_s: accounts::children_cpu_s() - client_before,
        server_cpu_s: server.cpu_s() - server_before,
    })
}

fn run(program: &Program, url: &str, verb: &[String]) -> Result<Value, String> {
    let mut command = tied::command(&program.path, Farewell::Kill);
    command
        .args(&program.args)
        .args(verb)
        .env("DATABASE_URL", url)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = tied::spawn(command, Farewell::Kill)
        .map_err(|error| format!("{} does not start: {error}", program.path.display()))?;
    let mut out = child.child_mut().stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child
            .child_mut()
            .try_wait()
            .map_err(|error| error.to_string())?
        {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.child_mut().kill();
            return Err(format!("{verb:?} took longer than {PATIENCE:?}"));
        }
        pause();
    };
    let text = reader.join().map_err(|_| "its output is unreadable")?;
    let text = text.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{verb:?} ended with {status}"));
    }
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    line.map_or(Ok(Value::Null), |line| {
        serde_json::from_str(line).map_err(|error| error.to_string())
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "on a thread for blocking work, not on the runtime's"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}
