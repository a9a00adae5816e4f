//! What an instance knows of the lanes, and how claims that wait are woken.
//!
//! The view is a hint: it may be `view_age_ms` old, and the claim statement counts again. A wake-up that is lost costs one
//! poll.

pub mod pools;
pub mod view;
pub mod wake;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tidegate_model::{Capability, PoolId};
use tidegate_policy::fairness::Passes;
use tidegate_store::lanes::views::LaneRow;
use tokio::sync::{Mutex, Notify};

use crate::trouble::Trouble;

/// Claims of this instance: one view of lanes per set of capabilities, one wake-up for all.
#[derive(Debug)]
pub struct Claims {
    view_age: Duration,
    views: Mutex<HashMap<Vec<Capability>, View>>,
    /// What this instance has charged each tenant with work, for each view.
    passes: parking_lot::Mutex<HashMap<Vec<Capability>, Passes>>,
    pub(crate) pools: Mutex<pools::PoolsView>,
    woken: Notify,
    hints: Notify,
    waiting: parking_lot::Mutex<HashMap<PoolId, u32>>,
    /// Of claims in background lanes, beside foreground ones that got through.
    pub(crate) background: parking_lot::Mutex<Trouble>,
}

#[derive(Debug)]
struct View {
    read_at: Instant,
    /// How long the read took: the next one is not sooner than a few times this.
    took: Duration,
    stale: bool,
    lanes: Vec<LaneRow>,
}

impl Claims {
    pub(crate) fn new(view_age: Duration) -> Self {
        Self {
            view_age,
            views: Mutex::default(),
            passes: parking_lot::Mutex::default(),
            pools: Mutex::default(),
            woken: Notify::new(),
            hints: Notify::new(),
            waiting: parking_lot::Mutex::default(),
            background: parking_lot::Mutex::new(Trouble::new("claiming in background lanes")),
        }
    }

    /// Slots that wait in claims of this instance, by pool: what an idle worker looks like from here.
    pub fn waiting(&self) -> HashMap<PoolId, u32> {
        self.waiting.lock().clone()
    }
}

impl Claims {
    /// The passes that belong to a view.
    pub(crate) fn with_passes<T>(
        &self,
        capabilities: &[Capability],
        work: impl FnOnce(&mut Passes) -> T,
    ) -> T {
        let mut passes = self.passes.lock();
        work(passes.entry(capabilities.to_vec()).or_default())
    }
}
