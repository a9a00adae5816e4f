//! `tidegate run explain`, for people.

use std::fmt::Write as _;

use serde_json::Value;
use tidegate_model::api::{AttemptView, QueueReasonView, RunExplain};

use super::{effects, one, review};
use crate::output::{duration, or_dash, table, time};

/// Where a run is, why, what would unblock it, and what became of its attempts.
pub fn explained(explain: &RunExplain) -> String {
    let mut parts = vec![one(&explain.run)];
    if let Some(ahead) = explain.ahead_in_lane {
        let ahead = if ahead >= 1_000 {
            "1,000 or more".to_owned()
        } else {
            ahead.to_string()
        };
        parts.push(format!(
            "{ahead} of its tenant stand before it in the queue"
        ));
    }
    if !explain.reasons.is_empty() {
        let reasons: Vec<String> = explain.reasons.iter().map(reason).collect();
        parts.push(format!("why it waits\n{}", reasons.join("\n")));
    }
    if !explain.waits.is_empty() {
        let waits = table(
            ["cause", "waited"],
            explain
                .waits
                .iter()
                .map(|wait| [wait.code.to_string(), duration(wait.waited_ms)]),
        );
        parts.push(format!("time in the queue\n{waits}"));
    }
    if let Some(facts) = &explain.run.review {
        parts.push(review(facts));
    }
    if !explain.effects.is_empty() {
        parts.push(format!("effects\n{}", effects(&explain.effects)));
    }
    if !explain.attempts.is_empty() {
        parts.push(format!("attempts\n{}", attempts(&explain.attempts)));
    }
    parts.join("\n\n")
}

/// What became of each attempt.
pub fn attempts(attempts: &[AttemptView]) -> String {
    table(
        [
            "attempt", "fence", "holder", "started", "ended", "outcome", "code",
        ],
        attempts.iter().map(|attempt| {
            [
                attempt.attempt.to_string(),
                attempt.fence.to_string(),
                format!("{} ({})", attempt.holder, attempt.pool),
                time(attempt.started_at),
                or_dash(attempt.ended_at.map(time)),
                attempt
                    .outcome
                    .map_or_else(|| "running".to_owned(), |outcome| outcome.to_string()),
                or_dash(attempt.code),
            ]
        }),
    )
}

/// One cause with its facts and the way out.
pub fn reason(reason: &QueueReasonView) -> String {
    let facts = match &reason.facts {
        Value::Object(facts) => facts
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut text = format!("  {} since {}", reason.code, time(reason.since));
    if !facts.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n    facts: {facts}");
    }
    let _ = write!(text, "\n    what to do: {}", reason.remedy);
    text
}
