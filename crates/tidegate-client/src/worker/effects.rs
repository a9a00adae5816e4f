//! The journal of effects, as a handler writes it (R4.5).

use std::{future::Future, time::Duration};

use serde_json::Value;
use tidegate_model::{
    api::{RecordIntent, RecordOutcome, RecordedOutcome},
    digest::Digest,
    effect::{CallId, EffectOutcome},
};
use tokio::time::sleep;

use super::{
    attempt::Job,
    events::may_pass,
    held::{Held, Stop},
};
use crate::{Error, Result, RetryPolicy, ambient::Dice};

/// Pauses between tries of a write that the server cannot take now.
const PAUSES: RetryPolicy = RetryPolicy {
    max_tries: u32::MAX,
    base: Duration::from_millis(100),
    max: Duration::from_secs(2),
};

impl Job {
    /// Records that a call is about to be made that may change something. `None`: make it now, and then say what came
    /// of it with [`Job::settle`]; otherwise that is known already. All events so far are written before, so that a
    /// later attempt finds what led to the call.
    ///
    /// An error with `EFFECT_UNKNOWN` means that nobody may make this call; fail the attempt with that code.
    pub async fn intend(
        &self,
        call_id: CallId,
        tool: &str,
        arguments_digest: Digest,
        idempotent: bool,
    ) -> Result<Option<RecordedOutcome>> {
        // A refused event ends the attempt by itself; until then nothing more is to be called.
        if self.events().flush().await.is_err() {
            return std::future::pending().await;
        }
        let request = RecordIntent {
            fence: self.lease().fence,
            call_id,
            tool: tool.to_owned(),
            arguments_digest,
            idempotent,
        };
        let run_id = self.run().run_id;
        let answer = while_held(self.held(), || {
            self.api().record_intent(run_id, request.clone())
        })
        .await?;
        Ok(answer.recorded)
    }

    /// Records what came of a call. Not to be called where that is not known: fail the attempt instead.
    pub async fn settle(
        &self,
        call_id: &CallId,
        outcome: EffectOutcome,
        result: Value,
    ) -> Result<()> {
        let request = RecordOutcome {
            fence: self.lease().fence,
            outcome,
            result,
        };
        let run_id = self.run().run_id;
        while_held(self.held(), || {
            self.api()
                .record_outcome(run_id, call_id.clone(), request.clone())
        })
        .await
    }
}

/// Repeats a write that may pass later, as long as the lease is held.
async fn while_held<T, F: Future<Output = Result<T>>>(
    held: &Held,
    mut write: impl FnMut() -> F,
) -> Result<T> {
    let dice = Dice::ambient();
    let mut tries = 0;
    loop {
        tries += 1;
        match write().await {
            Err(error) if error.is_lease_lost() => {
                held.raise(Stop::Lost);
                return Err(error);
            }
            Err(error) if may_pass(&error) && held.is_held() => {
                repeat(&error, tries, &dice).await;
            }
            done => return done,
        }
    }
}

async fn repeat(error: &Error, tries: u32, dice: &Dice) {
    tracing::debug!(tries, %error, "repeating a write to the journal of effects");
    sleep(PAUSES.backoff(tries, dice.unit())).await;
}
