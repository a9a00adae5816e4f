//! The only place that writes to the terminal.
//!
//! Answers go to standard output, everything said beside them to standard error, so that a pipe sees answers only. With
//! `--json` an answer is one JSON document (a stream of events one per line), also where it is a failure.

use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure};

/// Where and how to write.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
}

#[expect(
    clippy::unused_self,
    reason = "whoever may write has been given the handle"
)]
impl Output {
    /// For people, or as JSON.
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether answers are JSON.
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Shows an answer: itself as JSON, or what `human` makes of it.
    pub fn show<T: Serialize>(self, answer: &T, human: impl FnOnce(&T) -> String) {
        self.line(&self.rendered(answer, human));
    }

    fn rendered<T: Serialize>(self, answer: &T, human: impl FnOnce(&T) -> String) -> String {
        if self.json {
            serde_json::to_string_pretty(answer)
                .unwrap_or_else(|error| format!("{{\"error\":\"cannot write JSON: {error}\"}}"))
        } else {
            visible(human(answer).trim_end()).into_owned()
        }
    }

    /// One JSON document on a line of its own, for streams.
    pub fn json_line<T: Serialize>(self, answer: &T) {
        if let Ok(text) = serde_json::to_string(answer) {
            self.line(&text);
        }
    }

    /// A line of an answer.
    pub fn line(self, text: &str) {
        answer(format_args!("{text}\n"));
    }

    /// An answer that must not be lost: whoever asked undoes what was done where it cannot be written.
    pub fn try_show<T: Serialize>(
        self,
        answer: &T,
        human: impl FnOnce(&T) -> String,
    ) -> std::io::Result<()> {
        let text = self.rendered(answer, human);
        write(&mut std::io::stdout().lock(), format_args!("{text}\n"))
    }

    /// A piece of an answer, shown at once.
    pub fn piece(self, text: &str) {
        answer(format_args!("{text}"));
    }

    /// Something said beside the answer; not in JSON.
    pub fn note(self, text: &str) {
        if !self.json {
            said(format_args!("{text}\n"));
        }
    }

    /// What a command did besides what it was asked for; goes to standard error in either form.
    pub fn notice(self, text: &str) {
        said(format_args!("{text}\n"));
    }

    /// A warning; goes to standard error in either form.
    pub fn warn(self, text: &str) {
        said(format_args!("warning: {text}\n"));
    }

    /// Says how a command failed and gives back its exit code.
    pub fn failure(self, failure: &Failure) -> Exit {
        if self.json {
            said(format_args!("{}\n", failure.document()));
            return failure.exit;
        }
        for message in failure.messages.iter().map(|message| visible(message)) {
            match &failure.code {
                Some(code) => said(format_args!("error: {message} [{code}]\n")),
                None => said(format_args!("error: {message}\n")),
            }
        }
        if let Some(remedy) = &failure.remedy {
            said(format_args!("  what to do: {remedy}\n"));
        }
        if let Some(request_id) = &failure.request_id {
            said(format_args!("  request: {request_id}\n"));
        }
        failure.exit
    }

    /// Whether somebody looks at it.
    pub fn is_terminal(self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }
}

/// A reader that has gone (`| head`) is no error of ours; an answer that cannot be written otherwise (a full disk) is the
/// failure of its command.
fn answer(text: std::fmt::Arguments<'_>) {
    match write(&mut std::io::stdout().lock(), text) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            said(format_args!(
                "error: what was asked for was done, but the answer could not be written: {error}\n"
            ));
            std::process::exit(Exit::Failed as i32);
        }
        Ok(()) => {}
    }
}

/// What is said beside an answer; where nobody can read it nothing else is to be done.
fn said(text: std::fmt::Arguments<'_>) {
    let written = write(&mut std::io::stderr().lock(), text);
    if written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        std::process::exit(0);
    }
}

fn write(stream: &mut impl Write, text: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    stream.write_fmt(text).and_then(|()| stream.flush())
}

/// A text as a terminal may have it: what steers the terminal is shown and not obeyed. Texts of tenants, workers and models
/// are in all that is shown.
pub fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let shown = text.chars().fold(String::new(), |mut shown, c| {
        if steers(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    });
    shown.into()
}

/// A table for people.
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.map(str::to_uppercase));
    let mut empty = true;
    for row in rows {
        empty = false;
        table.add_row(row);
    }
    if empty {
        return "nothing to list".to_owned();
    }
    // An id that is broken over two lines cannot be copied.
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Names and values of one thing; names without a value are left out.
pub fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let facts: Vec<(&str, String)> = facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = facts
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}"))
        .collect();
    lines.join("\n")
}

/// A time for people.
pub fn time(at: chrono::DateTime<chrono::Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A text that may be absent.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A duration for people.
pub fn duration(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    /// Bad input: a text of somebody else does not steer the terminal of who reads it.
    #[test]
    fn what_steers_a_terminal_is_shown() {
        let output = Output::new(false);
        let answer = "a\u{1b}]0;pwned\u{7}\r\tb\n\u{9b}2Jc\u{7f} grün\n";
        assert_eq!(
            output.rendered(&answer, |answer| (*answer).to_owned()),
            "a\\u{1b}]0;pwned\\u{7}\\r\tb\n\\u{9b}2Jc\\u{7f} grün"
        );
        assert_eq!(visible("plain\ntext"), "plain\ntext");
    }

    #[test]
    fn absent_facts_leave_no_line() {
        let text = facts([
            ("run", Some("run_1".to_owned())),
            ("code", None),
            ("state", Some("queued".to_owned())),
        ]);
        assert_eq!(text, "run    run_1\nstate  queued");
    }
}
