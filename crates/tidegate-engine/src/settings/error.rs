//! What can be wrong with settings: each problem is one line that says where, what and what to do.

use std::path::PathBuf;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingProblem {
    /// A required setting has no value.
    #[error("{env} is not set: {meaning}; set it to {allowed}")]
    Missing {
        /// The variable.
        env: &'static str,
        /// What it is.
        meaning: &'static str,
        /// What it may be and how to get a value.
        allowed: String,
    },
    /// A value is not what its setting allows.
    #[error("{place}: found {found}; allowed: {allowed}")]
    BadValue {
        /// The variable, flag or key, with its file.
        place: String,
        /// What stood there; for a secret only what is wrong with it.
        found: String,
        /// What may stand there.
        allowed: String,
    },
    /// The file has a key that nobody knows.
    #[error("{}: unknown key `{key}`; {}", path.display(), nearest_text(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The most similar known one.
        nearest: Option<String>,
    },
    /// The environment has a variable with one of our prefixes that nobody knows.
    #[error("unknown environment variable {name}; {}", nearest_text(nearest.as_deref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The most similar known one.
        nearest: Option<String>,
    },
    /// Two values contradict each other.
    #[error("{0}")]
    Relation(String),
    /// The file cannot be read or is no TOML.
    #[error("cannot use the configuration file {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn nearest_text(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "`tidegate config` lists all settings".to_owned(),
        |name| format!("did you mean `{name}`? `tidegate config` lists all settings"),
    )
}

/// Everything that is wrong with the settings, one line each. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// At least one.
    pub problems: Vec<SettingProblem>,
}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}
