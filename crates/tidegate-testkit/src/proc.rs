//! Real processes: started with a known environment, watched, signalled, killed with the test.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidegate_embedded::tied::{self, Farewell, Tied};
use tokio::sync::watch;

/// How long a process may take to say that it is ready, on a loaded machine.
pub const READY_TIMEOUT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(10);
/// What a child needs of our environment; the rest would make tests depend on who runs them.
const INHERITED: [&str; 6] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "RUST_BACKTRACE",
    "LLVM_PROFILE_FILE",
];

/// The `tidegate` binary: `TIDEGATE_BIN`, else the one beside the running test.
pub fn tidegate() -> PathBuf {
    if let Some(path) = std::env::var_os("TIDEGATE_BIN") {
        return PathBuf::from(path);
    }
    let me = std::env::current_exe().expect("the path of this test");
    let built = me.ancestors().nth(2).map(|dir| dir.join("tidegate"));
    built.filter(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "no tidegate binary beside {}; run `cargo build -p tidegate`",
            me.display()
        )
    })
}

/// How to start a process.
#[derive(Debug)]
pub struct Proc {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    user: Option<(u32, u32)>,
    stdin: bool,
}

impl Proc {
    /// A program without arguments, with little more than `PATH` and `HOME` in its environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            dir: None,
            user: None,
            stdin: false,
        }
    }

    /// `tidegate` with its arguments.
    pub fn tidegate(args: &[&str]) -> Self {
        Self::new(tidegate()).args(args)
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.args.extend(args);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs in this directory.
    #[must_use]
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Drops to this user and group first; only root can.
    #[must_use]
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = Some((uid, gid));
        self
    }

    /// Keeps its standard input open; else it reads an empty one.
    #[must_use]
    pub fn with_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let mut command = tied::command(&self.program, Farewell::Kill);
        command.args(&self.args).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
            .stdin(if self.stdin {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = tied::spawn(command, Farewell::Kill)
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.program.display()));
        let (lines, heard) = watch::channel(Vec::new());
        let lines = Arc::new(lines);
        let child = process.child_mut();
        if let Some(pipe) = child.stdout.take() {
            listen(pipe, Stream::Out, Arc::clone(&lines));
        }
        if let Some(pipe) = child.stderr.take() {
            listen(pipe, Stream::Err, lines);
        }
        Running { process, heard }
    }
}

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

type Lines = Vec<(Stream, String)>;

/// Collects lines until the pipe closes.
fn listen(pipe: impl Read + Send + 'static, stream: Stream, lines: Arc<watch::Sender<Lines>>) {
    std::thread::Builder::new()
        .name("tidegate-test-output".into())
        .spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut bytes = Vec::new();
            while reader
                .read_until(b'\n', &mut bytes)
                .is_ok_and(|length| length > 0)
            {
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                lines.send_modify(|lines| lines.push((stream, line)));
                bytes.clear();
            }
        })
        .expect("a thread for a child's output");
}

/// A started process; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    process: Tied,
    heard: watch::Receiver<Lines>,
}

impl Running {
    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for a line that contains `text`, from either stream, and returns it.
    pub async fn line_with(&mut self, text: &str) -> String {
        self.line_where(text, |line| line.contains(text)).await
    }

    /// Waits for a line of which `is_it` is true; `what` names it in the failure.
    pub async fn line_where(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let find = |lines: &Lines| lines.iter().find(|(_, line)| is_it(line)).cloned();
        let found = tokio::time::timeout(READY_TIMEOUT, async {
            match self.heard.wait_for(|lines| find(lines).is_some()).await {
                Ok(lines) => find(&lines),
                // Both pipes are closed: the process has ended.
                Err(_) => None,
            }
        })
        .await;
        match found {
            Ok(Some((_, line))) => line,
            Ok(None) => panic!("it ended without `{what}`; its output:\n{}", self.output()),
            Err(elapsed) => panic!("no `{what}`: {elapsed}; its output:\n{}", self.output()),
        }
    }

    /// Everything it has written so far, both streams as they came.
    pub fn output(&self) -> String {
        self.collect(|_| true)
    }

    /// Everything it has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.collect(|stream| stream == Stream::Out)
    }

    /// Everything it has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.collect(|stream| stream == Stream::Err)
    }

    fn collect(&self, wanted: impl Fn(Stream) -> bool) -> String {
        let lines = self.heard.borrow();
        let wanted = lines.iter().filter(|(stream, _)| wanted(*stream));
        wanted
            .map(|(_, line)| line.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Writes to its standard input.
    pub fn write_stdin(&mut self, text: &str) {
        use std::io::Write;
        let pipe = self.process.child_mut().stdin.as_mut();
        let pipe = pipe.expect("started with `with_stdin`");
        pipe.write_all(text.as_bytes()).expect("it reads its input");
    }

    /// Asks it to end (SIGTERM).
    pub fn term(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.process.child_mut().wait().expect("wait for a child");
    }

    /// Stops it in its tracks (SIGSTOP) until [`Self::thaw`].
    pub fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends any signal; an ended process gets none.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal).expect("signal a child");
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("look at a child").is_none()
    }

    /// Waits for its end, and for the last of its output.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("look at a child") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "still running after {patience:?}; its output:\n{}",
                self.output()
            );
            tokio::time::sleep(POLL).await;
        };
        // Pipes may be held open by a grandchild, which must not hang the test.
        let closed = async { while self.heard.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), closed).await;
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.signal(Signal::SIGKILL);
        let _ = self.process.child_mut().wait();
    }
}
