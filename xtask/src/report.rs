//! What a check has to say: where, what is wrong, and what to do about it.

use std::fmt;

/// Whether a finding fails the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The tree may not stay like this.
    Error,
    /// Worth a look; never fails.
    Warning,
}

/// One thing a check found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub severity: Severity,
    /// Path relative to the repository root.
    pub path: String,
    /// 1-based; 0 where the finding is about the whole file.
    pub line: usize,
    pub what: String,
    pub remedy: String,
}

impl Finding {
    pub fn error(
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            path: path.into(),
            line,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    pub fn warning(
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(path, line, what, remedy)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        if self.line == 0 {
            write!(f, "{}: {kind}: {}", self.path, self.what)?;
        } else {
            write!(f, "{}:{}: {kind}: {}", self.path, self.line, self.what)?;
        }
        write!(f, "\n    {}", self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_fault_and_remedy() {
        let finding = Finding::error("a/b.rs", 3, "function is long", "split it");
        assert_eq!(
            finding.to_string(),
            "a/b.rs:3: error: function is long\n    split it"
        );
    }

    #[test]
    fn a_finding_about_a_whole_file_has_no_line() {
        let finding = Finding::warning("a/b.rs", 0, "file is long", "split it");
        assert_eq!(
            finding.to_string(),
            "a/b.rs: warning: file is long\n    split it"
        );
    }
}
