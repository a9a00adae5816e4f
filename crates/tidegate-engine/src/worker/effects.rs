//! `POST /v1/worker/runs/{id}/effects` and `…/effects/{callId}`: the journal of effects (R4.5).

use tidegate_model::{
    Code, RunId,
    api::{IntentAnswer, LeaseRef, RecordIntent, RecordOutcome},
    effect::{CallId, EffectOutcome},
    limits,
};
use tidegate_store::effects::{Intended, Intent, Outcome};

use super::held::lease_lost;
use crate::{Engine, Error, Principal, runs::accept::refuse_unstorable};

/// Records that a tool is about to be called; says what is known where it was called before.
pub async fn intend(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    request: RecordIntent,
) -> Result<IntentAnswer, Error> {
    let length = request.tool.chars().count();
    if !(1..=limits::EFFECT_TOOL_MAX_CHARS).contains(&length) || request.tool.contains('\0') {
        return Err(Error::invalid(
            "tool",
            format!(
                "1 to {} characters without NUL, for example files/write",
                limits::EFFECT_TOOL_MAX_CHARS
            ),
        ));
    }
    let fence = request.fence;
    let lease = engine
        .held_one(principal, LeaseRef { run_id, fence })
        .await?;
    let intent = Intent {
        call_id: request.call_id,
        tool: request.tool,
        arguments_digest: request.arguments_digest,
        idempotent: request.idempotent,
    };
    let scope = &engine.settings().execution_scope;
    let most = limits::EFFECTS_PER_RUN_MAX;
    let fleet = engine.store().fleet();
    match fleet.record_intent(scope, &lease, intent, most).await? {
        Intended::Call => Ok(IntentAnswer { recorded: None }),
        Intended::Recorded(recorded) => Ok(IntentAnswer {
            recorded: Some(recorded),
        }),
        Intended::LeaseLost => Err(lease_lost()),
        Intended::Unknown => Err(Error::refused(
            Code::EffectUnknown,
            "an earlier attempt was about to make this call, and nobody knows whether it did; do not call, fail the \
             attempt with this code: the run goes to review",
        )),
        Intended::Differs => Err(Error::refused(
            Code::StateConflict,
            "this call id stands for another tool or other arguments; name each call of a run once",
        )),
        Intended::Stopped(why) => Err(Error::refused(
            why.code(),
            "this attempt was told to stop and makes no new call; end it with what it has, as `renew` told it",
        )),
        Intended::TooMany => Err(Error::refused(
            Code::StateConflict,
            format!("a run has at most {most} effects; split the work into several runs"),
        )),
    }
}

/// Records what came of a call.
pub async fn settle(
    engine: &Engine,
    principal: &Principal,
    run_id: RunId,
    call_id: CallId,
    request: RecordOutcome,
) -> Result<(), Error> {
    if request.outcome == EffectOutcome::NotDone {
        return Err(Error::invalid(
            "outcome",
            "done or failed; where it is not known, record nothing and fail the attempt",
        ));
    }
    refuse_unstorable("result", &request.result)?;
    let size = serde_json::to_vec(&request.result).map_or(usize::MAX, |bytes| bytes.len());
    if size > limits::EFFECT_RESULT_MAX_BYTES {
        return Err(Error::refused(
            Code::PayloadTooLarge,
            format!(
                "the journal keeps at most {} bytes of a result; keep what a later attempt needs to go on",
                limits::EFFECT_RESULT_MAX_BYTES
            ),
        ));
    }
    let fence = request.fence;
    let lease = engine
        .held_one(principal, LeaseRef { run_id, fence })
        .await?;
    let scope = &engine.settings().execution_scope;
    let fleet = engine.store().fleet();
    let recorded = fleet.record_outcome(scope, &lease, call_id, request.outcome, request.result);
    match recorded.await? {
        Outcome::Recorded => Ok(()),
        Outcome::LeaseLost => Err(lease_lost()),
        Outcome::NoIntent => Err(Error::not_found(
            "intent of this call; record it before the call",
        )),
        Outcome::Differs => Err(Error::refused(
            Code::StateConflict,
            "another outcome of this call is recorded; what became of an effect is said once",
        )),
    }
}
