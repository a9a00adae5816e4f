//! `tidegate run watch`.

use tidegate_client::Client;
use tidegate_model::{RunId, event::EventKind, run::RunState};

use crate::{events::Printer, exit::Exit, failure::Outcome, output::Output, signals::Stops};

/// Follows a run to its end; the exit code says whether it succeeded. Ctrl-C stops following, not the run.
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
        let event = event?;
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
    let succeeded = match succeeded {
        Some(succeeded) => succeeded,
        None => client.run(run_id).await?.state == RunState::Succeeded,
    };
    Ok(if succeeded {
        Exit::Success
    } else {
        Exit::RunNotSucceeded
    })
}
