//! Documents: links and paths lead somewhere, cited symbols exist, and `ARCHITECTURE.md` stays short.

use std::collections::BTreeMap;

use crate::{
    items::Items,
    markdown::{anchors, code_spans, links},
    report::Finding,
    tree::{SourceFile, Tree, resolve},
};

pub const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES: usize = 250;
/// Fewer would mean that its claims are not backed by code.
const ARCHITECTURE_CITATIONS: usize = 20;

pub fn check(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for link in links(&file.text) {
            if let Some((what, remedy)) = dead(tree, file, &link.target) {
                findings.push(Finding::error(&*file.path, link.line, what, remedy));
            }
        }
        for span in code_spans(&file.text) {
            let found = match citation(&span.text) {
                Some((path, symbol)) => uncited(parsed, path, symbol),
                None => missing_path(tree, &span.text),
            };
            if let Some((what, remedy)) = found {
                findings.push(Finding::error(&*file.path, span.line, what, remedy));
            }
        }
    }
    if let Some(file) = tree.get(ARCHITECTURE) {
        check_architecture(file, &mut findings);
    }
    findings
}

fn check_architecture(file: &SourceFile, findings: &mut Vec<Finding>) {
    let lines = file.text.lines().count();
    if lines > ARCHITECTURE_LINES {
        findings.push(Finding::error(
            ARCHITECTURE,
            0,
            format!("{lines} lines, at most {ARCHITECTURE_LINES}"),
            "move detail into docs/ and link to it",
        ));
    }
    let cited = code_spans(&file.text)
        .iter()
        .filter(|span| citation(&span.text).is_some())
        .count();
    if cited < ARCHITECTURE_CITATIONS {
        findings.push(Finding::error(
            ARCHITECTURE,
            0,
            format!("{cited} citations of code, at least {ARCHITECTURE_CITATIONS} are wanted"),
            "cite `path::symbol` behind each claim",
        ));
    }
}

/// What is wrong with a link target, and the remedy.
fn dead(tree: &Tree, from: &SourceFile, target: &str) -> Option<(String, String)> {
    if target.starts_with("https://") || target.starts_with("mailto:") {
        return None;
    }
    if target.starts_with("http://") {
        return Some((
            format!("the link {target} is not encrypted"),
            "use https".to_owned(),
        ));
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = if path.is_empty() {
        from.path.clone()
    } else if path.starts_with('/') {
        return Some((
            format!("the link {target} starts at the root of a machine"),
            "write it relative to this file".to_owned(),
        ));
    } else {
        match resolve(&from.path, path) {
            Some(resolved) => resolved,
            None => {
                return Some((
                    format!("the link {target} leaves the repository"),
                    "link to something inside it".to_owned(),
                ));
            }
        }
    };
    if !resolved.is_empty() && !tree.contains(&resolved) {
        return Some((
            format!("the link {target} is dead: there is no {resolved}"),
            "correct the path or remove the link".to_owned(),
        ));
    }
    let file = tree.get(&resolved)?;
    let missing = !anchor.is_empty()
        && file.is_markdown()
        && !anchors(&file.text).iter().any(|known| known == anchor);
    missing.then(|| {
        (
            format!("{resolved} has no heading #{anchor}"),
            "link to a heading that exists".to_owned(),
        )
    })
}

/// `crates/x/src/y.rs::Type::method` as path and symbol.
fn citation(span: &str) -> Option<(&str, &str)> {
    let (path, symbol) = span.split_once(".rs::")?;
    let path = &span[..path.len() + ".rs".len()];
    let symbol = symbol.trim_end_matches("()");
    (!path.contains(' ') && !symbol.is_empty()).then_some((path, symbol))
}

fn uncited(
    parsed: &BTreeMap<&str, Items<'_>>,
    path: &str,
    symbol: &str,
) -> Option<(String, String)> {
    let Some(items) = parsed.get(path) else {
        return Some((
            format!("cites {path}, which does not exist"),
            "cite the file where the thing lives now".to_owned(),
        ));
    };
    (!items.defines(symbol)).then(|| {
        (
            format!("cites `{symbol}`, which {path} does not define"),
            "cite what it is called now".to_owned(),
        )
    })
}

/// A code span that looks like a path below one of our own folders must exist.
fn missing_path(tree: &Tree, span: &str) -> Option<(String, String)> {
    let plain = span
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
    let (top, rest) = span.split_once('/')?;
    if !plain || rest.is_empty() || !tree.contains(top) || generated(span) {
        return None;
    }
    (!tree.contains(span)).then(|| {
        (
            format!("names {span}, which does not exist"),
            "correct the path".to_owned(),
        )
    })
}

/// Folders that are made by running something and are not committed.
fn generated(path: &str) -> bool {
    path.starts_with("target/") || path.starts_with(".tidegate/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        let parsed = crate::tidy::parse(&tree);
        check(&tree, &parsed)
            .into_iter()
            .map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.what))
            .collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](docs/b.md) [b](docs/b.md#the-end) [c](#top) [d](https://example.org) [e](docs)\n# Top\n";
        assert_eq!(
            run(&[("README.md", text), ("docs/b.md", "## The end\n")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn dead_links_are_found() {
        for target in [
            "docs/missing.md",
            "docs/b.md#missing",
            "#missing",
            "/docs/b.md",
            "http://example.org",
        ] {
            let text = format!("\nsee [this]({target})\n");
            let found = run(&[("README.md", &text), ("docs/b.md", "")]);
            assert_eq!(found.len(), 1, "{target}");
            assert!(found[0].starts_with("README.md:2: "), "{target}");
        }
        let up = format!("[x]({}x)", "../".repeat(2));
        assert_eq!(run(&[("docs/b.md", &up)]).len(), 1);
    }

    #[test]
    fn paths_in_code_spans_must_exist() {
        let docs = [(
            "docs/a.md",
            "`docs/a.md`, `docs/`, `docs/*.md`, `other/x`, `a/b`\n",
        )];
        assert_eq!(run(&docs), Vec::<String>::new());
        assert_eq!(
            run(&[("docs/a.md", "`docs/missing.md`")]),
            ["docs/a.md:1: names docs/missing.md, which does not exist"]
        );
    }

    #[test]
    fn cited_symbols_are_proven() {
        let code = ("crates/a/src/lib.rs", "impl Run { fn close() {} }");
        let cite = |symbol: &str| format!("`crates/a/src/lib.rs::{symbol}`");
        assert!(run(&[code, ("docs/a.md", &cite("Run::close"))]).is_empty());
        assert!(run(&[code, ("docs/a.md", &cite("close()"))]).is_empty());
        assert_eq!(run(&[code, ("docs/a.md", &cite("Run::open"))]).len(), 1);
        assert_eq!(run(&[("docs/a.md", &cite("Run"))]).len(), 1);
    }

    #[test]
    fn the_map_is_short_and_backed_by_code() {
        let citation = "`a.rs::f`\n";
        let code = ("a.rs", "fn f() {}");
        assert!(run(&[code, (ARCHITECTURE, &citation.repeat(20))]).is_empty());
        assert_eq!(run(&[code, (ARCHITECTURE, &citation.repeat(19))]).len(), 1);
        assert_eq!(run(&[code, (ARCHITECTURE, &citation.repeat(251))]).len(), 1);
    }
}
