//! What an instance knows of the lanes, and how claims that wait are woken.
//!
//! The book is a hint: it may be `view_age_ms` old, and the claim statement counts again. A wake-up that is lost costs one
//! poll.

mod book;
pub mod passes;
pub mod pools;
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

use tidegate_model::PoolId;
use tidegate_policy::tiers::Tiers;
use tokio::sync::{Mutex, Notify};

pub use book::LaneHint;
pub(crate) use book::{AT_THE_HEAD, Book, Share, Want};

use crate::trouble::Trouble;

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
    pub(crate) pools: Mutex<pools::PoolsView>,
    woken: Notify,
    hints: Notify,
    outbox: parking_lot::Mutex<wake::Outbox>,
    waiting: parking_lot::Mutex<HashMap<PoolId, u32>>,
    /// What each tenant may have, as the last claim knew it.
    tiers: parking_lot::RwLock<Arc<Tiers>>,
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
            pools: Mutex::default(),
            woken: Notify::new(),
            hints: Notify::new(),
            outbox: parking_lot::Mutex::default(),
            waiting: parking_lot::Mutex::default(),
            tiers: parking_lot::RwLock::default(),
            background: parking_lot::Mutex::new(Trouble::new("claiming in background lanes")),
        }
    }

    /// Slots that wait in claims of this instance, by pool: what an idle worker looks like from here.
    pub fn waiting(&self) -> HashMap<PoolId, u32> {
        self.waiting.lock().clone()
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
