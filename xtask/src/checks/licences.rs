//! What the workspace is built from: permissive licences, packages of the registry only, no OpenSSL, no C crypto.

use std::path::Path;

use crate::{metadata::Metadata, metadata::manifest_in, report::Finding, spdx};

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const BANNED: &[(&str, &str)] = &[
    (
        "openssl-sys",
        "TLS is rustls everywhere; turn on a rustls feature",
    ),
    (
        "native-tls",
        "TLS is rustls everywhere; turn on a rustls feature",
    ),
    (
        "aws-lc-sys",
        "the crypto provider is ring; pick the feature without a provider",
    ),
    (
        "aws-lc-rs",
        "the crypto provider is ring; pick the feature without a provider",
    ),
];

/// How cargo names the default registry.
fn registry() -> String {
    ["registry+https://github.com/rust-lang/crates", "io-index"].join(".")
}

pub fn check(root: &Path, metadata: &Metadata) -> Vec<Finding> {
    let registry = registry();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let shown = format!("{} {}", package.name, package.version);
        let path = manifest_in(root, package).unwrap_or_else(|| "Cargo.lock".to_owned());
        let mut add = |what: String, remedy: &str| {
            findings.push(Finding::error(&*path, 0, what, remedy));
        };
        match package.source.as_deref() {
            None if manifest_in(root, package).is_none() => add(
                format!("`{shown}` is a path outside the repository"),
                "depend on a published version",
            ),
            Some(source) if source != registry => add(
                format!("`{shown}` comes from {source}"),
                "depend on a published version: nothing else can be built again later",
            ),
            None | Some(_) => {}
        }
        if let Some((_, remedy)) = BANNED.iter().find(|(name, _)| *name == package.name) {
            add(format!("`{shown}` is banned"), remedy);
        }
        let Some(licence) = package.license.as_deref() else {
            add(
                format!("`{shown}` names no licence"),
                "take another crate, or one that states its licence",
            );
            continue;
        };
        match spdx::allowed(licence, ALLOWED) {
            Ok(true) => {}
            Ok(false) => add(
                format!("`{shown}` is licensed `{licence}`"),
                "take another crate; the permissive list stands in xtask/src/checks/licences.rs",
            ),
            Err(error) => add(
                format!("`{shown}` has the licence `{licence}`: {error}"),
                "read its licence; if it is permissive, teach xtask/src/spdx.rs the form",
            ),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    fn found(name: &str, source: Option<&str>, licence: Option<&str>) -> Vec<String> {
        let metadata = Metadata {
            workspace_members: Vec::new(),
            packages: vec![Package {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                source: source.map(str::to_owned),
                license: licence.map(str::to_owned),
                manifest_path: "/elsewhere/Cargo.toml".to_owned(),
                ..Package::default()
            }],
        };
        check(Path::new("/repo"), &metadata)
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn permissive_crates_of_the_registry_pass() {
        let registry = registry();
        for licence in ["MIT", "MIT OR Apache-2.0", "(MIT OR GPL-2.0) AND ISC"] {
            assert!(
                found("a", Some(&registry), Some(licence)).is_empty(),
                "{licence}"
            );
        }
    }

    #[test]
    fn other_licences_missing_ones_and_unreadable_ones_are_refused() {
        let registry = registry();
        for licence in [
            Some("GPL-3.0"),
            Some("MIT AND MPL-2.0"),
            Some("MIT OR"),
            None,
        ] {
            assert_eq!(found("a", Some(&registry), licence).len(), 1, "{licence:?}");
        }
    }

    #[test]
    fn other_sources_and_paths_outside_are_refused() {
        assert_eq!(
            found("a", Some("git+https://example.org/a"), Some("MIT")).len(),
            1
        );
        assert_eq!(
            found("a", None, Some("MIT")),
            ["`a 1.0.0` is a path outside the repository"]
        );
    }

    #[test]
    fn banned_crates_are_refused_whatever_their_licence() {
        let registry = registry();
        for name in ["openssl-sys", "aws-lc-sys"] {
            assert_eq!(found(name, Some(&registry), Some("MIT")).len(), 1, "{name}");
        }
    }
}
