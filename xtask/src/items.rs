//! Functions and named items of one Rust file, found by following braces through the tokens.
//!
//! Not a parser: macros are read as written, and a name counts as defined where it follows a defining keyword, is a
//! variant of an enum or a field of a struct.

use crate::lexer::{Kind, Token, lex};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// First line of what belongs to it: comments and attributes included.
    pub first_line: usize,
    /// The line of `fn`.
    pub line: usize,
    pub end_line: usize,
    /// Carries `#[test]`, `#[tokio::test]` or the like.
    pub test: bool,
    /// Stands under `#[cfg(test)]`.
    pub in_test_code: bool,
    /// Its tokens, comments before it included, as a range of [`Items::tokens`].
    pub tokens: (usize, usize),
}

impl Function {
    pub fn lines(&self) -> usize {
        self.end_line + 1 - self.line
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Names of the enclosing items, outermost first; those of an `impl` block are all the words of its head.
    pub scope: Vec<Vec<String>>,
    pub name: String,
    pub line: usize,
}

#[derive(Debug)]
pub struct Items<'a> {
    pub tokens: Vec<Token<'a>>,
    pub functions: Vec<Function>,
    pub symbols: Vec<Symbol>,
    /// Line ranges under `#[cfg(test)]`.
    pub test_regions: Vec<(usize, usize)>,
}

impl Items<'_> {
    pub fn in_test_code(&self, line: usize) -> bool {
        self.test_regions
            .iter()
            .any(|&(from, to)| (from..=to).contains(&line))
    }

    /// Whether `a::b::c` is defined here: `c` under something named `b`, under something named `a`.
    pub fn defines(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split("::").collect();
        let Some((name, outer)) = parts.split_last() else {
            return false;
        };
        self.symbols.iter().any(|symbol| {
            let mut scopes = symbol.scope.iter().rev();
            symbol.name == *name
                && outer
                    .iter()
                    .rev()
                    .all(|want| scopes.any(|names| names.iter().any(|name| name == want)))
        })
    }
}

pub fn items(source: &str) -> Items<'_> {
    let mut walk = Walk {
        tokens: lex(source),
        scopes: Vec::new(),
        head: 0,
        depth: 0,
        functions: Vec::new(),
        symbols: Vec::new(),
        test_regions: Vec::new(),
    };
    walk.run();
    Items {
        tokens: walk.tokens,
        functions: walk.functions,
        symbols: walk.symbols,
        test_regions: walk.test_regions,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Enum,
    Struct,
    Function(usize),
    Other,
}

struct Scope {
    kind: ScopeKind,
    names: Vec<String>,
    test: bool,
    /// Where its `#[cfg(test)]` region began, if it began one.
    region_from: Option<usize>,
    /// Bracket depth of the enclosing scope, restored at its end.
    outer_depth: usize,
}

struct Walk<'a> {
    tokens: Vec<Token<'a>>,
    scopes: Vec<Scope>,
    /// Index of the first token after the last `{`, `}` or `;`.
    head: usize,
    depth: usize,
    functions: Vec<Function>,
    symbols: Vec<Symbol>,
    test_regions: Vec<(usize, usize)>,
}

/// What a head (the tokens before `{` or `;`) declares.
#[derive(Default)]
struct Head {
    keyword: &'static str,
    /// Index of the keyword and of the name.
    keyword_at: usize,
    name: Option<(String, usize)>,
    impl_names: Vec<String>,
    test: bool,
    cfg_test: bool,
}

const DEFINING: [&str; 10] = [
    "fn",
    "struct",
    "enum",
    "trait",
    "union",
    "mod",
    "const",
    "static",
    "type",
    "macro_rules",
];

impl Walk<'_> {
    fn run(&mut self) {
        for at in 0..self.tokens.len() {
            let token = self.tokens[at];
            if token.kind == Kind::Comment {
                continue;
            }
            match token.text {
                "(" | "[" => self.depth += 1,
                ")" | "]" => self.depth = self.depth.saturating_sub(1),
                "{" if token.kind == Kind::Punct => self.open(at),
                "}" if token.kind == Kind::Punct => self.close(at),
                ";" if self.depth == 0 => {
                    let head = self.head_until(at);
                    self.declare(&head);
                    self.head = at + 1;
                }
                _ if token.kind == Kind::Ident && self.depth == 0 => self.member(at),
                _ => {}
            }
        }
        while !self.scopes.is_empty() {
            self.close(self.tokens.len().saturating_sub(1));
        }
    }

    fn open(&mut self, at: usize) {
        let head = self.head_until(at);
        self.declare(&head);
        let outer_test = self.scopes.last().is_some_and(|scope| scope.test);
        let first = self.first_of_head(at);
        let mut names: Vec<String> = head.impl_names.clone();
        names.extend(head.name.iter().map(|(name, _)| name.clone()));
        let kind = match (head.keyword, &head.name) {
            ("fn", Some((name, _))) => {
                let first_line = self.tokens[first].line;
                self.functions.push(Function {
                    name: name.clone(),
                    first_line,
                    line: self.tokens[head.keyword_at].line,
                    end_line: self.tokens[at].line,
                    test: head.test,
                    in_test_code: outer_test || head.cfg_test,
                    tokens: (first, at + 1),
                });
                ScopeKind::Function(self.functions.len() - 1)
            }
            ("enum", Some(_)) => ScopeKind::Enum,
            ("struct" | "union", Some(_)) => ScopeKind::Struct,
            _ => ScopeKind::Other,
        };
        let region_from = (head.cfg_test && !outer_test).then(|| self.tokens[first].line);
        self.scopes.push(Scope {
            kind,
            names,
            test: outer_test || head.cfg_test,
            region_from,
            outer_depth: self.depth,
        });
        self.depth = 0;
        self.head = at + 1;
    }

    fn close(&mut self, at: usize) {
        let Some(scope) = self.scopes.pop() else {
            self.head = at + 1;
            return;
        };
        let line = self.tokens.get(at).map_or(0, Token::end_line);
        if let ScopeKind::Function(index) = scope.kind {
            self.functions[index].end_line = line;
            self.functions[index].tokens.1 = at + 1;
        }
        if let Some(from) = scope.region_from {
            self.test_regions.push((from, line));
        }
        self.depth = scope.outer_depth;
        self.head = at + 1;
    }

    /// Variants and fields.
    fn member(&mut self, at: usize) {
        let Some(kind) = self.scopes.last().map(|scope| scope.kind) else {
            return;
        };
        let defined = match kind {
            ScopeKind::Enum => self
                .significant_before(at)
                .is_some_and(|before| ["{", ",", "]"].contains(&before.text)),
            ScopeKind::Struct => {
                let mut after = self.tokens[at + 1..]
                    .iter()
                    .filter(|token| token.kind != Kind::Comment);
                after.next().is_some_and(|token| token.is(":"))
                    && !after.next().is_some_and(|token| token.is(":"))
                    && !self
                        .significant_before(at)
                        .is_some_and(|before| before.is(":"))
            }
            _ => false,
        };
        if defined {
            self.record(self.tokens[at].text.to_owned(), self.tokens[at].line);
        }
    }

    fn significant_before(&self, at: usize) -> Option<Token<'_>> {
        self.tokens[..at]
            .iter()
            .rev()
            .find(|token| token.kind != Kind::Comment)
            .copied()
    }

    fn declare(&mut self, head: &Head) {
        if let Some((name, at)) = &head.name {
            self.record(name.clone(), self.tokens[*at].line);
        }
    }

    fn record(&mut self, name: String, line: usize) {
        let scope = self
            .scopes
            .iter()
            .filter(|scope| !scope.names.is_empty())
            .map(|scope| scope.names.clone())
            .collect();
        self.symbols.push(Symbol { scope, name, line });
    }

    /// The first token that belongs to the head: not a comment that trails the line before, nor one about the file.
    fn first_of_head(&self, until: usize) -> usize {
        let before = self.head.checked_sub(1).map(|at| self.tokens[at].line);
        (self.head..until)
            .find(|&at| {
                let token = self.tokens[at];
                token.kind != Kind::Comment
                    || (Some(token.line) != before && !token.text.starts_with("//!"))
            })
            .unwrap_or(until)
    }

    fn head_until(&self, until: usize) -> Head {
        let mut head = Head::default();
        let mut at = self.head;
        while at < until {
            let token = self.tokens[at];
            if token.is("#") {
                at = self.attribute(at, until, &mut head);
                continue;
            }
            if token.kind == Kind::Ident && head.name.is_none() && head.impl_names.is_empty() {
                if token.text == "impl" && head.keyword.is_empty() {
                    head.impl_names = self.tokens[at + 1..until]
                        .iter()
                        .filter(|token| token.kind == Kind::Ident)
                        .map(|token| token.text.to_owned())
                        .collect();
                } else if let Some(keyword) = DEFINING.iter().find(|&&word| word == token.text)
                    && let Some(name) = self.name_after(at, until)
                {
                    head.keyword = keyword;
                    head.keyword_at = at;
                    head.name = Some(name);
                }
            }
            at += 1;
        }
        head
    }

    /// `const fn f` is declared by its `fn`, and `fn(u8)` in a type declares nothing.
    fn name_after(&self, at: usize, until: usize) -> Option<(String, usize)> {
        let mut next = at + 1;
        while next < until
            && (self.tokens[next].kind == Kind::Comment
                || ["mut", "!"].contains(&self.tokens[next].text))
        {
            next += 1;
        }
        let token = self.tokens.get(next).filter(|_| next < until)?;
        let keyword = ["fn", "unsafe", "extern", "async"].contains(&token.text);
        (token.kind == Kind::Ident && !keyword).then(|| (token.text.to_owned(), next))
    }

    /// Reads `#[…]` from `at`; returns the index after it.
    fn attribute(&self, at: usize, until: usize, head: &mut Head) -> usize {
        let mut end = at + 1;
        let mut depth = 0_usize;
        let mut words = Vec::new();
        while end < until {
            let token = self.tokens[end];
            match token.text {
                "[" | "(" => depth += 1,
                "]" | ")" => depth = depth.saturating_sub(1),
                _ if token.kind == Kind::Ident => words.push(token.text),
                _ => {}
            }
            end += 1;
            if depth == 0 && !token.is("!") {
                break;
            }
        }
        let says_test = words.contains(&"test");
        match words.first() {
            Some(&"cfg") => head.cfg_test |= says_test && !words.contains(&"not"),
            Some(&"cfg_attr") | None => {}
            Some(_) => head.test |= says_test,
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
//! About the file.

use std::{fmt, io};

/// A run.
pub struct Run<'a> {
    pub id: &'a str, // trailing
    state: std::io::Result<()>,
}

/// Where it stands.
#[derive(Debug)]
pub enum State {
    Queued,
    Running { since: u64 },
    #[allow(unused)]
    Ended(u8),
}

impl<'a> fmt::Display for Run<'a> {
    /// Shows it.
    ///
    /// At length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |x: [u8; 4]| { if x[0] == 1 { 2 } else { 3 } };
        f.write_str("{")
    }
}

const LIMIT: [u8; 2] = [1, 2];
static NAME: &str = "x";
type Alias = fn(u8) -> u8;
pub(crate) const fn answer(x: [u8; 4]) -> u8 { x[0] }
macro_rules! shout { () => { fn not_an_item() {} } }

#[cfg(test)]
mod tests {
    fn builder() {}

    // Why.
    #[tokio::test(flavor = "multi_thread")]
    async fn runs_end() {
        assert!(true);
    }
}
"#;

    #[test]
    fn symbols_are_found_with_what_they_stand_in() {
        let items = items(SAMPLE);
        for path in [
            "Run",
            "Run::id",
            "Run::state",
            "State",
            "State::Queued",
            "State::Running",
            "State::Ended",
            "Run::fmt",
            "Display::fmt",
            "fmt",
            "LIMIT",
            "NAME",
            "Alias",
            "answer",
            "shout",
            "tests::runs_end",
        ] {
            assert!(items.defines(path), "{path} should be found");
        }
        for path in [
            "Run::Queued",
            "State::fmt",
            "Missing",
            "Run::missing",
            "State::since::x",
            "io",
            "Queued::State",
        ] {
            assert!(!items.defines(path), "{path} should not be found");
        }
    }

    #[test]
    fn functions_know_their_lines_and_whether_they_are_tests() {
        let items = items(SAMPLE);
        let find = |name: &str| items.functions.iter().find(|f| f.name == name).unwrap();
        let fmt = find("fmt");
        assert_eq!(fmt.lines(), 4);
        assert_eq!(fmt.line - fmt.first_line, 3);
        assert!(!fmt.test && !fmt.in_test_code);
        assert_eq!(find("answer").lines(), 1);
        let test = find("runs_end");
        assert!(test.test && test.in_test_code);
        assert_eq!(test.line - test.first_line, 2);
        assert!(!find("builder").test);
        assert!(find("builder").in_test_code);
    }

    #[test]
    fn the_test_region_covers_the_whole_module() {
        let items = items(SAMPLE);
        let line_of = |text: &str| SAMPLE[..SAMPLE.find(text).unwrap()].lines().count();
        assert!(items.in_test_code(line_of("assert!(true)")));
        assert!(!items.in_test_code(line_of("const LIMIT")));
    }

    #[test]
    fn code_for_everything_but_tests_is_no_test_code() {
        let items = items("#[cfg(not(test))]\nmod real { fn f() {} }");
        assert!(!items.functions[0].in_test_code);
    }

    #[test]
    fn unbalanced_braces_do_not_stop_the_walk() {
        assert_eq!(items("fn f() { {").functions.len(), 1);
        assert_eq!(items("} } fn f() {}").functions.len(), 1);
    }
}
