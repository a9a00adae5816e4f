//! What a model call used, known whatever ends it: an answer, an error, a cancel that drops it.

use tidegate_client::worker::UsageMeter;
use tidegate_llm::{ChatRequest, Usage};

use crate::limits::BYTES_PER_TOKEN;

/// Counts one model call. Dropped without being settled it counts what is certain to have been used at least: the
/// question, once the answer has begun, and the text that arrived (R13.7).
#[derive(Debug)]
pub(crate) struct CallMeter<'a> {
    usage: &'a UsageMeter,
    input: u64,
    output_bytes: u64,
    begun: bool,
}

impl<'a> CallMeter<'a> {
    pub(crate) fn new(usage: &'a UsageMeter, request: &ChatRequest) -> Self {
        let bytes: usize = request.messages.iter().map(|m| m.text().len()).sum();
        Self {
            usage,
            input: bytes as u64 / BYTES_PER_TOKEN,
            output_bytes: 0,
            begun: false,
        }
    }

    /// Tokens of the question, estimated.
    pub(crate) fn input(&self) -> u64 {
        self.input
    }

    /// The answer has begun.
    pub(crate) fn began(&mut self) {
        self.begun = true;
    }

    /// More text arrived; gives the tokens of the answer so far, estimated.
    pub(crate) fn text(&mut self, bytes: usize) -> u64 {
        self.output_bytes += bytes as u64;
        self.output_bytes / BYTES_PER_TOKEN
    }

    /// The answer ended with figures, or without any.
    pub(crate) fn settle(mut self, usage: Usage) {
        if let Some(tokens) = usage.tokens() {
            self.begun = false;
            self.usage
                .add_tokens(tokens.input.saturating_add(tokens.output));
        }
    }
}

impl Drop for CallMeter<'_> {
    fn drop(&mut self) {
        if self.begun {
            let output = self.output_bytes / BYTES_PER_TOKEN;
            self.usage.add_tokens(self.input.saturating_add(output));
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_llm::{Message, TokenCounts};

    use super::*;

    /// R13.7: figures are taken as they are, zero included; a broken call counts what is certain.
    #[test]
    fn use_is_exact_or_a_lower_bound() {
        let request = ChatRequest::new(vec![Message::User("x".repeat(40))]);
        let exact = |input, output| Usage::Exact(TokenCounts { input, output });
        for (usage, expected) in [
            (Some(exact(3, 4)), 7),
            (Some(exact(0, 0)), 0),
            (Some(Usage::Unknown), 12),
            (None, 12),
        ] {
            let meter = UsageMeter::default();
            let mut call = CallMeter::new(&meter, &request);
            call.began();
            call.text(8);
            match usage {
                Some(usage) => call.settle(usage),
                None => drop(call),
            }
            assert_eq!(meter.tokens(), expected, "{usage:?}");
        }
        let meter = UsageMeter::default();
        drop(CallMeter::new(&meter, &request));
        assert_eq!(meter.tokens(), 0, "a call that never began");
    }
}
