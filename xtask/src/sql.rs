//! Reads statements as far as the checks need: is a text SQL at all, and which tables does it write.

/// What a statement does to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Insert,
    Update,
    Delete,
    Truncate,
    Merge,
}

/// Whether a string literal is a statement. Prose that begins with such a word does not go on like one.
pub fn is_statement(text: &str) -> bool {
    let words = words(text);
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    match word(0) {
        "select" => has("from") || text.contains('(') || text.contains('$'),
        "insert" | "merge" => word(1) == "into",
        "update" => has("set") && text.contains('='),
        "delete" => word(1) == "from",
        "truncate" | "create" | "alter" | "drop" => [
            "table", "index", "unique", "type", "function", "database", "role",
        ]
        .contains(&word(1)),
        "with" => has("as") && has("select"),
        "listen" => words.len() == 2 && word(1).contains('_'),
        _ => false,
    }
}

/// Tables that a statement writes, also inside CTEs; schema and quotes are dropped.
pub fn writes(text: &str) -> Vec<(Verb, String)> {
    let words = words(text);
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let next = |offset: usize| words.get(index + offset).map_or("", String::as_str);
        let previous = index.checked_sub(1).map_or("", |at| words[at].as_str());
        let (verb, mut at) = match (word.as_str(), next(1)) {
            ("insert", "into") => (Verb::Insert, 2),
            ("merge", "into") => (Verb::Merge, 2),
            ("delete", "from") => (Verb::Delete, 2),
            ("truncate", "table") => (Verb::Truncate, 2),
            ("truncate", _) => (Verb::Truncate, 1),
            // `for update` locks, `on conflict do update set` names no table, `for no key update` locks.
            ("update", target)
                if !["for", "key", "do", "on"].contains(&previous) && target != "set" =>
            {
                (Verb::Update, 1)
            }
            _ => continue,
        };
        if next(at) == "only" {
            at += 1;
        }
        let table = next(at).rsplit('.').next().unwrap_or_default().to_owned();
        if !table.is_empty() {
            found.push((verb, table));
        }
    }
    found
}

/// Marks of the form `/* attempt:open */`.
pub fn marks(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("/*") {
        let Some((mark, after)) = after.split_once("*/") else {
            break;
        };
        found.push(mark.trim());
        rest = after;
    }
    found
}

/// Words in lower case, without comments, quoted text and quotes around names.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '-' if chars.peek() == Some(&'-') => {
                chars.by_ref().find(|&c| c == '\n');
            }
            '/' if chars.peek() == Some(&'*') => {
                let mut last = ' ';
                chars.by_ref().find(|&c| {
                    let end = last == '*' && c == '/';
                    last = c;
                    end
                });
            }
            '\'' => {
                chars.by_ref().find(|&c| c == '\'');
            }
            '"' => continue,
            c if c.is_alphanumeric() || c == '_' || c == '.' => {
                word.extend(c.to_lowercase());
                continue;
            }
            _ => {}
        }
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_from_prose() {
        for text in [
            "SELECT 1 FROM runs",
            "select pg_notify($1, $2)",
            "insert into runs (id) values ($1)",
            "UPDATE run_leases SET lease_until = $1",
            "delete from runs where id = $1",
            "WITH gone AS (DELETE FROM runs RETURNING id) SELECT id FROM gone",
            "create table x (id int)",
            "LISTEN aida_config_changed",
        ] {
            assert!(is_statement(text), "{text}");
        }
        for text in [
            "select a provider",
            "insert a coin",
            "update the descriptor",
            "delete the tenant",
            "with a reason as given",
            "create a key",
            "listen on this address",
            "",
        ] {
            assert!(!is_statement(text), "{text}");
        }
    }

    #[test]
    fn written_tables_are_found_wherever_they_stand() {
        let text = r#"
            WITH taken AS (DELETE FROM ONLY public."run_queue" RETURNING *),
                 seen AS (SELECT * FROM runs FOR UPDATE SKIP LOCKED)
            INSERT INTO run_leases (run_id) SELECT run_id FROM taken
            ON CONFLICT (run_id) DO UPDATE SET fence = 1 -- delete from run_ends
            /* insert into run_attempts */ RETURNING 'insert into x'
        "#;
        assert_eq!(
            writes(text),
            [
                (Verb::Delete, "run_queue".to_owned()),
                (Verb::Insert, "run_leases".to_owned())
            ]
        );
        assert_eq!(
            writes("update run_leases l set x = 1; truncate run_ends"),
            [
                (Verb::Update, "run_leases".to_owned()),
                (Verb::Truncate, "run_ends".to_owned())
            ]
        );
        assert!(writes("select 1 from a for no key update").is_empty());
    }

    #[test]
    fn marks_are_read() {
        assert_eq!(
            marks("/* attempt:open */ insert /*x*/ into"),
            ["attempt:open", "x"]
        );
        assert!(marks("/* open").is_empty());
    }
}
