//! Numbers and tests agree: no unknown number anywhere, nothing called built without a test, links up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    catalogue::{
        CASES, Entry, Id, REQUIREMENTS, Status, Test, entries, mentions, tests, with_tests,
    },
    items::Items,
    report::Finding,
    tree::Tree,
};

/// A test that proves more than this proves nothing in particular.
const REQUIREMENTS_PER_TEST: usize = 3;

pub fn check(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tests = tests(tree, parsed);
    let mut known = BTreeSet::new();
    for path in [REQUIREMENTS, CASES] {
        let Some(file) = tree.get(path) else {
            findings.push(Finding::error(
                path,
                0,
                "the file is missing",
                "write it: every number with a sentence and a status",
            ));
            continue;
        };
        let entries = entries(&file.text);
        known.extend(entries.iter().map(|entry| entry.id));
        check_entries(path, &entries, &tests, &mut findings);
        if with_tests(&file.text, &tests, depth(path)).as_ref() != Some(&file.text) {
            findings.push(Finding::error(
                path,
                0,
                "the list of tests is out of date",
                "run `cargo xtask docs`",
            ));
        }
    }
    for mention in mentions(tree) {
        if !known.contains(&mention.id) {
            findings.push(Finding::error(
                mention.path,
                mention.line,
                format!("{} is unknown", mention.id),
                format!("correct the number, or add it to {REQUIREMENTS} or {CASES}"),
            ));
        }
    }
    for test in &tests {
        let requirements = test
            .cites
            .iter()
            .filter(|id| matches!(id, Id::Requirement(..)))
            .count();
        if test.line > 0 && requirements > REQUIREMENTS_PER_TEST {
            findings.push(Finding::error(
                &*test.path,
                test.line,
                format!("`{}` cites {requirements} requirements", test.name),
                format!("cite the {REQUIREMENTS_PER_TEST} it really proves, or split it"),
            ));
        }
    }
    findings
}

pub fn depth(path: &str) -> usize {
    Path::new(path).components().count() - 1
}

fn check_entries(path: &str, entries: &[Entry], tests: &[Test], findings: &mut Vec<Finding>) {
    let cited: BTreeSet<Id> = tests.iter().flat_map(|test| test.cites.clone()).collect();
    let mut previous: Option<Id> = None;
    for entry in entries {
        let id = entry.id;
        let mut add = |what: String, remedy: &str| {
            findings.push(Finding::error(path, entry.line, what, remedy));
        };
        if !follows(previous, id) {
            add(
                format!("{id} does not follow the number before it"),
                "keep the numbers in order and without gaps",
            );
        }
        previous = Some(id);
        match (entry.status, cited.contains(&id)) {
            (None, _) => add(
                format!("{id} has no status"),
                "write (built), (partial) or (later) behind the number",
            ),
            (Some(Status::Built), false) => add(
                format!("{id} is called built, and no test cites it"),
                "cite it in the test that proves it, or call it partial or later",
            ),
            (Some(Status::Later), true) => add(
                format!("{id} is called later, and a test cites it"),
                "call it partial or built",
            ),
            _ => {}
        }
        if (entry.status == Some(Status::Partial)) != entry.names_missing {
            add(
                format!("{id} is partial without saying what is missing, or the other way round"),
                "write (partial) and a last sentence `Missing: …`, or neither",
            );
        }
    }
}

fn follows(previous: Option<Id>, id: Id) -> bool {
    match (previous, id) {
        (None, Id::Requirement(1, 1) | Id::Case(1)) => true,
        (Some(Id::Requirement(section, number)), Id::Requirement(s, n)) => {
            (s, n) == (section, number + 1) || (s, n) == (section + 1, 1)
        }
        (Some(Id::Case(number)), Id::Case(n)) => n == number + 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests_of_citations {
    use super::*;

    const BLOCK: &str = "<!-- tests: written by `cargo xtask docs`, do not edit -->\n\n| number | test |\n|---|---|\n\n<!-- end of tests -->\n";

    fn run(requirements: &str, code: &str) -> Vec<String> {
        let requirements = format!("{requirements}{BLOCK}");
        let cases = format!("- **O-01** SLOT (later) One.\n{BLOCK}");
        let tree = Tree::of(&[
            (REQUIREMENTS, &requirements),
            (CASES, &cases),
            ("a/tests/b.rs", code),
        ]);
        let parsed = crate::tidy::parse(&tree);
        check(&tree, &parsed)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect()
    }

    fn cite(section: u16, numbers: std::ops::RangeInclusive<u16>) -> String {
        let ids: Vec<String> = numbers.map(|n| format!("R{section}.{n}")).collect();
        format!("/// {}\n#[test]\nfn holds() {{}}", ids.join(" "))
    }

    #[test]
    fn a_tidy_catalogue_passes() {
        let text = format!("- **R1.{}** (later) One.\n", 1);
        assert_eq!(run(&text, ""), Vec::<String>::new());
    }

    #[test]
    fn built_needs_a_test_and_later_has_none() {
        let text = |status: &str| format!("- **R1.{}** ({status}) One.\n", 1);
        assert_eq!(
            run(&text("built"), ""),
            ["1: R1.1 is called built, and no test cites it"]
        );
        let found = run(&text("later"), &cite(1, 1..=1));
        assert_eq!(found[0], "1: R1.1 is called later, and a test cites it");
        assert_eq!(run(&text("partial"), "").len(), 1);
        let partial = format!("- **R1.{}** (partial) One.\n  Missing: two.\n", 1);
        assert!(run(&partial, "").is_empty());
        assert_eq!(run(&text("soon"), ""), ["1: R1.1 has no status"]);
    }

    #[test]
    fn unknown_numbers_and_gaps_are_found() {
        let text = format!("- **R1.{}** (later) One.\n", 1);
        let found = run(&text, &cite(900, 7..=7));
        assert_eq!(found, ["1: R900.7 is unknown"]);
        let text = format!("{text}- **R1.{}** (later) Three.\n", 3);
        assert_eq!(
            run(&text, ""),
            ["2: R1.3 does not follow the number before it"]
        );
    }

    #[test]
    fn a_stale_list_of_tests_is_found() {
        let text = format!("- **R1.{}** (built) One.\n", 1);
        assert_eq!(
            run(&text, &cite(1, 1..=1)),
            ["0: the list of tests is out of date"]
        );
    }

    #[test]
    fn a_test_proves_three_requirements_at_most() {
        let lines: Vec<String> = (1..=4)
            .map(|n| format!("- **R1.{n}** (partial) Text. Missing: more.\n"))
            .collect();
        let text = lines.concat();
        let many = |found: Vec<String>| found.iter().any(|f| f.contains("cites 4 requirements"));
        assert!(many(run(&text, &cite(1, 1..=4))));
        assert!(!many(run(&text, &cite(1, 1..=3))));
    }
}
