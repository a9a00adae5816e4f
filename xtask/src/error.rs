//! Why a task could not do its work at all (a finding is not an error: it is the work done).

use std::{fmt, io, path::PathBuf};

#[derive(Debug)]
pub enum Error {
    /// The command line makes no sense; carries the sentence to show.
    Usage(String),
    Io {
        path: PathBuf,
        source: io::Error,
    },
    /// A program that a task needs could not be started or ended badly.
    Command {
        program: String,
        detail: String,
    },
    /// A program answered something that is not of the expected shape.
    Parse {
        what: String,
        detail: String,
    },
}

impl Error {
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub fn command(program: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Command {
            program: program.into(),
            detail: detail.into(),
        }
    }

    pub fn parse(what: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::Parse {
            what: what.into(),
            detail: detail.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            Self::Io { path, .. } => write!(f, "cannot read or write {}", path.display()),
            Self::Command { program, detail } => write!(f, "{program}: {detail}"),
            Self::Parse { what, detail } => write!(f, "cannot understand {what}: {detail}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
