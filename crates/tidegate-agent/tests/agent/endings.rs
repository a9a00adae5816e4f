//! Turns that are cut off, fail, or are told again.

use std::time::Duration;

use serde_json::json;
use tidegate_model::{Code, api::RunBudget, event::EventKind};
use tokio::time::Instant;

use crate::{
    fake::End,
    rig::{rig, rig_with},
    support::{SOON, spec},
};

/// R3.10: a cancel drops the model call in flight and frees its slot.
#[tokio::test]
async fn cancel_stops_the_model_call() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.server.cancel(run_id);
    let asked = Instant::now();
    let failed = rig.failed(run_id).await;
    assert_eq!((failed.code, failed.retryable), (Code::Cancelled, false));
    assert!(failed.usage.tokens > 0, "what was used is reported");
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    rig.slot_free().await;
    assert!(
        rig.mock
            .until(SOON, |stats| stats.aborted == 1 && stats.in_flight == 0)
            .await
    );
    rig.end().await;
}

/// R3.11: deadline, execution time and tokens each cut a turn off, with their own code.
#[tokio::test]
async fn bounds_of_a_run_cut_it_off() {
    let rig = rig().await;
    let budget = |tokens, execution_ms| RunBudget {
        tokens,
        execution_ms,
    };
    for (text, deadline, budget, code) in [
        (
            "slowly",
            Some(400),
            RunBudget::default(),
            Code::DeadlineExceeded,
        ),
        (
            "slowly",
            None,
            budget(None, Some(400)),
            Code::BudgetExhausted,
        ),
        ("slowly", None, budget(Some(5), None), Code::BudgetExhausted),
        ("hello", None, budget(Some(0), None), Code::BudgetExhausted),
    ] {
        let started = Instant::now();
        let run_id = rig.server.submit(|run| {
            run.input = json!(text);
            run.deadline_in_ms = deadline;
            run.budget_left = budget;
        });
        let failed = rig.failed(run_id).await;
        assert_eq!(
            (failed.code, failed.retryable),
            (code, false),
            "{text} {deadline:?} {budget:?}"
        );
        assert!(
            started.elapsed() < Duration::from_millis(1_300),
            "{:?}",
            started.elapsed()
        );
        rig.slot_free().await;
    }
    let requests = rig.mock.stats().requests;
    assert_eq!(requests, 3, "nothing is asked without tokens");
    rig.end().await;
}

#[tokio::test]
async fn failures_keep_their_code_and_their_time() {
    let rig = rig_with(vec![spec("normal")], |settings| settings.max_steps = 3).await;
    let cut = rig.failed(rig.ask("please cut this secret-question")).await;
    assert_eq!((cut.code, cut.retryable), (Code::ProviderFailed, true));
    assert!(cut.usage.tokens > 0 && !cut.detail.unwrap().contains("secret-question"));
    let endless = rig.failed(rig.ask("go on forever")).await;
    assert_eq!(
        (endless.code, endless.retryable),
        (Code::AgentStepsExhausted, false)
    );
    // Last: the limiter keeps the gate shut for as long as the provider asked.
    let throttled = rig.failed(rig.ask("throttle me")).await;
    assert_eq!(
        (throttled.code, throttled.retryable),
        (Code::ProviderFailed, true)
    );
    assert_eq!(throttled.retry_after_ms, Some(60_000));
    rig.end().await;
}

#[tokio::test]
async fn a_missing_model_says_what_to_do() {
    let rig = rig_with(Vec::new(), |settings| settings.model.set(None)).await;
    let failed = rig.failed(rig.ask("hello")).await;
    assert_eq!(
        (failed.code, failed.retryable),
        (Code::ModelNotConfigured, false)
    );
    assert!(failed.detail.unwrap().contains("tidegate model set"));
    rig.end().await;
}

/// R4.2, R4.4: an attempt that lost its lease stops its model call; the next one starts from the conversation again.
#[tokio::test]
async fn a_taken_over_run_is_told_again() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.server.take_over(run_id);
    let done = rig.completed(run_id).await;
    assert!(done.result["text"].as_str().unwrap().ends_with("seventeen"));
    assert_eq!(
        rig.server
            .with(run_id, |run| (run.attempts, run.ends.len())),
        (2, 1)
    );
    assert!(
        rig.mock
            .until(SOON, |stats| stats.aborted == 1 && stats.completed == 1)
            .await
    );
    rig.end().await;
}

/// R1.7: draining lets a short turn finish and hands a long one back with what it used.
#[tokio::test]
async fn draining_hands_a_long_turn_back() {
    let rig = rig().await;
    let run_id = rig.ask("answer slowly");
    rig.started(run_id).await;
    rig.stop.cancel();
    let End::Released(released) = rig.server.ended(run_id).await else {
        panic!("must be handed back")
    };
    assert!(released.usage.tokens > 0);
    rig.slot_free().await;
    rig.end().await;
}

/// O-26: a tool call ends with its run's deadline where that is nearer than the limit of the call.
#[tokio::test]
async fn a_tool_call_ends_with_its_run() {
    let rig = rig_with(vec![spec("normal")], |_| ()).await;
    let started = Instant::now();
    let run_id = rig.server.submit(|run| {
        run.input = json!("hang");
        run.deadline_in_ms = Some(1_500);
    });
    let failed = rig.failed(run_id).await;
    assert_eq!(failed.code, Code::DeadlineExceeded);
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(rig.events(run_id, EventKind::ToolCalled).len(), 1);
    rig.end().await;
}

/// Bad input: a run that was accepted for other workers, and asks nothing, fails for good and no model is asked.
#[tokio::test]
async fn an_input_that_asks_nothing_fails_for_good() {
    let rig = rig().await;
    for input in [json!(null), json!({ "text": "" })] {
        let run_id = rig.server.submit(|run| run.input = input);
        let failed = rig.failed(run_id).await;
        let ended = (failed.code, failed.retryable);
        assert_eq!(ended, (Code::InvalidArgument, false));
        assert!(failed.detail.unwrap().contains(r#"{"text": "…"}"#));
    }
    assert_eq!(rig.mock.stats().requests, 0);
    rig.end().await;
}
