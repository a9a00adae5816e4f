//! Stable codes of problems, with status and whether trying again can help. One page each in `docs/codes/`.

use crate::text_enum;

text_enum! {
    /// The code of a problem; clients match on it, never on a text.
    pub enum Code: "code" {
        /// A value is missing, malformed or out of bounds.
        InvalidArgument = "INVALID_ARGUMENT",
        /// A contract holds a field that this server does not know.
        UnknownField = "UNKNOWN_FIELD",
        /// No key, or one that is unknown, expired or revoked.
        Unauthenticated = "UNAUTHENTICATED",
        /// The key's role or scopes do not allow it.
        Forbidden = "FORBIDDEN",
        /// No such thing, or it belongs to somebody else.
        NotFound = "NOT_FOUND",
        /// The method is not one of the route's.
        MethodNotAllowed = "METHOD_NOT_ALLOWED",
        /// The idempotency key was used with another request.
        IdempotencyConflict = "IDEMPOTENCY_CONFLICT",
        /// The fence is not that of the run's open lease.
        LeaseLost = "LEASE_LOST",
        /// The state of a run, a provider, a key or whatever this is about does not allow it.
        StateConflict = "STATE_CONFLICT",
        /// The name is taken, or the expected version is not the current one.
        VersionConflict = "VERSION_CONFLICT",
        /// The parent run has ended.
        ParentEnded = "PARENT_ENDED",
        /// The tree of runs is as deep, as wide or as large as it may be.
        ChildLimitExceeded = "CHILD_LIMIT_EXCEEDED",
        /// A child asks for more than its parent has left.
        DelegationExceedsParent = "DELEGATION_EXCEEDS_PARENT",
        /// The tenant may not start anything new.
        TenantSuspended = "TENANT_SUSPENDED",
        /// Events before a position are gone.
        EventsPruned = "EVENTS_PRUNED",
        /// The body did not arrive in time.
        RequestTimeout = "REQUEST_TIMEOUT",
        /// The body is larger than the limit.
        PayloadTooLarge = "PAYLOAD_TOO_LARGE",
        /// The content type is not JSON.
        UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE",
        /// No active pool could serve it, not even at total capacity.
        Unsatisfiable = "UNSATISFIABLE",
        /// The worker speaks a protocol version that is too old.
        ProtocolTooOld = "PROTOCOL_TOO_OLD",
        /// The tenant's queue of that class is full.
        QueueFull = "QUEUE_FULL",
        /// As many event streams are open as may be.
        TooManyStreams = "TOO_MANY_STREAMS",
        /// A model provider's slots and queue are full.
        LlmBusy = "LLM_BUSY",
        /// A pool serves nothing for the time being.
        PoolClosed = "POOL_CLOSED",
        /// The server is draining.
        ShuttingDown = "SHUTTING_DOWN",
        /// The database cannot be reached or refuses to write.
        DatabaseUnavailable = "DATABASE_UNAVAILABLE",
        /// A defect of the server; the request id finds it in the log.
        Internal = "INTERNAL",
        /// All attempts of the run were used.
        AttemptsExhausted = "ATTEMPTS_EXHAUSTED",
        /// A budget of the run was spent.
        BudgetExhausted = "BUDGET_EXHAUSTED",
        /// The deadline of the run passed.
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        /// What it needs is held by others.
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        /// The id of an admission was used with other requirements.
        AdmissionConflict = "ADMISSION_CONFLICT",
        /// The admission is over.
        AdmissionEnded = "ADMISSION_ENDED",
        /// The run waited longer than the greatest age in the queue.
        QueueExpired = "QUEUE_EXPIRED",
        /// Somebody cancelled the run.
        Cancelled = "CANCELLED",
        /// The epoch of the pool's descriptor that an attempt was begun under was withdrawn.
        EpochWithdrawn = "EPOCH_WITHDRAWN",
        /// The epoch of a pool's descriptor that a worker was built for is not in force.
        DescriptorEpochStale = "DESCRIPTOR_EPOCH_STALE",
        /// A worker does not show the runtime that the pool's descriptor names.
        RuntimeDigestMismatch = "RUNTIME_DIGEST_MISMATCH",
        /// A later start of the worker has joined the pool.
        IncarnationStale = "INCARNATION_STALE",
        /// A person gave up on a run in review.
        Abandoned = "ABANDONED",
        /// Nobody knows whether an effect happened that the attempt is about to repeat.
        EffectUnknown = "EFFECT_UNKNOWN",
        /// The worker reported a failure of its own.
        WorkerFailed = "WORKER_FAILED",
        /// A tool that is not marked `read` was called.
        ToolNotReadOnly = "TOOL_NOT_READ_ONLY",
        /// A tool is unknown, or its server cannot be reached.
        ToolUnavailable = "TOOL_UNAVAILABLE",
        /// A tool did not answer in time.
        ToolTimeout = "TOOL_TIMEOUT",
        /// The model provider refused or failed.
        ProviderFailed = "PROVIDER_FAILED",
        /// No model is configured for the capability.
        ModelNotConfigured = "MODEL_NOT_CONFIGURED",
        /// The agent used all its steps without an answer.
        AgentStepsExhausted = "AGENT_STEPS_EXHAUSTED",
        /// This server does not have the key that a secret is sealed with.
        SecretUnreadable = "SECRET_UNREADABLE",
    }
}

impl Code {
    /// What a worker may fail an attempt with. The others are the platform's own words: in a run's end they would say
    /// what did not happen.
    pub const OF_WORKERS: [Self; 15] = [
        Self::WorkerFailed,
        Self::InvalidArgument,
        Self::PayloadTooLarge,
        Self::Cancelled,
        Self::DeadlineExceeded,
        Self::BudgetExhausted,
        Self::EffectUnknown,
        Self::ToolUnavailable,
        Self::ToolTimeout,
        Self::ToolNotReadOnly,
        Self::ProviderFailed,
        Self::LlmBusy,
        Self::ModelNotConfigured,
        Self::AgentStepsExhausted,
        Self::SecretUnreadable,
    ];

    /// The HTTP status of a problem with this code. Codes that only end runs have the status a caller would meet who
    /// waits for the run in the same request.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::UnknownField => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::TenantSuspended => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::IdempotencyConflict
            | Self::LeaseLost
            | Self::StateConflict
            | Self::VersionConflict
            | Self::ParentEnded
            | Self::EffectUnknown
            | Self::Abandoned
            | Self::EpochWithdrawn
            | Self::DescriptorEpochStale
            | Self::RuntimeDigestMismatch
            | Self::IncarnationStale
            | Self::AdmissionConflict
            | Self::AdmissionEnded
            | Self::Cancelled => 409,
            Self::EventsPruned => 410,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Unsatisfiable
            | Self::ChildLimitExceeded
            | Self::DelegationExceedsParent
            | Self::ToolNotReadOnly
            | Self::ModelNotConfigured
            | Self::AttemptsExhausted
            | Self::BudgetExhausted
            | Self::AgentStepsExhausted
            | Self::WorkerFailed => 422,
            Self::ProtocolTooOld => 426,
            Self::QueueFull | Self::TooManyStreams | Self::ResourceExhausted => 429,
            Self::Internal => 500,
            Self::ProviderFailed | Self::ToolUnavailable => 502,
            Self::LlmBusy
            | Self::PoolClosed
            | Self::ShuttingDown
            | Self::DatabaseUnavailable
            | Self::SecretUnreadable => 503,
            Self::DeadlineExceeded | Self::QueueExpired | Self::ToolTimeout => 504,
        }
    }

    /// Whether the same request may succeed later without a change by the caller.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout
                | Self::QueueFull
                | Self::ResourceExhausted
                | Self::TooManyStreams
                | Self::LlmBusy
                | Self::PoolClosed
                | Self::ShuttingDown
                | Self::DatabaseUnavailable
                | Self::ProviderFailed
                | Self::ToolUnavailable
                | Self::ToolTimeout
                | Self::SecretUnreadable
        )
    }

    /// A short text that is the same for every problem with this code.
    pub const fn title(self) -> &'static str {
        match self {
            Self::InvalidArgument => "a value is missing, malformed or out of bounds",
            Self::UnknownField => "the body holds an unknown field",
            Self::Unauthenticated => "a valid API key is required",
            Self::Forbidden => "the key may not do this",
            Self::NotFound => "not found",
            Self::MethodNotAllowed => "the route does not have this method",
            Self::IdempotencyConflict => "the idempotency key was used with another request",
            Self::LeaseLost => "the lease is no longer held",
            Self::StateConflict => "the state of what this is about does not allow it",
            Self::VersionConflict => "somebody else changed it first",
            Self::ParentEnded => "the parent run has ended",
            Self::ChildLimitExceeded => "the tree of runs is at its limit",
            Self::DelegationExceedsParent => "the child asks for more than its parent has",
            Self::TenantSuspended => "the tenant may not start anything new",
            Self::EventsPruned => "events before this position are gone",
            Self::RequestTimeout => "the body did not arrive in time",
            Self::PayloadTooLarge => "the body is too large",
            Self::UnsupportedMediaType => "the body must be application/json",
            Self::Unsatisfiable => "no pool could ever serve this",
            Self::ProtocolTooOld => "the protocol version is too old",
            Self::QueueFull => "the queue is full",
            Self::ResourceExhausted => "what it needs is held by others",
            Self::AdmissionConflict => "the admission id was used with other requirements",
            Self::AdmissionEnded => "the admission is over",
            Self::TooManyStreams => "too many event streams are open",
            Self::LlmBusy => "the model provider is busy",
            Self::PoolClosed => "the pool serves nothing for the time being",
            Self::ShuttingDown => "the server is shutting down",
            Self::DatabaseUnavailable => "the database is not available",
            Self::Internal => "internal error",
            Self::AttemptsExhausted => "all attempts were used",
            Self::BudgetExhausted => "a budget of the run was spent",
            Self::DeadlineExceeded => "the deadline passed",
            Self::QueueExpired => "the run waited too long in the queue",
            Self::Cancelled => "the run was cancelled",
            Self::EpochWithdrawn => "the pool's descriptor epoch was withdrawn",
            Self::DescriptorEpochStale => "another epoch of the pool is in force",
            Self::RuntimeDigestMismatch => "the worker does not show the pool's runtime",
            Self::IncarnationStale => "a later start of the worker has joined",
            Self::Abandoned => "a person gave up on the run",
            Self::EffectUnknown => "nobody knows whether this effect happened",
            Self::WorkerFailed => "the worker reported a failure",
            Self::ToolNotReadOnly => "only tools marked read may be called",
            Self::ToolUnavailable => "the tool is not available",
            Self::ToolTimeout => "the tool did not answer in time",
            Self::ProviderFailed => "the model provider failed",
            Self::ModelNotConfigured => "no model is configured",
            Self::AgentStepsExhausted => "the agent used all its steps",
            Self::SecretUnreadable => "a sealed secret cannot be opened",
        }
    }
}
