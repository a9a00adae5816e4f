//! Every code a client can meet has a page, and every page a code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{catalogue::replace_block, items::Items, lexer::Kind, report::Finding, tree::Tree};

pub const INDEX: &str = "docs/codes/README.md";
const PAGES: &str = "docs/codes/";
const SOURCES: &[&str] = &[
    "crates/tidegate-model/src/codes.rs",
    "crates/tidegate-model/src/queue_reason.rs",
];
const BLOCK_BEGIN: &str = "<!-- pages: written by `cargo xtask docs`, do not edit -->";
const BLOCK_END: &str = "<!-- end of pages -->";

pub fn check(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut known = BTreeSet::new();
    for path in SOURCES {
        let Some(items) = parsed.get(path) else {
            continue;
        };
        let facts = facts(items);
        for token in &items.tokens {
            let code = token.literal().filter(|text| is_code(text));
            let Some(code) = code.filter(|_| !items.in_test_code(token.line)) else {
                continue;
            };
            known.insert(code);
            let Some(file) = tree.get(&page(code)) else {
                findings.push(Finding::error(
                    *path,
                    token.line,
                    format!("{code} has no page"),
                    format!("write {}: what it means, when, what to do", page(code)),
                ));
                continue;
            };
            if let Some(fact) = facts.get(code)
                && !file.text.lines().any(|line| line == fact)
            {
                findings.push(Finding::error(
                    &*file.path,
                    0,
                    format!("does not say what the code says: {fact}"),
                    format!("correct the page's line, or {path}"),
                ));
            }
        }
    }
    for (path, code, text) in pages(tree) {
        if !known.is_empty() && !known.contains(code) {
            findings.push(Finding::error(
                path,
                0,
                format!("{code} is no code of this release"),
                "remove the page, or correct its name",
            ));
        }
        if text.lines().next() != Some(&format!("# {code}")) || summary(text).is_empty() {
            findings.push(Finding::error(
                path,
                1,
                "the page does not begin with its code and a sentence",
                format!("begin it with `# {code}` and one sentence that says what it means"),
            ));
        }
    }
    if let Some(index) = tree.get(INDEX)
        && with_pages(&index.text, tree).as_ref() != Some(&index.text)
    {
        findings.push(Finding::error(
            INDEX,
            0,
            "the list of pages is out of date",
            "run `cargo xtask docs`",
        ));
    }
    findings
}

/// The line that a code's page must hold, from the match arms of `status`, `retryable` and `rank`.
fn facts(items: &Items<'_>) -> BTreeMap<String, String> {
    let statuses = numbers(items, "status");
    let ranks = numbers(items, "rank");
    let retryable = arms(items, "retryable");
    let code: Vec<_> = items
        .tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment)
        .collect();
    code.windows(3)
        .filter(|window| window[1].is("="))
        .filter_map(|window| {
            let variant = window[0].text;
            let value = window[2].literal().filter(|text| is_code(text))?;
            let fact = if let Some(status) = statuses.get(variant) {
                let again = retryable.iter().any(|(name, _)| *name == variant);
                let not = if again { "" } else { "not " };
                format!("HTTP status {status}, {not}retryable.")
            } else {
                let rank = ranks.get(variant)?;
                format!("Queue reason, rank {rank} (of several the lowest is shown).")
            };
            Some((value.to_owned(), fact))
        })
        .collect()
}

fn numbers<'a>(items: &Items<'a>, function: &str) -> BTreeMap<&'a str, &'a str> {
    arms(items, function)
        .into_iter()
        .filter_map(|(name, number)| Some((name, number?)))
        .collect()
}

/// `Self::A | Self::B => 409` in the function as (A, 409) and (B, 409).
fn arms<'a>(items: &Items<'a>, function: &str) -> Vec<(&'a str, Option<&'a str>)> {
    let mut found: Vec<(&str, Option<&str>)> = Vec::new();
    for function in items.functions.iter().filter(|f| f.name == function) {
        let (from, to) = function.tokens;
        let body: Vec<_> = items.tokens[from..to].iter().collect();
        let mut open = found.len();
        for (at, token) in body.iter().enumerate() {
            let behind =
                |back: usize, text: &str| at.checked_sub(back).is_some_and(|at| body[at].is(text));
            if token.kind == Kind::Ident && behind(1, ":") && behind(3, "Self") {
                found.push((token.text, None));
            } else if token.kind == Kind::Number {
                for arm in &mut found[open..] {
                    arm.1 = Some(token.text);
                }
                open = found.len();
            }
        }
    }
    found
}

fn page(code: &str) -> String {
    format!("{PAGES}{code}.md")
}

fn pages(tree: &Tree) -> impl Iterator<Item = (&str, &str, &str)> {
    tree.markdown().filter_map(|file| {
        let code = file.path.strip_prefix(PAGES)?.strip_suffix(".md")?;
        (code != "README").then_some((file.path.as_str(), code, file.text.as_str()))
    })
}

/// `LEASE_LOST`, not `id` and not `a text`.
fn is_code(text: &str) -> bool {
    text.len() > 3
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// The index with its list of pages brought up to date; `None` where it has no such block.
pub fn with_pages(index: &str, tree: &Tree) -> Option<String> {
    let mut block = String::from("\n| code | meaning |\n|---|---|\n");
    for (_, code, text) in pages(tree) {
        let _ = writeln!(block, "| [`{code}`]({code}.md) | {} |", summary(text));
    }
    block.push('\n');
    replace_block(index, BLOCK_BEGIN, BLOCK_END, &block)
}

/// The first sentence below the title.
fn summary(text: &str) -> &str {
    let line = text
        .lines()
        .skip(1)
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    line.find(". ").map_or(line, |end| &line[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: &str =
        "fn f() -> &'static str { \"LEASE_LOST\" } // not \"OTHER\"\nconst T: &str = \"a text\";";

    fn run(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let parsed = crate::tidy::parse(&tree);
        check(&tree, &parsed)
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn a_code_without_a_page_is_found() {
        assert_eq!(run(&[(SOURCES[0], CODES)]), ["LEASE_LOST has no page"]);
        let page = (
            "docs/codes/LEASE_LOST.md",
            "# LEASE_LOST\n\nThe lease is gone. So stop.\n",
        );
        assert!(run(&[(SOURCES[0], CODES), page]).is_empty());
    }

    #[test]
    fn a_page_without_a_code_or_without_a_sentence_is_found() {
        let good = ("docs/codes/LEASE_LOST.md", "# LEASE_LOST\n\nGone.\n");
        let old = ("docs/codes/OLD.md", "# OLD\n\nGone.\n");
        assert_eq!(
            run(&[(SOURCES[0], CODES), good, old]),
            ["OLD is no code of this release"]
        );
        for text in ["# Lease lost\n\nGone.\n", "# LEASE_LOST\n"] {
            let page = ("docs/codes/LEASE_LOST.md", text);
            assert_eq!(run(&[(SOURCES[0], CODES), page]).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_index_lists_every_page() {
        let index = format!("# Codes\n{BLOCK_BEGIN}\n{BLOCK_END}\n");
        let page = (
            "docs/codes/LEASE_LOST.md",
            "# LEASE_LOST\n\nThe lease is gone. So stop.\n",
        );
        let files = [(SOURCES[0], CODES), page, (INDEX, index.as_str())];
        assert_eq!(run(&files), ["the list of pages is out of date"]);
        let written = with_pages(&index, &Tree::of(&files)).unwrap();
        assert!(written.contains("| [`LEASE_LOST`](LEASE_LOST.md) | The lease is gone. |"));
        assert!(run(&[(SOURCES[0], CODES), page, (INDEX, written.as_str())]).is_empty());
    }

    #[test]
    fn a_page_says_the_status_that_the_code_has() {
        let code = "enum Code { LeaseLost = \"LEASE_LOST\", Busy = \"BUSY\" }
            impl Code {
                fn status(self) -> u16 { match self { Self::LeaseLost => 409, Self::Busy => 503 } }
                fn retryable(self) -> bool { matches!(self, Self::Busy) }
            }";
        let page = |code: &str, line: &str| format!("# {code}\n\nGone.\n\n{line}\n");
        let lost = page("LEASE_LOST", "HTTP status 409, not retryable.");
        let busy = page("BUSY", "HTTP status 503, retryable.");
        let run_with = |lost: &str| {
            run(&[
                (SOURCES[0], code),
                ("docs/codes/LEASE_LOST.md", lost),
                ("docs/codes/BUSY.md", &busy),
            ])
        };
        assert_eq!(run_with(&lost), Vec::<String>::new());
        let stale = page("LEASE_LOST", "HTTP status 410, not retryable.");
        assert_eq!(
            run_with(&stale),
            ["does not say what the code says: HTTP status 409, not retryable."]
        );
    }

    #[test]
    fn a_page_says_the_rank_that_the_reason_has() {
        let code = "enum Reason { Busy = \"BUSY\" } impl Reason { fn rank(self) -> u8 { match self { Self::Busy => 3 } } }";
        let page = "# BUSY\n\nGone.\n\nQueue reason, rank 2 (of several the lowest is shown).\n";
        let found = run(&[(SOURCES[1], code), ("docs/codes/BUSY.md", page)]);
        assert_eq!(found.len(), 1);
    }
}
