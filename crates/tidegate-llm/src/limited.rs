//! The layer that lets a request through only with a slot, holds the slot until the answer has ended, watches the clock
//! meanwhile and records what became of it, exactly once (R13.2).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use tidegate_model::ids::CatalogName;
use tidegate_policy::limiter::CallEnd;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::{
    chat::{ChatRequest, ChatStream, Delta, TokenCounts, Usage},
    config::Timeouts,
    error::{FaultKind, LlmError, ProviderFault},
    limiter::{ProviderLimiter, Slot},
    provider::{CallContext, Provider},
    record::{CallOutcome, CallRecord, CallRecorder, measure_call},
};

/// A provider behind its limiter.
pub struct Limited {
    inner: Arc<dyn Provider>,
    limiter: Arc<ProviderLimiter>,
    timeouts: Timeouts,
    recorder: Arc<dyn CallRecorder>,
}

impl Limited {
    /// Puts the limiter around a provider.
    pub fn new(
        inner: Arc<dyn Provider>,
        limiter: Arc<ProviderLimiter>,
        timeouts: Timeouts,
        recorder: Arc<dyn CallRecorder>,
    ) -> Self {
        Self {
            inner,
            limiter,
            timeouts,
            recorder,
        }
    }
}

impl std::fmt::Debug for Limited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limited")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Limited {
    fn id(&self) -> &CatalogName {
        self.inner.id()
    }

    async fn chat(
        &self,
        request: &ChatRequest,
        call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        let mut open = OpenCall::begin(self, request, call);
        let latest = Instant::now() + self.timeouts.total;
        let deadline = call.deadline.map_or(latest, |at| at.min(latest));
        let slot = match self.limiter.acquire(call.class, Some(deadline)).await {
            Ok(slot) => slot,
            Err(error) => return Err(open.failed(error)),
        };
        open.sent(slot);
        let first_by = Instant::now() + self.timeouts.first_content;
        let begun = timeout_at(first_by.min(deadline), self.inner.chat(request, call)).await;
        let inner = match begun {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(open.failed(error)),
            Err(_) if Instant::now() >= deadline => {
                return Err(open.failed(LlmError::DeadlineExceeded));
            }
            Err(_) => return Err(open.failed(no_content(self.id(), self.timeouts.first_content))),
        };
        let answer = LimitedAnswer {
            inner: Some(inner),
            open,
            idle: self.timeouts.idle,
            quiet_until: Some(Box::pin(sleep_until(first_by))),
            first: true,
            ends: Box::pin(sleep_until(deadline)),
        };
        Ok(answer.boxed())
    }
}

fn no_content(provider: &CatalogName, limit: Duration) -> LlmError {
    let text = format!("nothing arrived for {} s", limit.as_secs_f64());
    ProviderFault::new(FaultKind::Timeout, text)
        .of(provider)
        .into()
}

/// An answer that holds its slot.
struct LimitedAnswer {
    /// `None` once it has ended: the connection is closed before the slot is given back.
    inner: Option<ChatStream>,
    open: OpenCall,
    idle: Duration,
    /// When the silence has lasted too long. Armed only while the provider is waited for: a caller that reads slowly
    /// must not look like a provider that stalls.
    quiet_until: Option<Pin<Box<Sleep>>>,
    first: bool,
    ends: Pin<Box<Sleep>>,
}

impl LimitedAnswer {
    fn over_time(&mut self, cx: &mut Context<'_>) -> Option<LlmError> {
        if self.ends.as_mut().poll(cx).is_ready() {
            return Some(LlmError::DeadlineExceeded);
        }
        let idle = self.idle;
        let quiet = self
            .quiet_until
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + idle)));
        quiet.as_mut().poll(cx).is_ready().then(|| {
            let waited = if self.first {
                self.open.first_content_limit
            } else {
                idle
            };
            no_content(&self.open.record.provider, waited)
        })
    }

    fn fail(&mut self, error: LlmError) -> Poll<Option<Result<Delta, LlmError>>> {
        self.inner = None;
        Poll::Ready(Some(Err(self.open.failed(error))))
    }
}

impl Stream for LimitedAnswer {
    type Item = Result<Delta, LlmError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(inner) = this.inner.as_mut() else {
            return Poll::Ready(None);
        };
        this.open.in_provider_code = true;
        let polled = inner.poll_next_unpin(cx);
        this.open.in_provider_code = false;
        match polled {
            Poll::Pending => match this.over_time(cx) {
                Some(error) => this.fail(error),
                None => Poll::Pending,
            },
            Poll::Ready(Some(Ok(delta))) => {
                this.quiet_until = None;
                this.first = false;
                this.open.saw(&delta);
                if matches!(delta, Delta::Finished(_)) {
                    this.inner = None;
                    this.open.close();
                }
                Poll::Ready(Some(Ok(delta)))
            }
            Poll::Ready(Some(Err(error))) => this.fail(error),
            Poll::Ready(None) => {
                let fault =
                    ProviderFault::new(FaultKind::CutStream, "the answer ended without an end");
                let fault = fault.of(&this.open.record.provider);
                this.fail(fault.into())
            }
        }
    }
}

/// A request that has not been recorded yet. Dropping it records it, whatever the path.
struct OpenCall {
    record: CallRecord,
    recorder: Arc<dyn CallRecorder>,
    asked_at: Instant,
    sent_at: Option<Instant>,
    slot: Option<Slot>,
    first_content_limit: Duration,
    pieces: u64,
    outcome: Option<CallOutcome>,
    in_provider_code: bool,
    recorded: bool,
}

impl OpenCall {
    fn begin(layer: &Limited, request: &ChatRequest, call: &CallContext) -> Self {
        let record = CallRecord {
            provider: layer.id().clone(),
            model: request.model.clone(),
            class: call.class,
            tenant: call.tenant.clone(),
            run: call.run,
            try_number: call.try_number,
            queued: Duration::ZERO,
            first_content: None,
            held: Duration::ZERO,
            outcome: CallOutcome::LeftQueue,
            usage: Usage::NOTHING,
        };
        Self {
            record,
            recorder: Arc::clone(&layer.recorder),
            asked_at: Instant::now(),
            sent_at: None,
            slot: None,
            first_content_limit: layer.timeouts.first_content,
            pieces: 0,
            outcome: None,
            in_provider_code: false,
            recorded: false,
        }
    }

    fn sent(&mut self, mut slot: Slot) {
        slot.sent();
        self.record.queued = self.asked_at.elapsed();
        self.sent_at = Some(Instant::now());
        self.slot = Some(slot);
    }

    fn saw(&mut self, delta: &Delta) {
        if let (None, Some(sent_at)) = (self.record.first_content, self.sent_at) {
            self.record.first_content = Some(sent_at.elapsed());
        }
        match delta {
            // Every piece stands for at least one token: a bound that is never too high.
            Delta::Text(_) | Delta::Progress => self.pieces += 1,
            Delta::ToolCall(_) => {}
            Delta::Finished(finish) => {
                self.outcome = Some(CallOutcome::Answered);
                self.record.usage = finish.usage;
                if let Some(slot) = &mut self.slot {
                    slot.ended(CallEnd::Answered);
                }
            }
        }
    }

    /// Notes how the call failed and closes it; hands the error on.
    fn failed(&mut self, error: LlmError) -> LlmError {
        let mut end = CallEnd::Other;
        self.outcome = Some(match &error {
            LlmError::Busy { cause, .. } => CallOutcome::Busy(*cause),
            LlmError::DeadlineExceeded if self.sent_at.is_none() => CallOutcome::LeftQueue,
            LlmError::DeadlineExceeded => CallOutcome::DeadlineExceeded,
            LlmError::Provider(fault) => {
                if fault.asks_for_less() {
                    end = CallEnd::Throttled {
                        retry_after: fault.retry_after,
                    };
                }
                CallOutcome::Failed(fault.kind)
            }
            LlmError::UnknownModel { .. } | LlmError::Unusable { .. } => {
                CallOutcome::Failed(FaultKind::Refused)
            }
        });
        if let Some(slot) = &mut self.slot {
            slot.ended(end);
        }
        self.record.usage = match &error {
            // A provider that answers with an error status before the answer began has used nothing.
            LlmError::Provider(fault) if fault.status.is_some() && self.pieces == 0 => {
                Usage::NOTHING
            }
            _ => self.counted(),
        };
        self.close();
        error
    }

    fn counted(&self) -> Usage {
        if self.sent_at.is_none() {
            return Usage::NOTHING;
        }
        Usage::LowerBound(TokenCounts {
            input: 0,
            output: self.pieces,
        })
    }

    /// Gives back the slot, then records.
    fn close(&mut self) {
        if std::mem::replace(&mut self.recorded, true) {
            return;
        }
        if self.outcome.is_none() {
            self.record.usage = self.counted();
        }
        self.record.held = self.sent_at.map(|at| at.elapsed()).unwrap_or_default();
        if self.sent_at.is_none() {
            self.record.queued = self.asked_at.elapsed();
        }
        let panicked = self.in_provider_code || std::thread::panicking();
        self.record.outcome = match self.outcome {
            Some(outcome) => outcome,
            None if panicked => CallOutcome::Panicked,
            None if self.sent_at.is_none() => CallOutcome::LeftQueue,
            None => CallOutcome::ClientClosed,
        };
        self.slot = None;
        measure_call(&self.record);
        self.recorder.record(&self.record);
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.close();
    }
}
