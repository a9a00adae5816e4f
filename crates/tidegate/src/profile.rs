//! The profile: where the server of `tidegate dev` is and the keys it made, so that the next command needs no flags.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use tidegate_embedded::default_data_dir;
use tidegate_model::strict;

use crate::{
    exit::Exit,
    failure::{Failure, Outcome},
};

/// The file's name in the data directory of `tidegate dev`.
pub const FILE: &str = "profile.toml";

/// What the file holds. Readable by its owner only: it has keys.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The server.
    pub url: String,
    /// The name of the key for commands that need no administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Keys by name; `admin` is the administrator's.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("url", &self.url)
            .field("keys", &self.keys.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Where the profile is unless `--profile` or `TIDEGATE_PROFILE` says so.
pub fn default_path() -> Option<PathBuf> {
    default_data_dir("dev").ok().map(|dir| dir.join(FILE))
}

impl Profile {
    /// Reads a profile; `None` where there is no file.
    pub fn read(path: &Path) -> Outcome<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(Failure::caused(
                    Exit::Usage,
                    format!("cannot read the profile {}", path.display()),
                    &error,
                )
                .remedy(format!(
                    "give it back to this user with `sudo chown \"$(id -un)\" {}`, or name another with --profile",
                    path.display()
                )));
            }
        };
        // The parser's text would repeat the line at fault, which may hold a key.
        let failed = || {
            Failure::usage(format!("{} is no profile", path.display()))
                .remedy("delete it and start `tidegate dev` again, which writes a new one")
        };
        let reader = toml::Deserializer::parse(&text).map_err(|_| failed())?;
        strict::read(reader).map(Some).map_err(|_| failed())
    }

    /// Writes it for its owner alone, whole or not at all.
    pub fn write(&self, path: &Path) -> Outcome<()> {
        let text = toml::to_string(self)
            .map_err(|error| Failure::caused(Exit::Failed, "cannot write the profile", &error))?;
        write_private(path, &text)
    }
}

/// Writes a file that only its owner may read, whole or not at all. Its owner is the directory's, also where root writes
/// it: `sudo tidegate dev` once must not lock the user out whose data these are.
pub fn write_private(path: &Path, text: &str) -> Outcome<()> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
    let failed = |error: std::io::Error| {
        Failure::caused(
            Exit::Failed,
            format!("cannot write {}", path.display()),
            &error,
        )
    };
    let aside = path.with_extension("new");
    // A file left over from a crash may have any mode.
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)
        .map_err(failed)?;
    if let Some(dir) = path.parent().filter(|_| Uid::effective().is_root()) {
        let owner = std::fs::metadata(dir).map_err(failed)?;
        fchown(&file, Some(owner.uid()), Some(owner.gid())).map_err(failed)?;
    }
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    std::fs::rename(&aside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use super::*;

    /// Bad input: a directory of an ordinary user stays that user's, whoever writes into it; a profile that cannot be read
    /// says what to do.
    #[test]
    fn a_profile_belongs_to_the_owner_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        if Uid::effective().is_root() {
            chown(dir.path(), Some(4_000_000), Some(4_000_001)).unwrap();
        }
        Profile::default().write(&path).unwrap();
        let (dir_owner, owner) = (dir.path().metadata().unwrap(), path.metadata().unwrap());
        assert_eq!(
            (owner.uid(), owner.gid()),
            (dir_owner.uid(), dir_owner.gid())
        );
        let failure = Profile::read(dir.path()).unwrap_err();
        assert!(failure.remedy.unwrap().contains("chown"));
    }

    #[test]
    fn a_profile_is_for_its_owner_alone_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert!(Profile::read(&path).unwrap().is_none());
        let profile = Profile {
            url: "http://127.0.0.1:8480".to_owned(),
            default: Some("acme".to_owned()),
            keys: [("acme".to_owned(), "tg_secret".to_owned())].into(),
        };
        profile.write(&path).unwrap();
        profile.write(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Profile::read(&path).unwrap().unwrap().keys, profile.keys);
        assert!(!format!("{profile:?}").contains("tg_secret"));

        for bad in ["url = tg_secret", "url = 7", "more = 1"] {
            std::fs::write(&path, bad).unwrap();
            let failure = Profile::read(&path).unwrap_err();
            assert!(!failure.messages.join(" ").contains("tg_secret"));
        }
    }
}
