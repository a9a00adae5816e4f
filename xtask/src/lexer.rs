//! A small Rust lexer: enough to tell code from strings and comments, with lines.
//!
//! A parser crate would throw comments away, and they carry half of what is checked (citations, references of open
//! work). It understands raw, byte and C strings, nested comments, and tells lifetimes from character literals.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ident,
    Lifetime,
    Str,
    Char,
    Number,
    Punct,
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// 1-based line of the first character.
    pub line: usize,
}

impl<'a> Token<'a> {
    /// The line of the last character.
    pub fn end_line(&self) -> usize {
        self.line + self.text.matches('\n').count()
    }

    /// What stands between the quotes of a string literal, escapes as written.
    pub fn literal(&self) -> Option<&'a str> {
        if self.kind != Kind::Str {
            return None;
        }
        let open = self.text.find('"')?;
        let close = self.text.rfind('"')?;
        self.text.get(open + 1..close)
    }

    pub fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Str && self.kind != Kind::Comment
    }
}

/// Splits a source text. Never fails: an unterminated string or comment runs to the end of the file.
pub fn lex(source: &str) -> Vec<Token<'_>> {
    Lexer {
        source,
        bytes: source.as_bytes(),
        at: 0,
        line: 1,
        tokens: Vec::with_capacity(source.len() / 4),
    }
    .run()
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn run(mut self) -> Vec<Token<'a>> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if byte == b'\n' {
                self.line += 1;
                self.at += 1;
            } else if byte.is_ascii_whitespace() {
                self.at += 1;
            } else {
                let (kind, end) = self.token(byte);
                // A multi-byte character outside strings and comments is taken whole.
                let end = (end..=self.bytes.len())
                    .find(|&at| self.source.is_char_boundary(at))
                    .unwrap_or(self.bytes.len());
                let text = &self.source[self.at..end];
                self.tokens.push(Token {
                    kind,
                    text,
                    line: self.line,
                });
                self.line += text.matches('\n').count();
                self.at = end;
            }
        }
        self.tokens
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&self, byte: u8) -> (Kind, usize) {
        match byte {
            b'/' if self.peek(1) == b'/' => (Kind::Comment, self.line_end()),
            b'/' if self.peek(1) == b'*' => (Kind::Comment, self.block_comment_end()),
            b'"' => (Kind::Str, self.string_end(self.at + 1)),
            b'\'' => self.quote(),
            b'0'..=b'9' => (Kind::Number, self.number_end()),
            byte if is_ident(byte) => self.ident_or_prefixed(),
            _ => (Kind::Punct, self.at + 1),
        }
    }

    fn line_end(&self) -> usize {
        self.source[self.at..]
            .find('\n')
            .map_or(self.bytes.len(), |length| self.at + length)
    }

    fn block_comment_end(&self) -> usize {
        let mut depth = 0_usize;
        let mut at = self.at;
        while at < self.bytes.len() {
            if self.bytes[at..].starts_with(b"/*") {
                depth += 1;
                at += 2;
            } else if self.bytes[at..].starts_with(b"*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            } else {
                at += 1;
            }
        }
        self.bytes.len()
    }

    /// `from` is the first byte after the opening quote.
    fn string_end(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(&byte) = self.bytes.get(at) {
            match byte {
                b'\\' => at += 2,
                b'"' => return at + 1,
                _ => at += 1,
            }
        }
        self.bytes.len()
    }

    /// `from` is the first `#` or the quote.
    fn raw_string_end(&self, from: usize) -> Option<usize> {
        let hashes = self.bytes[from..]
            .iter()
            .take_while(|&&byte| byte == b'#')
            .count();
        if self.bytes.get(from + hashes) != Some(&b'"') {
            return None;
        }
        let close = format!("\"{}", "#".repeat(hashes));
        let body = from + hashes + 1;
        Some(
            self.source[body..]
                .find(&close)
                .map_or(self.bytes.len(), |length| body + length + close.len()),
        )
    }

    fn quote(&self) -> (Kind, usize) {
        if self.peek(1) == b'\\' {
            let mut at = self.at + 3;
            while self.bytes.get(at).is_some_and(|&byte| byte != b'\'') {
                at += 1;
            }
            return (Kind::Char, (at + 1).min(self.bytes.len()));
        }
        let rest = &self.source[self.at + 1..];
        let first = rest.chars().next().map_or(0, char::len_utf8);
        if rest[first..].starts_with('\'') {
            return (Kind::Char, self.at + 1 + first + 1);
        }
        let length = rest.bytes().take_while(|&byte| is_ident(byte)).count();
        (Kind::Lifetime, self.at + 1 + length)
    }

    fn number_end(&self) -> usize {
        let mut at = self.at;
        while let Some(&byte) = self.bytes.get(at) {
            let fraction = byte == b'.'
                && self.bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
                && !self.source[self.at..at].contains('.');
            if is_ident(byte) || fraction {
                at += 1;
            } else {
                break;
            }
        }
        at
    }

    fn ident_or_prefixed(&self) -> (Kind, usize) {
        let length = self.bytes[self.at..]
            .iter()
            .take_while(|&&byte| is_ident(byte))
            .count();
        let end = self.at + length;
        let next = self.bytes.get(end).copied().unwrap_or(0);
        match &self.source[self.at..end] {
            "r" | "br" | "cr" if next == b'"' || next == b'#' => match self.raw_string_end(end) {
                Some(end) => (Kind::Str, end),
                // A raw identifier: `r#type`.
                None => (Kind::Ident, end),
            },
            "b" | "c" if next == b'"' => (Kind::Str, self.string_end(end + 1)),
            "b" if next == b'\'' => {
                let escaped = self.bytes.get(end + 1) == Some(&b'\\');
                let from = end + if escaped { 3 } else { 2 };
                let close = self.bytes[from.min(self.bytes.len())..]
                    .iter()
                    .position(|&byte| byte == b'\'');
                (
                    Kind::Char,
                    close.map_or(self.bytes.len(), |length| from + length + 1),
                )
            }
            _ => (Kind::Ident, end),
        }
    }
}

fn is_ident(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(Kind, &str)> {
        lex(source)
            .into_iter()
            .map(|token| (token.kind, token.text))
            .collect()
    }

    #[test]
    fn strings_of_every_kind_hide_their_content() {
        for literal in [
            r#""a // \" b""#,
            r##"r#"a " b"#"##,
            r#"br"x""#,
            r#"b"\"""#,
            r#"c"x""#,
            r#"r"\""#,
        ] {
            assert_eq!(kinds(literal), [(Kind::Str, literal)], "{literal}");
        }
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(
            kinds(r"'a' '\'' 'ä' '\u{1f}' b'\'' b'{' &'a x"),
            [
                (Kind::Char, "'a'"),
                (Kind::Char, r"'\''"),
                (Kind::Char, "'ä'"),
                (Kind::Char, r"'\u{1f}'"),
                (Kind::Char, r"b'\''"),
                (Kind::Char, "b'{'"),
                (Kind::Punct, "&"),
                (Kind::Lifetime, "'a"),
                (Kind::Ident, "x"),
            ]
        );
    }

    #[test]
    fn comments_nest_and_keep_their_text() {
        assert_eq!(
            kinds("a /* x /* y */ z */ b // c\nd"),
            [
                (Kind::Ident, "a"),
                (Kind::Comment, "/* x /* y */ z */"),
                (Kind::Ident, "b"),
                (Kind::Comment, "// c"),
                (Kind::Ident, "d"),
            ]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let tokens = lex("a\n\"b\nc\"\n/*\n\n*/ d");
        let lines: Vec<_> = tokens
            .iter()
            .map(|token| (token.line, token.end_line()))
            .collect();
        assert_eq!(lines, [(1, 1), (2, 3), (4, 6), (6, 6)]);
    }

    #[test]
    fn unterminated_literals_run_to_the_end() {
        for source in ["\"abc", "r#\"abc", "/* abc", "b'", "'\\"] {
            assert_eq!(lex(source).len(), 1, "{source}");
        }
    }

    #[test]
    fn ranges_are_not_fractions_and_raw_identifiers_are_words() {
        let texts = |source| -> Vec<String> {
            lex(source)
                .iter()
                .map(|token| token.text.to_owned())
                .collect()
        };
        assert_eq!(texts("0..10"), ["0", ".", ".", "10"]);
        assert_eq!(texts("1.5e3"), ["1.5e3"]);
        assert_eq!(texts("r#type"), ["r", "#", "type"]);
        assert_eq!(lex("r\"x\"")[0].literal(), Some("x"));
    }
}
