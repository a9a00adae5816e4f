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
        self.detached(name, Around::Transaction, body).await
    }

    /// Runs a body whose one writing statement is its own transaction, in a task of its own as [`Self::transaction`] does.
    /// It saves the round trips of `BEGIN` and `COMMIT`; reads may follow the write, a second write must not.
    pub(crate) async fn statement<T, F>(&self, name: &'static str, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T> + Send + Sync + 'static,
    {
        self.detached(name, Around::Nothing, body).await
    }

    /// Reads in a transaction whose statements are planned for the parameters of each call. Elsewhere a connection plans a
    /// statement once, see [`crate::connect`]; a list whose filters may be absent needs a plan for those that are there.
    pub(crate) async fn planned_read<T, F>(&self, name: &'static str, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T> + Send + Sync + 'static,
    {
        self.detached(name, Around::PlannedTransaction, body).await
    }

    async fn detached<T, F>(&self, name: &'static str, around: Around, body: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T> + Send + Sync + 'static,
    {
        let pool = self.pool().clone();
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let mut lost = 0;
            let outcome = loop {
                let outcome = once(&pool, around, &body).await;
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
                Err(_) => Err(Error::Unavailable(sqlx::Error::WorkerCrashed.into())),
            },
        }
    }
}

/// What stands around a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Transaction,
    PlannedTransaction,
    Nothing,
}

async fn once<T, F>(pool: &sqlx::PgPool, around: Around, body: &F) -> Result<T, Error>
where
    F: for<'t> Fn(&'t mut PgConnection) -> TransactionFuture<'t, T>,
{
    let mut connection = pool.acquire().await?;
    if around == Around::Nothing {
        return body(&mut connection).await;
    }
    let mut transaction = connection.begin().await?;
    if around == Around::PlannedTransaction {
        sqlx::query!("SET LOCAL plan_cache_mode = force_custom_plan")
            .execute(&mut *transaction)
            .await?;
    }
    let value = body(&mut transaction).await?;
    transaction.commit().await?;
    Ok(value)
}
