//! The story: turns, a wait with its reason, a takeover.

use std::time::Duration;

use serde_json::json;
use tidegate_client::{Client, RunEvents};
use tidegate_model::{
    ConversationId, RunId,
    api::{CreateConversation, RunEvent, RunExplain, SubmitTurn},
    event::EventKind,
    queue_reason::QueueReason,
    run::{AttemptOutcome, RunState},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    narrator::Narrator,
    stage::{LEASE_MS, Stage},
};
use crate::{
    commands::run::{attempts, reason},
    events::Printer,
    failure::{Failure, Outcome},
    output::duration,
};

/// How long any one step may take before it counts as not having happened.
const STEP: Duration = Duration::from_secs(90);
/// How long a question is asked again because the tool servers are late: each starts an interpreter, on each server.
const TOOLS_LATE: Duration = Duration::from_mins(2);
/// How long until it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);
/// Pieces of the long answer to see before its process is killed.
const PIECES_BEFORE_KILL: usize = 6;
/// The scripted model takes about 20 s for this one; a real model takes as long as it likes.
const LONG: &str = "Please take your time and explain slowly, in at least 300 words, what happens to a long answer.";

/// Tells it all; an error says which step did not happen.
pub async fn tell(narrator: Narrator, stage: &mut Stage) -> Outcome<()> {
    turns(narrator, stage).await?;
    let waiting = waits(narrator, stage).await?;
    takeover(narrator, stage, waiting).await
}

/// Part 1: real turns with model calls, tool calls on the files of this checkout, streaming.
async fn turns(narrator: Narrator, stage: &Stage) -> Outcome<()> {
    narrator.title("1 of 3: two tenants ask about this checkout");
    let questions = [
        ("acme", 0, "What changed lately in this repository?"),
        (
            "globex",
            1,
            "What is the status of this repository, is it clean?",
        ),
    ];
    for (tenant, server, question) in questions {
        let client = stage.client(tenant, server)?;
        narrator.say(&format!(
            "{tenant} asks at {}: {question}",
            stage.servers[server].name()
        ));
        let (run_id, seen) = ask(narrator, stage, tenant, &client, question).await?;
        narrator.proved(
            "turn",
            &format!(
                "{tenant}: asked the model {} times, called {} tool(s), answered in {} pieces",
                seen.model_calls, seen.tools_answered, seen.pieces
            ),
            json!({ "tenant": tenant, "runId": run_id, "toolCalls": seen.tools_answered }),
        );
    }
    Ok(())
}

/// A turn to its end. A tool server that has just been started may be late; then the question is asked again.
async fn ask(
    narrator: Narrator,
    stage: &Stage,
    tenant: &str,
    client: &Client,
    question: &str,
) -> Outcome<(RunId, Seen)> {
    let deadline = Instant::now() + TOOLS_LATE;
    loop {
        let run_id = say(client, new_conversation(client).await?, question).await?;
        let seen = follow(narrator, tenant, client.run_events(run_id, 0)).await?;
        let answered =
            seen.state == Some(RunState::Succeeded) && seen.model_calls > 0 && seen.pieces > 0;
        if answered && (stage.real_model || seen.tools_answered > 0) {
            return Ok((run_id, seen));
        }
        if !answered {
            return Err(missing(&format!("the turn of {tenant} ({seen:?})")));
        }
        if Instant::now() >= deadline {
            return Err(missing("a tool call: the tool servers do not start")
                .remedy("the servers' logs say why; `make setup` installs the tool servers"));
        }
        narrator.say("the tool servers are still starting; once more in a moment:");
        sleep(ASK_AGAIN).await;
    }
}

/// The runs of part 2 that part 3 goes on with.
struct Busy {
    long: RunId,
    queued: RunId,
}

/// Part 2: acme has as many runs as it may; the next one waits and says why, and globex is not held up by it.
async fn waits(narrator: Narrator, stage: &Stage) -> Outcome<Busy> {
    narrator.title("2 of 3: one run waits, and says why");
    narrator.say(
        "acme starts two long turns, which is all its tier lets run at once, and then a third",
    );
    let acme = stage.client("acme", 0)?;
    let mut long = Vec::new();
    for _ in 0..2 {
        long.push(say(&acme, new_conversation(&acme).await?, LONG).await?);
    }
    for run_id in &long {
        let running = |explain: &RunExplain| explain.run.state == RunState::Running;
        until("the long turns run", &acme, *run_id, running).await?;
    }
    let conversation = new_conversation(&acme).await?;
    let queued = say(&acme, conversation, "Hello from the third turn.").await?;
    let capped = |explain: &RunExplain| {
        explain.run.state == RunState::Queued
            && explain
                .reasons
                .iter()
                .any(|reason| reason.code == QueueReason::TenantForegroundCap)
    };
    let explain = until("the third turn waits for acme's cap", &acme, queued, capped).await?;
    narrator.say(&format!("tidegate run explain {queued}"));
    for why in &explain.reasons {
        narrator.block(&reason(why));
    }
    narrator.proved(
        "waiting",
        "the third turn of acme waits: TENANT_FOREGROUND_CAP",
        json!({ "runId": queued, "reasons": explain.reasons }),
    );
    let globex = stage.client("globex", 1)?;
    narrator.say("globex is not held up by that:");
    let began = Instant::now();
    let run_id = say(
        &globex,
        new_conversation(&globex).await?,
        "Hello from globex.",
    )
    .await?;
    let seen = follow(narrator, "globex", globex.run_events(run_id, 0)).await?;
    if seen.state != Some(RunState::Succeeded) {
        return Err(missing("globex is served while acme waits"));
    }
    narrator.proved(
        "fair",
        &format!("globex had its answer after {}", elapsed(began)),
        json!({ "runId": run_id }),
    );
    Ok(Busy {
        long: long[0],
        queued,
    })
}

/// Part 3: the process that works on a run is killed; the other one finishes it.
async fn takeover(narrator: Narrator, stage: &mut Stage, busy: Busy) -> Outcome<()> {
    narrator.title("3 of 3: the process that works on a run is killed");
    let any = stage.client("acme", 0)?;
    let held = |explain: &RunExplain| explain.run.state == RunState::Running;
    let explain = until("the long turn runs", &any, busy.long, held).await?;
    let holder = explain
        .attempts
        .last()
        .map(|attempt| attempt.holder.clone())
        .unwrap_or_default();
    let victim = stage
        .servers
        .iter()
        .position(|server| holder.contains(server.ready("instance")))
        .ok_or_else(|| missing("the holder of the long turn is one of the servers"))?;
    let survivor = 1 - victim;
    let (name, other) = (stage.servers[victim].name(), stage.servers[survivor].name());
    narrator.say(&format!(
        "{name} works on {}; we read along at {other}, which has nothing to do with it",
        busy.long
    ));
    let client = stage.client("acme", survivor)?;
    let mut watched = Watched::new(narrator, "acme", client.run_events(busy.long, 0));
    watched
        .until(|seen| seen.pieces >= PIECES_BEFORE_KILL)
        .await?;
    let pid = stage.servers[victim].id();
    narrator.say(&format!(
        "\nkill -9 {pid}   ({name}. Its lease runs {LEASE_MS} ms here, 30 s unless set; nobody is told, the lease just ends)"
    ));
    stage.servers[victim].kill9()?;
    stage.point_profile_at(survivor)?;
    let killed = Instant::now();
    watched.until(|seen| seen.attempts >= 2).await?;
    let taken_over = elapsed(killed);
    narrator.say(&format!("taken over by {other} after {taken_over}"));
    watched.until(|seen| seen.state.is_some()).await?;
    if watched.seen.state != Some(RunState::Succeeded) {
        return Err(missing("the run succeeded after the takeover"));
    }
    let explain = client.explain_run(busy.long).await?;
    narrator.say(&format!("tidegate run explain {}", busy.long));
    narrator.block(&attempts(&explain.attempts));
    check_attempts(&explain, stage.servers[survivor].ready("instance"))?;
    narrator.proved(
        "takeover",
        &format!(
            "{name} was killed; {other} took the run over after {taken_over} and finished it, once"
        ),
        json!({ "runId": busy.long, "killed": pid, "takenOverAfter": taken_over }),
    );
    third_turn(narrator, &client, busy.queued).await
}

fn check_attempts(explain: &RunExplain, survivor: &str) -> Outcome<()> {
    let lost = explain
        .attempts
        .iter()
        .any(|attempt| attempt.outcome == Some(AttemptOutcome::LeaseLost));
    let finished = explain.attempts.last().is_some_and(|attempt| {
        attempt.outcome == Some(AttemptOutcome::Succeeded) && attempt.holder.contains(survivor)
    });
    if lost && finished {
        Ok(())
    } else {
        Err(missing("a lost attempt, then one that succeeded elsewhere"))
    }
}

/// The run that waited in part 2 comes to its turn.
async fn third_turn(narrator: Narrator, client: &Client, run_id: RunId) -> Outcome<()> {
    let ended = |explain: &RunExplain| explain.run.state.is_ended();
    let explain = until("the third turn ends", client, run_id, ended).await?;
    if explain.run.state != RunState::Succeeded {
        return Err(missing("the third turn succeeded"));
    }
    let waited: i64 = explain.waits.iter().map(|wait| wait.waited_ms).sum();
    narrator.proved(
        "waited",
        &format!(
            "and the turn that waited had its turn, after {} in the queue",
            duration(waited)
        ),
        json!({ "runId": run_id, "waits": explain.waits }),
    );
    Ok(())
}

async fn new_conversation(client: &Client) -> Outcome<ConversationId> {
    let view = client
        .create_conversation(&CreateConversation::default())
        .await?;
    Ok(view.conversation_id)
}

async fn say(client: &Client, conversation: ConversationId, input: &str) -> Outcome<RunId> {
    let turn = SubmitTurn {
        input: input.to_owned(),
        capability: None,
        requirements: None,
        service_class: None,
        deadline: None,
        user: None,
    };
    let accepted = client.submit_turn(conversation, &turn, None).await?;
    Ok(accepted.run_id)
}

/// Asks for the explanation of a run until it is as wanted.
async fn until(
    what: &str,
    client: &Client,
    run_id: RunId,
    wanted: impl Fn(&RunExplain) -> bool,
) -> Outcome<RunExplain> {
    let deadline = Instant::now() + STEP;
    loop {
        let explain = client.explain_run(run_id).await?;
        if wanted(&explain) {
            return Ok(explain);
        }
        if Instant::now() >= deadline {
            let state = explain.run.state;
            return Err(missing(&format!("{what} ({run_id} is {state})")));
        }
        sleep(POLL).await;
    }
}

/// What a run's stream has shown.
#[derive(Debug, Default)]
struct Seen {
    attempts: usize,
    pieces: usize,
    model_calls: usize,
    tools_answered: usize,
    state: Option<RunState>,
}

impl Seen {
    fn take(&mut self, event: &RunEvent) {
        match event.kind {
            EventKind::RunStarted => self.attempts += 1,
            EventKind::MessageDelta => self.pieces += 1,
            EventKind::ModelCalled => self.model_calls += 1,
            EventKind::ToolFinished if event.body["isError"] != true => self.tools_answered += 1,
            EventKind::RunEnded => {
                self.state = event.body["state"]
                    .as_str()
                    .and_then(|text| text.parse().ok());
            }
            _ => {}
        }
    }
}

/// A run's stream that is shown while it is read.
struct Watched {
    events: RunEvents,
    printer: Printer,
    seen: Seen,
}

impl Watched {
    fn new(narrator: Narrator, tenant: &str, events: RunEvents) -> Self {
        Self {
            events,
            printer: Printer::with_prefix(narrator.output(), format!("   {tenant:6} | ")),
            seen: Seen::default(),
        }
    }

    async fn until(&mut self, enough: impl Fn(&Seen) -> bool) -> Outcome<()> {
        let read = async {
            while !enough(&self.seen) {
                let Some(event) = self.events.next().await else {
                    return Err(missing("the stream goes on"));
                };
                let event = event?;
                self.seen.take(&event);
                self.printer.event(&event);
            }
            Ok(())
        };
        let outcome = match timeout(STEP, read).await {
            Ok(outcome) => outcome,
            Err(_) => Err(missing("the stream goes on in time")),
        };
        self.printer.close();
        outcome
    }
}

/// Shows a run to its end.
async fn follow(narrator: Narrator, tenant: &str, events: RunEvents) -> Outcome<Seen> {
    let mut watched = Watched::new(narrator, tenant, events);
    watched.until(|seen| seen.state.is_some()).await?;
    Ok(watched.seen)
}

fn missing(step: &str) -> Failure {
    Failure::failed(format!("this step did not happen: {step}"))
}

fn elapsed(since: Instant) -> String {
    duration(i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX))
}
