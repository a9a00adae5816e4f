//! Every code a client can meet has a page, and every page a code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{catalogue::replace_block, items::Items, report::Finding, tree::Tree};

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
        for token in &items.tokens {
            let code = token.literal().filter(|text| is_code(text));
            let Some(code) = code.filter(|_| !items.in_test_code(token.line)) else {
                continue;
            };
            known.insert(code);
            if !tree.contains(&page(code)) {
                findings.push(Finding::error(
                    *path,
                    token.line,
                    format!("{code} has no page"),
                    format!("write {}: what it means, when, what to do", page(code)),
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
    use crate::items::items;

    const CODES: &str =
        "fn f() -> &'static str { \"LEASE_LOST\" } // not \"OTHER\"\nconst T: &str = \"a text\";";

    fn run(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let parsed = tree
            .rust()
            .map(|file| (file.path.as_str(), items(&file.text)))
            .collect();
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
}
