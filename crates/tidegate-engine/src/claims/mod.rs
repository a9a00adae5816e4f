//! What an instance knows of the lanes, and how claims that wait are woken.
//!
//! The book is a hint: it may be `view_age_ms` old, and the claim statement counts again. A wake-up that is lost costs one
//! poll.

mod book;
pub mod passes;
mod short;
mod view;
pub mod wake;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tidegate_model::{PoolId, TenantId};
use tidegate_policy::tiers::Tiers;
use tidegate_store::attempts::open::LaneAsk;
use tokio::sync::{Mutex, Notify, Semaphore, SemaphorePermit};

pub use book::LaneHint;
pub(crate) use book::{AT_THE_HEAD, Book, Serves, Share, Want};

use crate::trouble::Trouble;

/// How many claims of an instance ask the database at once.
const LOOKS_MAX: usize = 4;

/// Claims of this instance: what it knows of the lanes, one wake-up for all.
#[derive(Debug)]
pub struct Claims {
    view_age: Duration,
    pub(crate) book: parking_lot::Mutex<Book>,
    reader: Mutex<view::Reader>,
    /// Whether anybody has claimed here: nobody else needs the book, and only a reading empties it.
    used: AtomicBool,
    /// Whether the lanes have been read once.
    complete: AtomicBool,
    /// Whether something has changed that nobody said precisely.
    stale: AtomicBool,
    hints: Notify,
    /// For loops that rest while there is no work.
    stirred: Notify,
    outbox: parking_lot::Mutex<wake::Outbox>,
    /// By pool and whether they take background work.
    waiting: parking_lot::Mutex<HashMap<(PoolId, bool), wake::Waiters>>,
    /// Claims that may ask the database at once.
    looks: Semaphore,
    /// What each tenant may have, as the last claim knew it.
    tiers: parking_lot::RwLock<Arc<Tiers>>,
    /// Requirement classes that were short of something lately.
    pub(crate) short: parking_lot::Mutex<short::ShortClasses>,
    /// Of claims in background lanes, beside foreground ones that got through.
    pub(crate) background: parking_lot::Mutex<Trouble>,
}

impl Claims {
    pub(crate) fn new(view_age: Duration) -> Self {
        Self {
            view_age,
            book: parking_lot::Mutex::default(),
            reader: Mutex::default(),
            used: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            stale: AtomicBool::new(false),
            hints: Notify::new(),
            stirred: Notify::new(),
            outbox: parking_lot::Mutex::default(),
            waiting: parking_lot::Mutex::default(),
            looks: Semaphore::new(LOOKS_MAX),
            tiers: parking_lot::RwLock::default(),
            short: parking_lot::Mutex::default(),
            background: parking_lot::Mutex::new(Trouble::new("claiming in background lanes")),
        }
    }

    /// Slots that wait in claims of this instance, by pool: what an idle worker looks like from here.
    pub fn waiting(&self) -> HashMap<PoolId, u32> {
        let mut slots: HashMap<PoolId, u32> = HashMap::new();
        for ((pool, _), waiters) in self.waiting.lock().iter() {
            *slots.entry(pool.clone()).or_default() += waiters.slots;
        }
        slots
    }

    /// Plans a claim when its turn has come. What it asks for is left alone by others until the answer is dropped.
    pub(crate) async fn ask(
        &self,
        want: Want<'_>,
        share: impl Fn(&TenantId) -> Share,
    ) -> Asked<'_> {
        // Never closed; should it be, a claim need not wait.
        let turn = self.looks.acquire().await.ok();
        let mut book = self.book.lock();
        let asks = book.plan(want, share);
        Asked {
            known: book.asks(&asks),
            claims: self,
            asks,
            _turn: turn,
        }
    }

    /// Tiers and overrides, as the last claim knew them.
    pub(crate) fn tiers(&self) -> Arc<Tiers> {
        Arc::clone(&self.tiers.read())
    }

    /// Takes note of tiers and overrides as they are now.
    pub(crate) fn know(&self, tiers: &Arc<Tiers>) {
        let known = Arc::ptr_eq(&self.tiers.read(), tiers);
        if !known {
            *self.tiers.write() = Arc::clone(tiers);
        }
    }

    fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    fn set_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::AcqRel)
    }
}

/// What a claim asks for, until it has its answer or is given up.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    claims: &'a Claims,
    /// The lanes in order.
    pub(crate) asks: Vec<LaneAsk>,
    /// How much was known, see [`Book::took`].
    pub(crate) known: u64,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.asks.is_empty() {
            self.claims.book.lock().answered(&self.asks);
        }
    }
}
