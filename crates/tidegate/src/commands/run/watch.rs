//! `tidegate run watch`.

use tidegate_client::Client;
use tidegate_model::{Code, RunId, api::RunView, event::EventKind, run::RunState};

use crate::{
    events::Printer,
    exit::Exit,
    failure::{Failure, Outcome, remedy_for},
    output::Output,
    signals::Stops,
};

/// Follows a run to its end; where it did not succeed, the failure says why. Ctrl-C stops following, not the run.
pub async fn follow(output: Output, client: &Client, run_id: RunId, after: i64) -> Outcome {
    // Once, before the loop: a signal that comes while an event is written must not fall between two listeners.
    let mut stops = Stops::listen();
    let mut events = client.run_events(run_id, after);
    let mut printer = Printer::new(output);
    // Of the last end; none where the run went on after it, or ended before what was asked for.
    let mut succeeded = None;
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            () = stops.next() => {
                printer.close();
                output.note(&format!(
                    "the run goes on; `tidegate run watch {run_id} --after {}` follows it again",
                    events.last_seq()
                ));
                return Ok(Exit::Interrupted);
            }
        };
        let Some(event) = next else { break };
        let event = event.map_err(|error| failed(error, run_id))?;
        match event.kind {
            EventKind::RunEnded => {
                succeeded = Some(event.body["state"] == RunState::Succeeded.as_str());
            }
            EventKind::RunRequeued => succeeded = None,
            _ => {}
        }
        printer.event(&event);
    }
    printer.close();
    if succeeded == Some(true) {
        return Ok(Exit::Success);
    }
    // The last event says how the run ended; why is in the run.
    let view = client.run(run_id).await?;
    if view.state == RunState::Succeeded {
        return Ok(Exit::Success);
    }
    Err(why(&view))
}

/// Why a run did not succeed, and what to do about it.
fn why(view: &RunView) -> Failure {
    let said = match &view.detail {
        Some(detail) => format!("the run is {}: {detail}", view.state),
        None => format!("the run is {}", view.state),
    };
    let mut failure = Failure::new(Exit::RunNotSucceeded, said);
    failure.code = view.code.map(|code| code.to_string());
    let run_id = view.run_id;
    failure.remedy(view.code.and_then(remedy_for).unwrap_or_else(|| {
        let page = view.code.map_or_else(String::new, |code| {
            format!("; docs/codes/{code}.md says more")
        });
        format!("`tidegate run explain {run_id}` shows its attempts{page}")
    }))
}

/// An error of the stream, with what to do at a command line.
fn failed(error: tidegate_client::Error, run_id: RunId) -> Failure {
    let pruned = error.code() == Some(Code::EventsPruned);
    let failure = Failure::from(error);
    if pruned {
        let after = failure
            .first_seq
            .map_or_else(|| "N".to_owned(), |first| (first - 1).to_string());
        return failure.remedy(format!(
            "read on from there: `tidegate run watch {run_id} --after {after}`"
        ));
    }
    failure
}

#[cfg(test)]
mod tests {
    use tidegate_model::api::Problem;

    use super::*;

    /// R4.6: what to do about pruned events is said as a flag; what to do about others is left as it is.
    #[test]
    fn pruned_events_are_answered_with_the_flag() {
        let run_id = RunId::new();
        let told = |code| {
            let mut problem = Problem::new(code, "events before 41 are gone");
            problem.first_seq = Some(41);
            failed(problem.into(), run_id)
        };
        let document = told(Code::EventsPruned).document();
        assert_eq!(document["error"]["firstSeq"], 41, "{document}");
        let pruned = told(Code::EventsPruned).remedy.expect("a remedy");
        assert!(
            pruned.contains(&format!("run watch {run_id} --after 40`")),
            "{pruned}"
        );
        let forbidden = told(Code::Forbidden).remedy.expect("a remedy");
        assert!(!forbidden.contains("--after"), "{forbidden}");
        // It may be that very key that was refused.
        assert!(!forbidden.contains("`--as admin`"), "{forbidden}");
    }
}
