//! The data directory of `tidegate dev`: `postgres/` (a private cluster), `key` (what `CONFIG_ENC_KEY` would hold),
//! `profile.toml` (where the server is, and its keys).

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use tidegate_embedded::{Cluster, EmbeddedError, Options, default_data_dir};
use tidegate_engine::{
    secrets::{self, Keyring, SecretError},
    settings::Settings,
};
use tidegate_store::{ConnectOptions, Store};

use crate::{
    compose::database,
    exit::Exit,
    failure::{Failure, Outcome, chain},
    profile::{self, write_private},
};

/// Tells a directory that was made here from one that happens to have the same names in it.
const MARKER: &str = "tidegate-data";
/// The database's name in the cluster.
const DATABASE: &str = "tidegate";

/// A directory whose database runs for this process.
#[derive(Debug)]
pub struct Home {
    dir: PathBuf,
    cluster: Cluster,
    key: SecretString,
}

impl Home {
    /// Where the data are: where the settings say, else at the usual place for `name`.
    pub fn directory(settings: &Settings, name: &str) -> Outcome<PathBuf> {
        match &settings.data_dir {
            Some(dir) => std::path::absolute(dir)
                .map_err(|error| Failure::caused(Exit::Usage, "TIDEGATE_DATA_DIR", &error)),
            None => default_data_dir(name).map_err(|error| Failure::usage(chain(&error))),
        }
    }

    /// Makes a directory ours. One that holds something else is refused, for `key` and `profile.toml` are common names.
    pub fn claim(dir: &Path) -> Outcome<()> {
        let failed = |error: std::io::Error| {
            Failure::caused(
                Exit::Usage,
                format!("cannot make the data directory {}", dir.display()),
                &error,
            )
            .remedy("give another with --data-dir")
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let marker = dir.join(MARKER);
        if marker.is_file() {
            return Ok(());
        }
        // Releases before the marker left their database only.
        let ours = dir.join("postgres/tidegate-cluster.json").is_file();
        // The marker itself: somebody else may have made it just now.
        let foreign = std::fs::read_dir(dir)
            .map_err(failed)?
            .any(|entry| entry.is_ok_and(|entry| entry.file_name() != MARKER));
        if foreign && !ours {
            return Err(Failure::usage(format!(
                "{} is not empty and was not made by Tidegate",
                dir.display()
            ))
            .remedy("give an empty or new directory with --data-dir"));
        }
        std::fs::write(&marker, "The data of `tidegate dev` or `tidegate demo`.\n").map_err(failed)
    }

    /// Starts the database, making it first where there is none; `fresh` throws away what is there.
    pub async fn open(dir: PathBuf, settings: &Settings, fresh: bool) -> Outcome<Self> {
        Self::claim(&dir)?;
        let mut options = Options::new(dir.join("postgres"));
        options.fresh = fresh;
        options.bin_dir.clone_from(&settings.pg_bin);
        let cluster = Cluster::start(options)
            .await
            .map_err(|error| embedded_failure(&error))?;
        // Only now: the cluster's lock says that nobody else works in this directory.
        if fresh {
            remove(&dir.join("key"))?;
            remove(&dir.join(profile::FILE))?;
        }
        cluster
            .create_database(DATABASE)
            .await
            .map_err(|error| embedded_failure(&error))?;
        match the_key(&dir.join("key"), &cluster.socket_url(DATABASE)).await {
            Ok(key) => Ok(Self { dir, cluster, key }),
            Err(failure) => {
                cluster
                    .stop()
                    .await
                    .map_err(|error| embedded_failure(&error))?;
                Err(failure)
            }
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The profile's file.
    pub fn profile_path(&self) -> PathBuf {
        self.dir.join(profile::FILE)
    }

    /// The database's version and account, for people.
    pub fn database(&self) -> String {
        format!(
            "PostgreSQL {} on a private socket, as {}",
            self.cluster.version(),
            self.cluster.account().name
        )
    }

    /// Address of the database.
    pub fn database_url(&self) -> String {
        self.cluster.socket_url(DATABASE)
    }

    /// The key that seals secrets.
    pub const fn key(&self) -> &SecretString {
        &self.key
    }

    /// The settings of a server over this directory.
    pub fn settings(&self, settings: &Settings) -> Settings {
        Settings {
            database_url: Some(self.database_url().into()),
            enc_key: Some(self.key.clone()),
            enc_key_previous: None,
            ..settings.clone()
        }
    }

    /// Stops the database.
    pub async fn close(self) -> Outcome<()> {
        self.cluster
            .stop()
            .await
            .map_err(|error| embedded_failure(&error))
    }
}

/// The key of the directory, which must be the one of the data beside it (R1.1). It is made where there is none, but not
/// where the data have one: a new one would open nothing, and stand where the lost one belongs.
async fn the_key(path: &Path, database_url: &str) -> Outcome<SecretString> {
    let store = tidegate_store::connect(&ConnectOptions::new(database_url.to_owned()))
        .map(Store::new)
        .map_err(|error| Failure::failed(chain(&error)))?;
    let kept = kept_key(path)?;
    let keyring = match &kept {
        Some(key) => Keyring::new(key, None).map_err(|error| malformed_key(path, &error))?,
        None => {
            Keyring::generate()
                .map_err(|error| Failure::failed(error.to_string()))?
                .0
        }
    };
    let proven = secrets::refuse_wrong_key(&store, &keyring).await;
    store.pool().close().await;
    match (proven, kept) {
        (Ok(()), Some(key)) => Ok(key),
        (Ok(()), None) => make_key(path),
        (Err(SecretError::WrongKey { sealed_with, .. }), kept) => {
            Err(foreign_key(path, &sealed_with, kept.is_some()))
        }
        (Err(error), _) => Err(database::secret_failure(&error)),
    }
}

fn kept_key(path: &Path) -> Outcome<Option<SecretString>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(SecretString::from(text.trim()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::caused(
            Exit::Usage,
            format!("cannot read the key {}", path.display()),
            &error,
        )
        .remedy(format!(
            "give it back to this user with `sudo chown \"$(id -un)\" {}`, or give another directory with --data-dir",
            path.display()
        ))),
    }
}

fn make_key(path: &Path) -> Outcome<SecretString> {
    let (_, key) = Keyring::generate().map_err(|error| Failure::failed(error.to_string()))?;
    write_private(path, &format!("{}\n", key.expose_secret()))?;
    Ok(key)
}

fn foreign_key(path: &Path, sealed_with: &str, is_there: bool) -> Failure {
    let file = path.display();
    let wrong = if is_there {
        format!(
            "the key in {file} is not the one of the data beside it, which were sealed with key {sealed_with}"
        )
    } else {
        format!(
            "the file {file} is missing: the data beside it were sealed with its key, {sealed_with}"
        )
    };
    Failure::usage(wrong).remedy(put_it_back(path))
}

/// The keyring speaks of the variable; here the text comes from a file.
fn malformed_key(path: &Path, error: &SecretError) -> Failure {
    let file = path.display().to_string();
    Failure::usage(error.to_string().replace("CONFIG_ENC_KEY", &file)).remedy(put_it_back(path))
}

fn put_it_back(path: &Path) -> String {
    let file = path.display();
    format!("put the file {file} back, or start over with `tidegate dev --fresh`")
}

fn remove(path: &Path) -> Outcome<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::caused(
            Exit::Failed,
            format!("cannot remove {}", path.display()),
            &error,
        )),
        _ => Ok(()),
    }
}

fn embedded_failure(error: &EmbeddedError) -> Failure {
    match error {
        // Every data directory here takes its binaries from the setting, whichever source gave it.
        EmbeddedError::Unusable { dir, reason, .. } => Failure::usage(format!(
            "PG_BIN: {} does not serve: {reason}",
            dir.display()
        ))
        .remedy(
            "point PG_BIN (--pg-bin) at a directory with `postgres` and `initdb`, or leave it out",
        ),
        _ => Failure::failed(chain(error)),
    }
}
