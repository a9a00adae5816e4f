//! The way to a database that may be served (R1.1, R1.6): reached within 30 s, migrated, of the right key.

use std::time::Duration;

use secrecy::ExposeSecret;
use tidegate_engine::{
    secrets::{self, Keyring, SecretError},
    settings::Settings,
};
use tidegate_store::{
    ConnectOptions, Store,
    migrate::{self, Applicant, MigrateError, Report},
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
    loop {
        let attempt = async {
            if let Some(keyring) = keyring {
                match secrets::refuse_wrong_key(store, keyring).await {
                    // Whether the database answers is for the migration to say.
                    Ok(()) | Err(SecretError::Store(_)) => {}
                    Err(error) => return Err(Refused::Key(error)),
                }
            }
            match migrations {
                Migrations::Apply => migrate::migrate(store.pool(), &applicant).await,
                Migrations::Check => migrate::check(store.pool(), &applicant.server_version).await,
            }
            .map_err(Refused::Migration)
        };
        let cause = match timeout(TRY, attempt).await {
            Ok(Ok(report)) => return Ok(report),
            Ok(Err(Refused::Key(error))) => return Err(secret_failure(&error)),
            Ok(Err(Refused::Migration(error))) if error.is_unavailable() => chain(&error),
            Ok(Err(Refused::Migration(error))) => return Err(refused(&error)),
            Err(_) => format!("no answer within {} s", TRY.as_secs()),
        };
        if Instant::now() + BETWEEN_TRIES >= deadline {
            return Err(unreachable(&cause, patience));
        }
        tracing::warn!(cause, "the database cannot be reached yet");
        sleep(BETWEEN_TRIES).await;
    }
}

fn unreachable(cause: &str, patience: Duration) -> Failure {
    Failure::unreachable(format!(
        "the database cannot be reached (tried for {} s): {cause}",
        patience.as_secs()
    ))
    .remedy("check that PostgreSQL runs and that CONFIG_DB_URL names it; `tidegate doctor` looks closer")
}

/// A database that may not be served, or that refuses this server.
fn refused(error: &MigrateError) -> Failure {
    match error {
        MigrateError::Store(cause) => Failure::usage(format!(
            "CONFIG_DB_URL: the database refuses: {}",
            chain(cause)
        ))
        .remedy("check user, password and database name in CONFIG_DB_URL; the user must own the database"),
        MigrateError::Failed { .. } => Failure::failed(chain(error)),
        other => Failure::usage(chain(other)),
    }
}

/// Proves that the keyring is the database's (R1.1): exit code 2 where it is not.
pub async fn check_key(store: &Store, keyring: &Keyring) -> Outcome<()> {
    match secrets::open_cluster(store, keyring).await {
        Ok(_) => Ok(()),
        Err(error) => Err(secret_failure(&error)),
    }
}

/// What a problem with a key or a sealed secret means for a command.
pub fn secret_failure(error: &SecretError) -> Failure {
    match error {
        SecretError::Store(cause) => store_failure(cause),
        SecretError::WrongKey { .. } | SecretError::Malformed { .. } => {
            Failure::usage(error.to_string())
        }
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
    Failure::new(exit, chain(error))
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
