//! What can go wrong with a call, told apart so that no caller has to read texts.

use std::time::Duration;

use tidegate_model::{Code, api::Problem};

use crate::SetupCause;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused or failed, and said why.
    #[error("{}", describe(.0))]
    Problem(Box<Problem>),
    /// The server answered with an error that this version does not know, or something in between did.
    #[error("the server answered status {status}{}: {detail}", .code.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    Status {
        /// The HTTP status.
        status: u16,
        /// The code, where the body was a problem.
        code: Option<String>,
        /// What the body said, at most 300 characters.
        detail: String,
        /// Whether the same request may succeed later.
        retryable: bool,
        /// When to try again, where the answer said so.
        retry_after: Option<Duration>,
    },
    /// The server could not be reached, or the connection broke off.
    #[error(
        "cannot reach {base_url}: {reason}; check that the server runs and that TIDEGATE_URL names it"
    )]
    Transport {
        /// The server's address.
        base_url: String,
        /// What broke, without credentials.
        reason: String,
    },
    /// No connection can come about as things are set up; it is not tried again.
    #[error("cannot connect to {base_url}: {cause} ({reason}); {}", cause.remedy())]
    Setup {
        /// The server's address.
        base_url: String,
        /// What is set up wrongly.
        cause: SetupCause,
        /// What broke, without credentials.
        reason: String,
    },
    /// The answer is not what the contract says.
    #[error(
        "the server's answer makes no sense: {detail}; check that the address is a Tidegate server of a matching version"
    )]
    BadAnswer {
        /// What was wrong.
        detail: String,
    },
    /// The overall deadline passed.
    #[error("no answer within the deadline of {} ({attempts} {}){}", seconds(*deadline), plural(*attempts), because(last.as_deref()))]
    DeadlineExceeded {
        /// The deadline of the call.
        deadline: Duration,
        /// Tries made.
        attempts: u32,
        /// How the last of them ended.
        last: Option<Box<Error>>,
    },
    /// The server asks to come back after the deadline of the call.
    #[error("the server asks to come back in {}, past the deadline of {} ({attempts} {}): {}", seconds(*retry_after), seconds(*deadline), plural(*attempts), source)]
    RetryAfterDeadline {
        /// When the server wants to be asked again.
        retry_after: Duration,
        /// The deadline of the call.
        deadline: Duration,
        /// Tries made.
        attempts: u32,
        /// What the server said.
        source: Box<Error>,
    },
    /// The client cannot work as it is configured.
    #[error("{field}: {detail}")]
    Configuration {
        /// The setting at fault.
        field: &'static str,
        /// What is wrong and what to do about it.
        detail: String,
    },
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl Error {
    /// The server's problem, where it sent one; also behind a deadline.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::DeadlineExceeded { last, .. } => last.as_deref().and_then(Self::problem),
            Self::RetryAfterDeadline { source, .. } => source.problem(),
            _ => None,
        }
    }

    /// The problem's code.
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// Whether the lease that the call was made under is not held any more.
    pub fn is_lease_lost(&self) -> bool {
        self.code() == Some(Code::LeaseLost)
    }

    /// Whether the same call may succeed later, without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.retryable,
            Self::Status { retryable, .. } => *retryable,
            Self::Transport { .. } => true,
            Self::Setup { .. }
            | Self::BadAnswer { .. }
            | Self::DeadlineExceeded { .. }
            | Self::RetryAfterDeadline { .. }
            | Self::Configuration { .. } => false,
        }
    }

    /// Whether the client tries again by itself. Not where an admission was refused: whoever keeps a queue of its own is to be
    /// told at once, and takes something else meanwhile (R7.7).
    pub(crate) fn is_repeated(&self) -> bool {
        self.is_retryable() && self.code() != Some(Code::ResourceExhausted)
    }

    /// For a log: the code alone where it says that the same call may pass later, for its text speaks to a caller.
    pub(crate) fn in_short(&self) -> String {
        match self.code() {
            Some(code) if self.is_retryable() => code.to_string(),
            _ => self.to_string(),
        }
    }

    /// When to try again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after_ms.map(Duration::from_millis),
            Self::Status { retry_after, .. } => *retry_after,
            Self::DeadlineExceeded { last, .. } => last.as_deref().and_then(Self::retry_after),
            Self::RetryAfterDeadline { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

fn describe(problem: &Problem) -> String {
    let what = problem.detail.as_deref().unwrap_or(&problem.title);
    let mut text = format!("{}: {what}", problem.code);
    if let Some(field) = &problem.field {
        text.extend([" (at ", field, ")"]);
    }
    for reason in &problem.reasons {
        text.extend(["; ", reason]);
    }
    if let Some(request_id) = &problem.request_id {
        text.extend([" [", request_id, "]"]);
    }
    text
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn plural(attempts: u32) -> &'static str {
    if attempts == 1 { "attempt" } else { "attempts" }
}

fn because(last: Option<&Error>) -> String {
    last.map(|last| format!("; the last one: {last}"))
        .unwrap_or_default()
}
