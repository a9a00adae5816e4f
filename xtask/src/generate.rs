//! Files that are written by a program and committed: `cargo xtask docs` and `cargo xtask openapi`.

use std::{fs, io::Write, path::Path};

use crate::{
    catalogue::{CASES, REQUIREMENTS, tests, with_tests},
    checks::{
        citations::depth,
        codes::{INDEX, with_pages},
    },
    command,
    error::Error,
    tidy::parse,
    tree::Tree,
};

const OPENAPI: &str = "openapi/tidegate.json";

/// Brings the generated blocks of the documents up to date.
pub fn docs(root: &Path, out: &mut dyn Write) -> Result<bool, Error> {
    let tree = Tree::read(root)?;
    let tests = tests(&tree, &parse(&tree));
    for path in [REQUIREMENTS, CASES] {
        if let Some(file) = tree.get(path) {
            let text = with_tests(&file.text, &tests, depth(path));
            rewrite(root, path, &file.text, text, out)?;
        }
    }
    if let Some(file) = tree.get(INDEX) {
        rewrite(root, INDEX, &file.text, with_pages(&file.text, &tree), out)?;
    }
    Ok(true)
}

fn rewrite(
    root: &Path,
    path: &str,
    old: &str,
    new: Option<String>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let new = new.ok_or_else(|| Error::parse(path, "it has no generated block"))?;
    if new != old {
        write(root, path, &new)?;
        say(out, &format!("wrote {path}"))?;
    }
    Ok(())
}

/// Writes or compares the HTTP contract, as the binary prints it.
pub fn openapi(root: &Path, check: bool, out: &mut dyn Write) -> Result<bool, Error> {
    let fresh = command::output(
        "cargo",
        &[
            "run",
            "--quiet",
            "--locked",
            "--package",
            "tidegate",
            "--",
            "openapi",
        ],
        root,
    )?;
    serde_json::from_str::<serde_json::Value>(&fresh)
        .map_err(|error| Error::parse("the output of `tidegate openapi`", error))?;
    let committed = fs::read_to_string(root.join(OPENAPI)).unwrap_or_default();
    if committed == fresh {
        say(out, &format!("{OPENAPI} is up to date"))?;
        return Ok(true);
    }
    if check {
        let line = committed
            .lines()
            .zip(fresh.lines())
            .take_while(|(old, new)| old == new)
            .count()
            + 1;
        say(
            out,
            &format!(
                "{OPENAPI}:{line}: error: differs from the code\n    run `cargo xtask openapi`, read the difference, commit it"
            ),
        )?;
        return Ok(false);
    }
    write(root, OPENAPI, &fresh)?;
    say(out, &format!("wrote {OPENAPI}"))?;
    Ok(true)
}

fn write(root: &Path, path: &str, text: &str) -> Result<(), Error> {
    let full = root.join(path);
    if let Some(parent) = full.parent() {
        fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    fs::write(&full, text).map_err(Error::io(&full))
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    writeln!(out, "{text}").map_err(Error::io("standard output"))
}
