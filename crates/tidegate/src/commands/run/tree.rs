//! `tidegate run children`, and what a waiting run waits for, for people.

use tidegate_model::api::{RunTree, WaitView};
use tidegate_model::run::{WaitMode, WaitOn};

use crate::output::{or_dash, table, time};

/// The tree below a run, each child below its parent.
pub fn drawn(tree: &RunTree) -> String {
    if tree.items.is_empty() {
        return format!("{} has no children", tree.run_id);
    }
    // Children come after their parents; a walk from the top puts each below its own.
    let mut rows = Vec::with_capacity(tree.items.len());
    let mut open = vec![(tree.run_id, 0_usize)];
    while let Some((parent, depth)) = open.pop() {
        if let Some(run) = tree.items.iter().find(|run| run.run_id == parent) {
            rows.push([
                format!("{}{}", "  ".repeat(depth.saturating_sub(1)), run.key),
                run.run_id.to_string(),
                run.state.to_string(),
                or_dash(run.code),
                run.capability.to_string(),
                time(run.created_at),
            ]);
        }
        let children = tree.items.iter().filter(|run| run.parent_run_id == parent);
        open.extend(children.rev().map(|run| (run.run_id, depth + 1)));
    }
    table(
        ["child", "run", "state", "code", "capability", "accepted"],
        rows,
    )
}

/// What a waiting run waits for, in a few words.
pub fn waits_for(wait: &WaitView) -> String {
    match (wait.on, &wait.ask) {
        (WaitOn::Input, Some(ask)) if ask.choices.is_empty() => {
            format!("an answer ({}): {}", ask.kind, ask.prompt)
        }
        (WaitOn::Input, Some(ask)) => {
            format!(
                "an answer (one of {}): {}",
                ask.choices.join(", "),
                ask.prompt
            )
        }
        (WaitOn::Input, None) => "an answer".to_owned(),
        (WaitOn::Time, _) => "a time".to_owned(),
        (WaitOn::Children, _) => {
            let runs: Vec<String> = wait.runs.iter().map(ToString::to_string).collect();
            let which = match wait.mode {
                Some(WaitMode::All) => "all of its children",
                _ => "one of its children",
            };
            format!("{which}: {}", runs.join(", "))
        }
    }
}
