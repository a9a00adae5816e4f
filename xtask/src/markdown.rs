//! Reads Markdown as far as links, headings and code spans go; fenced code is passed over.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub line: usize,
    pub target: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub line: usize,
    pub text: String,
}

/// Lines outside fenced code, numbered from 1.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                None
            }
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                None
            }
            (Some(_), _) => None,
            (None, None) => Some((index + 1, line)),
        }
    })
}

/// Inline links, images and reference definitions.
pub fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, content) in prose(text) {
        let content = without_code(content);
        for (at, _) in content.match_indices("](") {
            let rest = &content[at + 2..];
            if let Some(end) = rest.find(')') {
                let target = rest[..end].split_whitespace().next().unwrap_or_default();
                links.push(Link {
                    line,
                    target: target.trim_matches(['<', '>']).to_owned(),
                });
            }
        }
        let definition = content
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = definition {
            links.push(Link {
                line,
                target: target.trim().to_owned(),
            });
        }
    }
    links
}

/// Code between single or double backticks on one line.
pub fn code_spans(text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    for (line, content) in prose(text) {
        let mut rest = content;
        while let Some(open) = rest.find('`') {
            let ticks = rest[open..].bytes().take_while(|&b| b == b'`').count();
            let body = &rest[open + ticks..];
            let Some(close) = body.find(&"`".repeat(ticks)) else {
                break;
            };
            spans.push(Span {
                line,
                text: body[..close].trim().to_owned(),
            });
            rest = &body[close + ticks..];
        }
    }
    spans
}

/// Anchors of all headings, as the usual renderers make them, and of explicit `<a id="…">`.
pub fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line.strip_prefix('#') {
            let base = slug(heading.trim_start_matches('#').trim());
            let repeats = anchors
                .iter()
                .filter(|anchor| {
                    **anchor == base
                        || anchor
                            .strip_prefix(&format!("{base}-"))
                            .is_some_and(|rest| rest.parse::<u32>().is_ok())
                })
                .count();
            anchors.push(if repeats == 0 {
                base
            } else {
                format!("{base}-{repeats}")
            });
        }
        for (at, mark) in line.match_indices("<a id=\"") {
            let rest = &line[at + mark.len()..];
            anchors.push(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    heading
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn without_code(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut inside = false;
    for c in line.chars() {
        if c == '`' {
            inside = !inside;
        } else if !inside {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "[a](b.md) ![c](<d.png> \"t\") `[x](y)`\n```\n[e](f)\n```\n[g]: h.md\n";
        let targets: Vec<_> = links(text)
            .into_iter()
            .map(|link| (link.line, link.target))
            .collect();
        assert_eq!(
            targets,
            [
                (1, "b.md".to_owned()),
                (1, "d.png".to_owned()),
                (5, "h.md".to_owned())
            ]
        );
    }

    #[test]
    fn spans_keep_their_line() {
        let spans = code_spans("a `b` ``c ` d``\n~~~\n`e`\n~~~\n`f` `g\n");
        let texts: Vec<_> = spans
            .iter()
            .map(|span| (span.line, span.text.as_str()))
            .collect();
        assert_eq!(texts, [(1, "b"), (1, "c ` d"), (5, "f")]);
    }

    #[test]
    fn headings_make_anchors_as_renderers_do() {
        let text = "# Two words\n## `tidegate dev`, in short\n## Two words\n<a id=\"R3.4\"></a>\n";
        assert_eq!(
            anchors(text),
            ["two-words", "tidegate-dev-in-short", "two-words-1", "R3.4"]
        );
    }
}
