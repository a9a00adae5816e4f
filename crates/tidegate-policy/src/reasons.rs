//! Why a run waits and what would unblock it (R3.9).
//!
//! [`lane`] turns the facts of a lane into every cause that holds for all its runs, [`parked`] those of a run that may
//! not be claimed now. A [`Cause`] is stored as its code and its facts and read back with [`Cause::from_stored`], so
//! that what is shown later is what was seen then. [`waits`] cuts a run's queueing time by cause.
//!
//! Not done here: deciding anything. A cause explains, it never holds a run back.
//!
//! Invariants: a queued run always has at least one cause; causes come ranked, the shown one first; a remedy names
//! calls and settings that exist.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_model::{
    Capability, Code, ConversationId, PoolId, RunId, TenantId,
    contracts::ResourceName,
    queue_reason::QueueReason,
    run::{AskKind, ParkReason, QuotaBucket, RunState, WaitMode, WaitOn},
};

use crate::{
    buckets,
    eligibility::{Eligibility, RefusedPool},
};

mod remedies;
pub mod waits;

/// A pool that may serve a lane, and the workers it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolWorkers {
    /// The pool.
    pub pool: PoolId,
    /// How many runs its workers can hold at once, as far as live instances know.
    pub slots: i64,
    /// How many they hold.
    pub busy: i64,
}

/// What is known of a lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFacts {
    /// Its tenant.
    pub tenant: TenantId,
    /// Whether the tenant may start anything.
    pub tenant_active: bool,
    /// Its account of claims.
    pub bucket: QuotaBucket,
    /// What its runs ask for.
    pub capability: Capability,
    /// Leases of the tenant in the bucket.
    pub running: i64,
    /// The tenant's cap with fairness on.
    pub cap: Option<i64>,
    /// Whether fairness is on.
    pub fairness_on: bool,
    /// Which pools may serve it.
    pub pools: Eligibility,
    /// The workers of the eligible pools.
    pub workers: Vec<PoolWorkers>,
    /// Whether some worker of an eligible pool takes background runs; true for lanes that are not background's.
    pub background_served: bool,
    /// What each eligible pool is short of; empty where one of them has what its runs take.
    pub short: Vec<PoolShort>,
    /// How long it may be unroutable before its runs are ended.
    pub unroutable_grace_ms: i64,
}

/// A pool that may serve a lane, and what its runs would take there and is held by others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolShort {
    /// The pool.
    pub pool: PoolId,
    /// Every resource that is short.
    pub short: Vec<ResourceShort>,
}

/// A resource that is short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceShort {
    /// Which.
    pub resource: ResourceName,
    /// How much a run takes.
    pub needed: i64,
    /// How much is free.
    pub free: i64,
    /// How much there is in all.
    pub capacity: i64,
}

/// Why a parked run is parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedFacts {
    /// The kind of wait.
    pub why: ParkReason,
    /// When it is over by itself.
    pub due: Option<DateTime<Utc>>,
    /// The run itself.
    pub run_id: RunId,
    /// Its conversation.
    pub conversation_id: Option<ConversationId>,
    /// The turn that is not over.
    pub active_run: Option<RunId>,
    /// What that one does, where it does not run.
    pub active_state: Option<RunState>,
    /// Attempts used.
    pub attempts: i32,
    /// The most attempts.
    pub max_attempts: i32,
    /// Why the last attempt failed.
    pub last_code: Option<Code>,
}

/// What a waiting run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitFacts<'a> {
    /// The run itself.
    pub run_id: RunId,
    /// What it waits on.
    pub on: WaitOn,
    /// How many of the children must end.
    pub mode: Option<WaitMode>,
    /// The awaited children that have not ended.
    pub open: &'a [RunId],
    /// What a person is asked for.
    pub ask: Option<AskKind>,
    /// When it wakes by itself.
    pub until: Option<DateTime<Utc>>,
}

/// What would wake a waiting run, as an instruction (R3.13, R3.15).
pub fn waiting(facts: &WaitFacts<'_>) -> String {
    remedies::waiting(facts)
}

/// A cause with the facts it was seen with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// `NO_ELIGIBLE_POOL`
    NoEligiblePool(NoEligiblePool),
    /// `SCHEDULED`
    Scheduled(Scheduled),
    /// `RETRY_BACKOFF`
    RetryBackoff(RetryBackoff),
    /// `CONVERSATION_BUSY`
    ConversationBusy(ConversationBusy),
    /// `BACKGROUND_DISABLED`
    BackgroundDisabled(BackgroundDisabled),
    /// `TENANT_BACKGROUND_CAP`
    TenantBackgroundCap(TenantCap),
    /// `TENANT_FOREGROUND_CAP`
    TenantForegroundCap(TenantCap),
    /// `RESOURCE_EXHAUSTED`
    ResourceExhausted(ResourceExhausted),
    /// `WAITING_FOR_WORKER`
    WaitingForWorker(WaitingForWorker),
}

macro_rules! facts {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $type:ty),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $($(#[$fmeta])* pub $field: $type),+ }
    )+};
}

facts! {
    /// No pool may serve it.
    NoEligiblePool {
        /// What is asked for.
        capability: Capability,
        /// Every pool with its reason.
        pools: Vec<RefusedPool>,
        /// How long this may last before the run is ended, in milliseconds.
        unroutable_grace_ms: i64,
    }
    /// Its start time has not come.
    Scheduled {
        /// The run.
        run_id: RunId,
        /// When it comes.
        run_at: Option<DateTime<Utc>>,
    }
    /// It backs off.
    RetryBackoff {
        /// The run.
        run_id: RunId,
        /// When the next attempt may start.
        retry_at: Option<DateTime<Utc>>,
        /// Attempts used.
        attempts: i32,
        /// The most attempts.
        max_attempts: i32,
        /// Why the last one failed.
        last_code: Option<Code>,
    }
    /// An earlier turn is not over.
    ConversationBusy {
        /// The conversation.
        conversation_id: Option<ConversationId>,
        /// The turn that is not over.
        active_run: Option<RunId>,
        /// What that one does, where it does not run: queued, waiting or in review.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        active_state: Option<RunState>,
    }
    /// No worker takes background runs.
    BackgroundDisabled {
        /// The pools that may serve it.
        pools: Vec<PoolId>,
    }
    /// The tenant's cap is reached.
    TenantCap {
        /// Leases of the tenant in the bucket.
        running: i64,
        /// The most there may be.
        cap: i64,
    }
    /// What its runs take is held by others.
    ResourceExhausted {
        /// The pools that may serve it, with what each is short of.
        pools: Vec<PoolShort>,
    }
    /// Nobody is free, or nobody is there.
    WaitingForWorker {
        /// What is asked for.
        capability: Capability,
        /// The pools that may serve it, with their workers.
        pools: Vec<PoolWorkers>,
        /// The tenant, where it is suspended: then no worker is given its runs.
        suspended_tenant: Option<TenantId>,
    }
}

impl Cause {
    /// The stable code.
    pub const fn code(&self) -> QueueReason {
        match self {
            Self::NoEligiblePool(_) => QueueReason::NoEligiblePool,
            Self::Scheduled(_) => QueueReason::Scheduled,
            Self::RetryBackoff(_) => QueueReason::RetryBackoff,
            Self::ConversationBusy(_) => QueueReason::ConversationBusy,
            Self::BackgroundDisabled(_) => QueueReason::BackgroundDisabled,
            Self::TenantBackgroundCap(_) => QueueReason::TenantBackgroundCap,
            Self::TenantForegroundCap(_) => QueueReason::TenantForegroundCap,
            Self::ResourceExhausted(_) => QueueReason::ResourceExhausted,
            Self::WaitingForWorker(_) => QueueReason::WaitingForWorker,
        }
    }

    /// The facts as they are stored and shown.
    pub fn facts(&self) -> Value {
        let json = match self {
            Self::NoEligiblePool(facts) => serde_json::to_value(facts),
            Self::Scheduled(facts) => serde_json::to_value(facts),
            Self::RetryBackoff(facts) => serde_json::to_value(facts),
            Self::ConversationBusy(facts) => serde_json::to_value(facts),
            Self::BackgroundDisabled(facts) => serde_json::to_value(facts),
            Self::TenantBackgroundCap(facts) | Self::TenantForegroundCap(facts) => {
                serde_json::to_value(facts)
            }
            Self::ResourceExhausted(facts) => serde_json::to_value(facts),
            Self::WaitingForWorker(facts) => serde_json::to_value(facts),
        };
        // Plain structs of strings and numbers always become JSON.
        json.unwrap_or(Value::Null)
    }

    /// Reads back what was stored; `None` for a code that this release never writes, or facts of another release.
    pub fn from_stored(code: QueueReason, facts: &Value) -> Option<Self> {
        fn read<T: serde::de::DeserializeOwned>(facts: &Value) -> Option<T> {
            T::deserialize(facts).ok()
        }
        match code {
            QueueReason::NoEligiblePool => read(facts).map(Self::NoEligiblePool),
            QueueReason::Scheduled => read(facts).map(Self::Scheduled),
            QueueReason::RetryBackoff => read(facts).map(Self::RetryBackoff),
            QueueReason::ConversationBusy => read(facts).map(Self::ConversationBusy),
            QueueReason::BackgroundDisabled => read(facts).map(Self::BackgroundDisabled),
            QueueReason::TenantBackgroundCap => read(facts).map(Self::TenantBackgroundCap),
            QueueReason::TenantForegroundCap => read(facts).map(Self::TenantForegroundCap),
            QueueReason::WaitingForWorker => read(facts).map(Self::WaitingForWorker),
            QueueReason::ResourceExhausted => read(facts).map(Self::ResourceExhausted),
            QueueReason::PressureStage
            | QueueReason::ExternalGrantPending
            | QueueReason::PoolDraining => None,
        }
    }

    /// What is the matter, in one line; the clause of a run that ends as `UNSATISFIABLE`.
    pub fn clause(&self) -> String {
        remedies::clause(self)
    }

    /// What would unblock it, as an instruction.
    pub fn remedy(&self) -> String {
        remedies::remedy(self)
    }
}

/// What to do about a run in review (R4.5), as an instruction.
pub fn review_remedy(run: RunId) -> String {
    format!(
        "find out whether the effect happened, then `tidegate run resolve {run} done` or `not-done`, or give up with \
         `tidegate run resolve {run} abandon` (POST /v1/runs/{run}/resolve)"
    )
}

/// Every cause that holds for the runs of a lane, ranked; never empty.
///
/// `WAITING_FOR_WORKER` holds where nothing else does: the runs may start, and nobody free has taken them.
pub fn lane(facts: &LaneFacts) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !facts.pools.is_satisfiable() {
        causes.push(Cause::NoEligiblePool(NoEligiblePool {
            capability: facts.capability.clone(),
            pools: facts.pools.refused.clone(),
            unroutable_grace_ms: facts.unroutable_grace_ms,
        }));
    } else if !facts.background_served {
        causes.push(Cause::BackgroundDisabled(BackgroundDisabled {
            pools: facts.pools.eligible.clone(),
        }));
    }
    let cap = buckets::effective_cap(facts.bucket, facts.cap, facts.fairness_on);
    if let Some(cap) = cap
        && buckets::room(Some(cap), facts.running) == Some(0)
    {
        let running = facts.running;
        let cap = TenantCap { running, cap };
        causes.push(match facts.bucket {
            QuotaBucket::Background => Cause::TenantBackgroundCap(cap),
            QuotaBucket::Foreground | QuotaBucket::Uncounted => Cause::TenantForegroundCap(cap),
        });
    }
    if !facts.short.is_empty() {
        causes.push(Cause::ResourceExhausted(ResourceExhausted {
            pools: facts.short.clone(),
        }));
    }
    if causes.is_empty() || !facts.tenant_active {
        causes.push(Cause::WaitingForWorker(WaitingForWorker {
            capability: facts.capability.clone(),
            pools: facts.workers.clone(),
            suspended_tenant: (!facts.tenant_active).then(|| facts.tenant.clone()),
        }));
    }
    causes.sort_by_key(|cause| cause.code().rank());
    causes
}

/// The cause of a parked run that counts as queued; `None` for those that wait on something else (R3.13, R4.5).
pub fn parked(facts: &ParkedFacts) -> Option<Cause> {
    match facts.why {
        ParkReason::ConversationBusy => Some(Cause::ConversationBusy(ConversationBusy {
            conversation_id: facts.conversation_id,
            active_run: facts.active_run,
            active_state: facts.active_state,
        })),
        ParkReason::Scheduled => Some(Cause::Scheduled(Scheduled {
            run_id: facts.run_id,
            run_at: facts.due,
        })),
        ParkReason::RetryBackoff => Some(Cause::RetryBackoff(RetryBackoff {
            run_id: facts.run_id,
            retry_at: facts.due,
            attempts: facts.attempts,
            max_attempts: facts.max_attempts,
            last_code: facts.last_code,
        })),
        ParkReason::Waiting | ParkReason::Review => None,
    }
}

#[cfg(test)]
mod tests;
