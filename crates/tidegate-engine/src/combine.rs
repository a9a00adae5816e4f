//! Combining concurrent calls: while batches are in flight the next one gathers.
//!
//! A lone caller waits for nobody: its batch of one starts at once, after those who are just calling on the same thread
//! have called. A caller that goes away takes nothing back; what it asked for happens or not with its batch, as if it had
//! waited.

use std::{future::Future, pin::Pin, sync::Arc};

use parking_lot::Mutex;
use tidegate_model::Code;
use tokio::sync::oneshot;

use crate::{Engine, Error};

/// How many batches of one kind are in flight at once: while one is being committed the database works on the other.
const FLIGHTS: usize = 2;
/// From how many waiting calls the second one starts. Fewer wait for the first: two small batches cost the database more
/// than one that is not much later.
const SECOND_FROM: usize = 64;

/// The answers to a batch, in its order.
pub(crate) type Answers<O> = Pin<Box<dyn Future<Output = Vec<Result<O, Error>>> + Send>>;

/// What a batch did as a whole: all outcomes in its order, or nothing.
pub(crate) type Outcomes<O> = Pin<Box<dyn Future<Output = Result<Vec<O>, Error>> + Send>>;

/// Gathers calls of one kind.
#[derive(Debug)]
pub(crate) struct Combiner<I, O> {
    max: usize,
    waiting: Mutex<Waiting<I, O>>,
}

/// A call and where its answer goes.
type Call<I, O> = (I, oneshot::Sender<Result<O, Error>>);

#[derive(Debug)]
struct Waiting<I, O> {
    calls: Vec<Call<I, O>>,
    in_flight: usize,
}

impl<I, O> Waiting<I, O> {
    /// Whether the call starts a flight: the first one does at once, the second one is worth it for many.
    fn add(&mut self, call: Call<I, O>) -> bool {
        self.calls.push(call);
        let starts =
            self.in_flight == 0 || (self.in_flight < FLIGHTS && self.calls.len() >= SECOND_FROM);
        self.in_flight += usize::from(starts);
        starts
    }
}

impl<I, O> Combiner<I, O>
where
    I: Send + 'static,
    O: Send + 'static,
{
    /// At most `max` calls make a batch.
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            max,
            waiting: Mutex::new(Waiting {
                calls: Vec::new(),
                in_flight: 0,
            }),
        }
    }

    /// Calls `work` with this call and those that came while the last batches were in flight. `own` finds this combiner in
    /// the engine, which a batch keeps alive.
    pub(crate) async fn call(
        &self,
        engine: &Engine,
        own: fn(&Engine) -> &Self,
        work: fn(Engine, Vec<I>) -> Answers<O>,
        item: I,
    ) -> Result<O, Error> {
        let (answer, answered) = oneshot::channel();
        let starts = self.waiting.lock().add((item, answer));
        if starts {
            let (go, told) = oneshot::channel::<()>();
            tokio::spawn(drain(engine.clone(), told, own, work));
            tokio::task::yield_now().await;
            drop(go);
        }
        answered.await.unwrap_or(Err(Error::Internal {
            what: "a batch ended without an answer",
        }))
    }

    fn next(&self) -> Option<Vec<Call<I, O>>> {
        let mut waiting = self.waiting.lock();
        if waiting.calls.is_empty() {
            waiting.in_flight -= 1;
            return None;
        }
        let taken = waiting.calls.len().min(self.max);
        let rest = waiting.calls.split_off(taken);
        Some(std::mem::replace(&mut waiting.calls, rest))
    }
}

/// Takes batches until nobody waits, from when its caller has let others call too or has gone away.
async fn drain<I, O>(
    engine: Engine,
    told: oneshot::Receiver<()>,
    own: fn(&Engine) -> &Combiner<I, O>,
    work: fn(Engine, Vec<I>) -> Answers<O>,
) where
    I: Send + 'static,
    O: Send + 'static,
{
    // Nothing is ever sent: the other end is dropped.
    let _dropped = told.await;
    while let Some(calls) = own(&engine).next() {
        let (items, answers): (Vec<I>, Vec<_>) = calls.into_iter().unzip();
        // In a task of its own: a batch that panics fails its callers, whose channels close, and nobody after them.
        let batch = tokio::spawn(work(engine.clone(), items));
        let Ok(outcomes) = batch.await else { continue };
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Whoever has gone away needs no answer.
            let _gone = answer.send(outcome);
        }
        // Who was answered and calls again at once comes with the next batch, not alone with the one after it.
        tokio::task::yield_now().await;
    }
}

/// Runs a batch; where its content is at fault (a row that the database refuses), each call alone, so that one bad call
/// fails nobody else.
pub(crate) async fn all_or_each<I: Clone, O>(
    items: impl Into<Arc<[I]>>,
    run: impl Fn(Arc<[I]>) -> Outcomes<O>,
) -> Vec<Result<O, Error>> {
    let items: Arc<[I]> = items.into();
    let error = match run(Arc::clone(&items)).await {
        Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
        Err(error) => error,
    };
    if items.len() == 1 || error.code() == Code::DatabaseUnavailable {
        let error = Arc::new(error);
        return items
            .iter()
            .map(|_| Err(Error::Shared(Arc::clone(&error))))
            .collect();
    }
    metrics::counter!("tidegate_batches_split_total").increment(1);
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items.iter() {
        let outcome = run(Arc::from([item.clone()])).await;
        outcomes.push(outcome.and_then(|mut one| {
            one.pop().ok_or(Error::Internal {
                what: "a batch of one had no outcome",
            })
        }));
    }
    outcomes
}

/// A batch's size, as histograms take it.
pub(crate) fn count(calls: usize) -> f64 {
    f64::from(u32::try_from(calls).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of numbers in which 7 is refused, and 0 finds no database.
    fn run(batch: Arc<[u32]>) -> Outcomes<u32> {
        Box::pin(async move {
            if batch.contains(&0) {
                let gone = tidegate_store::Error::from(sqlx::Error::PoolTimedOut);
                return Err(gone.into());
            }
            if batch.contains(&7) {
                return Err(Error::invalid("number", "not 7"));
            }
            Ok(batch.iter().map(|number| number * 2).collect())
        })
    }

    fn codes(outcomes: Vec<Result<u32, Error>>) -> Vec<Result<u32, Code>> {
        outcomes
            .into_iter()
            .map(|outcome| outcome.map_err(|error| error.code()))
            .collect()
    }

    /// R3.1: a lone call waits for nobody; while its batch is away others gather, until they are worth a second one.
    #[test]
    fn the_second_flight_waits_for_many() {
        let mut waiting: Waiting<usize, ()> = Waiting {
            calls: Vec::new(),
            in_flight: 0,
        };
        let starts = |waiting: &mut Waiting<usize, ()>, calls: usize| {
            let added = (0..calls).map(|call| waiting.add((call, oneshot::channel().0)));
            added.filter(|starts| *starts).count()
        };
        assert_eq!(starts(&mut waiting, 1), 1);
        waiting.calls.clear();
        assert_eq!(starts(&mut waiting, SECOND_FROM - 1), 0);
        assert_eq!(starts(&mut waiting, 1), 1);
        assert_eq!(starts(&mut waiting, SECOND_FROM), 0, "two at most");
    }

    /// One bad call of a batch fails nobody else.
    #[tokio::test]
    async fn a_bad_call_fails_alone() {
        let outcomes = all_or_each(vec![1, 7, 3], run).await;
        assert_eq!(codes(outcomes), [Ok(2), Err(Code::InvalidArgument), Ok(6)]);
    }

    /// Where the database is away nothing is tried again call by call.
    #[tokio::test]
    async fn a_lost_database_fails_all_at_once() {
        let outcomes = all_or_each(vec![0, 7, 3], run).await;
        let away = || Err(Code::DatabaseUnavailable);
        assert_eq!(codes(outcomes), [away(), away(), away()]);
    }
}
