//! `tidegate doctor`: looks at everything a server needs, changes nothing, and says what to do about each finding.

mod local;
mod remote;

use clap::Args;
use serde::Serialize;

use crate::{cli::Context, exit::Exit, failure::Outcome, output::table};

/// Checks configuration, database, secrets, Redis, files and the running server.
#[derive(Debug, Args)]
pub struct DoctorCommand {}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Works, but somebody should know.
    Warn,
    /// Does not work.
    Fail,
    /// Nothing to look at.
    Skip,
}

/// One finding.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it is.
    pub state: State,
    /// What was found, without secrets.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    /// Nothing to look at.
    pub fn skip(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: State::Skip,
            ..Self::ok(check, found)
        }
    }

    /// Works, but somebody should know.
    pub fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Warn,
            remedy: Some(remedy.into()),
            ..Self::ok(check, found)
        }
    }

    /// Does not work.
    pub fn fail(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Fail,
            ..Self::warn(check, found, remedy)
        }
    }
}

impl DoctorCommand {
    /// Runs it; exit code 1 where a check failed.
    pub async fn run(self, context: &Context) -> Outcome {
        let mut findings = local::look(context).await;
        findings.extend(remote::look(context).await);
        let failed = findings
            .iter()
            .filter(|finding| finding.state == State::Fail)
            .count();
        context.output.show(&findings, |findings| shown(findings));
        context.output.note(&match failed {
            0 => "nothing is broken".to_owned(),
            1 => "1 check failed".to_owned(),
            more => format!("{more} checks failed"),
        });
        Ok(if failed == 0 {
            Exit::Success
        } else {
            Exit::Failed
        })
    }
}

fn shown(findings: &[Finding]) -> String {
    table(
        ["check", "state", "found", "what to do"],
        findings.iter().map(|finding| {
            [
                finding.check.to_owned(),
                match finding.state {
                    State::Ok => "ok",
                    State::Warn => "WARN",
                    State::Fail => "FAIL",
                    State::Skip => "-",
                }
                .to_owned(),
                finding.found.clone(),
                finding.remedy.clone().unwrap_or_default(),
            ]
        }),
    )
}
