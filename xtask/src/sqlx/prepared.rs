//! Query metadata as files: read, compared with what is committed, written.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use crate::error::Error;

/// Where the committed metadata lives.
const COMMITTED: &str = ".sqlx";

/// Compares what was made with what is committed, and puts it there unless only a check was asked for.
pub fn settle(
    root: &Path,
    made: &BTreeMap<String, String>,
    check: bool,
    out: &mut dyn Write,
) -> Result<bool, Error> {
    if made.is_empty() {
        return Err(Error::parse(
            "the metadata of checked queries",
            "none was written; does tidegate-store still use `query!`?",
        ));
    }
    let mut say = |text: &str| writeln!(out, "{text}").map_err(Error::io("standard output"));
    let committed = root.join(COMMITTED);
    let differences = differences(&read(&committed)?, made);
    if differences.is_empty() {
        say(&format!(
            "{COMMITTED}: {} statements, up to date",
            made.len()
        ))?;
        return Ok(true);
    }
    for difference in &differences {
        say(difference)?;
    }
    if check {
        say("    run `cargo xtask sqlx` and commit .sqlx")?;
        return Ok(false);
    }
    replace(&committed, made)?;
    say(&format!("{COMMITTED}: wrote {} statements", made.len()))?;
    Ok(true)
}

/// File names and contents of a folder with metadata; empty where there is none.
pub fn read(dir: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut files = BTreeMap::new();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(dir).map_err(Error::io(dir))? {
        let path: PathBuf = entry.map_err(Error::io(dir))?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|name| name.starts_with("query-")) {
            let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

fn differences(
    committed: &BTreeMap<String, String>,
    made: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in made {
        let complaint = match committed.get(name) {
            None => "is missing",
            Some(old) if old.trim_end() != text.trim_end() => "is out of date",
            Some(_) => continue,
        };
        found.push(format!(
            "{COMMITTED}/{name}: {complaint}: {}",
            statement(text)
        ));
    }
    for (name, text) in committed {
        if !made.contains_key(name) {
            found.push(format!(
                "{COMMITTED}/{name}: belongs to no statement any more: {}",
                statement(text)
            ));
        }
    }
    found
}

/// The first words of the statement, to recognise it by.
fn statement(metadata: &str) -> String {
    serde_json::from_str::<serde_json::Value>(metadata)
        .ok()
        .and_then(|value| {
            let text = value.get("query")?.as_str()?;
            let words: Vec<&str> = text.split_whitespace().take(12).collect();
            Some(words.join(" "))
        })
        .unwrap_or_default()
}

fn replace(dir: &Path, made: &BTreeMap<String, String>) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))?;
    for name in read(dir)?.keys().filter(|name| !made.contains_key(*name)) {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(Error::io(&path))?;
    }
    for (name, text) in made {
        let path = dir.join(name);
        fs::write(&path, format!("{}\n", text.trim_end())).map_err(Error::io(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(statement: &str) -> String {
        format!("{{\"query\": {statement:?}}}")
    }

    #[test]
    fn new_changed_and_stale_statements_are_named() {
        let set = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries
                .iter()
                .map(|(name, text)| ((*name).to_owned(), metadata(text)))
                .collect()
        };
        let committed = set(&[("query-1.json", "select 1"), ("query-2.json", "select 2")]);
        assert!(differences(&committed, &committed).is_empty());
        let made = set(&[("query-1.json", "select 11"), ("query-3.json", "select 3")]);
        assert_eq!(
            differences(&committed, &made),
            [
                ".sqlx/query-1.json: is out of date: select 11",
                ".sqlx/query-3.json: is missing: select 3",
                ".sqlx/query-2.json: belongs to no statement any more: select 2",
            ]
        );
    }

    #[test]
    fn metadata_is_checked_then_written_then_up_to_date() {
        let root = std::env::temp_dir().join(format!("xtask-prepared-{}", std::process::id()));
        fs::create_dir_all(root.join(COMMITTED)).unwrap();
        fs::write(root.join(COMMITTED).join("query-0.json"), "{}").unwrap();
        let made = BTreeMap::from([("query-1.json".to_owned(), metadata("select 1"))]);
        let settle = |check| {
            let mut said = Vec::new();
            let fine = settle(&root, &made, check, &mut said).unwrap();
            (fine, String::from_utf8(said).unwrap())
        };
        let (fine, said) = settle(true);
        assert!(!fine && said.contains("query-1.json: is missing: select 1"));
        assert!(settle(false).0);
        let (fine, said) = settle(true);
        assert!(fine && said.contains("1 statements, up to date"), "{said}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn nothing_made_is_a_fault_and_not_an_empty_success() {
        let nowhere = Path::new("/nowhere");
        assert!(super::settle(nowhere, &BTreeMap::new(), true, &mut Vec::new()).is_err());
    }
}
