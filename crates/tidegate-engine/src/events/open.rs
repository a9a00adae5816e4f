//! How many event streams are open, and the bound on them: a tenant that opens streams without end uses up its own share
//! of an instance and nobody else's (R2.2).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_model::{Code, TenantId};

use crate::{Engine, Error, Principal, settings::Settings};

/// When a refused reader may come back: streams end with their runs, at no known time.
const RETRY_AFTER_MS: u64 = 2_000;

/// The open streams of an instance.
#[derive(Debug)]
pub(super) struct OpenStreams {
    max: usize,
    per_tenant_max: usize,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    tenants: HashMap<TenantId, usize>,
}

/// The place of one open stream; free again when it is dropped.
#[derive(Debug)]
pub struct OpenStream {
    tenant: TenantId,
    counts: Arc<Mutex<Counts>>,
}

impl OpenStreams {
    pub(super) fn new(settings: &Settings) -> Self {
        let bound = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            max: bound(settings.event_streams_max),
            per_tenant_max: bound(settings.event_streams_per_tenant_max),
            counts: Arc::default(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.counts.lock().all
    }

    fn enter(&self, tenant: &TenantId) -> Result<OpenStream, Error> {
        let mut counts = self.counts.lock();
        let own = counts.tenants.get(tenant).copied().unwrap_or(0);
        if own >= self.per_tenant_max {
            return Err(refused(format!(
                "{own} event streams of this tenant are open on this instance, as many as may be \
                 (TIDEGATE_EVENT_STREAMS_PER_TENANT_MAX); close some, or ask `GET /v1/runs/{{runId}}` for the state"
            )));
        }
        if counts.all >= self.max {
            return Err(refused(format!(
                "{} event streams are open on this instance, as many as may be (TIDEGATE_EVENT_STREAMS_MAX); try \
                 again, here or on another instance",
                counts.all
            )));
        }
        counts.all += 1;
        counts.tenants.insert(tenant.clone(), own + 1);
        metrics::gauge!("tidegate_event_streams").increment(1.0);
        Ok(OpenStream {
            tenant: tenant.clone(),
            counts: Arc::clone(&self.counts),
        })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(own) = counts.tenants.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                counts.tenants.remove(&self.tenant);
            }
        }
        metrics::gauge!("tidegate_event_streams").decrement(1.0);
    }
}

fn refused(detail: String) -> Error {
    Error::refused_until(Code::TooManyStreams, detail, RETRY_AFTER_MS)
}

/// A place for a stream of the caller's tenant, to be kept as long as it is open. Taken before anything else is done for
/// it, so that a refusal has changed nothing.
pub fn open(engine: &Engine, principal: &Principal) -> Result<OpenStream, Error> {
    engine.events().open.enter(principal.require_tenant()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R2.2: a tenant at its bound is refused and others are not; the instance's bound holds for all together.
    #[test]
    fn streams_are_bounded_by_tenant_and_by_instance() {
        let streams = OpenStreams::new(&Settings {
            event_streams_max: 3,
            event_streams_per_tenant_max: 2,
            ..Settings::default()
        });
        let (acme, globex): (TenantId, TenantId) =
            ("acme".parse().unwrap(), "globex".parse().unwrap());
        let mut kept: Vec<OpenStream> = (0..2).map(|_| streams.enter(&acme).unwrap()).collect();
        let refused = streams.enter(&acme).unwrap_err();
        assert_eq!(refused.code(), Code::TooManyStreams);
        let problem = refused.problem();
        assert!(
            problem.retryable && problem.retry_after_ms.is_some(),
            "{problem:?}"
        );
        assert!(problem.detail.unwrap().contains("of this tenant"));
        kept.push(streams.enter(&globex).unwrap());
        let refused = streams.enter(&globex).unwrap_err().problem();
        assert!(refused.detail.unwrap().contains("on this instance"));
        assert_eq!(streams.count(), 3);
        drop(kept.remove(0));
        kept.push(streams.enter(&globex).unwrap());
        drop(kept);
        assert_eq!(streams.count(), 0);
        assert!(streams.counts.lock().tenants.is_empty());
    }
}
