//! Who waits for which run's events on this instance, and who tells them.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_model::{RunId, TenantId};
use tokio::sync::watch;

/// The streams of this instance.
#[derive(Debug, Default)]
pub struct EventHub {
    streams: Mutex<HashMap<(TenantId, RunId), watch::Sender<u64>>>,
}

impl EventHub {
    /// Tells the streams of a run that it has new events.
    pub fn nudge(&self, tenant: &TenantId, run: RunId) {
        if let Some(sender) = self.streams.lock().get(&(tenant.clone(), run)) {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}
