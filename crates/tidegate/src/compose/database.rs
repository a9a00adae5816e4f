//! The way to a database that may be served (R1.1, R1.6): reached within 30 s, migrated, of the right key.

use std::time::Duration;

use secrecy::ExposeSecret;
use tidegate_engine::{
    secrets::{self, Keyring, SecretError},
    settings::Settings,
    trouble::cause,
};
use tidegate_model::lasting::Lasting;
use tidegate_store::{
    ConnectOptions, Store,
    migrate::{self, Applicant, MigrateError, OptionalSet, Report},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    exit::Exit,
    failure::{Failure, Outcome, chain},
};

/// How long `serve` tries to reach the database.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits between two tries.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// How long one try may take; a host that swallows packets must not eat all of the patience.
const TRY: Duration = Duration::from_secs(10);

/// What is to be done about migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrations {
    /// Apply what is missing.
    Apply,
    /// The same, and an optional one.
    With(OptionalSet),
    /// Refuse a database where something is missing.
    Check,
}

/// A store for these settings; no connection is made yet.
pub fn open(settings: &Settings) -> Outcome<Store> {
    settings.require(&["database_url"])?;
    let url = settings
        .database_url
        .as_ref()
        .map(|url| url.expose_secret().to_owned())
        .unwrap_or_default();
    let options = ConnectOptions {
        max_connections: settings.db_pool_size,
        idle_in_transaction: Duration::from_millis(settings.idle_in_transaction_ms.into()),
        ..ConnectOptions::new(url)
    };
    tidegate_store::connect(&options)
        .map(Store::new)
        .map_err(|error| {
            Failure::usage(format!("CONFIG_DB_URL: {}", chain(&error)))
                .remedy("set it to postgres://user:password@host:5432/database")
        })
}

/// The keyring of these settings.
pub fn keyring(settings: &Settings) -> Outcome<Keyring> {
    settings.require(&["enc_key"])?;
    let missing = || Failure::usage("CONFIG_ENC_KEY is not set");
    let current = settings.enc_key.as_ref().ok_or_else(missing)?;
    Keyring::new(current, settings.enc_key_previous.as_ref())
        .map_err(|error| Failure::usage(error.to_string()))
}

/// How a command at a terminal reaches the database: it says at once why it cannot, and whoever typed it tries again.
pub const AT_ONCE: Duration = Duration::ZERO;

/// Why one try did not get through.
enum Refused {
    Key(SecretError),
    Migration(MigrateError),
}

/// Reaches the database and brings it to this server's schema, or says why not: exit code 3 where it stays unreachable,
/// 2 where it is not one that this server may serve. A keyring that is not the database's is refused before its schema
/// is touched (R1.1).
pub async fn prepare(
    store: &Store,
    by: &str,
    migrations: Migrations,
    keyring: Option<&Keyring>,
    patience: Duration,
) -> Outcome<Report> {
    let applicant = Applicant {
        by: by.to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let deadline = Instant::now() + patience;
    let mut unreached = Lasting::default();
    loop {
        let attempt = async {
            // Apart from the pool, which would hide why it cannot be reached.
            migrate::reach(store.pool())
                .await
                .map_err(Refused::Migration)?;
            if let Some(keyring) = keyring {
                match secrets::refuse_wrong_key(store, keyring).await {
                    // Whether the database answers is for the migration to say.
                    Ok(()) | Err(SecretError::Store(_)) => {}
                    Err(error) => return Err(Refused::Key(error)),
                }
            }
            match migrations {
                Migrations::Apply => migrate::migrate(store.pool(), &applicant).await,
                Migrations::With(set) => {
                    migrate::migrate_with(store.pool(), &applicant, &[set]).await
                }
                Migrations::Check => migrate::check(store.pool(), &applicant.server_version).await,
            }
            .map_err(Refused::Migration)
        };
        let (met, remedy) = match timeout(TRY, attempt).await {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(Refused::Key(error))) => return Err(secret_failure(&error)),
            Ok(Err(Refused::Migration(error))) if error.is_unavailable() => {
                (migrate_cause(&error), error.remedy())
            }
            Ok(Err(Refused::Migration(error))) => return Err(migrate_failure(&error)),
            Err(_) => (format!("no answer within {} s", TRY.as_secs()), None),
        };
        if Instant::now() + BETWEEN_TRIES >= deadline {
            return Err(unreachable(&met, remedy, patience));
        }
        if let Some(said) = unreached.met(Instant::now().into_std(), &met) {
            tracing::warn!(
                cause = met,
                tries = said.times,
                "the database cannot be reached yet"
            );
        }
        sleep(BETWEEN_TRIES).await;
    }
}

/// Whether nothing was ever migrated in a database that can be.
pub async fn is_empty(store: &Store) -> bool {
    let known = migrate::status(store.pool()).await;
    known.is_ok_and(|all| all.iter().all(|migration| migration.applied_at.is_none()))
}

fn unreachable(cause: &str, remedy: Option<&str>, patience: Duration) -> Failure {
    let tried = match patience.as_secs() {
        0 => String::new(),
        seconds => format!(" (tried for {seconds} s)"),
    };
    Failure::unreachable(format!("the database cannot be reached{tried}: {cause}")).remedy(
        remedy.unwrap_or(
            "check that PostgreSQL runs and that CONFIG_DB_URL names it; `tidegate doctor` looks closer",
        ),
    )
}

/// What the database said, where it said something.
fn migrate_cause(error: &MigrateError) -> String {
    match error {
        MigrateError::Store(error) => cause(error),
        other => chain(other),
    }
}

/// A database that cannot be reached, may not be served, or refuses this server.
pub fn migrate_failure(error: &MigrateError) -> Failure {
    match error {
        MigrateError::Store(cause) if cause.is_unavailable() => {
            unreachable(&migrate_cause(error), cause.remedy(), AT_ONCE)
        }
        MigrateError::Store(cause) => Failure::usage(format!(
            "CONFIG_DB_URL: the database refuses: {}",
            migrate_cause(error)
        ))
        .remedy(cause.remedy().unwrap_or(
            "check user, password and database name in CONFIG_DB_URL; the user must own the database",
        )),
        MigrateError::Failed { .. } => Failure::failed(chain(error)),
        other => Failure {
            remedy: other.remedy().map(str::to_owned),
            ..Failure::usage(chain(other))
        },
    }
}

/// Proves that the keyring is the database's (R1.1): exit code 2 where it is not.
pub async fn check_key(store: &Store, keyring: &Keyring) -> Outcome<()> {
    match secrets::open_cluster(store, keyring).await {
        Ok(_) => Ok(()),
        Err(error) => Err(secret_failure(&error)),
    }
}

/// What to say of a previous key that opens nothing.
pub async fn idle_previous_key(store: &Store, keyring: &Keyring) -> Outcome<Option<String>> {
    secrets::idle_previous_key(store, keyring)
        .await
        .map_err(|error| secret_failure(&error))
}

/// What a problem with a key or a sealed secret means for a command.
pub fn secret_failure(error: &SecretError) -> Failure {
    match error {
        SecretError::Store(cause) => store_failure(cause),
        SecretError::ServersWithoutKey { .. } => Failure::failed(error.to_string()).remedy(
            "give every server the new key as CONFIG_ENC_KEY and the old one as CONFIG_ENC_KEY_PREVIOUS, restart one after \
             the other, rotate, then take CONFIG_ENC_KEY_PREVIOUS away; `--force` rotates where they are known to be gone",
        ),
        SecretError::WrongKey { .. }
        | SecretError::Malformed { .. }
        | SecretError::SameKey { .. } => Failure::usage(error.to_string()),
        other => Failure::failed(chain(other)),
    }
}

/// What a problem with the database means for a command.
pub fn store_failure(error: &tidegate_store::Error) -> Failure {
    let exit = if error.is_unavailable() {
        Exit::Unreachable
    } else {
        Exit::Failed
    };
    let mut failure = Failure::new(exit, chain(error));
    failure.remedy = error.remedy().map(str::to_owned);
    failure
}

/// What an error of the engine means for a command.
pub fn engine_failure(error: &tidegate_engine::Error) -> Failure {
    match error {
        tidegate_engine::Error::Store(error) => store_failure(error),
        tidegate_engine::Error::Refused(refusal) => {
            let mut failure = Failure::failed(refusal.detail.clone());
            failure.code = Some(refusal.code.to_string());
            failure
        }
        other => Failure::failed(chain(other)),
    }
}

/// The operating system's user, for the audit log.
pub fn user() -> String {
    nix::unistd::User::from_uid(nix::unistd::Uid::effective())
        .ok()
        .flatten()
        .map_or_else(
            || format!("uid {}", nix::unistd::Uid::effective()),
            |user| user.name,
        )
}

/// Who acts on the database from a command line.
pub fn operator() -> String {
    format!("cli:{}", user())
}
