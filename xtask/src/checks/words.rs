//! Words that have no place in the repository: paths of one machine, hosts of registries, open work without a number.

use crate::{
    report::Finding,
    tree::{SourceFile, Tree, resolve},
};

/// One banned text. It is kept in pieces, so that this file may hold the table.
struct Banned {
    pieces: &'static [&'static str],
    /// Matched as a word of its own.
    word: bool,
    remedy: &'static str,
}

const MACHINE: &str =
    "no path of one machine belongs here: write it relative to the repository, or as a setting";
const HOST: &str = "name the package, not the host that serves it";
const SELF: &str = "write in the project's own voice: what it is, not how it was made";

const BANNED: &[Banned] = &[
    Banned {
        pieces: &["/wo", "rk/"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["/ro", "ot/"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["/fa", "rm/"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["/ho", "me/"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["/Us", "ers/"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["C:", "\\"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["/tmp/bash", "_jobs"],
        word: false,
        remedy: MACHINE,
    },
    Banned {
        pieces: &["crates", ".io"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["pypi", ".org"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["files.python", "hosted.org"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["registry.npm", "js.org"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["deb.deb", "ian.org"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["proxy.go", "lang.org"],
        word: true,
        remedy: HOST,
    },
    Banned {
        pieces: &["sub-agent", " session"],
        word: false,
        remedy: SELF,
    },
    Banned {
        pieces: &["helper", " session"],
        word: false,
        remedy: SELF,
    },
    Banned {
        pieces: &["co-", "founder"],
        word: true,
        remedy: SELF,
    },
    Banned {
        pieces: &["work", "place"],
        word: true,
        remedy: SELF,
    },
];

/// Markers of open work; each needs the number of an issue: `(#12)` right behind it.
const OPEN_WORK: &[&[&str]] = &[&["TO", "DO"], &["FIX", "ME"], &["XX", "X"]];

/// Lock files name registries by design.
const LOCK_FILES: &[&str] = &["Cargo.lock", "package-lock.json", "uv.lock"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let banned: Vec<(String, &Banned)> = BANNED
        .iter()
        .map(|entry| (entry.pieces.concat().to_ascii_lowercase(), entry))
        .collect();
    let open_work: Vec<String> = OPEN_WORK.iter().map(|pieces| pieces.concat()).collect();
    let mut findings = Vec::new();
    for file in &tree.files {
        if let Some(target) = &file.link {
            check_link(file, target, &mut findings);
        }
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if LOCK_FILES.contains(&name) {
            continue;
        }
        let lower = file.text.to_ascii_lowercase();
        // Most files hold none of them at all.
        let banned: Vec<_> = banned
            .iter()
            .filter(|(text, _)| lower.contains(text.as_str()))
            .collect();
        for (index, (line, lower)) in file.text.lines().zip(lower.lines()).enumerate() {
            for (text, entry) in &banned {
                if occurs(lower, text, entry.word) {
                    findings.push(Finding::error(
                        &*file.path,
                        index + 1,
                        format!("`{text}` is not wanted here"),
                        entry.remedy,
                    ));
                }
            }
            for marker in &open_work {
                if has_open_work(line, marker) {
                    findings.push(Finding::error(
                        &*file.path,
                        index + 1,
                        format!("`{marker}` without a reference"),
                        format!("finish it, or name its issue: `{marker}(#12)`"),
                    ));
                }
            }
            if leaves_repository(&file.path, line) {
                findings.push(Finding::error(
                    &*file.path,
                    index + 1,
                    "a path that leaves the repository",
                    "bring what it needs into the repository, or make it a setting",
                ));
            }
        }
    }
    findings
}

fn check_link(file: &SourceFile, target: &str, findings: &mut Vec<Finding>) {
    if target.starts_with('/') || resolve(&file.path, target).is_none() {
        findings.push(Finding::error(
            &*file.path,
            0,
            format!("a symbolic link to {target}, outside the repository"),
            "copy the file, or link to something inside",
        ));
    }
}

/// `needle` in `line`; as a word, no letter or digit may touch it.
fn occurs(line: &str, needle: &str, word: bool) -> bool {
    let touches = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(needle).any(|(at, _)| {
        !word
            || (!touches(line[..at].chars().next_back())
                && !touches(line[at + needle.len()..].chars().next()))
    })
}

fn has_open_work(line: &str, marker: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(marker).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + marker.len()..];
        let numbered = after
            .strip_prefix("(#")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        !before.is_some_and(part_of_word) && !after.starts_with(part_of_word) && !numbered
    })
}

/// A run of `../` longer than the file is deep.
fn leaves_repository(path: &str, line: &str) -> bool {
    let depth = path.matches('/').count();
    let mut rest = line;
    while let Some(at) = rest.find("../") {
        let steps = rest.as_bytes()[at..]
            .chunks(3)
            .take_while(|chunk| *chunk == b"../")
            .count();
        // `a/../b` and `$DIR/../b` start elsewhere; only a path that begins with `../` can be judged.
        let begins = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || "/.}_-)".contains(c));
        if begins && steps > depth {
            return true;
        }
        rest = &rest[at + 3 * steps..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)]))
            .into_iter()
            .map(|finding| format!("{}:{}", finding.line, finding.what))
            .collect()
    }

    #[test]
    fn every_banned_text_is_found_with_its_line() {
        for entry in BANNED {
            let text = entry.pieces.concat();
            let what = found("docs/a.md", &format!("fine\nsee {text} there\n"));
            assert!(
                what.iter().any(|found| found.starts_with("2:")),
                "{text} should be found"
            );
        }
    }

    #[test]
    fn words_that_only_look_alike_pass() {
        for text in [
            "the framework/ folder",
            "a workplaces",
            "networking, /v1/runs, /usr/lib/postgresql",
            "tree/root of it",
        ] {
            assert!(found("docs/a.md", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn lock_files_may_name_their_registry() {
        let line = BANNED[7].pieces.concat();
        assert!(found("Cargo.lock", &line).is_empty());
        assert_eq!(found("Cargo.toml", &line).len(), 1);
    }

    #[test]
    fn open_work_needs_a_number() {
        for marker in OPEN_WORK {
            let marker = marker.concat();
            assert_eq!(found("a.rs", &format!("// {marker}: later")).len(), 1);
            assert_eq!(
                found("a.rs", &format!("// {marker}(someone) later")).len(),
                1
            );
            assert!(found("a.rs", &format!("// {marker}(#12): later")).is_empty());
            assert!(found("a.rs", &format!("let A{marker} = 1;")).is_empty());
        }
    }

    #[test]
    fn relative_paths_may_not_leave_the_repository() {
        let up = |steps: usize| format!("see {}x", "../".repeat(steps));
        assert!(found("a/b/c.rs", &up(2)).is_empty());
        assert_eq!(found("a/b/c.rs", &up(3)).len(), 1);
        assert_eq!(found("README.md", &up(1)).len(), 1);
        assert!(found("README.md", "cd docs/../docs").is_empty());
    }

    #[test]
    fn links_may_not_leave_the_repository() {
        let tree = |target: &str| {
            Tree::new(vec![SourceFile {
                path: "a/b".to_owned(),
                text: String::new(),
                link: Some(target.to_owned()),
            }])
        };
        assert_eq!(check(&tree("/etc/passwd")).len(), 1);
        assert_eq!(check(&tree(&format!("{}x", "../".repeat(2)))).len(), 1);
        assert!(check(&tree("c")).is_empty());
    }
}
