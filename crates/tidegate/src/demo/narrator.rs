//! What the demo says.

use serde_json::{Map, Value, json};

use crate::output::Output;

/// Says what happens; as JSON one line per thing.
#[derive(Debug, Clone, Copy)]
pub struct Narrator {
    output: Output,
}

impl Narrator {
    /// Writes there.
    pub const fn new(output: Output) -> Self {
        Self { output }
    }

    /// Where events go.
    pub const fn output(self) -> Output {
        self.output
    }

    /// A new part begins.
    pub fn title(self, text: &str) {
        if self.output.is_json() {
            return self.output.json_line(&json!({ "part": text }));
        }
        let text = if self.output.is_terminal() {
            format!("\n\u{1b}[1m== {text}\u{1b}[0m")
        } else {
            format!("\n== {text}")
        };
        self.output.line(&text);
    }

    /// A sentence.
    pub fn say(self, text: &str) {
        if self.output.is_json() {
            return self.output.json_line(&json!({ "say": text }));
        }
        self.output.line(text);
    }

    /// Several lines that belong together, indented.
    pub fn block(self, text: &str) {
        if self.output.is_json() {
            return self.output.json_line(&json!({ "block": text }));
        }
        for line in text.lines() {
            self.output.line(&format!("   {line}"));
        }
    }

    /// Something was shown to be so.
    pub fn proved(self, name: &str, text: &str, facts: Value) {
        if self.output.is_json() {
            let mut answer = Map::from_iter([
                ("proved".to_owned(), json!(name)),
                ("text".to_owned(), json!(text)),
            ]);
            answer.insert("facts".to_owned(), facts);
            return self.output.json_line(&answer);
        }
        let mark = if self.output.is_terminal() {
            "\u{1b}[32m✓\u{1b}[0m"
        } else {
            "✓"
        };
        self.output.line(&format!("{mark} {text}"));
    }
}
