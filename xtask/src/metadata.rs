//! What `cargo metadata` says about the workspace and everything it is built from.

use std::path::Path;

use serde::Deserialize;

use crate::{command, error::Error};

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    pub workspace_members: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Package {
    pub id: String,
    pub name: String,
    pub version: String,
    /// `None` for packages of this repository.
    pub source: Option<String>,
    pub license: Option<String>,
    pub manifest_path: String,
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `None` is a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
}

impl Dependency {
    pub fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Metadata {
    /// Asks cargo for this machine's platform only: packages of others need not be downloaded.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let version = command::output("rustc", &["-vV"], root)?;
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .ok_or_else(|| Error::parse("rustc -vV", "no line `host:`"))?;
        let json = command::output(
            "cargo",
            &[
                "metadata",
                "--format-version=1",
                "--locked",
                "--filter-platform",
                host,
            ],
            root,
        )?;
        serde_json::from_str(&json).map_err(|error| Error::parse("cargo metadata", error))
    }

    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// `crates/x/Cargo.toml` for a member whose manifest lies below `root`.
pub fn manifest_in(root: &Path, package: &Package) -> Option<String> {
    Path::new(&package.manifest_path)
        .strip_prefix(root)
        .ok()
        .map(|path| path.to_string_lossy().into_owned())
}
