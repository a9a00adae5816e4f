//! Runs: states, kinds, quota buckets, service classes (R3.1, R3.2, R11.1).

use crate::{Code, text_enum};

text_enum! {
    /// Where a run is in its life (R3.1).
    pub enum RunState: "run state" {
        /// May start, now or when what it waits for is over.
        Queued = "queued",
        /// Held by a worker under a lease.
        Running = "running",
        /// Holds nothing; waits for children, a person or a time.
        Waiting = "waiting",
        /// An effect is unknown; a person decides.
        Review = "review",
        /// Ended well.
        Succeeded = "succeeded",
        /// Ended badly; a dead letter where attempts were exhausted.
        Failed = "failed",
        /// Ended by a person or a parent.
        Cancelled = "cancelled",
        /// Ended by its deadline or its greatest age in the queue.
        Expired = "expired",
    }
}

impl RunState {
    /// Whether nothing can follow.
    pub const fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired
        )
    }

    /// The transitions of R3.1; there are no others. A dead letter that an operator puts back (R3.11) is the one way
    /// out of an ended state: `failed` to `queued`, or to `review` where it left an effect of which nobody knows (R4.5).
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Queued => matches!(
                next,
                Self::Running | Self::Cancelled | Self::Expired | Self::Failed
            ),
            Self::Running => !matches!(next, Self::Running),
            Self::Waiting => matches!(next, Self::Queued | Self::Cancelled | Self::Expired),
            Self::Review => matches!(next, Self::Queued | Self::Failed | Self::Cancelled),
            Self::Failed => matches!(next, Self::Queued | Self::Review),
            Self::Succeeded | Self::Cancelled | Self::Expired => false,
        }
    }
}

text_enum! {
    /// How a run came to be; granted, never asked for (R3.2).
    pub enum RunKind: "run kind" {
        /// A turn of a conversation.
        ConversationTurn = "conversation_turn",
        /// Read-only work that a turn handed to the background.
        BackgroundWork = "background_work.v1",
        /// Fired by a schedule.
        Scheduled = "scheduled",
        /// Started by a parent under its fence.
        Child = "child",
        /// Submitted with the key scope `runs:business`.
        BusinessTask = "business_task",
    }
}

impl RunKind {
    /// The bucket, derived at insert and immutable (R3.2).
    pub const fn quota_bucket(self) -> QuotaBucket {
        match self {
            Self::ConversationTurn => QuotaBucket::Foreground,
            Self::BackgroundWork => QuotaBucket::Background,
            Self::Scheduled | Self::Child | Self::BusinessTask => QuotaBucket::Uncounted,
        }
    }

    /// The class a run gets when its caller names none (R11.1). A child takes its parent's.
    pub const fn default_service_class(self) -> ServiceClass {
        match self {
            Self::ConversationTurn => ServiceClass::Interactive,
            Self::BusinessTask | Self::Child => ServiceClass::Standard,
            Self::Scheduled | Self::BackgroundWork => ServiceClass::Deferrable,
        }
    }
}

text_enum! {
    /// Who gave a run its priority (R2.4).
    #[derive(Default)]
    pub enum PrioritySource: "priority source" {
        /// Nobody in particular: 0.
        #[default]
        Default = "default",
        /// The grant of the API key that it came with.
        Key = "key",
        /// Its caller, who asked for less than was granted.
        Caller = "caller",
        /// The run that started it.
        Parent = "parent",
    }
}

text_enum! {
    /// The account of run claims (R3.2 to R3.5).
    pub enum QuotaBucket: "quota bucket" {
        /// Soft cap per tenant.
        Foreground = "foreground",
        /// Hard cap per tenant.
        Background = "background",
        /// Neither counted nor limited by tenant.
        Uncounted = "uncounted",
    }
}

text_enum! {
    /// What gives way first (R11.1); ordered from most to least protected.
    pub enum ServiceClass: "service class" {
        /// A person is waiting.
        Interactive = "interactive",
        /// Ordinary work.
        Standard = "standard",
        /// May be paused under pressure.
        Deferrable = "deferrable",
        /// May never be needed.
        Speculative = "speculative",
    }
}

text_enum! {
    /// Why a run that is not runnable now stands in `run_parked`.
    pub enum ParkReason: "park reason" {
        /// An earlier turn of its conversation is not over.
        ConversationBusy = "conversation_busy",
        /// Its start time has not come.
        Scheduled = "scheduled",
        /// It failed and backs off.
        RetryBackoff = "retry_backoff",
        /// It waits on children, a person or a time.
        Waiting = "waiting",
        /// A person must resolve an unknown effect.
        Review = "review",
    }
}

text_enum! {
    /// How an attempt ended.
    pub enum AttemptOutcome: "attempt outcome" {
        /// It completed the run.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// It obeyed a cancel, or was fenced off after the grace.
        Cancelled = "cancelled",
        /// It handed the run back before any effect; costs no attempt.
        Released = "released",
        /// Its lease ran out and the run was taken over.
        LeaseLost = "lease_lost",
        /// The deadline of the run passed under it.
        Expired = "expired",
        /// A budget of the run was spent.
        BudgetExhausted = "budget_exhausted",
        /// It gave everything back and waits on children, a person or a time; costs no attempt.
        Waiting = "waiting",
    }
}

text_enum! {
    /// What a waiting run waits on (R3.13).
    pub enum WaitOn: "kind of wait" {
        /// Ends of its children.
        Children = "children",
        /// The answer of a person.
        Input = "input",
        /// A time.
        Time = "time",
    }
}

text_enum! {
    /// How many of the awaited children must have ended.
    pub enum WaitMode: "wait mode" {
        /// One of them, however it ended.
        Any = "any",
        /// All of them.
        All = "all",
    }
}

text_enum! {
    /// What a person is asked for (R3.15).
    pub enum AskKind: "kind of question" {
        /// A text, or one of some choices.
        Text = "text",
        /// Yes or no.
        Confirmation = "confirmation",
        /// A reference to a file.
        File = "file",
    }
}

text_enum! {
    /// Why an attempt was told to stop; a mark on its lease.
    pub enum StopReason: "stop reason" {
        /// Somebody cancelled the run.
        Cancel = "cancel",
        /// The run's deadline passed.
        Deadline = "deadline",
        /// The run's execution budget was spent.
        Budget = "budget",
        /// The run's parent ended.
        ParentEnded = "parent_ended",
        /// The epoch of its pool's descriptor was withdrawn.
        EpochWithdrawn = "epoch_withdrawn",
    }
}

impl StopReason {
    /// The code that says so.
    pub const fn code(self) -> Code {
        match self {
            Self::Cancel => Code::Cancelled,
            Self::Deadline => Code::DeadlineExceeded,
            Self::Budget => Code::BudgetExhausted,
            Self::ParentEnded => Code::ParentEnded,
            Self::EpochWithdrawn => Code::EpochWithdrawn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R3.1: the transitions and no others.
    #[test]
    fn ended_runs_stay_ended_except_dead_letters() {
        for from in RunState::ALL {
            for to in RunState::ALL {
                let allowed = from.may_become(*to);
                if from.is_ended() {
                    assert_eq!(
                        allowed,
                        *from == RunState::Failed
                            && matches!(to, RunState::Queued | RunState::Review),
                        "{from} to {to}"
                    );
                }
            }
        }
        assert!(RunState::Queued.may_become(RunState::Running));
        assert!(!RunState::Queued.may_become(RunState::Succeeded));
        assert!(!RunState::Waiting.may_become(RunState::Running));
    }

    /// R3.2: only turns are foreground, only background roots are background.
    #[test]
    fn the_bucket_follows_the_kind() {
        for kind in RunKind::ALL {
            let expected = match kind {
                RunKind::ConversationTurn => QuotaBucket::Foreground,
                RunKind::BackgroundWork => QuotaBucket::Background,
                _ => QuotaBucket::Uncounted,
            };
            assert_eq!(kind.quota_bucket(), expected);
        }
    }
}
