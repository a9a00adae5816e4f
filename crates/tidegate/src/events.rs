//! A run's events for people: pieces of the reply as they come, everything else as one dimmed line.

use serde_json::Value;
use tidegate_model::{api::RunEvent, event::EventKind};

use crate::output::{Output, duration, visible};

/// Writes the events of one run.
#[derive(Debug)]
pub struct Printer {
    output: Output,
    prefix: String,
    /// Whether the last thing written was a piece without a line's end.
    open: bool,
    /// Whether pieces of the message at hand were shown, so that it need not be repeated when it is complete.
    pieces: bool,
}

impl Printer {
    /// A printer without a prefix.
    pub const fn new(output: Output) -> Self {
        Self {
            output,
            prefix: String::new(),
            open: false,
            pieces: false,
        }
    }

    /// A printer that begins each line with a prefix.
    pub fn with_prefix(output: Output, prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            ..Self::new(output)
        }
    }

    /// Writes one event.
    pub fn event(&mut self, event: &RunEvent) {
        if self.output.is_json() {
            return self.output.json_line(event);
        }
        match event.kind {
            EventKind::MessageDelta => {
                if let Some(text) = event.body["text"].as_str() {
                    self.piece(text);
                }
            }
            // What a tool answered is for the model; the reply says what matters of it.
            EventKind::MessageCompleted if event.body["role"] == "tool" => {}
            EventKind::MessageCompleted => {
                if !std::mem::take(&mut self.pieces)
                    && let Some(text) = message_text(event)
                {
                    self.piece(text);
                }
                self.close();
            }
            _ => {
                if let Some(text) = describe(event) {
                    self.close();
                    let dim = self.dim(&visible(&text));
                    self.output.line(&format!("{}{dim}", self.prefix));
                }
            }
        }
    }

    /// Ends an open line.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.output.piece("\n");
        }
    }

    fn piece(&mut self, text: &str) {
        self.pieces = true;
        let mut begun = self.open;
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.output.piece("\n");
                begun = false;
            }
            if !line.is_empty() {
                if !begun {
                    self.output.piece(&self.prefix);
                }
                self.output.piece(&visible(line));
                begun = true;
            }
        }
        self.open = begun;
    }

    fn dim(&self, text: &str) -> String {
        if self.output.is_terminal() {
            format!("\u{1b}[2m· {text}\u{1b}[0m")
        } else {
            format!("· {text}")
        }
    }
}

fn message_text(event: &RunEvent) -> Option<&str> {
    let content = &event.body["content"];
    content.as_str().or_else(|| content["text"].as_str())
}

/// One line about an event, or nothing where it says nothing to a person.
pub fn describe(event: &RunEvent) -> Option<String> {
    let body = &event.body;
    let text = |name: &str| body[name].as_str().unwrap_or("?").to_owned();
    let line = match event.kind {
        EventKind::RunQueued => "queued".to_owned(),
        EventKind::RunStarted => format!(
            "attempt {} started in pool {} (fence {})",
            body["attempt"],
            text("pool"),
            text("fence")
        ),
        EventKind::AttemptClosed => {
            let again = body["retryInMs"].as_i64().map_or_else(String::new, |ms| {
                if ms == 0 {
                    ", queued again at once".to_owned()
                } else {
                    format!(", again in {}", duration(ms))
                }
            });
            let code = body["code"].as_str();
            format!(
                "attempt {} ended: {}{}{again}",
                body["attempt"],
                text("outcome"),
                code.map_or_else(String::new, |code| format!(" ({code})")),
            )
        }
        EventKind::ToolCalled => format!("calls {}", text("tool")),
        EventKind::ToolFinished if body["isError"] == true => {
            format!("{} failed", text("tool"))
        }
        EventKind::ToolFinished => format!("{} answered", text("tool")),
        EventKind::ModelCalled => {
            let tokens = |name: &str| body["usage"][name].as_i64();
            let used = match (tokens("inputTokens"), tokens("outputTokens")) {
                (Some(input), Some(output)) => format!(" ({input} tokens in, {output} out)"),
                _ => String::new(),
            };
            format!("model {} answered{used}", text("model"))
        }
        EventKind::WorkerNote if body["note"] == "tools.offered" => {
            let tools = body["tools"].as_object();
            let names: Vec<&str> = tools
                .into_iter()
                .flat_map(|tools| tools.values().filter_map(serde_json::Value::as_str))
                .collect();
            format!("may call {}", names.join(", "))
        }
        EventKind::WorkerNote if body["note"] == "turn.resumed" => {
            format!("goes on from step {}", body["step"])
        }
        EventKind::WorkerNote if body["note"] == "tools.unavailable" => without(body),
        EventKind::WorkerNote => format!("note: {body}"),
        EventKind::RunWaiting => match body["ask"]["prompt"].as_str() {
            Some(prompt) => format!("asks: {prompt}"),
            None => format!("waits on {}", text("on")),
        },
        EventKind::RunWoken => format!("goes on: {}", text("by")),
        EventKind::RunReview => review(body),
        EventKind::RunResolved => resolved(body),
        EventKind::RunRequeued => format!("put back by {}", text("by")),
        EventKind::RunEnded => match body["code"].as_str() {
            Some(code) => format!("{} ({code})", text("state")),
            None => text("state"),
        },
        EventKind::MessageDelta | EventKind::MessageCompleted => return None,
    };
    Some(line)
}

/// An attempt that left a question to a person.
fn review(body: &Value) -> String {
    let effects = body["effects"].as_array().into_iter().flatten();
    let tools: Vec<&str> = effects
        .filter_map(|effect| effect["tool"].as_str())
        .collect();
    format!(
        "attempt {} ended: {}; in review, nobody knows whether {} happened",
        body["attempt"],
        body["outcome"].as_str().unwrap_or("?"),
        tools.join(", ")
    )
}

/// What a person said.
fn resolved(body: &Value) -> String {
    let verdict = body["verdict"].as_str().unwrap_or("?");
    match body["left"].as_i64() {
        Some(left) if left > 0 => format!("{verdict}; {left} left in question"),
        _ => format!("{verdict}, said by {}", body["by"].as_str().unwrap_or("?")),
    }
}

/// Servers without whose tools a turn began.
fn without(body: &serde_json::Value) -> String {
    let servers = body["servers"].as_array().into_iter().flatten();
    let names: Vec<String> = servers
        .map(|server| {
            let text = |name: &str| server[name].as_str().unwrap_or("?");
            format!("{} ({})", text("server"), text("phase"))
        })
        .collect();
    format!("works without the tools of {}", names.join(", "))
}
