//! Tools that change something, and what a takeover makes of them (R4.5).

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tidegate_agent::ToolServerSpec;
use tidegate_mock_provider::{MockProvider, Scenario};
use tidegate_model::{
    Code, RunId,
    api::SideEffectLevel,
    effect::{EffectOutcome, EffectSource},
    event::EventKind,
    run::QuotaBucket,
};

use crate::{
    fake::Fault,
    raw::{self, RawProvider},
    rig::{Rig, rig_at},
    support::{program, spec},
};

/// A rig whose model writes a note and then answers, again and again, and whose tool server counts its calls.
struct World {
    rig: Rig,
    provider: RawProvider,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(answers: Vec<Value>, edit: impl FnOnce(&mut ToolServerSpec)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("calls");
        let mut notes = spec("normal");
        let path = log.to_str().unwrap().to_owned();
        let program = program(&mut notes);
        program.env.insert("FIXTURE_LOG".to_owned(), path.into());
        edit(&mut notes);
        let provider = RawProvider::start(answers).await;
        let mock = MockProvider::start(Scenario::default()).await.unwrap();
        let rig = rig_at(&provider.url, mock, vec![notes], |_| ());
        Self {
            rig,
            provider,
            log,
            _dir: dir,
        }
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(&self.log)
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// What became of the run's effects.
    fn outcomes(&self, run_id: RunId) -> Vec<Option<EffectOutcome>> {
        let outcomes = |run: &mut crate::fake::Run| {
            let effects = run.effects.iter();
            effects.map(|(effect, _)| effect.outcome).collect()
        };
        self.rig.server.with(run_id, outcomes)
    }

    /// Lets an attempt call the tool and be lost before the outcome is written, then gives the run to the next one.
    async fn lose_an_outcome(&self, run_id: RunId, edit: impl FnOnce(&mut crate::fake::Run)) {
        self.rig
            .server
            .until("the tool was called", |_| self.calls() == 1)
            .await;
        self.rig.server.with(run_id, edit);
        self.rig.server.take_over(run_id);
    }

    /// What a model was told last.
    fn told(&self) -> String {
        let requests = self.provider.requests();
        let messages = requests.last().unwrap()["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].to_string()
    }
}

fn write() -> Value {
    raw::tool_call("notes__write_note", r#"{"text": "mine"}"#)
}

/// R4.5: an intent before the call, its outcome with the answer after it; the call has one name everywhere.
#[tokio::test]
async fn a_writing_tool_is_called_within_the_journal() {
    let answers = vec![write(), write(), raw::text("Written.")];
    let world = World::new(answers, |_| ()).await;
    let run_id = world.rig.ask("write it down");
    let done = world.rig.completed(run_id).await;
    assert_eq!(done.result["text"], "Written.");
    assert_eq!(world.calls(), 2);
    let (calls, results): (Vec<_>, Vec<_>) = world.rig.server.with(run_id, |run| {
        let effects = run.effects.iter();
        effects
            .map(|(effect, result)| (effect.call_id.to_string(), result.clone()))
            .unzip()
    });
    assert_eq!(results[0]["text"], "write_note was called");
    let told = world.rig.events(run_id, EventKind::ToolCalled);
    let told: Vec<_> = told.iter().map(|body| body["callId"].clone()).collect();
    assert_eq!(told, calls, "a model that repeats its ids is set right");
    assert_ne!(calls[0], calls[1]);
    assert_eq!(world.outcomes(run_id), [Some(EffectOutcome::Done); 2]);
    world.rig.end().await;
}

/// R4.5: the attempt after one that had an effect goes on from its outcome instead of asking and calling again.
#[tokio::test]
async fn a_takeover_goes_on_with_what_is_known() {
    let answers = vec![write(), raw::text("Lost."), raw::text("Written.")];
    let world = World::new(answers, |_| ()).await;
    world.rig.server.fault("complete", [Fault::Hang]);
    let run_id = world.rig.ask("write it down");
    world
        .rig
        .server
        .until("two answers", |_| world.provider.requests().len() == 2)
        .await;
    world.rig.server.take_over(run_id);
    let done = world.rig.completed(run_id).await;
    assert_eq!(done.result["text"], "Written.");
    assert_eq!(world.calls(), 1, "called once over both attempts");
    assert_eq!(done.result["steps"], 2);
    let kept: Vec<_> = done.messages.iter().map(|m| m.role).collect();
    assert_eq!(kept.len(), 3, "{kept:?}");
    assert!(world.told().contains("write_note was called"));
    let notes = world.rig.events(run_id, EventKind::WorkerNote);
    assert!(notes.iter().any(|body| body["note"] == "turn.resumed"));
    // Not ended in order: the first attempt's report hangs until its lease is over.
}

/// R4.5: an open intent is never repeated for a tool that may not be; the attempt says so and calls nothing.
#[tokio::test]
async fn an_unknown_outcome_is_not_called_again() {
    let world = World::new(vec![write(), write()], |_| ()).await;
    world.rig.server.fault("outcome", [Fault::Hang]);
    let run_id = world.rig.ask("write it down");
    world.lose_an_outcome(run_id, |_| ()).await;
    let failed = world.rig.failed(run_id).await;
    assert_eq!(
        (failed.code, failed.retryable),
        (Code::EffectUnknown, false)
    );
    assert_eq!(world.calls(), 1);
    assert_eq!(world.outcomes(run_id), [None]);
    world.rig.end().await;
}

/// R4.5: an idempotent tool is called again under the same name.
#[tokio::test]
async fn an_idempotent_call_is_repeated() {
    let idempotent = |notes: &mut ToolServerSpec| {
        let level = SideEffectLevel::Idempotent;
        notes.tools.insert("write_note".to_owned(), level);
    };
    let world = World::new(vec![write(), raw::text("Written.")], idempotent).await;
    world.rig.server.fault("outcome", [Fault::Hang]);
    let run_id = world.rig.ask("write it down");
    world.lose_an_outcome(run_id, |_| ()).await;
    let done = world.rig.completed(run_id).await;
    assert_eq!(done.result["text"], "Written.");
    assert_eq!(world.calls(), 2);
    assert_eq!(world.outcomes(run_id), [Some(EffectOutcome::Done)]);
    world.rig.end().await;
}

/// R4.5: what a person found out reaches the model of the next attempt, which may then call anew.
#[tokio::test]
async fn a_persons_word_is_told_to_the_model() {
    for (outcome, told, calls) in [
        (EffectOutcome::Done, "was carried out", 1),
        (EffectOutcome::NotDone, "was not carried out", 2),
    ] {
        let mut answers = vec![write(), raw::text("Then so be it.")];
        if outcome == EffectOutcome::NotDone {
            answers.insert(1, write());
        }
        let world = World::new(answers, |_| ()).await;
        world.rig.server.fault("outcome", [Fault::Hang]);
        let run_id = world.rig.ask("write it down");
        let resolved = move |run: &mut crate::fake::Run| {
            let (effect, _) = &mut run.effects[0];
            effect.outcome = Some(outcome);
            effect.source = Some(EffectSource::Person);
            effect.note = Some("I looked.".to_owned());
        };
        world.lose_an_outcome(run_id, resolved).await;
        let done = world.rig.completed(run_id).await;
        assert_eq!(done.result["text"], "Then so be it.");
        let second = world.provider.requests()[1]["messages"].to_string();
        assert!(
            second.contains(told) && second.contains("I looked."),
            "{second}"
        );
        assert_eq!(world.calls(), calls, "{outcome}");
        world.rig.end().await;
    }
}

/// R4.5, O-26: a tool that may write and does not answer in time ends the attempt; the model is not asked to try again.
#[tokio::test]
async fn a_writing_tool_that_hangs_ends_the_attempt() {
    let call = raw::tool_call("notes__slow", "{}");
    let world = World::new(vec![call], |notes| {
        notes
            .tools
            .insert("slow".to_owned(), SideEffectLevel::Write);
        notes.call_timeout = Duration::from_millis(200);
    })
    .await;
    let run_id = world.rig.ask("be slow");
    let failed = world.rig.failed(run_id).await;
    assert_eq!((failed.code, failed.retryable), (Code::ToolTimeout, true));
    assert_eq!(world.outcomes(run_id), [None]);
    assert_eq!(world.provider.requests().len(), 1);
    world.rig.end().await;
}

/// O-21, R20.2: work in the background is offered no tool that writes, and a call of one reaches no server.
#[tokio::test]
async fn background_work_only_reads() {
    let answers = vec![write(), raw::text("I may not.")];
    let world = World::new(answers, |_| ()).await;
    let run_id = world.rig.server.submit(|run| {
        run.quota_bucket = QuotaBucket::Background;
        run.input = json!("write it down");
    });
    world.rig.completed(run_id).await;
    assert!(world.told().contains("TOOL_NOT_READ_ONLY"));
    assert_eq!((world.calls(), world.outcomes(run_id).len()), (0, 0));
    world.rig.end().await;
}

/// R3.11: a renewal says what the attempt has used so far, so that it counts even if nothing more is heard of it.
#[tokio::test]
async fn renewals_carry_what_was_used() {
    let rig = crate::rig::rig_with(vec![spec("normal")], |_| ()).await;
    let run_id = rig.ask("hang");
    rig.server
        .until("use is known before the end", |server| {
            server.with(run_id, |run| run.used > 0 && run.ends.is_empty())
        })
        .await;
    rig.server.cancel(run_id);
    let failed = rig.failed(run_id).await;
    assert_eq!(failed.code, Code::Cancelled);
    rig.end().await;
}
