//! SQL stands in the store alone, and only opening and closing an attempt may write what an attempt holds.
//!
//! The second rule keeps one book of occupancy: a lease that is inserted or deleted by any other statement would be a
//! way into or out of `running` that forgets the slot, the attempt row or the end. It is proven twice: over the
//! committed query metadata (whole statements, as the compiler checked them: each carries its mark) and over the string
//! literals of the store (which may be parts of statements: where they stand).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    items::Items,
    lexer::Kind,
    report::Finding,
    sql::{Verb, is_statement, marks, writes},
    tree::Tree,
};

const STORE: &str = "crates/tidegate-store/";
/// Where statements over the guarded tables may stand.
const GUARDED_HOMES: &[&str] = &[
    "crates/tidegate-store/src/attempts/",
    "crates/tidegate-store/src/attempts.rs",
    "crates/tidegate-store/src/tenants/erase.rs",
];
const GUARDED: &[&str] = &["run_leases", "background_slots", "run_attempts", "run_ends"];
const MARKS: &[&str] = &[
    "attempt:open",
    "attempt:close",
    "run:prune",
    "run:reopen",
    "tenant:erase",
];
/// Where statements may run unchecked: before the schema is there, and over every table of whatever schema there is.
const UNCHECKED_HOMES: &[&str] = &[
    "crates/tidegate-store/src/migrate/",
    "crates/tidegate-store/src/tenants/erase.rs",
];
/// Crates whose strings may be SQL: the store, what makes databases, and what only tests use.
const SPEAK_SQL: &[&str] = &[
    STORE,
    "crates/tidegate-embedded/",
    "crates/tidegate-testkit/",
    "crates/tidegate-bench/",
    "xtask/",
];

#[derive(Deserialize)]
struct Prepared {
    query: String,
}

pub fn check(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let prepared = file.path.starts_with(".sqlx/") && file.extension() == "json";
        if prepared {
            match serde_json::from_str::<Prepared>(&file.text) {
                Ok(statement) => require_mark(&file.path, &statement.query, &mut findings),
                Err(error) => findings.push(Finding::error(
                    &*file.path,
                    0,
                    format!("is no query metadata: {error}"),
                    "run `cargo xtask sqlx`",
                )),
            }
        } else if file.path.starts_with(&format!("{STORE}src/")) && file.extension() == "sql" {
            require_home(&file.path, 0, &file.text, &mut findings);
        }
    }
    for (path, items) in parsed {
        check_source(path, items, &mut findings);
    }
    findings
}

fn check_source(path: &str, items: &Items<'_>, findings: &mut Vec<Finding>) {
    if super::sizes::is_test_file(path) || path.contains("/benches/") || path.contains("/examples/")
    {
        return;
    }
    let speaks_sql = SPEAK_SQL.iter().any(|home| path.starts_with(home));
    for token in &items.tokens {
        let Some(literal) = token.literal() else {
            continue;
        };
        if items.in_test_code(token.line) {
            continue;
        }
        if path.starts_with(STORE) {
            require_home(path, token.line, literal, findings);
        } else if !speaks_sql && is_statement(literal) {
            findings.push(Finding::error(
                path,
                token.line,
                "SQL outside the store",
                "give it a name in tidegate-store, in the module of its aggregate",
            ));
        }
    }
    if path.starts_with(&format!("{STORE}src/")) {
        check_clock(path, items, findings);
        check_checked(path, items, findings);
    }
}

/// A statement that the compiler has not seen is in no metadata, and so proven by nobody.
fn check_checked(path: &str, items: &Items<'_>, findings: &mut Vec<Finding>) {
    if UNCHECKED_HOMES.iter().any(|home| path.starts_with(home)) {
        return;
    }
    let code: Vec<_> = items
        .tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment && !items.in_test_code(token.line))
        .collect();
    for window in code.windows(5) {
        let names = ["query", "query_as", "query_scalar", "query_with", "raw_sql"];
        let unchecked = window[0].is("sqlx")
            && window[1].is(":")
            && window[2].is(":")
            && names.contains(&window[3].text)
            && !window[4].is("!");
        if unchecked {
            findings.push(Finding::error(
                path,
                window[3].line,
                format!(
                    "`{}` runs a statement that the compiler does not check",
                    window[3].text
                ),
                format!(
                    "write `{}!`, with the statement as a literal",
                    window[3].text
                ),
            ));
        }
    }
}

/// The store decides nothing by its own clock.
fn check_clock(path: &str, items: &Items<'_>, findings: &mut Vec<Finding>) {
    for token in &items.tokens {
        let wall_clock = token.kind == Kind::Str
            && token.literal().is_some_and(|text| {
                let text = text.to_ascii_lowercase();
                is_statement(&text)
                    && (text.contains("current_timestamp") || has_call(&text, "now()"))
            });
        if wall_clock && !items.in_test_code(token.line) {
            findings.push(Finding::error(
                path,
                token.line,
                "a statement reads the time its transaction began",
                "use clock_timestamp(): a lease that waited for a lock would be born old",
            ));
        }
    }
}

fn has_call(text: &str, call: &str) -> bool {
    text.match_indices(call)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Guarded tables that a statement, or a part of one, inserts into or deletes from.
fn guarded(statement: &str) -> Option<String> {
    let tables: Vec<String> = writes(statement)
        .into_iter()
        .filter(|(verb, table)| *verb != Verb::Update && GUARDED.contains(&table.as_str()))
        .map(|(_, table)| table)
        .collect();
    (!tables.is_empty()).then(|| tables.join(", "))
}

fn require_home(path: &str, line: usize, part: &str, findings: &mut Vec<Finding>) {
    let home = GUARDED_HOMES.iter().any(|home| path.starts_with(home));
    if let Some(tables) = guarded(part).filter(|_| !home) {
        findings.push(Finding::error(
            path,
            line,
            format!("a statement outside the attempts inserts into or deletes from {tables}"),
            "go through open_attempt or close_attempt: they write run, lease, holds and event together",
        ));
    }
}

fn require_mark(path: &str, statement: &str, findings: &mut Vec<Finding>) {
    let marked = marks(statement).iter().any(|mark| MARKS.contains(mark));
    if let Some(tables) = guarded(statement).filter(|_| !marked) {
        let begin: String = statement
            .split_whitespace()
            .take(12)
            .collect::<Vec<_>>()
            .join(" ");
        findings.push(Finding::error(
            path,
            0,
            format!("an unmarked statement inserts into or deletes from {tables}: {begin}"),
            format!(
                "begin it with one of {} and run `cargo xtask sqlx`",
                marks_shown()
            ),
        ));
    }
}

fn marks_shown() -> String {
    let shown: Vec<String> = MARKS.iter().map(|mark| format!("/* {mark} */")).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        let parsed = crate::tidy::parse(&tree);
        check(&tree, &parsed)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect()
    }

    fn prepared(statement: &str) -> String {
        format!("{{\"query\": {statement:?}, \"describe\": {{}}}}")
    }

    const OPEN: &str = "/* attempt:open */ INSERT INTO run_leases (run_id) SELECT $1";
    const LOOSE: &str = "INSERT INTO run_leases (run_id) SELECT $1";

    #[test]
    fn prepared_statements_over_guarded_tables_carry_a_mark() {
        assert!(run(".sqlx/query-1.json", &prepared(OPEN)).is_empty());
        assert_eq!(run(".sqlx/query-1.json", &prepared(LOOSE)).len(), 1);
        for table in GUARDED {
            let statement = format!("WITH x AS (DELETE FROM {table} RETURNING 1) SELECT 1 FROM x");
            assert_eq!(
                run(".sqlx/query-1.json", &prepared(&statement)).len(),
                1,
                "{table}"
            );
        }
        assert!(
            run(
                ".sqlx/query-1.json",
                &prepared("UPDATE run_leases SET lease_until = $1")
            )
            .is_empty()
        );
        assert_eq!(run(".sqlx/query-1.json", "{}").len(), 1);
    }

    #[test]
    fn they_stand_with_the_attempts_only() {
        let code = |statement: &str| format!("fn f() {{ let q = r#\"{statement}\"#; }}");
        let home = "crates/tidegate-store/src/attempts/open.rs";
        let other = "crates/tidegate-store/src/runs.rs";
        assert!(run(home, &code(OPEN)).is_empty());
        // A part of a statement; its mark is looked for where the whole is.
        assert!(run(home, &code(LOOSE)).is_empty());
        assert_eq!(run(other, &code(OPEN)).len(), 1);
        assert_eq!(run(other, &code(LOOSE)).len(), 1);
        let test = format!("#[cfg(test)]\nmod tests {{ {} }}", code(LOOSE));
        assert!(run(other, &test).is_empty());
    }

    #[test]
    fn other_crates_hold_no_sql() {
        let code = "fn f() { g(\"SELECT id FROM agent_runs\"); h(\"select a provider\"); }";
        assert_eq!(
            run("crates/tidegate-engine/src/a.rs", code),
            ["1: SQL outside the store"]
        );
        for path in [
            "crates/tidegate-engine/tests/a.rs",
            "crates/tidegate-testkit/src/a.rs",
            "crates/tidegate-store/src/a.rs",
        ] {
            assert!(run(path, code).is_empty(), "{path}");
        }
    }

    #[test]
    fn time_in_statements_is_the_clock_and_not_the_transaction() {
        let code = |clock: &str| format!("fn f() {{ g(\"SELECT {clock} FROM x\"); }}");
        let path = "crates/tidegate-store/src/a.rs";
        assert!(run(path, &code("clock_timestamp()")).is_empty());
        assert!(run(path, &code("fresh_now()")).is_empty());
        assert_eq!(run(path, &code("now()")).len(), 1);
        assert_eq!(run(path, &code("CURRENT_TIMESTAMP")).len(), 1);
    }

    #[test]
    fn statements_of_the_store_are_checked_by_the_compiler() {
        let code = |call: &str| format!("fn f() {{ {call}; }}");
        let path = "crates/tidegate-store/src/a.rs";
        assert!(run(path, &code("sqlx::query!(\"SELECT 1 FROM x\")")).is_empty());
        for call in [
            "sqlx::query(\"x\")",
            "sqlx::query_as::<_, X>(\"x\")",
            "sqlx::raw_sql(\"x\")",
        ] {
            assert_eq!(run(path, &code(call)).len(), 1, "{call}");
            assert!(run(UNCHECKED_HOMES[1], &code(call)).is_empty(), "{call}");
        }
    }
}
