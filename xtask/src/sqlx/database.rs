//! Compiles the store against a private PostgreSQL.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::SystemTime};

use sqlx::{PgPool, migrate::Migrator};
use tidegate_embedded::{Cluster, EmbeddedError, Options};

use crate::error::Error;

const MIGRATIONS: &str = "crates/tidegate-store/migrations";
const DATABASE: &str = "tidegate_sqlx";

/// What the macros learn while the store is compiled against a private database, by file name.
pub fn prepared(root: &Path) -> Result<BTreeMap<String, String>, Error> {
    let name = format!("tidegate-sqlx-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let fresh = dir.join("metadata");
    fs::create_dir_all(&fresh).map_err(Error::io(&fresh))?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Error::command("tokio", error.to_string()))?;
    let made = runtime.block_on(async {
        let failed = |error: EmbeddedError| Error::command("postgres", error.to_string());
        let options = Options::throwaway(dir.join("cluster"));
        let cluster = Cluster::start(options).await.map_err(failed)?;
        let prepared = with_cluster(&cluster, root, &fresh).await;
        let stopped = cluster.stop().await;
        prepared?;
        stopped.map_err(failed)?;
        super::prepared::read(&fresh)
    });
    let _ = fs::remove_dir_all(&dir);
    made
}

async fn with_cluster(cluster: &Cluster, root: &Path, fresh: &Path) -> Result<(), Error> {
    cluster
        .create_database(DATABASE)
        .await
        .map_err(|error| Error::command("create database", error.to_string()))?;
    let url = cluster.url(DATABASE);
    migrate(&url, &root.join(MIGRATIONS)).await?;
    let source = root.join("crates/tidegate-store/src/lib.rs");
    let touched = Touched::now(&source)?;
    let mut check = Command::new("cargo");
    check
        .args([
            "check",
            "--quiet",
            "--locked",
            "--package",
            "tidegate-store",
        ])
        .current_dir(root)
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", fresh)
        .env("DATABASE_URL", &url);
    let status = check
        .status()
        .map_err(|error| Error::command("cargo check", error.to_string()));
    touched.restore()?;
    let status = status?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::command(
            "cargo check",
            format!("ended with {status}"),
        ))
    }
}

/// The migrations of the tree, then those that an operator may add.
async fn migrate(url: &str, dir: &Path) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::command("migrations", error.to_string());
    let pool = PgPool::connect(url).await.map_err(|error| failed(&error))?;
    let optional = dir.join("optional");
    for dir in [dir, optional.as_path()]
        .into_iter()
        .filter(|dir| dir.exists())
    {
        let mut migrator = Migrator::new(dir).await.map_err(|error| failed(&error))?;
        migrator.set_ignore_missing(true);
        migrator.run(&pool).await.map_err(|error| failed(&error))?;
    }
    pool.close().await;
    Ok(())
}

/// Cargo does not know that the database changed; a newer source makes the macros run again. Afterwards the source gets
/// its old time back, or every crate above the store would be built again for nothing.
struct Touched<'a> {
    source: &'a Path,
    before: SystemTime,
    now: SystemTime,
}

impl<'a> Touched<'a> {
    fn now(source: &'a Path) -> Result<Self, Error> {
        let before = modified(source)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the time of a file is the machine's time"
        )]
        let now = SystemTime::now();
        set_modified(source, now)?;
        Ok(Self {
            source,
            before,
            now: modified(source).unwrap_or(now),
        })
    }

    /// Leaves a source alone that somebody saved in the meantime.
    fn restore(self) -> Result<(), Error> {
        if modified(self.source)? == self.now {
            set_modified(self.source, self.before)?;
        }
        Ok(())
    }
}

fn modified(path: &Path) -> Result<SystemTime, Error> {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .map_err(Error::io(path))
}

fn set_modified(path: &Path, time: SystemTime) -> Result<(), Error> {
    fs::File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(time))
        .map_err(Error::io(path))
}
