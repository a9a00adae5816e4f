//! Wake-ups: at once inside this instance, debounced and outside every hot transaction to the others.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tidegate_model::{Capability, PoolId, TenantId, run::QuotaBucket};
use tidegate_store::{
    attempts::{bucket_number, bucket_of},
    lanes::LaneKey,
};
use tokio::sync::{Notify, futures::Notified};
use tokio_util::sync::CancellationToken;

use super::{Claims, LaneHint};
use crate::Engine;

/// The channel of the hints. They carry the instance that hints, and ids and counts: nothing that grants anything.
const CHANNEL: &str = "tidegate_work";
/// The most lines of one hint; more of them say "anything".
const LINES_MAX: usize = 200;
/// The most bytes of one hint's lines; PostgreSQL takes less than 8,000 in all.
const PAYLOAD_MAX: usize = 7_500;
/// Hints of one instance are at least this far apart.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// How long to wait before listening again after the connection broke.
const RELISTEN: Duration = Duration::from_secs(1);

impl Claims {
    /// Wakes the claim that has waited longest, of each pool and of those that take background work and those that do not.
    /// One that takes something wakes the next, so that work finds its workers one after the other and not all of them at
    /// once.
    pub fn wake(&self) {
        self.stirred.notify_waiters();
        for waiters in self.waiting.lock().values() {
            waiters.woken.notify_one();
        }
    }

    /// Resolves when work has moved somewhere: for loops that rest while there is none.
    pub(crate) fn stirred(&self) -> Notified<'_> {
        self.stirred.notified()
    }

    /// Wakes all claims that wait on this instance.
    pub(crate) fn wake_all(&self) {
        for waiters in self.waiting.lock().values() {
            waiters.woken.notify_waiters();
        }
    }

    /// Wakes the next claims of a pool: there may be more where something was found.
    pub(crate) fn wake_next(&self, pool: &PoolId) {
        let waiting = self.waiting.lock();
        for background in [false, true] {
            if let Some(waiters) = waiting.get(&(pool.clone(), background)) {
                waiters.woken.notify_one();
            }
        }
    }

    /// Counts a claim as waiting until the guard is dropped; `background` where it takes background work too.
    pub(crate) fn wait_for(&self, pool: &PoolId, background: bool, slots: u32) -> Waiting<'_> {
        let key = (pool.clone(), background);
        let mut waiting = self.waiting.lock();
        let waiters = waiting.entry(key.clone()).or_default();
        waiters.slots += slots;
        Waiting {
            claims: self,
            key,
            slots,
            woken: Arc::clone(&waiters.woken),
        }
    }
}

/// Claims that wait for the same.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) slots: u32,
    woken: Arc<Notify>,
}

/// A claim that waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    claims: &'a Claims,
    key: (PoolId, bool),
    slots: u32,
    woken: Arc<Notify>,
}

impl Waiting<'_> {
    /// Resolves at the next wake-up; dropped after that, it wakes the next claim in its place. Create and enable it before
    /// looking for work, or one is missed.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.woken.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.claims.waiting.lock();
        if let Some(waiters) = waiting.get_mut(&self.key) {
            waiters.slots = waiters.slots.saturating_sub(self.slots);
            if waiters.slots == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

/// What is to be hinted to the other instances.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queued: HashMap<LaneKey, (Capability, (i16, i16))>,
    freed: HashMap<(QuotaBucket, TenantId), i64>,
    /// Something that cannot be said precisely, or too much of it.
    all: bool,
}

impl Outbox {
    fn add(&mut self, queued: &[LaneHint], freed: &[(QuotaBucket, TenantId)]) {
        if self.queued.len() + self.freed.len() > LINES_MAX {
            self.all = true;
        }
        if self.all {
            return;
        }
        for hint in queued {
            let (_, place) = self
                .queued
                .entry(hint.lane.clone())
                .or_insert_with(|| (hint.capability.clone(), hint.place));
            *place = hint.place.min(*place);
        }
        for (bucket, tenant) in freed {
            *self.freed.entry((*bucket, tenant.clone())).or_default() += 1;
        }
    }

    /// The payload of one notification: ids and counts, a line each.
    fn take(&mut self) -> String {
        let Self { queued, freed, all } = std::mem::take(self);
        let mut lines = String::new();
        for (lane, (capability, (rank, urgency))) in queued {
            let bucket = bucket_number(lane.bucket);
            let _infallible = writeln!(
                lines,
                "q {bucket} {} {} {rank} {urgency} {capability}",
                lane.tenant, lane.class
            );
        }
        for ((bucket, tenant), leases) in freed {
            let _infallible = writeln!(lines, "f {} {tenant} {leases}", bucket_number(bucket));
        }
        if all || lines.len() > PAYLOAD_MAX {
            return String::new();
        }
        lines
    }
}

/// One line of a payload.
enum Hint {
    Queued(LaneHint),
    Freed(QuotaBucket, TenantId, i64),
}

fn parse(line: &str) -> Option<Hint> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let bucket = bucket_of(words.next()?.parse().ok()?).ok()?;
    let tenant = words.next()?.parse().ok()?;
    let number = words.next()?;
    match kind {
        "q" => Some(Hint::Queued(LaneHint {
            lane: LaneKey {
                bucket,
                tenant,
                class: number.parse().ok()?,
            },
            place: (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            capability: words.next()?.parse().ok()?,
            created_ms: crate::clock::now().timestamp_millis(),
        })),
        "f" => Some(Hint::Freed(bucket, tenant, number.parse().ok()?)),
        _ => None,
    }
}

impl Claims {
    /// Reports a change that cannot be said precisely: all lanes are read again.
    fn mark_stale(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// Takes over a payload; an empty one, and one that this release cannot read, say that anything may have changed.
    fn hear(&self, payload: &str) {
        let hints: Option<Vec<Hint>> = payload.lines().map(parse).collect();
        match hints {
            _ if !self.is_used() => {}
            Some(hints) if !hints.is_empty() => {
                let mut book = self.book.lock();
                for hint in hints {
                    match hint {
                        Hint::Queued(hint) => book.queued(&hint),
                        Hint::Freed(bucket, tenant, leases) => book.freed(bucket, &tenant, leases),
                    }
                }
            }
            _ => self.mark_stale(),
        }
    }
}

impl Engine {
    /// Says that something may have become runnable, without saying what: wakes this instance's claims and hints to the
    /// others.
    pub(crate) fn work_changed(&self) {
        let claims = self.claims();
        claims.mark_stale();
        claims.outbox.lock().all = true;
        claims.wake();
        claims.hints.notify_one();
    }

    /// Says that something of the ledger may have come free on this instance: classes that were short of it are looked at
    /// again. Other instances look again by themselves.
    pub(crate) fn resources_changed(&self) {
        let claims = self.claims();
        if claims.short.lock().forget() {
            claims.wake_all();
        }
    }

    /// Says which lanes have got work, and of which tenants leases have ended.
    pub(crate) fn work_moved(&self, queued: &[LaneHint], freed: &[(QuotaBucket, TenantId)]) {
        let claims = self.claims();
        if claims.is_used() {
            let mut book = claims.book.lock();
            for (bucket, tenant) in freed {
                book.freed(*bucket, tenant, 1);
            }
            for hint in queued {
                book.queued(hint);
            }
        }
        claims.outbox.lock().add(queued, freed);
        claims.wake();
        claims.hints.notify_one();
    }
}

/// Sends this instance's hints, debounced. A failed one costs the others a poll, so it is only counted.
pub async fn publish(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = engine.claims().hints.notified() => {}
        }
        let lines = engine.claims().outbox.lock().take();
        let payload = format!("{}\n{lines}", engine.instance());
        if engine.store().notify(CHANNEL, &payload).await.is_err() {
            metrics::counter!("tidegate_hints_failed_total").increment(1);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DEBOUNCE) => {}
        }
    }
}

/// Listens to the hints of all instances.
pub async fn listen(engine: Engine, stop: CancellationToken) {
    loop {
        let heard = tokio::select! {
            () = stop.cancelled() => return,
            heard = hear(&engine) => heard,
        };
        if let Err(error) = heard {
            tracing::debug!(%error, "work hints are not heard; claims poll until they are");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RELISTEN) => {}
        }
    }
}

async fn hear(engine: &Engine) -> Result<(), tidegate_store::Error> {
    let mut hints = engine.store().listen(&[CHANNEL]).await?;
    // What was hinted at while nobody listened is lost.
    engine.claims().mark_stale();
    engine.claims().wake();
    loop {
        let heard = hints.next().await?;
        let (from, lines) = heard.payload.split_once('\n').unwrap_or(("", ""));
        if from == engine.instance().to_string() {
            // What this instance does itself it knows already.
            continue;
        }
        engine.claims().hear(lines);
        engine.claims().wake();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Poll};

    use super::*;

    async fn woken(waiting: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        futures::poll!(waiting).is_ready()
    }

    /// R3.8: a wake-up wakes one claim of a pool, the next one follows it, and one that leaves hands its wake-up on.
    #[tokio::test]
    async fn claims_are_woken_one_after_the_other() {
        let claims = Claims::new(Duration::from_secs(1));
        let pool = PoolId::builtin();
        let waiting: Vec<Waiting<'_>> = (0..3).map(|_| claims.wait_for(&pool, true, 2)).collect();
        assert_eq!(claims.waiting(), HashMap::from([(pool.clone(), 6)]));
        let mut first = Box::pin(waiting[0].woken());
        let mut second = Box::pin(waiting[1].woken());
        let mut third = pin!(waiting[2].woken());
        for waits in [&mut first, &mut second] {
            assert!(!woken(waits).await);
        }
        assert!(matches!(futures::poll!(&mut third), Poll::Pending));
        claims.wake();
        assert!(woken(&mut first).await);
        assert!(!woken(&mut second).await);
        claims.wake_next(&pool);
        // The second one is told, but has gone before it looked.
        drop(second);
        assert!(woken(&mut third).await);
    }
}
