//! One connection apart from the pool, to learn why the database cannot be reached: a pool tries again by itself until its
//! wait is over, and then knows no more than that it waited.

use std::{io, time::Duration};

use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::timeout;

use crate::{Error, Store};

/// The longest wait for a connection; a host that swallows packets gives no answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that the pool knows nothing of, or what kept it from coming about.
pub(crate) async fn connect(pool: &PgPool) -> Result<PgConnection, sqlx::Error> {
    let options = pool.connect_options();
    match timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&options)).await {
        Ok(connected) => connected,
        Err(_) => Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
        ))),
    }
}

impl Store {
    /// Connects once, apart from the pool; the error says why that is not possible.
    pub async fn reach(&self) -> Result<(), Error> {
        connect(self.pool()).await?.close().await?;
        Ok(())
    }
}
