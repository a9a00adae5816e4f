//! Notifications: hints that carry ids at most, sent on their own, never inside a hot transaction.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::{Error, Store};

/// The longest wait for a connection to listen on.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that listens.
#[derive(Debug)]
pub struct Listener(PgListener);

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Its channel.
    pub channel: String,
    /// An id or a number; never content.
    pub payload: String,
}

impl Listener {
    /// The next notification. An error means that some may have been missed: listen anew, then look.
    pub async fn next(&mut self) -> Result<Notification, Error> {
        match self.0.try_recv().await? {
            Some(heard) => Ok(Notification {
                channel: heard.channel().to_owned(),
                payload: heard.payload().to_owned(),
            }),
            None => Err(Error::Unavailable(sqlx::Error::WorkerCrashed.into())),
        }
    }
}

impl Store {
    /// Sends a notification outside any transaction.
    pub async fn notify(&self, channel: &str, payload: &str) -> Result<(), Error> {
        sqlx::query!("SELECT pg_notify($1, $2)", channel, payload)
            .execute(self.pool())
            .await?;
        Ok(())
    }

    /// Listens on a connection of its own.
    pub async fn listen(&self, channels: &[&str]) -> Result<Listener, Error> {
        // Not one of the pool's: a listener keeps its connection for as long as it lives.
        let options = self.pool().connect_options();
        let own = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(options.as_ref().clone());
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen_all(channels.iter().copied()).await?;
        Ok(Listener(listener))
    }
}
