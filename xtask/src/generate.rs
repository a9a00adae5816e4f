//! Files that are written by a program and committed: `cargo xtask docs`, `openapi` and `config`.

use std::{fs, io::Write, path::Path};

use crate::{
    catalogue::{CASES, REQUIREMENTS, tests, with_tests},
    checks::{
        citations::depth,
        codes::{INDEX, with_pages},
    },
    command,
    error::Error,
    report::Finding,
    tidy::parse,
    tree::Tree,
};

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

/// A committed file that the binary prints.
#[derive(Debug, Clone, Copy)]
pub struct Printed {
    /// The task that writes it.
    task: &'static str,
    path: &'static str,
    /// What the binary is asked.
    args: &'static [&'static str],
}

/// The HTTP contract.
pub const OPENAPI: Printed = Printed {
    task: "openapi",
    path: "openapi/tidegate.json",
    args: &["openapi"],
};

/// Every setting.
pub const CONFIGURATION: Printed = Printed {
    task: "config",
    path: "docs/configuration.md",
    args: &["config", "--markdown"],
};

/// Writes or compares what the binary prints.
pub fn printed(
    root: &Path,
    file: Printed,
    check: bool,
    out: &mut dyn Write,
) -> Result<bool, Error> {
    let mut args = vec!["run", "--quiet", "--locked", "--package", "tidegate", "--"];
    args.extend(file.args);
    let fresh = command::output("cargo", &args, root)?;
    if fresh.trim().is_empty() {
        let asked = file.args.join(" ");
        return Err(Error::parse(
            format!("`tidegate {asked}`"),
            "it printed nothing",
        ));
    }
    settle(root, file, &fresh, check, out)
}

fn settle(
    root: &Path,
    file: Printed,
    fresh: &str,
    check: bool,
    out: &mut dyn Write,
) -> Result<bool, Error> {
    let committed = fs::read_to_string(root.join(file.path)).unwrap_or_default();
    if committed == fresh {
        say(out, &format!("{} is up to date", file.path))?;
        return Ok(true);
    }
    if check {
        let same = committed
            .lines()
            .zip(fresh.lines())
            .take_while(|(old, new)| old == new)
            .count();
        let finding = Finding::error(
            file.path,
            same + 1,
            "differs from the code",
            format!(
                "run `cargo xtask {}`, read the difference, commit it",
                file.task
            ),
        );
        say(out, &finding.to_string())?;
        return Ok(false);
    }
    write(root, file.path, fresh)?;
    say(out, &format!("wrote {}", file.path))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_checked_then_written_then_up_to_date() {
        let root = std::env::temp_dir().join(format!("xtask-printed-{}", std::process::id()));
        let settle = |fresh: &str, check| {
            let mut said = Vec::new();
            let fine = settle(&root, OPENAPI, fresh, check, &mut said).unwrap();
            (fine, String::from_utf8(said).unwrap())
        };
        assert!(!settle("{\n}\n", true).0);
        assert!(!root.exists(), "a check writes nothing");
        assert!(settle("{\n}\n", false).0);
        assert!(settle("{\n}\n", true).0);
        let (fine, said) = settle("{\n 1}\n", true);
        assert!(
            !fine && said.starts_with("openapi/tidegate.json:2: error: differs"),
            "{said}"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
