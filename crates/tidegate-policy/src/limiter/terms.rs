//! The terms of the limiter: its limits, its settings, what is asked of it and what it answers.

use std::{num::NonZeroU32, time::Duration};

/// Calls in flight per provider and instance, unless configured.
pub const DEFAULT_MAX_IN_FLIGHT: u32 = 16;
/// Waiters per class, unless configured.
pub const DEFAULT_MAX_QUEUE: u32 = 64;
/// The longest wait in the queue, unless configured; background keeps it where waiting limits are switched off.
pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// The window of the requests per minute.
pub const RPM_WINDOW: Duration = Duration::from_mins(1);
/// The first pause after a 429 that names no time; doubles with each further one.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause. A provider that asks for more is probed again after this time.
pub const PAUSE_MAX: Duration = Duration::from_mins(5);
/// The shortest hint to come back.
pub const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The longest hint to come back.
pub const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// The least spread of the hints that many callers get (architecture, named limits).
pub const RETRY_SPREAD_MIN: Duration = Duration::from_secs(5);

const _: () = assert!(
    PAUSE_MIN.as_millis() < PAUSE_MAX.as_millis(),
    "a pause can grow"
);
const _: () = assert!(
    RETRY_AFTER_MIN.as_millis() < RETRY_AFTER_MAX.as_millis(),
    "a hint can tell waits apart"
);

/// Which queue of a provider a call stands in (R13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallClass {
    /// Everything else, calls without a run included.
    Foreground,
    /// The bucket `background`, or a descendant of such a run.
    Background,
}

impl CallClass {
    /// Both classes, the one that leaves first in front.
    pub const ALL: [Self; 2] = [Self::Foreground, Self::Background];

    /// The text form, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Background => "background",
        }
    }
}

/// The limits of one provider on one instance (`LLM_PROVIDER_*`, or the provider's own).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterSettings {
    /// The most calls in flight.
    pub max_in_flight: NonZeroU32,
    /// The most calls begun in any 60 s; `None` is unlimited.
    pub rpm: Option<NonZeroU32>,
    /// The most waiters per class; 0 means nobody waits.
    pub max_queue: u32,
    /// The longest wait; `None` switches the limit off for foreground only.
    pub queue_timeout: Option<Duration>,
}

impl Default for LimiterSettings {
    fn default() -> Self {
        Self {
            max_in_flight: NonZeroU32::MIN.saturating_add(DEFAULT_MAX_IN_FLIGHT - 1),
            rpm: None,
            max_queue: DEFAULT_MAX_QUEUE,
            queue_timeout: Some(DEFAULT_QUEUE_TIMEOUT),
        }
    }
}

/// A setting that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value}: {remedy}")]
pub struct InvalidSetting {
    /// The environment variable of the setting.
    pub variable: &'static str,
    /// What it was set to.
    pub value: u64,
    /// What to do.
    pub remedy: &'static str,
}

impl LimiterSettings {
    /// Reads the settings as an operator writes them: `rpm` absent is unlimited, `queue_timeout_ms` 0 is off.
    pub fn from_numbers(
        max_in_flight: u32,
        rpm: Option<u32>,
        max_queue: u32,
        queue_timeout_ms: u64,
    ) -> Result<Self, InvalidSetting> {
        let max_in_flight = NonZeroU32::new(max_in_flight).ok_or(InvalidSetting {
            variable: "LLM_PROVIDER_MAX_IN_FLIGHT",
            value: 0,
            remedy: "give 1 or more; to stop using a provider, disable it",
        })?;
        let rpm = rpm
            .map(|rpm| {
                NonZeroU32::new(rpm).ok_or(InvalidSetting {
                    variable: "LLM_PROVIDER_RPM",
                    value: 0,
                    remedy: "leave it unset for unlimited, or give 1 or more",
                })
            })
            .transpose()?;
        Ok(Self {
            max_in_flight,
            rpm,
            max_queue,
            queue_timeout: (queue_timeout_ms > 0).then(|| Duration::from_millis(queue_timeout_ms)),
        })
    }

    /// The longest wait of a class (R13.1): background keeps the default where waiting limits are off.
    pub fn wait_limit(&self, class: CallClass) -> Option<Duration> {
        match class {
            CallClass::Foreground => self.queue_timeout,
            CallClass::Background => self.queue_timeout.or(Some(DEFAULT_QUEUE_TIMEOUT)),
        }
    }
}

/// Names one call from its question to its end. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BusyCause {
    /// The class's queue was full.
    QueueFull,
    /// The wait in the queue was over.
    WaitedTooLong,
}

impl BusyCause {
    /// The text form, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong => "waited_too_long",
        }
    }
}

/// `LLM_BUSY`: the caller should come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// Why.
    pub cause: BusyCause,
    /// When a place is expected, by the drain measured so far.
    pub retry_after: Duration,
    /// The width over which hints are spread, so that the refused do not come back together.
    pub spread: Duration,
}

impl Busy {
    /// The hint for one caller; `unit` is a random number in [0, 1).
    pub fn retry_after_spread(&self, unit: f64) -> Duration {
        let unit = if unit.is_finite() {
            unit.clamp(0.0, 1.0)
        } else {
            0.0
        };
        (self.retry_after + self.spread.mul_f64(unit)).min(RETRY_AFTER_MAX + self.spread)
    }
}

/// The answer to a call that asks to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds a slot now.
    Admitted(Ticket),
    /// It waits; [`Limiter::poll`] decides, at the latest at the deadline.
    Queued {
        /// Names the waiter.
        ticket: Ticket,
        /// When its wait is over; `None` where waiting limits are off.
        deadline: Option<Duration>,
    },
    /// It is refused.
    Busy(Busy),
}

/// What became of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It left the queue and holds a slot.
    Admit(Ticket),
    /// Its wait was over.
    Refuse(Ticket, Busy),
}

/// How a call ended, as far as the limiter is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The provider answered to the end.
    Answered,
    /// The provider asked for less.
    Throttled {
        /// Its own hint.
        retry_after: Option<Duration>,
    },
    /// Anything else: an error, a cut stream, a caller that left.
    Other,
    /// The request never reached the provider, so it does not count against the requests per minute.
    Unsent,
}

/// The figures of a limiter at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterView {
    /// Calls in flight.
    pub in_flight: u32,
    /// What may be in flight at present: the setting, or less after a 429.
    pub admission_limit: u32,
    /// Foreground waiters.
    pub waiting_foreground: u32,
    /// Background waiters.
    pub waiting_background: u32,
    /// How long the provider's pause still lasts.
    pub paused_for: Duration,
    /// Calls begun in the last 60 s; 0 where the requests per minute are unlimited.
    pub begun_last_minute: u32,
}
