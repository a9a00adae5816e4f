//! One record per request to a provider, whatever became of it (R13.2), and the metrics made from it.

use std::time::Duration;

use tidegate_model::{RunId, TenantId, ids::CatalogName};
use tidegate_policy::limiter::{BusyCause, CallClass, LimiterView};

use crate::{chat::Usage, error::FaultKind};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// The model answered to the end.
    Answered,
    /// The limiter refused; the provider was not asked.
    Busy(BusyCause),
    /// The caller left while waiting in the queue; the provider was not asked.
    LeftQueue,
    /// The caller left while the provider worked.
    ClientClosed,
    /// The caller's deadline, or the limit of the whole call, passed.
    DeadlineExceeded,
    /// The provider failed.
    Failed(FaultKind),
    /// The code that handled the call panicked.
    Panicked,
}

impl CallOutcome {
    /// The text form, for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Busy(cause) => cause.as_str(),
            Self::LeftQueue => "left_queue",
            Self::ClientClosed => "client_closed",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Failed(kind) => kind.as_str(),
            Self::Panicked => "panicked",
        }
    }

    /// Whether the request reached the provider.
    pub const fn was_sent(self) -> bool {
        !matches!(self, Self::Busy(_) | Self::LeftQueue)
    }
}

/// One request to a provider, from asking the limiter to giving back the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// The provider.
    pub provider: CatalogName,
    /// The provider's name of the model.
    pub model: String,
    /// The class.
    pub class: CallClass,
    /// The tenant that pays, if any.
    pub tenant: Option<TenantId>,
    /// The run, if any.
    pub run: Option<RunId>,
    /// Which request of the call it was, from 1.
    pub try_number: u32,
    /// Time in the limiter's queue.
    pub queued: Duration,
    /// Time from leaving the queue to the first piece of the answer, if one came.
    pub first_content: Option<Duration>,
    /// Time the slot was held.
    pub held: Duration,
    /// What became of it.
    pub outcome: CallOutcome,
    /// What is known about its use.
    pub usage: Usage,
}

/// Takes the records. Called once per request, possibly while a future is dropped: it must neither block nor panic.
pub trait CallRecorder: Send + Sync {
    /// Takes one record.
    fn record(&self, record: &CallRecord);
}

impl<F: Fn(&CallRecord) + Send + Sync> CallRecorder for F {
    fn record(&self, record: &CallRecord) {
        self(record);
    }
}

/// Names and meanings of the metrics of this crate. Labels are the operator's names and fixed words only (O-35).
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(
        "tidegate_llm_calls_total",
        "requests to model providers by provider, class and outcome"
    );
    describe_counter!(
        "tidegate_llm_tokens_total",
        "tokens by provider, direction and certainty"
    );
    describe_histogram!(
        "tidegate_llm_queue_seconds",
        Unit::Seconds,
        "time in the queue of the limiter"
    );
    describe_histogram!(
        "tidegate_llm_first_content_seconds",
        Unit::Seconds,
        "time to the first piece of an answer"
    );
    describe_histogram!(
        "tidegate_llm_call_seconds",
        Unit::Seconds,
        "time a slot was held"
    );
    describe_gauge!("tidegate_llm_in_flight", "requests in flight by provider");
    describe_gauge!(
        "tidegate_llm_waiting",
        "waiters of the limiter by provider and class"
    );
    describe_gauge!(
        "tidegate_llm_admission_limit",
        "what may be in flight at present by provider"
    );
}

pub(crate) fn measure_call(record: &CallRecord) {
    let provider = record.provider.as_str().to_owned();
    let (class, outcome) = (record.class.as_str(), record.outcome.as_str());
    metrics::counter!("tidegate_llm_calls_total", "provider" => provider.clone(), "class" => class, "outcome" => outcome)
        .increment(1);
    metrics::histogram!("tidegate_llm_queue_seconds", "provider" => provider.clone(), "class" => class)
        .record(record.queued);
    if record.outcome.was_sent() {
        metrics::histogram!("tidegate_llm_call_seconds", "provider" => provider.clone(), "class" => class)
            .record(record.held);
    }
    if let Some(time) = record.first_content {
        metrics::histogram!("tidegate_llm_first_content_seconds", "provider" => provider.clone())
            .record(time);
    }
    if let Some(tokens) = record.usage.tokens() {
        let certainty = record.usage.as_str();
        for (direction, count) in [("input", tokens.input), ("output", tokens.output)] {
            metrics::counter!("tidegate_llm_tokens_total", "provider" => provider.clone(), "direction" => direction, "certainty" => certainty)
                .increment(count);
        }
    }
}

pub(crate) fn measure_limiter(provider: &CatalogName, view: LimiterView) {
    let provider = provider.as_str().to_owned();
    metrics::gauge!("tidegate_llm_in_flight", "provider" => provider.clone()).set(view.in_flight);
    metrics::gauge!("tidegate_llm_admission_limit", "provider" => provider.clone())
        .set(view.admission_limit);
    metrics::gauge!("tidegate_llm_waiting", "provider" => provider.clone(), "class" => CallClass::Foreground.as_str())
        .set(view.waiting_foreground);
    metrics::gauge!("tidegate_llm_waiting", "provider" => provider, "class" => CallClass::Background.as_str())
        .set(view.waiting_background);
}
