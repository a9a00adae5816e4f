//! Which crate may depend on which: lower ranks only, and for some crates a list of what they must never see.

use std::path::Path;

use crate::{
    metadata::{Dependency, Metadata, Package, manifest_in},
    report::Finding,
    tree::Tree,
};

/// Rank of a crate that tests alone may use.
const DEV_ONLY: u8 = u8::MAX;

/// One rule per crate of the workspace; a crate that is missing here is a finding.
struct Rule {
    name: &'static str,
    rank: u8,
    /// Crates that must not be a direct dependency, tests apart.
    never: &'static [&'static [&'static str]],
    why: &'static str,
}

const HTTP_SERVERS: &[&str] = &["axum", "axum-server", "hyper", "tower-http", "utoipa-axum"];
const PURE: &[&str] = &[
    "tokio",
    "tokio-util",
    "tokio-stream",
    "futures",
    "async-trait",
    "sqlx",
    "redis",
    "reqwest",
    "hyper",
    "axum",
    "tracing",
    "metrics",
    "rand",
    "getrandom",
];

const RULES: &[Rule] = &[
    Rule {
        name: "tidegate-model",
        rank: 0,
        never: &[PURE],
        why: "the vocabulary does no I/O and reads no clock",
    },
    Rule {
        name: "tidegate-embedded",
        rank: 0,
        never: &[&["axum", "reqwest"]],
        why: "it starts PostgreSQL and knows nothing of what is kept in it",
    },
    Rule {
        name: "tidegate-mock-provider",
        rank: 0,
        never: &[&["sqlx"]],
        why: "it plays a foreign server",
    },
    Rule {
        name: "tidegate-policy",
        rank: 1,
        never: &[PURE],
        why: "a decision is a pure function of its inputs",
    },
    Rule {
        name: "tidegate-grants",
        rank: 1,
        never: &[PURE],
        why: "whoever checks a grant links it: time and entropy are handed in",
    },
    Rule {
        name: "tidegate-client",
        rank: 2,
        never: &[&["sqlx", "axum", "redis"]],
        why: "it is what a stranger's program links",
    },
    Rule {
        name: "tidegate-store",
        rank: 2,
        never: &[HTTP_SERVERS, &["reqwest", "redis"]],
        why: "it speaks to PostgreSQL and to nobody else",
    },
    Rule {
        name: "tidegate-engine",
        rank: 3,
        never: &[HTTP_SERVERS, &["sqlx"]],
        why: "use cases know neither HTTP nor SQL",
    },
    Rule {
        name: "tidegate-llm",
        rank: 4,
        never: &[HTTP_SERVERS, &["sqlx"]],
        why: "gateway and agent share it, so it serves neither's transport",
    },
    Rule {
        name: "tidegate-agent",
        rank: 5,
        never: &[HTTP_SERVERS, &["sqlx"]],
        why: "it is a client of the worker protocol",
    },
    Rule {
        name: "tidegate-server",
        rank: 6,
        never: &[&["sqlx", "redis"]],
        why: "handlers translate; rules and statements live below",
    },
    Rule {
        name: "tidegate-sim",
        rank: 6,
        never: &[&["sqlx", "axum", "tokio"]],
        why: "virtual time only",
    },
    Rule {
        name: "tidegate",
        rank: 7,
        never: &[&["axum"]],
        why: "the composition root serves through tidegate-server",
    },
    Rule {
        name: "tidegate-testkit",
        rank: DEV_ONLY,
        never: &[],
        why: "it never ships",
    },
    Rule {
        name: "tidegate-bench",
        rank: DEV_ONLY,
        never: &[&["tidegate-testkit"]],
        why: "failpoints must not be in what is measured",
    },
    Rule {
        name: "xtask",
        rank: DEV_ONLY,
        never: &[HTTP_SERVERS],
        why: "it never ships",
    },
];

/// The crates of the workspace that the client may use: what a stranger's program needs, and nothing of the server.
const CLIENT: &str = "tidegate-client";
const CLIENT_SEES_ONLY: &[&str] = &["tidegate-model", "tidegate-grants"];

pub fn check(root: &Path, tree: &Tree, metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata.members() {
        let Some(path) = manifest_in(root, package) else {
            findings.push(Finding::error(
                package.manifest_path.clone(),
                0,
                format!(
                    "workspace member `{}` lies outside the repository",
                    package.name
                ),
                "move it below the root or drop it from the workspace",
            ));
            continue;
        };
        let manifest = tree.get(&path).map_or("", |file| file.text.as_str());
        if !inherits_lints(manifest) {
            findings.push(Finding::error(
                &*path,
                0,
                format!(
                    "`{}` does not inherit the lints of the workspace",
                    package.name
                ),
                "write `[lints]` and `workspace = true`",
            ));
        }
        match rule(&package.name) {
            Some(rule) => check_package(package, rule, &path, &mut findings),
            None => findings.push(Finding::error(
                path,
                0,
                format!("crate `{}` has no rank", package.name),
                "add it to RULES in xtask/src/checks/ranks.rs and to the map in ARCHITECTURE.md",
            )),
        }
    }
    findings
}

fn inherits_lints(manifest: &str) -> bool {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[lints]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .any(|line| line.replace(' ', "") == "workspace=true")
}

fn rule(name: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.name == name)
}

fn check_package(package: &Package, rule: &Rule, path: &str, findings: &mut Vec<Finding>) {
    for dependency in &package.dependencies {
        if let Some(found) = misplaced(rule, dependency) {
            findings.push(Finding::error(path, 0, found.0, found.1));
        }
        let banned = rule.never.concat().contains(&dependency.name.as_str());
        if banned && !dependency.is_dev() {
            findings.push(Finding::error(
                path,
                0,
                format!("`{}` must never depend on `{}`", rule.name, dependency.name),
                format!("{}; move the code that needs it to another rank", rule.why),
            ));
        }
    }
}

fn misplaced(rule: &Rule, dependency: &Dependency) -> Option<(String, String)> {
    let target = self::rule(&dependency.name)?;
    if target.rank == DEV_ONLY {
        let allowed = dependency.is_dev() || rule.rank == DEV_ONLY;
        return (!allowed).then(|| {
            (
                format!("`{}` ships `{}`", rule.name, target.name),
                "name it under [dev-dependencies] only".to_owned(),
            )
        });
    }
    if dependency.is_dev() || rule.rank == DEV_ONLY {
        return None;
    }
    if rule.name == CLIENT && !CLIENT_SEES_ONLY.contains(&target.name) {
        return Some((
            format!("`{}` depends on `{}`", rule.name, target.name),
            format!("it may see `{}` only", CLIENT_SEES_ONLY.join("` and `")),
        ));
    }
    (target.rank >= rule.rank).then(|| {
        (
            format!(
                "`{}` (rank {}) depends on `{}` (rank {})",
                rule.name, rule.rank, target.name, target.rank
            ),
            "a crate depends on lower ranks only: hand the thing in as a trait or value from above"
                .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str, dependencies: &[(&str, Option<&str>)]) -> Metadata {
        Metadata {
            workspace_members: vec!["one".to_owned()],
            packages: vec![Package {
                id: "one".to_owned(),
                name: name.to_owned(),
                manifest_path: format!("/repo/crates/{name}/Cargo.toml"),
                dependencies: dependencies
                    .iter()
                    .map(|(name, kind)| Dependency {
                        name: (*name).to_owned(),
                        kind: kind.map(str::to_owned),
                    })
                    .collect(),
                ..Package::default()
            }],
        }
    }

    fn found(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let manifest = format!("crates/{name}/Cargo.toml");
        let tree = Tree::of(&[(&manifest, "[lints]\nworkspace = true\n")]);
        check(Path::new("/repo"), &tree, &workspace(name, dependencies))
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn lower_ranks_are_allowed() {
        let engine = [
            ("tidegate-model", None),
            ("tidegate-store", None),
            ("tidegate-testkit", Some("dev")),
            ("tokio", None),
        ];
        assert_eq!(found("tidegate-engine", &engine), Vec::<String>::new());
    }

    #[test]
    fn higher_and_equal_ranks_are_refused() {
        for (name, dependency) in [
            ("tidegate-policy", "tidegate-engine"),
            ("tidegate-embedded", "tidegate-model"),
            ("tidegate-server", "tidegate-sim"),
        ] {
            assert_eq!(
                found(name, &[(dependency, None)]).len(),
                1,
                "{name} {dependency}"
            );
        }
    }

    #[test]
    fn the_test_kit_never_ships() {
        for kind in [None, Some("build")] {
            let what = found("tidegate-server", &[("tidegate-testkit", kind)]);
            assert_eq!(what, ["`tidegate-server` ships `tidegate-testkit`"]);
        }
        assert!(found("tidegate-testkit", &[("tidegate-server", None)]).is_empty());
    }

    #[test]
    fn what_a_crate_must_never_see_is_allowed_in_its_tests_only() {
        assert_eq!(found("tidegate-policy", &[("tokio", None)]).len(), 1);
        assert_eq!(found("tidegate-engine", &[("sqlx", None)]).len(), 1);
        assert!(found("tidegate-policy", &[("tokio", Some("dev"))]).is_empty());
    }

    #[test]
    fn the_client_sees_the_model_and_the_grants_alone() {
        for seen in ["tidegate-model", "tidegate-grants"] {
            assert!(found("tidegate-client", &[(seen, None)]).is_empty());
        }
        for unseen in ["tidegate-embedded", "tidegate-policy"] {
            assert_eq!(found("tidegate-client", &[(unseen, None)]).len(), 1);
        }
    }

    #[test]
    fn an_unknown_crate_and_one_outside_are_findings() {
        assert_eq!(
            found("tidegate-extra", &[]),
            ["crate `tidegate-extra` has no rank"]
        );
        let tree = Tree::of(&[]);
        let outside = check(Path::new("/other"), &tree, &workspace("tidegate", &[]));
        assert!(outside[0].what.contains("outside the repository"));
    }

    #[test]
    fn every_crate_inherits_the_lints() {
        for manifest in ["[package]\n", "[lints]\n[dependencies]\nworkspace = true\n"] {
            let tree = Tree::of(&[("crates/tidegate/Cargo.toml", manifest)]);
            let found = check(Path::new("/repo"), &tree, &workspace("tidegate", &[]));
            assert_eq!(found.len(), 1, "{manifest}");
        }
    }
}
