//! Files of at most 700 lines, functions of at most 70, tests of at most 60; older excess is listed and only shrinks.

use std::{collections::BTreeMap, path::Path};

use crate::{
    command,
    items::{Function, Items},
    lexer::{Kind, Token},
    report::Finding,
    tree::{SourceFile, Tree},
};

/// Lines of a Rust file, comments and tests included.
pub const FILE_LINES: usize = 700;
/// Lines of code of a Rust file, tests apart, above which it is worth splitting.
pub const FILE_CODE_LINES: usize = 400;
pub const FUNCTION_LINES: usize = 70;
pub const TEST_FUNCTION_LINES: usize = 60;
/// A handler translates between HTTP and one use case; more would be a rule in the wrong place.
pub const HANDLER_LINES: usize = 40;
const HANDLERS: &str = "crates/tidegate-server/src/endpoints/";

/// Lines `<path>[::<function>] <lines>`; `#` begins a comment.
pub const EXCEPTIONS: &str = "xtask/size-exceptions.txt";

/// Excess that was there before, by file or `file::function`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions(BTreeMap<String, (usize, usize)>);

impl Exceptions {
    pub fn parse(text: &str) -> (Self, Vec<Finding>) {
        let mut entries = BTreeMap::new();
        let mut findings = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parsed = line
                .split_once(' ')
                .and_then(|(what, lines)| Some((what, lines.trim().parse().ok()?)));
            match parsed {
                Some((what, lines)) => {
                    entries.insert(what.to_owned(), (lines, index + 1));
                }
                None => findings.push(Finding::error(
                    EXCEPTIONS,
                    index + 1,
                    format!("`{line}` is no exception"),
                    "write `<path>[::<function>] <lines>`",
                )),
            }
        }
        (Self(entries), findings)
    }

    fn allows(&self, what: &str, lines: usize) -> bool {
        self.0
            .get(what)
            .is_some_and(|(allowed, _)| lines <= *allowed)
    }

    /// An entry may leave the list or become smaller; nothing else.
    pub fn grown_since(&self, earlier: &Self) -> Vec<Finding> {
        self.0
            .iter()
            .filter_map(|(what, (lines, line))| {
                let complaint = match earlier.0.get(what) {
                    None => format!("`{what}` is a new exception"),
                    Some((before, _)) if lines > before => {
                        format!("the exception of `{what}` grew from {before} to {lines}")
                    }
                    Some(_) => return None,
                };
                Some(Finding::error(
                    EXCEPTIONS,
                    *line,
                    complaint,
                    "this list only shrinks: split the code instead",
                ))
            })
            .collect()
    }
}

/// Sizes of all Rust files against the limits and the exceptions.
pub fn check(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Finding> {
    let text = tree.get(EXCEPTIONS).map_or("", |file| file.text.as_str());
    let (exceptions, mut findings) = Exceptions::parse(text);
    let mut largest: BTreeMap<String, usize> = BTreeMap::new();
    for file in tree.rust() {
        let Some(items) = parsed.get(file.path.as_str()) else {
            continue;
        };
        let mut excess = measure(file, items, &mut findings);
        excess.retain(|found| {
            largest.insert(found.key.clone(), found.lines);
            !exceptions.allows(&found.key, found.lines)
        });
        findings.extend(excess.into_iter().map(|found| found.finding));
    }
    for (what, (allowed, line)) in &exceptions.0 {
        let remedy = match largest.get(what) {
            Some(now) if now < allowed => format!("write {now}"),
            Some(_) => continue,
            None => "remove the line".to_owned(),
        };
        findings.push(Finding::error(
            EXCEPTIONS,
            *line,
            format!("`{what}` no longer needs {allowed} lines"),
            remedy,
        ));
    }
    findings
}

/// The list may only shrink from one commit to the next; the working tree counts as the newest.
pub fn check_history(root: &Path, tree: &Tree) -> Vec<Finding> {
    let Ok(revisions) = command::output(
        "git",
        &["log", "--format=%H", "-n", "2", "--", EXCEPTIONS],
        root,
    ) else {
        return Vec::new();
    };
    let text = tree.get(EXCEPTIONS).map_or("", |file| file.text.as_str());
    let mut newer = Exceptions::parse(text).0;
    let mut findings = Vec::new();
    for revision in revisions.lines() {
        // A commit that removed the list has no text to compare with.
        let Ok(text) = command::output("git", &["show", &format!("{revision}:{EXCEPTIONS}")], root)
        else {
            continue;
        };
        let older = Exceptions::parse(&text).0;
        findings.extend(newer.grown_since(&older));
        newer = older;
    }
    findings
}

struct Excess {
    key: String,
    lines: usize,
    finding: Finding,
}

fn measure(file: &SourceFile, items: &Items<'_>, findings: &mut Vec<Finding>) -> Vec<Excess> {
    let mut excess = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES {
        excess.push(Excess {
            key: file.path.clone(),
            lines,
            finding: Finding::error(
                &*file.path,
                0,
                format!("{lines} lines, at most {FILE_LINES}"),
                "split it by what it is about",
            ),
        });
    }
    let code = code_lines(items);
    if code > FILE_CODE_LINES {
        findings.push(Finding::warning(
            &*file.path,
            0,
            format!("{code} lines of code, {FILE_CODE_LINES} are wanted"),
            "split it by what it is about",
        ));
    }
    for function in &items.functions {
        let (limit, remedy) = if function.test {
            (
                TEST_FUNCTION_LINES,
                "move the set-up into a builder, or make two tests of it",
            )
        } else if file.path.starts_with(HANDLERS) && !function.in_test_code {
            (HANDLER_LINES, "move what decides into the engine")
        } else {
            (FUNCTION_LINES, "name its steps as functions")
        };
        let lines = function_lines(items, function);
        if lines > limit {
            excess.push(Excess {
                key: format!("{}::{}", file.path, function.name),
                lines,
                finding: Finding::error(
                    &*file.path,
                    function.line,
                    format!(
                        "function `{}` has {lines} lines, at most {limit}",
                        function.name
                    ),
                    remedy,
                ),
            });
        }
    }
    excess
}

pub fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    path.starts_with("tests/")
        || path.contains("/tests/")
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

/// Lines of a function from `fn` to its brace. A statement or a document in a literal counts as one line: it is read as a
/// whole, and cutting it in pieces to please a counter would hide what it says.
fn function_lines(items: &Items<'_>, function: &Function) -> usize {
    let (from, to) = function.tokens;
    let inside_literals: usize = items.tokens[from..to]
        .iter()
        .filter(|token| token.kind == Kind::Str && token.line >= function.line)
        .map(|token| token.end_line() - token.line)
        .sum();
    function.lines() - inside_literals
}

fn code_lines(items: &Items<'_>) -> usize {
    let mut last = 0;
    let mut count = 0;
    let code = items
        .tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment && !items.in_test_code(token.line));
    for token in code {
        let from = token.line.max(last + 1);
        let to = Token::end_line(token);
        if to >= from {
            count += to + 1 - from;
            last = to;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(files: &[(&str, &str)]) -> Vec<Finding> {
        let tree = Tree::of(files);
        let parsed = crate::tidy::parse(&tree);
        check(&tree, &parsed)
    }

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(lines - 2))
    }

    #[test]
    fn functions_and_tests_have_their_own_limits() {
        assert!(run(&[("a.rs", &function("f", 70))]).is_empty());
        let found = run(&[("a.rs", &function("f", 71))]);
        assert_eq!(found[0].what, "function `f` has 71 lines, at most 70");
        assert_eq!((found[0].path.as_str(), found[0].line), ("a.rs", 1));
        let test = format!("#[test]\n{}", function("f", 61));
        assert_eq!(
            run(&[("a.rs", &test)])[0].what,
            "function `f` has 61 lines, at most 60"
        );
        assert!(run(&[("a/tests/b.rs", &function("builder", 61))]).is_empty());
    }

    #[test]
    fn handlers_only_translate() {
        let path = format!("{HANDLERS}runs/get.rs");
        assert!(run(&[(&path, &function("get_run", 40))]).is_empty());
        assert_eq!(run(&[(&path, &function("get_run", 41))]).len(), 1);
    }

    #[test]
    fn a_long_literal_is_one_line_of_its_function() {
        let statement = "select 1\n".repeat(80);
        assert!(run(&[("a.rs", &format!("fn f() {{\n g(\"{statement}\");\n}}"))]).is_empty());
        let code = format!("fn f() {{\n g(\"{statement}\");\n{}}}", "x();\n".repeat(68));
        assert_eq!(run(&[("a.rs", &code)]).len(), 1);
    }

    #[test]
    fn files_are_limited_and_long_code_is_a_warning() {
        assert!(run(&[("a.rs", &"// x\n".repeat(700))]).is_empty());
        assert_eq!(
            run(&[("a.rs", &"// x\n".repeat(701))])[0].what,
            "701 lines, at most 700"
        );
        let warning = &run(&[("a.rs", &"x();\n".repeat(401))])[0];
        assert_eq!(warning.severity, crate::report::Severity::Warning);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}", "x();\n".repeat(401));
        assert!(run(&[("a.rs", &tests)]).is_empty());
    }

    #[test]
    fn a_listed_excess_passes_until_it_grows() {
        let long = function("f", 80);
        assert!(run(&[("a.rs", &long), (EXCEPTIONS, "a.rs::f 80 # why\n")]).is_empty());
        assert_eq!(
            run(&[("a.rs", &long), (EXCEPTIONS, "a.rs::f 79\n")]).len(),
            1
        );
    }

    #[test]
    fn an_exception_that_is_larger_than_needed_must_shrink() {
        let long = function("f", 80);
        let found = run(&[("a.rs", &long), (EXCEPTIONS, "# head\na.rs::f 90\n")]);
        assert_eq!((found[0].line, found[0].remedy.as_str()), (2, "write 80"));
        let found = run(&[(EXCEPTIONS, "a.rs::f 90\n")]);
        assert_eq!(found[0].remedy, "remove the line");
        assert_eq!(run(&[(EXCEPTIONS, "nonsense\n")]).len(), 1);
    }

    #[test]
    fn the_list_only_shrinks() {
        let parse = |text| Exceptions::parse(text).0;
        let before = parse("a.rs 800\nb.rs 900\n");
        assert!(parse("a.rs 750\n").grown_since(&before).is_empty());
        assert_eq!(parse("a.rs 801\nc.rs 710\n").grown_since(&before).len(), 2);
    }

    #[test]
    fn the_list_is_compared_with_what_was_committed() {
        let repository = crate::scratch::Repository::new("sizes");
        repository.write(EXCEPTIONS, "a.rs 800\n");
        repository.commit();
        let complaints = |text: &str| {
            check_history(&repository.root, &Tree::of(&[(EXCEPTIONS, text)]))
                .into_iter()
                .map(|finding| finding.what)
                .collect::<Vec<_>>()
        };
        assert!(complaints("a.rs 800\n").is_empty());
        assert!(complaints("").is_empty());
        assert_eq!(complaints("a.rs 801\n").len(), 1);
        // Committed all the same: the newest commit is compared with the one before.
        repository.write(EXCEPTIONS, "a.rs 800\nb.rs 900\n");
        repository.commit();
        let found = complaints("a.rs 800\nb.rs 900\n");
        assert_eq!(found, ["`b.rs` is a new exception"]);
    }
}
