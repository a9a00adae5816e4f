//! `cargo xtask tidy`: every rule of the house over the whole tree, without building it.

use std::{collections::BTreeMap, io::Write, path::Path, time::Instant};

use crate::{
    checks::{citations, codes, docs, licences, purity, ranks, sizes, statements, tests, words},
    error::Error,
    items::{Items, items},
    metadata::Metadata,
    report::{Finding, Severity},
    tree::Tree,
};

/// Prints what it finds; true where nothing fails.
pub fn run(root: &Path, out: &mut dyn Write) -> Result<bool, Error> {
    let began = Instant::now();
    let tree = Tree::read(root)?;
    let metadata = Metadata::read(root)?;
    let mut findings = over_tree(&tree);
    findings.extend(ranks::check(root, &tree, &metadata));
    findings.extend(licences::check(root, &metadata));
    findings.extend(sizes::check_history(root, &tree));
    findings.sort();
    let errors = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .count();
    let warnings = findings.len() - errors;
    let print = |out: &mut dyn Write, text: &str| {
        writeln!(out, "{text}").map_err(Error::io("standard output"))
    };
    // Errors last, where they are seen.
    for finding in findings.iter().rev() {
        print(out, &finding.to_string())?;
    }
    print(
        out,
        &format!(
            "tidy: {} files, {} packages, {errors} errors, {warnings} warnings, {:.1} s",
            tree.files.len(),
            metadata.packages.len(),
            began.elapsed().as_secs_f64()
        ),
    )?;
    Ok(errors == 0)
}

/// The Rust files of a tree, read once for all checks.
pub fn parse(tree: &Tree) -> BTreeMap<&str, Items<'_>> {
    tree.rust()
        .map(|file| (file.path.as_str(), items(&file.text)))
        .collect()
}

fn over_tree(tree: &Tree) -> Vec<Finding> {
    let parsed = parse(tree);
    let mut findings = Vec::new();
    findings.extend(sizes::check(tree, &parsed));
    findings.extend(words::check(tree));
    findings.extend(docs::check(tree, &parsed));
    findings.extend(citations::check(tree, &parsed));
    findings.extend(codes::check(tree, &parsed));
    findings.extend(purity::check(&parsed));
    findings.extend(statements::check(tree, &parsed));
    findings.extend(tests::check(&parsed));
    findings
}
