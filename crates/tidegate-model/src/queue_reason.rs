//! Why a run waits (R3.9): a code, its rank, and what would unblock it.

use crate::text_enum;

text_enum! {
    /// The codes of R3.9. A code whose cause does not exist yet in this release is never shown.
    pub enum QueueReason: "queue reason" {
        /// It may start; no worker that may serve it is free.
        WaitingForWorker = "WAITING_FOR_WORKER",
        /// Its tenant has its soft cap of foreground runs running.
        TenantForegroundCap = "TENANT_FOREGROUND_CAP",
        /// Its tenant has its hard cap of background runs running.
        TenantBackgroundCap = "TENANT_BACKGROUND_CAP",
        /// An earlier turn of the conversation is not over.
        ConversationBusy = "CONVERSATION_BUSY",
        /// No active pool offers what it requires.
        NoEligiblePool = "NO_ELIGIBLE_POOL",
        /// A resource of its vector is used up.
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        /// Load shedding holds its class back.
        PressureStage = "PRESSURE_STAGE",
        /// No instance runs background work.
        BackgroundDisabled = "BACKGROUND_DISABLED",
        /// Its start time has not come.
        Scheduled = "SCHEDULED",
        /// It failed and backs off before the next attempt.
        RetryBackoff = "RETRY_BACKOFF",
        /// An external owner has not granted yet.
        ExternalGrantPending = "EXTERNAL_GRANT_PENDING",
        /// The only pool that may serve it is being drained.
        PoolDraining = "POOL_DRAINING",
    }
}

impl QueueReason {
    /// The reason with the lowest rank is the one shown, so that it does not flicker between causes.
    pub const fn rank(self) -> u8 {
        match self {
            Self::NoEligiblePool => 0,
            Self::Scheduled => 1,
            Self::RetryBackoff => 2,
            Self::ConversationBusy => 3,
            Self::BackgroundDisabled => 4,
            Self::PoolDraining => 5,
            Self::PressureStage => 6,
            Self::TenantBackgroundCap => 7,
            Self::TenantForegroundCap => 8,
            Self::ExternalGrantPending => 9,
            Self::ResourceExhausted => 10,
            Self::WaitingForWorker => 11,
        }
    }
}
