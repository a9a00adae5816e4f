//! Named transactions: retried where they lost against another one, measured by name, never abandoned half-way.

use std::{future::Future, pin::Pin, time::Instant};

use sqlx::{Acquire as _, PgConnection};

use crate::{Error, Store};

/// The future of a transaction's body.
pub type TransactionFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 't>>;

/// How often a transaction that lost against another one is run again.
const RETRIES_MAX: u32 = 5;

impl Store {
    /// Runs a transaction (READ COMMITTED) in a task of its own.
    ///
    /// A caller who goes away does not cancel it: it commits or rolls back by itself, and its connection goes back to
    /// the pool clean (O-29). The body may run several times, so it must not move its inputs.
    pub async fn transaction<T, F>(&self, name: &'static str, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T> + Send + Sync + 'static,
    {
        let pool = self.pool().clone();
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let mut lost = 0;
            let outcome = loop {
                let outcome = once(&pool, &body).await;
                match &outcome {
                    Err(error) if error.is_serialization() && lost < RETRIES_MAX => {
                        lost += 1;
                        metrics::counter!("tidegate_transaction_retries_total", "name" => name)
                            .increment(1);
                    }
                    _ => break outcome,
                }
            };
            metrics::histogram!("tidegate_transaction_seconds", "name" => name)
                .record(started.elapsed().as_secs_f64());
            outcome
        });
        match task.await {
            Ok(outcome) => outcome,
            Err(join) => match join.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Unavailable(sqlx::Error::WorkerCrashed)),
            },
        }
    }
}

async fn once<T, F>(pool: &sqlx::PgPool, body: &F) -> Result<T, Error>
where
    F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T>,
{
    let mut connection = pool.acquire().await?;
    let mut transaction = connection.begin().await?;
    let value = body(&mut transaction).await?;
    transaction.commit().await?;
    Ok(value)
}
