//! How a command fails: what was wrong, the code, what to do about it, the exit code.

use std::fmt;

use tidegate_engine::settings::SettingsError;
pub use tidegate_engine::trouble::chain;

use crate::exit::Exit;

/// What every command returns.
pub type Outcome<T = Exit> = Result<T, Failure>;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// How the program ends.
    pub exit: Exit,
    /// What was wrong; one line per problem.
    pub messages: Vec<String>,
    /// The stable code, where there is one.
    pub code: Option<String>,
    /// What to do.
    pub remedy: Option<String>,
    /// Finds the request in the server's log.
    pub request_id: Option<String>,
    /// The first event that is kept, where those before it are gone.
    pub first_seq: Option<i64>,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            messages: vec![message.into()],
            code: None,
            remedy: None,
            request_id: None,
            first_seq: None,
        }
    }

    /// Something failed (exit code 1).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command line or the configuration is wrong (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something cannot be reached (exit code 3).
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, message)
    }

    /// An error with everything that caused it.
    pub fn caused(exit: Exit, what: impl fmt::Display, error: &dyn std::error::Error) -> Self {
        Self::new(exit, format!("{what}: {}", chain(error)))
    }

    /// The document of a failure: with a code and a remedy in every case, of the kind of failure where nothing more is
    /// known, so that a program need not read texts.
    pub fn document(&self) -> serde_json::Value {
        let (code, remedy) = match self.exit {
            Exit::Usage => (
                "USAGE",
                "correct what the messages name; `tidegate config` shows every setting with its source, `--help` every flag",
            ),
            Exit::Unreachable => (
                "UNREACHABLE",
                "try again when it can be reached; `tidegate doctor` says what stands in between",
            ),
            _ => (
                "FAILED",
                "do what the messages say; docs/codes/ has a page for each code of a server",
            ),
        };
        let mut error = serde_json::json!({
            "messages": self.messages,
            "code": self.code.as_deref().unwrap_or(code),
            "remedy": self.remedy.as_deref().filter(|text| !text.is_empty()).unwrap_or(remedy),
            "requestId": self.request_id,
        });
        if let Some(first) = self.first_seq {
            error["firstSeq"] = first.into();
        }
        serde_json::json!({ "error": error })
    }

    /// Says what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<&clap::Error> for Failure {
    fn from(error: &clap::Error) -> Self {
        use clap::error::ErrorKind;
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::usage("a command is missing").remedy("`--help` lists the commands");
        }
        // A paragraph says what is wrong, the others give tips and the usage.
        let text = error.to_string();
        let mut parts = text.split("\n\n").map(|part| {
            let words: Vec<&str> = part.split_whitespace().collect();
            words.join(" ")
        });
        let message = parts.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let rest: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        Self::usage(message).remedy(rest.join("; "))
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Self {
            messages: error.problems.iter().map(ToString::to_string).collect(),
            ..Self::usage("")
        }
    }
}

impl From<tidegate_client::Error> for Failure {
    fn from(error: tidegate_client::Error) -> Self {
        use tidegate_client::Error as E;
        if let Some(problem) = error.problem() {
            let detail = problem.detail.as_deref().unwrap_or(&problem.title);
            let message = match &problem.field {
                Some(field) => format!("{field}: {detail}"),
                None => detail.to_owned(),
            };
            let mut failure = Self::failed(message);
            failure.messages.extend(problem.reasons.iter().cloned());
            failure.code = Some(problem.code.to_string());
            failure.request_id.clone_from(&problem.request_id);
            failure.first_seq = problem.first_seq;
            failure.remedy = remedy_for(problem.code);
            return failure;
        }
        match &error {
            E::Transport { base_url, reason } => {
                Self::unreachable(format!("cannot reach {base_url}: {reason}")).remedy(NO_SERVER)
            }
            E::Setup {
                base_url,
                cause,
                reason,
            } => Self::unreachable(format!("cannot connect to {base_url}: {cause} ({reason})"))
                .remedy(setup_remedy(*cause)),
            E::DeadlineExceeded { .. } => Self::unreachable(error.to_string()).remedy(NO_SERVER),
            E::RetryAfterDeadline { retry_after, .. } => Self::unreachable(error.to_string())
                .remedy(format!("try again in {} s", retry_after.as_secs() + 1)),
            E::Configuration { .. } => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

/// What to do where no server answers.
const NO_SERVER: &str = "check that the server runs (`tidegate dev` starts one) and that --url, TIDEGATE_URL or the \
                         profile names it";

/// What to do at a command line about what trying again does not cure.
fn setup_remedy(cause: tidegate_client::SetupCause) -> String {
    use tidegate_client::SetupCause as C;
    match cause {
        C::UnknownAuthority => format!("{}: `--ca FILE` or TIDEGATE_CA", cause.remedy()),
        C::AuthorityAsServer => format!(
            "{}; docs/how-to/serve-over-tls.md has the commands",
            cause.remedy()
        ),
        C::NoTls | C::NoHttp | C::OtherName | C::NoSuchName => {
            format!("{} (--url, TIDEGATE_URL or the profile)", cause.remedy())
        }
        _ => cause.remedy().to_owned(),
    }
}

/// What to do at a command line about a problem, or about the end of a run.
pub fn remedy_for(code: tidegate_model::Code) -> Option<String> {
    use tidegate_model::Code;
    let text = match code {
        Code::Unauthenticated => {
            "give a key with --key or TIDEGATE_KEY, or choose one of the profile with --as NAME"
        }
        Code::Forbidden => {
            "use a key that may: `tidegate me` says what this one is, and --as NAME takes another of the profile (admin is \
             the operator's, the others belong to tenants)"
        }
        Code::DatabaseUnavailable => {
            "try again shortly; `tidegate doctor` checks the server's database"
        }
        Code::TenantSuspended => "an administrator can resume it: `tidegate tenant resume TENANT`",
        Code::ModelNotConfigured => {
            "configure one: `tidegate provider set …` and `tidegate model set … --default`"
        }
        _ => return None,
    };
    Some(text.to_owned())
}
