//! Migrations: embedded, forward-only, by many instances at once (R1.6).
//!
//! The lock around them is a session lock of the database, which is why a pooler in transaction mode is refused. It is
//! held by a connection of its own in a task of its own: a caller who goes away neither leaves it behind nor stops a
//! migration half-way.
//!
//! Optional migrations (R15.1) are applied by name, stand in the same table, and are never pending.

mod compat;
mod error;
mod pooler;

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use sqlx::{
    Connection as _, PgConnection, PgPool,
    migrate::{Migrate as _, Migration},
};
use tidegate_model::api::PROTOCOL_VERSION;

pub use compat::{Served, Verdict, decide};
pub use error::MigrateError;

use crate::{MIGRATIONS, error::sqlstate, reach::connect};

/// A migration that an operator may add (R15.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalSet {
    /// What it is added by.
    pub name: &'static str,
    /// Its number.
    pub version: i64,
}

/// Every optional migration.
pub const OPTIONAL_SETS: [OptionalSet; 1] = [OptionalSet {
    name: "tenant-resource-tiers",
    version: 1001,
}];

static OPTIONAL: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/optional");

/// Whether this server carries a migration of that number.
fn is_known(version: i64) -> bool {
    MIGRATIONS.version_exists(version) || OPTIONAL.version_exists(version)
}

/// Where sqlx keeps what was applied.
const TABLE: &str = "_sqlx_migrations";
/// The oldest PostgreSQL, as `server_version_num`.
const POSTGRES_MIN: i32 = 150_000;

/// Who migrates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    /// `cli:` and the operating system's user, or `serve` and the instance.
    pub by: String,
    /// The server's version.
    pub server_version: String,
}

/// What a migration did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The migrations that were applied by this very call.
    pub applied: Vec<i64>,
    /// What an operator should know.
    pub warning: Option<String>,
}

/// One migration, as `tidegate migrate status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub version: i64,
    /// What it does; empty for one that this server does not know.
    pub description: String,
    /// Where it stands.
    pub state: MigrationState,
    /// When it was applied.
    pub applied_at: Option<DateTime<Utc>>,
    /// By whom.
    pub applied_by: Option<String>,
    /// By which server.
    pub server: Option<String>,
    /// SHA-256 of its text, shortened.
    pub digest: String,
}

/// Where a migration stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// In the database, as this server carries it.
    Applied,
    /// Not in the database.
    Pending,
    /// Not in the database, which serves without it too.
    NotExecuted,
    /// In the database, with another content.
    Changed,
    /// In the database, unknown to this server.
    Unknown,
}

impl MigrationState {
    /// For people and `--json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Pending => "pending",
            Self::NotExecuted => "not executed",
            Self::Changed => "changed",
            Self::Unknown => "unknown",
        }
    }
}

/// Applies what is missing. Safe to call from any number of instances at once: one applies, the others wait and find
/// nothing to do.
pub async fn migrate(pool: &PgPool, applicant: &Applicant) -> Result<Report, MigrateError> {
    migrate_with(pool, applicant, &[]).await
}

/// The same, and these optional migrations.
pub async fn migrate_with(
    pool: &PgPool,
    applicant: &Applicant,
    sets: &[OptionalSet],
) -> Result<Report, MigrateError> {
    let (pool, applicant, sets) = (pool.clone(), applicant.clone(), sets.to_vec());
    let task = tokio::spawn(async move {
        // Not from the pool: the first one holds the lock, and must end with this task.
        let (mut connection, other) = (connect(&pool).await?, connect(&pool).await?);
        preconditions(&mut connection, other).await?;
        connection.lock().await.map_err(plain)?;
        // The lock ends with the connection, whatever happens in between.
        let outcome = apply_missing(&mut connection, &applicant, &sets).await;
        let closed = connection.close().await;
        let report = outcome?;
        closed?;
        Ok(report)
    });
    task.await.map_err(|_| {
        MigrateError::Store(crate::Error::Unavailable(sqlx::Error::WorkerCrashed.into()))
    })?
}

/// What `serve --no-migrate` demands: nothing pending, and a server that the database serves.
pub async fn check(pool: &PgPool, server_version: &str) -> Result<Report, MigrateError> {
    let mut connection = connect(pool).await?;
    suits(&mut connection).await?;
    let applied = applied_by_us(&mut connection).await?;
    let pending = pending(&applied, &[])?;
    if !pending.is_empty() {
        return Err(MigrateError::Pending(
            pending.iter().map(|migration| migration.version).collect(),
        ));
    }
    let warning = compatible(&mut connection, server_version, &applied).await?;
    connection.close().await?;
    Ok(Report {
        applied: Vec::new(),
        warning,
    })
}

/// Whether the database can be connected to; the error is one of TLS where that is the cause.
pub async fn reach(pool: &PgPool) -> Result<(), MigrateError> {
    connect(pool).await?.close().await?;
    Ok(())
}

/// Every migration that this server or the database knows.
pub async fn status(pool: &PgPool) -> Result<Vec<MigrationStatus>, MigrateError> {
    let mut connection = connect(pool).await?;
    suits(&mut connection).await?;
    let applied = applied_by_us(&mut connection).await?;
    let log = migration_log(&mut connection).await?;
    connection.close().await?;
    let mut all: Vec<MigrationStatus> = Vec::new();
    for migration in MIGRATIONS.iter().chain(OPTIONAL.iter()) {
        let there = applied.iter().find(|a| a.version == migration.version);
        let state = match there {
            None if OPTIONAL.version_exists(migration.version) => MigrationState::NotExecuted,
            None => MigrationState::Pending,
            Some(there) if there.checksum == *migration.checksum => MigrationState::Applied,
            Some(_) => MigrationState::Changed,
        };
        all.push(MigrationStatus {
            version: migration.version,
            description: migration.description.to_string(),
            state,
            applied_at: there.map(|a| a.at),
            applied_by: None,
            server: None,
            digest: short(&migration.checksum),
        });
    }
    for unknown in applied.iter().filter(|a| !is_known(a.version)) {
        all.push(MigrationStatus {
            version: unknown.version,
            description: String::new(),
            state: MigrationState::Unknown,
            applied_at: Some(unknown.at),
            applied_by: None,
            server: None,
            digest: short(&unknown.checksum),
        });
    }
    for status in &mut all {
        if let Some((_, by, server)) = log.iter().find(|(version, ..)| *version == status.version) {
            status.applied_by = Some(by.clone());
            status.server = Some(server.clone());
        }
    }
    Ok(all)
}

struct Applied {
    version: i64,
    checksum: Vec<u8>,
    at: DateTime<Utc>,
}

async fn preconditions(
    connection: &mut PgConnection,
    mut other: PgConnection,
) -> Result<(), MigrateError> {
    let pooled = pooler::is_pooled(connection, &mut other).await?;
    let closed = other.close().await;
    if pooled {
        return Err(MigrateError::Pooler);
    }
    closed?;
    suits(connection).await?;
    let standby: bool = sqlx::query_scalar("SELECT pg_is_in_recovery()")
        .fetch_one(connection)
        .await?;
    if standby {
        return Err(MigrateError::Standby);
    }
    Ok(())
}

async fn suits(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let (number, found): (i32, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::integer, current_setting('server_version')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if number < POSTGRES_MIN {
        return Err(MigrateError::PostgresTooOld { found });
    }
    let (encoding, schema, search_path): (String, Option<String>, String) = sqlx::query_as(
        "SELECT current_setting('server_encoding'), current_schema()::text, current_setting('search_path')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if encoding != "UTF8" {
        return Err(MigrateError::Encoding { found: encoding });
    }
    // The database's own schemas and those of temporary tables begin so.
    let Some(makes) = schema.filter(|schema| !schema.starts_with("pg_")) else {
        return Err(MigrateError::NoSchema { search_path });
    };
    // A schema that was put before that of the tables: the next ones would be made there, beside a second record of what is
    // applied.
    let found: Option<String> = sqlx::query_scalar(
        "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass($1)",
    )
    .bind(TABLE)
    .fetch_optional(connection)
    .await?;
    match found {
        Some(found) if found != makes => Err(MigrateError::Elsewhere { found, makes }),
        _ => Ok(()),
    }
}

/// What is applied; nothing where the database has never been migrated.
async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>, MigrateError> {
    if !exists(connection, TABLE).await? {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, Vec<u8>, DateTime<Utc>)> = sqlx::query_as(
        "SELECT version, checksum, installed_on FROM _sqlx_migrations WHERE success ORDER BY version",
    )
    .fetch_all(connection)
    .await
    .map_err(|error| match sqlstate(&error).as_deref() {
        // A column is missing, or there is no reading it.
        Some("42703" | "42883") => foreign(TABLE),
        _ => error.into(),
    })?;
    Ok(rows
        .into_iter()
        .map(|(version, checksum, at)| Applied {
            version,
            checksum,
            at,
        })
        .collect())
}

async fn exists(connection: &mut PgConnection, table: &str) -> Result<bool, MigrateError> {
    Ok(sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(table)
        .fetch_one(connection)
        .await?)
}

async fn migration_log(
    connection: &mut PgConnection,
) -> Result<Vec<(i64, String, String)>, MigrateError> {
    if !exists(connection, "migration_log").await? {
        return Ok(Vec::new());
    }
    Ok(
        sqlx::query_as("SELECT version, applied_by, server FROM migration_log ORDER BY seq")
            .fetch_all(connection)
            .await?,
    )
}

/// The migrations that are not applied; an error where one was applied with another content.
fn pending(
    applied: &[Applied],
    sets: &[OptionalSet],
) -> Result<Vec<&'static Migration>, MigrateError> {
    let mut pending = Vec::new();
    let added = OPTIONAL
        .iter()
        .filter(|migration| sets.iter().any(|set| set.version == migration.version));
    for migration in MIGRATIONS.iter().chain(added) {
        match applied.iter().find(|a| a.version == migration.version) {
            None => pending.push(migration),
            Some(there) if there.checksum == *migration.checksum => {}
            Some(there) => {
                return Err(MigrateError::Changed {
                    version: there.version,
                });
            }
        }
    }
    Ok(pending)
}

/// Whether the database serves this server; a warning where it is one release older.
async fn compatible(
    connection: &mut PgConnection,
    ours: &str,
    applied: &[Applied],
) -> Result<Option<String>, MigrateError> {
    let unknown: Vec<i64> = applied
        .iter()
        .map(|a| a.version)
        .filter(|version| !is_known(*version))
        .collect();
    let served = served(connection).await?;
    match decide(ours, PROTOCOL_VERSION, &served, &unknown) {
        Verdict::Fits => Ok(None),
        Verdict::OneReleaseOlder => Ok(Some(format!(
            "this server ({ours}) is one release older than the database ({}); upgrade it soon",
            served.newest_server
        ))),
        Verdict::Refused(why) => Err(MigrateError::TooNew(why)),
    }
}

async fn served(connection: &mut PgConnection) -> Result<Served, MigrateError> {
    let (oldest_server, newest_server, lowest_protocol) =
        sqlx::query_as("SELECT oldest_server, newest_server, lowest_protocol FROM cluster")
            .fetch_one(connection)
            .await?;
    Ok(Served {
        oldest_server,
        newest_server,
        lowest_protocol,
    })
}

async fn apply_missing(
    connection: &mut PgConnection,
    applicant: &Applicant,
    sets: &[OptionalSet],
) -> Result<Report, MigrateError> {
    let before = applied(connection).await?;
    // Refuse before the first change, where there is anything to judge by.
    let mut warning = None;
    refuse_others(connection, &before).await?;
    if !before.is_empty() {
        warning = compatible(connection, &applicant.server_version, &before).await?;
    }
    let pending = pending(&before, sets)?;
    connection
        .ensure_migrations_table(TABLE)
        .await
        .map_err(plain)?;
    let mut report = Report {
        applied: Vec::new(),
        warning,
    };
    for migration in pending {
        connection
            .apply(TABLE, migration)
            .await
            .map_err(|error| MigrateError::of_migration(migration.version, cause(error)))?;
        report.applied.push(migration.version);
    }
    note(connection, applicant).await?;
    Ok(report)
}

/// What is applied to a database that is ours, or nobody's yet. Told to who only looks, too: "run `tidegate migrate`" would
/// be wrong of another program's database.
async fn applied_by_us(connection: &mut PgConnection) -> Result<Vec<Applied>, MigrateError> {
    loop {
        let before = applied(connection).await?;
        let Err(error) = refuse_others(connection, &before).await else {
            return Ok(before);
        };
        // Without the lock: what looks foreign may be what another instance has migrated since.
        let moved = applied(connection).await?.len() != before.len();
        if !(moved && matches!(error, MigrateError::Foreign { .. })) {
            return Err(error);
        }
    }
}

/// Refuses a database in which another program has what is ours.
async fn refuse_others(
    connection: &mut PgConnection,
    applied: &[Applied],
) -> Result<(), MigrateError> {
    let has_cluster = exists(connection, "cluster").await?;
    refuse_foreign(applied, has_cluster)?;
    if applied.is_empty() {
        refuse_taken(connection).await?;
    }
    Ok(())
}

/// The first migration makes the table `cluster` and is recorded with it: one without the other is another program's.
fn refuse_foreign(applied: &[Applied], has_cluster: bool) -> Result<(), MigrateError> {
    let first = MIGRATIONS.iter().map(|migration| migration.version).min();
    let is_ours = applied.iter().any(|there| Some(there.version) == first);
    match (has_cluster, is_ours) {
        (true, false) => Err(foreign("cluster")),
        (false, _) if !applied.is_empty() => Err(foreign(TABLE)),
        _ => Ok(()),
    }
}

fn foreign(name: &str) -> MigrateError {
    MigrateError::Foreign {
        name: name.to_owned(),
    }
}

/// Of a database that was never migrated: no table, type or function there has a name that a migration makes one of. Met
/// half-way it would leave the tables before it.
async fn refuse_taken(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let made = |what: &str| -> Vec<&str> {
        let lines = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.sql.as_str().lines());
        lines
            .filter_map(|line| line.strip_prefix(what)?.split([' ', '(']).next())
            .collect()
    };
    let taken: Option<String> = sqlx::query_scalar(
        "SELECT name FROM (
             SELECT typname::text AS name FROM pg_type
             WHERE typnamespace = current_schema()::regnamespace AND typname::text = ANY ($1)
             UNION ALL
             SELECT relname::text FROM pg_class
             WHERE relnamespace = current_schema()::regnamespace AND relname::text = ANY ($1)
             UNION ALL
             SELECT proname::text FROM pg_proc
             WHERE pronamespace = current_schema()::regnamespace AND proname::text = ANY ($2)) taken
         ORDER BY name LIMIT 1",
    )
    .bind(made("CREATE TABLE "))
    .bind(made("CREATE FUNCTION "))
    .fetch_optional(connection)
    .await?;
    taken.map_or(Ok(()), |name| Err(foreign(&name)))
}

/// Records what is applied and not yet in the log, by number (a process may have died between the two), and that a
/// server of this version was here.
async fn note(connection: &mut PgConnection, applicant: &Applicant) -> Result<(), MigrateError> {
    sqlx::query(
        "INSERT INTO migration_log (version, digest, applied_by, server)
         SELECT m.version, encode(m.checksum, 'hex'), $1, $2 FROM _sqlx_migrations m
         WHERE m.success AND NOT EXISTS (SELECT FROM migration_log l WHERE l.version = m.version)
         ORDER BY m.version",
    )
    .bind(&applicant.by)
    .bind(&applicant.server_version)
    .execute(&mut *connection)
    .await?;
    let newest = served(connection).await?.newest_server;
    let newer = match (
        semver::Version::parse(&applicant.server_version),
        semver::Version::parse(&newest),
    ) {
        (Ok(ours), Ok(newest)) => ours > newest,
        _ => false,
    };
    if newer {
        sqlx::query("UPDATE cluster SET newest_server = $1")
            .bind(&applicant.server_version)
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// The start of a checksum, for people.
fn short(checksum: &[u8]) -> String {
    let mut text = String::with_capacity(16);
    for byte in checksum.iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn plain(error: sqlx::migrate::MigrateError) -> MigrateError {
    cause(error).into()
}

/// What the database said, without what the driver says around it.
fn cause(error: sqlx::migrate::MigrateError) -> sqlx::Error {
    use sqlx::migrate::MigrateError as E;
    match error {
        E::Execute(error) | E::ExecuteMigration(error, _) => error,
        other => sqlx::Error::Migrate(Box::new(other)),
    }
}
