//! The numbered requirements and acceptance cases, and the tests that cite them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{
    checks::sizes::is_test_file,
    items::{Function, Items},
    lexer::Kind,
    tree::Tree,
};

pub const REQUIREMENTS: &str = "docs/requirements.md";
pub const CASES: &str = "docs/cases.md";

const BLOCK_BEGIN: &str = "<!-- tests: written by `cargo xtask docs`, do not edit -->";
const BLOCK_END: &str = "<!-- end of tests -->";

/// `R3.4` or `O-05`; sorts by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    Requirement(u16, u16),
    Case(u16),
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requirement(section, number) => write!(f, "R{section}.{number}"),
            Self::Case(number) => write!(f, "O-{number:02}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Built,
    Partial,
    Later,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: Id,
    pub status: Option<Status>,
    pub line: usize,
    /// It says what is not there: `Missing: …`.
    pub names_missing: bool,
}

/// Entries are list items: `- **R3.4** (built) Text` or `- **O-05** SLOT (later) Text`.
pub fn entries(text: &str) -> Vec<Entry> {
    let lines: Vec<&str> = text.lines().collect();
    lines
        .iter()
        .enumerate()
        .filter_map(|(index, line)| {
            let (bold, rest) = line.strip_prefix("- **")?.split_once("**")?;
            let &[(_, id)] = ids(bold).as_slice() else {
                return None;
            };
            let status = rest.split_once('(').and_then(|(_, rest)| {
                match rest.split_once(')').map(|(word, _)| word)? {
                    "built" => Some(Status::Built),
                    "partial" => Some(Status::Partial),
                    "later" => Some(Status::Later),
                    _ => None,
                }
            });
            let continued = lines[index + 1..]
                .iter()
                .take_while(|line| line.starts_with("  "));
            Some(Entry {
                id,
                status,
                line: index + 1,
                names_missing: std::iter::once(line)
                    .chain(continued)
                    .any(|line| line.contains("Missing:")),
            })
        })
        .collect()
}

/// Every id in a text, with the offset where it stands.
pub fn ids(text: &str) -> Vec<(usize, Id)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begins = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let hit = match bytes[at] {
            b'R' if begins => {
                pair(&text[at + 1..], '.').map(|(a, b, n)| (Id::Requirement(a, b), n))
            }
            b'O' if begins => text[at + 1..].strip_prefix('-').and_then(|rest| {
                let (number, length) = number(rest)?;
                (length == 2 && ends(&rest[length..])).then_some((Id::Case(number), length + 1))
            }),
            _ => None,
        };
        if let Some((id, length)) = hit {
            found.push((at, id));
            at += length;
        }
        at += 1;
    }
    found
}

/// Ids inside a test's name: `r3_4_cap_holds`, `o_05_all_or_nothing`.
fn ids_in_name(name: &str) -> Vec<Id> {
    let words: Vec<&str> = name.split('_').collect();
    let digits = |word: &str| {
        (!word.is_empty())
            .then(|| word.parse::<u16>().ok())
            .flatten()
    };
    let mut found = Vec::new();
    for window in words.windows(2) {
        if let [first, second] = window {
            let section = first.strip_prefix('r').and_then(digits);
            if let (Some(section), Some(number)) = (section, digits(second)) {
                found.push(Id::Requirement(section, number));
            }
            if *first == "o" && second.len() == 2 {
                found.extend(digits(second).map(Id::Case));
            }
        }
    }
    for word in words {
        if let Some(number) = word.strip_prefix('o').filter(|rest| rest.len() == 2) {
            found.extend(digits(number).map(Id::Case));
        }
    }
    found
}

fn number(text: &str) -> Option<(u16, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..length].parse().ok()?, length))
}

/// `3.4` behind an `R`: both numbers and how long it is.
fn pair(text: &str, separator: char) -> Option<(u16, u16, usize)> {
    let (first, length) = number(text)?;
    let rest = text[length..].strip_prefix(separator)?;
    let (second, more) = number(rest)?;
    ends(&rest[more..]).then_some((first, second, length + 1 + more))
}

/// No letter, digit or further level follows.
fn ends(rest: &str) -> bool {
    let mut chars = rest.chars();
    match chars.next() {
        Some('.') => !chars.next().is_some_and(|c| c.is_ascii_digit()),
        Some(c) => !c.is_alphanumeric(),
        None => true,
    }
}

/// A test that cites ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub path: String,
    pub name: String,
    pub line: usize,
    pub cites: BTreeSet<Id>,
}

/// An id anywhere in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    pub path: String,
    pub line: usize,
    pub id: Id,
}

/// The tools that check the catalogue make ids up in their own tests.
fn is_own_code(path: &str) -> bool {
    path.starts_with("xtask/")
}

pub fn mentions(tree: &Tree) -> Vec<Mention> {
    const EXTENSIONS: &[&str] = &[
        "rs", "md", "py", "sql", "toml", "sh", "ts", "svelte", "yml", "yaml", "",
    ];
    tree.files
        .iter()
        .filter(|file| EXTENSIONS.contains(&file.extension()) && !is_own_code(&file.path))
        .flat_map(|file| {
            file.text
                .lines()
                .enumerate()
                .flat_map(move |(index, line)| {
                    ids(line).into_iter().map(move |(_, id)| Mention {
                        path: file.path.clone(),
                        line: index + 1,
                        id,
                    })
                })
        })
        .collect()
}

pub fn tests(tree: &Tree, parsed: &BTreeMap<&str, Items<'_>>) -> Vec<Test> {
    let mut tests = Vec::new();
    for file in tree.files.iter().filter(|file| !is_own_code(&file.path)) {
        if let Some(items) = parsed.get(file.path.as_str()) {
            for function in items.functions.iter().filter(|function| function.test) {
                tests.push(Test {
                    path: file.path.clone(),
                    name: function.name.clone(),
                    line: function.line,
                    cites: cited_by(items, function),
                });
            }
        } else if is_script_test(&file.path, file.extension()) {
            let cites: BTreeSet<Id> = ids(&file.text).into_iter().map(|(_, id)| id).collect();
            let name = file.path.rsplit('/').next().unwrap_or_default().to_owned();
            tests.push(Test {
                path: file.path.clone(),
                name,
                line: 0,
                cites,
            });
        }
    }
    tests.retain(|test| !test.cites.is_empty());
    tests.sort();
    tests
}

/// Comments, strings and the name of a test may cite; identifiers of other things may not.
fn cited_by(items: &Items<'_>, function: &Function) -> BTreeSet<Id> {
    let (from, to) = function.tokens;
    items.tokens[from..to]
        .iter()
        .filter(|token| [Kind::Comment, Kind::Str].contains(&token.kind))
        .flat_map(|token| ids(token.text))
        .map(|(_, id)| id)
        .chain(ids_in_name(&function.name))
        .collect()
}

fn is_script_test(path: &str, extension: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["py", "ts", "js", "sh"].contains(&extension)
        && (is_test_file(path) || path.contains("/e2e/") || name.contains("test"))
}

/// The document with its generated block brought up to date; `None` where it has no such block.
pub fn with_tests(text: &str, tests: &[Test], depth: usize) -> Option<String> {
    let known: BTreeSet<Id> = entries(text).into_iter().map(|entry| entry.id).collect();
    let mut by_id: BTreeMap<Id, Vec<&Test>> = BTreeMap::new();
    for test in tests {
        for id in test.cites.intersection(&known) {
            by_id.entry(*id).or_default().push(test);
        }
    }
    let mut block = String::from("\n| number | test |\n|---|---|\n");
    for (id, tests) in by_id {
        let links: BTreeSet<String> = tests
            .iter()
            .map(|test| format!("[`{}`]({}{})", test.name, "../".repeat(depth), test.path))
            .collect();
        // A row per test, so that a new test is a new line and not a change of a long one.
        for link in links {
            let _ = writeln!(block, "| {id} | {link} |");
        }
    }
    block.push('\n');
    replace_block(text, BLOCK_BEGIN, BLOCK_END, &block)
}

pub fn replace_block(text: &str, begin: &str, end: &str, block: &str) -> Option<String> {
    let from = text.find(begin)? + begin.len();
    let to = from + text[from..].find(end)?;
    Some(format!("{}\n{block}{}", &text[..from], &text[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_and_look_alikes_are_not() {
        let found: Vec<String> =
            ids("R900.1, (R900.12). O-91; XR900.2 R900 R900.3.1 O-9 O-911 r900.4")
                .into_iter()
                .map(|(_, id)| id.to_string())
                .collect();
        assert_eq!(found, ["R900.1", "R900.12", "O-91"]);
    }

    #[test]
    fn ids_stand_in_test_names_too() {
        let names =
            |name| -> Vec<String> { ids_in_name(name).iter().map(ToString::to_string).collect() };
        assert_eq!(names("r900_1_cap_holds"), ["R900.1"]);
        assert_eq!(names("all_or_nothing_o_91"), ["O-91"]);
        assert_eq!(names("o92_and_r900_2"), ["R900.2", "O-92"]);
        assert!(names("retries_1_and_2_or_3").is_empty());
    }

    #[test]
    fn entries_carry_their_status() {
        let text = "# Title\n- **R900.1** (built) One (see below).\n- **O-91** SLOT (later) Two.\n- **bold** text\n- **R900.2** Three.\n";
        let entries = entries(text);
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].status, Some(Status::Built));
        assert_eq!(entries[1].status, Some(Status::Later));
        assert_eq!((entries[2].status, entries[2].line), (None, 5));
    }

    #[test]
    fn tests_cite_by_comment_string_and_name() {
        let source = r#"
//! R900.9 in the head of a file proves nothing.

/// R900.8 outside a test proves nothing.
fn builder() {}

/// Holds (R900.1).
#[tokio::test]
async fn r900_2_holds() {
    assert!(true, "O-91"); // R900.3
}
"#;
        let tree = Tree::of(&[("a/tests/b.rs", source), ("c/test_d.py", "# R900.4\n")]);
        let tests = tests(&tree, &crate::tidy::parse(&tree));
        let cites = |index: usize| -> Vec<String> {
            let test: &Test = &tests[index];
            test.cites.iter().map(ToString::to_string).collect()
        };
        assert_eq!(cites(0), ["R900.1", "R900.2", "R900.3", "O-91"]);
        assert_eq!(tests[1].name, "test_d.py");
        assert_eq!(cites(1), ["R900.4"]);
        assert_eq!(mentions(&tree).len(), 6);
    }

    #[test]
    fn the_block_is_rewritten_and_stable() {
        let text =
            format!("- **R900.1** (built) One.\n{BLOCK_BEGIN}\nstale line\n{BLOCK_END}\nrest\n");
        let tree = Tree::of(&[("a/tests/b.rs", "/// R900.1\n#[test]\nfn holds() {}")]);
        let tests = tests(&tree, &crate::tidy::parse(&tree));
        let once = with_tests(&text, &tests, 1).unwrap();
        assert!(once.contains("| R900.1 | [`holds`](../a/tests/b.rs) |"));
        assert!(once.ends_with(&format!("{BLOCK_END}\nrest\n")) && !once.contains("stale line"));
        assert_eq!(with_tests(&once, &tests, 1).as_ref(), Some(&once));
        assert_eq!(with_tests("no block", &tests, 1), None);
    }
}
