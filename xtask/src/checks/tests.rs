//! Tests that cannot fail are defects: none is ignored, and none asserts what is always so.

use std::collections::BTreeMap;

use crate::{
    items::Items,
    lexer::{Kind, Token},
    report::Finding,
};

/// Code that makes a test pass whatever happens, as the tokens it is written with.
const EMPTY: &[&[&str]] = &[
    &["assert", "!", "(", "true", ")"],
    &["assert", "!", "(", "true", ","],
    &["debug_assert", "!", "(", "true", ")"],
];

pub fn check(parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, items) in parsed {
        let code: Vec<&Token<'_>> = items
            .tokens
            .iter()
            .filter(|token| token.kind != Kind::Comment)
            .collect();
        for window in code.windows(3) {
            let ignored = window[0].is("#") && window[1].is("[") && window[2].is("ignore");
            if ignored {
                findings.push(Finding::error(
                    *path,
                    window[0].line,
                    "an ignored test",
                    "let it run, or remove it: a test that nobody runs proves nothing",
                ));
            }
        }
        for words in EMPTY {
            for window in code.windows(words.len()) {
                let same = |(token, word): (&&Token<'_>, &&str)| token.is(word);
                if window.iter().zip(words.iter()).all(same) {
                    findings.push(Finding::error(
                        *path,
                        window[0].line,
                        "an assertion that cannot fail",
                        "assert what the test is about",
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests_of_tests {
    use super::*;
    use crate::items::items;

    fn run(code: &str) -> Vec<String> {
        check(&BTreeMap::from([("a.rs", items(code))]))
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn ignored_and_empty_tests_are_found() {
        for attribute in ["ignore", "ignore = \"flaky\""] {
            let code = format!("#[test]\n#[{attribute}]\nfn f() {{}}");
            assert_eq!(run(&code), ["an ignored test"]);
        }
        for argument in ["true", "true, \"fine\""] {
            let code = format!("fn f() {{ assert!({argument}); }}");
            assert_eq!(run(&code), ["an assertion that cannot fail"]);
        }
    }

    #[test]
    fn others_pass() {
        let code = "// assert!(true)\nfn ignore() { assert!(truth); assert_eq!(true, x); }";
        assert_eq!(run(code), Vec::<String>::new());
    }
}
