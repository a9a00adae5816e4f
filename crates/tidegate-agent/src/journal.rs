//! Calls of tools that may change something, with the journal of effects around them (R4.5).

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::worker::{Failure, Job};
use tidegate_model::{
    Code,
    api::{RecordedOutcome, SideEffectLevel},
    digest::{Digest, canonical_digest},
    effect::{CallId, EffectOutcome, EffectSource},
    limits::EFFECT_RESULT_MAX_BYTES,
};

use crate::{
    resume::PlannedCall,
    tools::{Offer, Reached, ToolAnswer, ToolHost, bounded},
};

/// Calls a tool once, whatever happened to earlier attempts: an outcome that is known is taken from the journal, and a
/// call whose outcome is not known ends the attempt instead of being told to the model, which would call again.
pub(crate) async fn call(
    job: &Job,
    tools: &ToolHost,
    offer: &Offer,
    planned: &PlannedCall,
    level: Option<SideEffectLevel>,
) -> Result<ToolAnswer, Failure> {
    let call = &planned.call;
    let call_id: CallId = call.id.parse().map_err(|_| no_journal("its id"))?;
    let idempotent = matches!(
        level,
        Some(SideEffectLevel::Idempotent | SideEffectLevel::Read)
    );
    let digest = digest(&call.arguments).ok_or_else(|| no_journal("its arguments"))?;
    let known = job
        .intend(call_id.clone(), &planned.tool, digest, idempotent)
        .await
        .map_err(|error| refused(&error))?;
    if let Some(known) = known {
        return Ok(told(&planned.tool, known));
    }
    // Two runs may have calls of the same id.
    let key = format!("{}:{call_id}", job.run().run_id);
    let answer = tools.call_under(Some(&key), offer, &call.name, &call.arguments);
    let answer = answer.await;
    let outcome = match (answer.reached, answer.is_error) {
        (Reached::Unknown, _) => return Err(unknown(&planned.tool, answer.code)),
        (Reached::No, _) | (Reached::Answered, true) => EffectOutcome::Failed,
        (Reached::Answered, false) => EffectOutcome::Done,
    };
    job.settle(&call_id, outcome, kept(&answer))
        .await
        .map_err(|error| refused(&error))?;
    Ok(answer)
}

fn digest(arguments: &str) -> Option<Digest> {
    let value: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
    canonical_digest(&value).ok()
}

/// What a later attempt goes on with: the answer, cut until the journal takes it.
fn kept(answer: &ToolAnswer) -> Value {
    let mut most = answer.text.len();
    loop {
        let value = json!({ "text": bounded(&answer.text, most), "isError": answer.is_error });
        if value.to_string().len() <= EFFECT_RESULT_MAX_BYTES || most == 0 {
            return value;
        }
        most /= 2;
    }
}

/// What a model is told of a call that an earlier attempt made.
fn told(tool: &str, known: RecordedOutcome) -> ToolAnswer {
    let note = known
        .note
        .map_or_else(String::new, |note| format!(" They said: {note}"));
    let text = match (known.source, known.outcome) {
        (EffectSource::Person, EffectOutcome::NotDone) => format!(
            "{tool} was not carried out, as a person found out. Call it again if it is still needed.{note}"
        ),
        (EffectSource::Person, _) => format!(
            "{tool} was carried out, as a person found out; what it answered is not known. Do not call it again for \
             this.{note}"
        ),
        (EffectSource::Attempt, _) => {
            let text = known.result["text"].as_str().unwrap_or_default();
            text.to_owned()
        }
    };
    ToolAnswer {
        text,
        code: None,
        is_error: known.outcome != EffectOutcome::Done,
        reached: Reached::Answered,
    }
}

/// The tool was asked and did not answer. Another attempt may call an idempotent one again; for any other the server
/// asks a person.
fn unknown(tool: &str, code: Option<Code>) -> Failure {
    let text =
        format!("{tool} was called and did not answer; whether it did its work is not known");
    Failure {
        retryable: true,
        ..Failure::new(code.unwrap_or(Code::ToolUnavailable), text)
    }
}

fn refused(error: &tidegate_client::Error) -> Failure {
    let unknown = error.code() == Some(Code::EffectUnknown);
    let code = if unknown {
        Code::EffectUnknown
    } else {
        Code::WorkerFailed
    };
    Failure {
        retryable: !unknown,
        retry_after: Some(Duration::from_secs(1)),
        ..Failure::new(code, format!("the journal of effects: {error}"))
    }
}

fn no_journal(what: &str) -> Failure {
    let text = format!("a call cannot stand in the journal of effects: {what}");
    Failure::new(Code::WorkerFailed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_fits_into_the_journal() {
        let answer = |text: String| ToolAnswer {
            text,
            code: None,
            is_error: false,
            reached: Reached::Answered,
        };
        let short = kept(&answer("written".to_owned()));
        assert_eq!(short, json!({"text": "written", "isError": false}));
        // A control character takes six bytes in JSON.
        for text in ["\u{1}".repeat(32 << 10), "é".repeat(60 << 10)] {
            let kept = kept(&answer(text)).to_string().len();
            assert!((EFFECT_RESULT_MAX_BYTES / 8..=EFFECT_RESULT_MAX_BYTES).contains(&kept));
        }
    }
}
