//! The pure crates stay pure in their source too: no async, no clock, no environment, no files.

use std::collections::BTreeMap;

use crate::{items::Items, lexer::Kind, report::Finding};

const PURE: &[&str] = &[
    "crates/tidegate-model/src/",
    "crates/tidegate-policy/src/",
    "crates/tidegate-grants/src/",
];

/// Paths as they are written, and why not.
const BANNED: &[(&[&str], &str)] = &[
    (&["async"], "hand in what had to be waited for"),
    (
        &["Instant", ":", ":", "now"],
        "take the time as an argument",
    ),
    (
        &["SystemTime", ":", ":", "now"],
        "take the time as an argument",
    ),
    (&["Utc", ":", ":", "now"], "take the time as an argument"),
    (&["std", ":", ":", "env"], "settings come in as values"),
    (&["std", ":", ":", "fs"], "contents come in as values"),
    (&["std", ":", ":", "net"], "this crate talks to nobody"),
    (
        &["std", ":", ":", "thread"],
        "this crate runs where it is called",
    ),
];

/// The one file that makes ids, and so needs a clock and randomness.
const EXEMPT: &[&str] = &["crates/tidegate-model/src/ids.rs"];

pub fn check(parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, items) in parsed {
        let pure = PURE.iter().any(|home| path.starts_with(home)) && !EXEMPT.contains(path);
        if !pure || super::sizes::is_test_file(path) {
            continue;
        }
        let code: Vec<_> = items
            .tokens
            .iter()
            .filter(|token| token.kind != Kind::Comment && !items.in_test_code(token.line))
            .collect();
        for (words, remedy) in BANNED {
            for window in code.windows(words.len()) {
                if window
                    .iter()
                    .zip(words.iter())
                    .all(|(token, word)| token.is(word))
                {
                    findings.push(Finding::error(
                        *path,
                        window[0].line,
                        format!("`{}` in a pure crate", words.concat()),
                        *remedy,
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::items;

    fn run(path: &str, text: &str) -> usize {
        check(&BTreeMap::from([(path, items(text))])).len()
    }

    #[test]
    fn clocks_and_async_are_found_in_pure_crates_only() {
        for code in [
            "async fn f() {}",
            "fn f() { let t = std::time::Instant::now(); }",
            "fn f() { Utc::now(); }",
            "use std::fs;",
        ] {
            assert_eq!(run("crates/tidegate-policy/src/a.rs", code), 1, "{code}");
            assert_eq!(run("crates/tidegate-engine/src/a.rs", code), 0, "{code}");
        }
    }

    #[test]
    fn tests_and_comments_may_name_them() {
        let code = "// async\n#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }";
        assert_eq!(run("crates/tidegate-policy/src/a.rs", code), 0);
    }
}
