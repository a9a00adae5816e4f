//! Who may have a child, when a wait is over, and whom an end takes along (R3.10, R3.13, R3.15).
//!
//! A run waits on its own children, a person or a time, and never on anything above or beside it: the graph of waits is
//! part of the tree of runs and has no circle. A waiting run holds nothing, so that its children never wait for it
//! either: a chain finishes with one worker and a cap of 1.
//!
//! Not done here: looking at the tree. Whoever does holds its lock, so that what was counted stays true until the child
//! is written.

use chrono::{DateTime, Utc};
use tidegate_model::{
    Code,
    api::{AnswerInput, Ask},
    limits,
    run::{AskKind, RunState, ServiceClass, WaitMode},
};

/// What a tree of runs may grow to, the root not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// The deepest child; those of the root are at 1.
    pub depth: i16,
    /// Descendants that have not ended at the same time; no more of them can be running.
    pub open: i64,
    /// Descendants in all.
    pub total: i64,
}

/// The limits of the tier `standard`.
pub const STANDARD: TreeLimits = TreeLimits {
    depth: 8,
    open: 32,
    total: 512,
};

/// The parent of a child that is to be, and its tree, as read under the tree's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentFacts {
    /// How deep the parent is; a root is at 0.
    pub depth: i16,
    /// Descendants of the root that have not ended.
    pub open: i64,
    /// Descendants of the root in all.
    pub total: i64,
    /// The parent's service class.
    pub service_class: ServiceClass,
    /// The parent's priority.
    pub priority: i16,
    /// The parent's deadline.
    pub deadline: Option<DateTime<Utc>>,
    /// What is left of the parent's tokens, its running attempt not counted; `None` is unbounded.
    pub tokens_left: Option<i64>,
    /// What is left of the parent's execution time.
    pub ms_left: Option<i64>,
}

/// What is asked for a child; what is absent comes from the parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildAsk {
    /// What gives way first.
    pub service_class: Option<ServiceClass>,
    /// Order within the tenant.
    pub priority: Option<i16>,
    /// Must have ended by.
    pub deadline: Option<DateTime<Utc>>,
    /// Bound of tokens.
    pub tokens: Option<i64>,
    /// Bound of execution time.
    pub ms: Option<i64>,
}

/// What a child gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildTerms {
    /// Its depth.
    pub depth: i16,
    /// What gives way first.
    pub service_class: ServiceClass,
    /// Order within the tenant.
    pub priority: i16,
    /// Must have ended by.
    pub deadline: Option<DateTime<Utc>>,
    /// Bound of tokens.
    pub tokens: Option<i64>,
    /// Bound of execution time.
    pub ms: Option<i64>,
}

/// Why a child may not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildRefusal {
    /// It would be too deep.
    TooDeep {
        /// The deepest there may be.
        most: i16,
    },
    /// Too many have not ended.
    TooManyOpen {
        /// The most there may be.
        most: i64,
    },
    /// There have been too many.
    TooMany {
        /// The most there may be.
        most: i64,
    },
    /// It asks for more than its parent has.
    ExceedsParent {
        /// Which field of the request.
        field: &'static str,
    },
}

impl ChildRefusal {
    /// The stable code.
    pub const fn code(self) -> Code {
        match self {
            Self::TooDeep { .. } | Self::TooManyOpen { .. } | Self::TooMany { .. } => {
                Code::ChildLimitExceeded
            }
            Self::ExceedsParent { .. } => Code::DelegationExceedsParent,
        }
    }

    /// The field at fault, where one is.
    pub const fn field(self) -> Option<&'static str> {
        match self {
            Self::ExceedsParent { field } => Some(field),
            _ => None,
        }
    }

    /// What is the matter, and what to do.
    pub fn detail(self) -> String {
        match self {
            Self::TooDeep { most } => {
                format!("children may be {most} deep below the root; do the work in this run")
            }
            Self::TooManyOpen { most } => format!(
                "{most} descendants of the root have not ended, which is the most; wait for some of them to end"
            ),
            Self::TooMany { most } => format!(
                "the root has had {most} descendants, which is the most; give several tasks to one child"
            ),
            Self::ExceedsParent { field } => format!(
                "{field} is more than the parent has left; leave it out to get what the parent has, or ask for less"
            ),
        }
    }
}

/// Whether a parent may have this child, and what the child gets.
pub fn admit_child(
    limits: TreeLimits,
    parent: &ParentFacts,
    ask: &ChildAsk,
) -> Result<ChildTerms, ChildRefusal> {
    let depth = parent.depth.saturating_add(1);
    if depth > limits.depth {
        return Err(ChildRefusal::TooDeep { most: limits.depth });
    }
    if parent.total >= limits.total {
        return Err(ChildRefusal::TooMany { most: limits.total });
    }
    if parent.open >= limits.open {
        return Err(ChildRefusal::TooManyOpen { most: limits.open });
    }
    let exceeds = |field| Err(ChildRefusal::ExceedsParent { field });
    // Greater is less protected.
    if ask
        .service_class
        .is_some_and(|class| class < parent.service_class)
    {
        return exceeds("serviceClass");
    }
    if ask
        .priority
        .is_some_and(|priority| priority > parent.priority)
    {
        return exceeds("priority");
    }
    let more = |asked: Option<i64>, left: Option<i64>| matches!((asked, left), (Some(asked), Some(left)) if asked > left);
    if matches!((ask.deadline, parent.deadline), (Some(asked), Some(has)) if asked > has) {
        return exceeds("deadline");
    }
    if more(ask.tokens, parent.tokens_left) || parent.tokens_left.is_some_and(|left| left <= 0) {
        return exceeds("budget.tokens");
    }
    if more(ask.ms, parent.ms_left) || parent.ms_left.is_some_and(|left| left <= 0) {
        return exceeds("budget.executionMs");
    }
    Ok(ChildTerms {
        depth,
        service_class: ask.service_class.unwrap_or(parent.service_class),
        priority: ask.priority.unwrap_or(parent.priority),
        deadline: ask.deadline.or(parent.deadline),
        tokens: ask.tokens.or(parent.tokens_left),
        ms: ask.ms.or(parent.ms_left),
    })
}

/// Whether a wait on children is over, given how many are awaited and how many of them have ended, however they ended.
/// Who waits for nobody need not wait.
pub const fn is_over(mode: WaitMode, awaited: i64, ended: i64) -> bool {
    match mode {
        WaitMode::Any => ended > 0 || awaited <= 0,
        WaitMode::All => ended >= awaited,
    }
}

/// Whether the end of a run ends its open descendants: every end but a success. Children of a parent that succeeded run
/// on by themselves: it did not wait for them, and nobody asked for them to stop.
pub const fn takes_descendants_along(end: RunState) -> bool {
    matches!(
        end,
        RunState::Failed | RunState::Cancelled | RunState::Expired
    )
}

/// Whether a question can be asked; the error names the field and what is wrong with it.
pub fn check_ask(ask: &Ask) -> Result<(), (&'static str, String)> {
    let length = ask.prompt.chars().count();
    if ask.prompt.trim().is_empty() || length > limits::ASK_PROMPT_MAX_CHARS {
        let most = limits::ASK_PROMPT_MAX_CHARS;
        return Err(("input.prompt", format!("1 to {most} characters")));
    }
    let choices = ask.choices.len();
    if choices > 0 && ask.kind != AskKind::Text {
        let text = "only a question of kind text has choices";
        return Err(("input.choices", text.to_owned()));
    }
    let fits = |choice: &String| (1..=200).contains(&choice.chars().count());
    if choices > limits::ASK_CHOICES_MAX || !ask.choices.iter().all(fits) {
        let most = limits::ASK_CHOICES_MAX;
        let text = format!("at most {most} choices of 1 to 200 characters each");
        return Err(("input.choices", text));
    }
    if ask.call_id.as_ref().is_some_and(|id| id.len() > 200) {
        return Err(("input.callId", "at most 200 bytes".to_owned()));
    }
    Ok(())
}

/// Whether an answer fits its question; the error names the field and what to send.
pub fn check_answer(ask: &Ask, answer: &AnswerInput) -> Result<(), (&'static str, String)> {
    let given = usize::from(answer.text.is_some())
        + usize::from(answer.confirmed.is_some())
        + usize::from(answer.file.is_some());
    let wanted = |field: &'static str, what: &str| Err((field, format!("the run asks for {what}")));
    match (ask.kind, answer) {
        (
            AskKind::Text,
            AnswerInput {
                text: Some(text), ..
            },
        ) if given == 1 => {
            if text.is_empty() || text.len() > limits::ANSWER_MAX_BYTES {
                let most = limits::ANSWER_MAX_BYTES;
                return Err(("text", format!("1 to {most} bytes")));
            }
            if !ask.choices.is_empty() && !ask.choices.contains(text) {
                let choices = ask.choices.join(", ");
                return Err(("text", format!("one of: {choices}")));
            }
            Ok(())
        }
        (AskKind::Text, _) => wanted("text", "a text; send text and nothing else"),
        (
            AskKind::Confirmation,
            AnswerInput {
                confirmed: Some(_), ..
            },
        ) if given == 1 => Ok(()),
        (AskKind::Confirmation, _) => wanted(
            "confirmed",
            "yes or no; send confirmed (true or false) and nothing else",
        ),
        (
            AskKind::File,
            AnswerInput {
                file: Some(file), ..
            },
        ) if given == 1 => {
            if file.uri.is_empty() || file.uri.len() > 4_000 {
                return Err(("file.uri", "1 to 4000 bytes".to_owned()));
            }
            if !is_reference(&file.uri) {
                let detail = "an https or http address, or the id of a file at a store that the worker knows";
                return Err(("file.uri", detail.to_owned()));
            }
            let long = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > 400);
            if long(&file.name) || long(&file.media_type) {
                return Err((
                    "file",
                    "name and mediaType have at most 400 bytes".to_owned(),
                ));
            }
            Ok(())
        }
        (AskKind::File, _) => wanted("file", "a file; send file and nothing else"),
    }
}

/// Schemes that say where a file lies. Others may be run by whoever opens the answer (`javascript:`), carry the file
/// itself (`data:`) or mean a place on the reader's own machine (`file:`).
const FILE_SCHEMES: [&str; 4] = ["https", "http", "s3", "gs"];

/// Whether a text is an address with one of the schemes, or an id, which has none.
fn is_reference(uri: &str) -> bool {
    let plain = uri.bytes().all(|byte| byte.is_ascii_graphic());
    match uri.split_once(':') {
        None => plain,
        Some((scheme, rest)) => {
            let known = FILE_SCHEMES.iter().any(|k| scheme.eq_ignore_ascii_case(k));
            let place = rest.strip_prefix("//").unwrap_or_default();
            plain && known && !place.starts_with('/') && !place.is_empty()
        }
    }
}

#[cfg(test)]
mod tests;
