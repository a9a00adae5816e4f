//! The view of lanes that a claim is planned on.

use std::time::Instant;

use tidegate_model::Capability;
use tidegate_store::lanes::views::LaneRow;

use super::{Claims, View};
use crate::{Engine, Error};

/// A view that somebody has reported stale is read again, but not more often than this.
const REREAD_MIN: std::time::Duration = std::time::Duration::from_millis(20);
/// A view that took long to read is read again that much later, so that reading never takes more than a fifth of the time.
const REREAD_FACTOR: u32 = 4;
/// How many runs behind a head are looked at for their age where fairness is off.
const UPCOMING_WITHOUT_FAIRNESS: u32 = 100;

impl Engine {
    /// The lanes that a pool with these capabilities may serve; at most `view_age_ms` old.
    pub(crate) async fn lanes(&self, capabilities: &[Capability]) -> Result<Vec<LaneRow>, Error> {
        let claims = self.claims();
        let mut views = claims.views.lock().await;
        if let Some(view) = views.get(capabilities) {
            let age = view.read_at.elapsed();
            if age < claims.view_age
                && !(view.stale && age >= REREAD_MIN.max(view.took * REREAD_FACTOR))
            {
                return Ok(view.lanes.clone());
            }
        }
        let upcoming = if self.settings().run_fairness {
            0
        } else {
            UPCOMING_WITHOUT_FAIRNESS
        };
        let read_at = Instant::now();
        let lanes = self
            .store()
            .fleet()
            .lane_views(
                &self.settings().execution_scope,
                Some(capabilities),
                upcoming,
            )
            .await?;
        claims.with_passes(capabilities, |passes| {
            passes.observe(lanes.iter().map(|lane| &lane.tenant));
        });
        views.insert(
            capabilities.to_vec(),
            View {
                read_at,
                took: read_at.elapsed(),
                stale: false,
                lanes: lanes.clone(),
            },
        );
        Ok(lanes)
    }
}

impl Claims {
    /// Reports that the lanes have changed.
    pub(crate) async fn mark_stale(&self) {
        for view in self.views.lock().await.values_mut() {
            view.stale = true;
        }
    }
}
