//! `tidegate run watch`.

use tidegate_client::Client;
use tidegate_model::{RunId, event::EventKind, run::RunState};

use crate::{events::Printer, exit::Exit, failure::Outcome, output::Output};

/// Follows a run to its end; the exit code says whether it succeeded. Ctrl-C stops following, not the run.
pub async fn follow(output: Output, client: &Client, run_id: RunId, after: i64) -> Outcome {
    let mut events = client.run_events(run_id, after);
    let mut printer = Printer::new(output);
    let mut succeeded = false;
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            _ = tokio::signal::ctrl_c() => {
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
        if event.kind == EventKind::RunEnded {
            succeeded = event.body["state"] == RunState::Succeeded.as_str();
        }
        printer.event(&event);
    }
    printer.close();
    Ok(if succeeded {
        Exit::Success
    } else {
        Exit::RunNotSucceeded
    })
}
