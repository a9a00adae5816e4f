//! The outermost layer: asks again while nothing of an answer has arrived, never afterwards (R13.5).
//!
//! Each try takes a slot of its own and is recorded of its own; between tries no slot is held. All tries together stay
//! within the caller's deadline and the provider's total time, so that retries never multiply either (O-28).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tidegate_model::ids::CatalogName;
use tokio::time::{Instant, sleep};

use crate::{
    chat::{ChatRequest, ChatStream},
    config::RetryPolicy,
    dice::Dice,
    error::{FaultKind, LlmError, ProviderFault},
    limits::RETRY_AFTER_WAITED,
    provider::{CallContext, Provider},
};

/// A provider that is asked again.
#[derive(Debug)]
pub struct Retried {
    inner: Arc<dyn Provider>,
    policy: RetryPolicy,
    total: Duration,
    dice: Dice,
}

impl Retried {
    /// Puts retries around a provider; `total` bounds all tries together.
    pub fn new(inner: Arc<dyn Provider>, policy: RetryPolicy, total: Duration, dice: Dice) -> Self {
        Self {
            inner,
            policy,
            total,
            dice,
        }
    }

    /// One try, up to the first piece of the answer.
    async fn attempt(
        &self,
        request: &ChatRequest,
        call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        let mut answer = self.inner.chat(request, call).await?;
        match answer.next().await {
            Some(Ok(first)) => Ok(stream::once(async { Ok(first) }).chain(answer).boxed()),
            Some(Err(error)) => Err(error),
            None => {
                let fault =
                    ProviderFault::new(FaultKind::CutStream, "the answer ended before it began");
                Err(fault.of(self.id()).into())
            }
        }
    }

    /// How long to wait before trying again; `None` where it makes no sense.
    fn wait_before_next(&self, error: &LlmError, done: u32) -> Option<Duration> {
        let LlmError::Provider(fault) = error else {
            return None;
        };
        if done >= self.policy.tries || !fault.kind.is_transient() {
            return None;
        }
        let backoff = self.policy.backoff(done, self.dice.unit());
        match fault.retry_after {
            Some(hint) if hint > RETRY_AFTER_WAITED => None,
            Some(hint) => Some(hint + backoff),
            None => Some(backoff),
        }
    }
}

#[async_trait]
impl Provider for Retried {
    fn id(&self) -> &CatalogName {
        self.inner.id()
    }

    async fn chat(
        &self,
        request: &ChatRequest,
        call: &CallContext,
    ) -> Result<ChatStream, LlmError> {
        let latest = Instant::now() + self.total;
        let deadline = call.deadline.map_or(latest, |at| at.min(latest));
        let mut call = CallContext {
            deadline: Some(deadline),
            try_number: 0,
            ..call.clone()
        };
        loop {
            call.try_number += 1;
            let error = match self.attempt(request, &call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let Some(wait) = self.wait_before_next(&error, call.try_number) else {
                return Err(error);
            };
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            tracing::debug!(
                provider = %self.id(),
                try_number = call.try_number,
                wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                "asking the provider again: {error}"
            );
            sleep(wait).await;
        }
    }
}
