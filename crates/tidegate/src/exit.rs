//! Exit codes, documented in `docs/cli.md` and in `--help`.

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Success = 0,
    /// The server refused, or something failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The database or the server cannot be reached.
    Unreachable = 3,
    /// The run that was waited for did not succeed.
    RunNotSucceeded = 4,
    /// Interrupted by Ctrl-C.
    Interrupted = 130,
}

/// The table at the end of `tidegate --help`.
pub const HELP: &str = "\
Exit codes:
  0    done
  1    refused by the server, or failed
  2    the command line or the configuration is wrong
  3    the database or the server cannot be reached
  4    the run that was waited for did not succeed
  130  interrupted";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
