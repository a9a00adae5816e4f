//! The limiter around a real provider.

use std::{sync::Arc, time::Duration};

use tidegate_llm::{Answer, CallContext, LlmError, RetryPolicy};
use tidegate_policy::limiter::BusyCause;

use crate::support::{Rig, SOON, background, foreground, one, request, rig};

const SECOND: &str = r#"
[[rule]]
name = "hold"
when = { text_contains = "hold" }
reply = { text = "held", first_delay_ms = 1500 }
[[rule]]
name = "quick"
reply = { text = "{{text}}", first_delay_ms = 15 }
"#;

type Task = tokio::task::JoinHandle<Result<Answer, LlmError>>;

fn start(rig: &Arc<Rig>, text: &str, call: &CallContext) -> Task {
    let (rig, text, call) = (Arc::clone(rig), text.to_owned(), call.clone());
    tokio::spawn(async move { rig.ask_with(request(&text), &call).await })
}

async fn holding(rig: &Arc<Rig>) -> Task {
    let task = start(rig, "hold", &foreground());
    assert!(rig.mock.until(SOON, |stats| stats.in_flight == 1).await);
    task
}

async fn queue(rig: &Arc<Rig>, text: &str, call: &CallContext) -> Task {
    let before = rig.waiting();
    let task = start(rig, text, call);
    rig.until("one more in the queue", |rig| rig.waiting() == before + 1)
        .await;
    task
}

/// R13.1
#[tokio::test]
async fn no_more_than_the_cap_reach_the_provider() {
    let rig = Arc::new(rig(SECOND, |config| config.limits.max_in_flight = one(3)).await);
    let tasks: Vec<_> = (0..30)
        .map(|n| start(&rig, &format!("q{n}"), &foreground()))
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let stats = rig.mock.stats();
    assert_eq!((stats.requests, stats.peak_in_flight), (30, 3));
}

/// R13.1: foreground leaves first, each class in the order of arrival.
#[tokio::test]
async fn foreground_reaches_the_provider_before_background() {
    let rig = Arc::new(rig(SECOND, |config| config.limits.max_in_flight = one(1)).await);
    let mut tasks = vec![holding(&rig).await];
    for (text, call) in [
        ("b1", background()),
        ("b2", background()),
        ("f1", foreground()),
        ("f2", foreground()),
    ] {
        tasks.push(queue(&rig, text, &call).await);
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let order: Vec<_> = rig
        .mock
        .requests()
        .iter()
        .map(|sent| sent["messages"][1]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(order, ["hold", "f1", "f2", "b1", "b2"]);
}

/// R13.1: full, and over; the provider is not asked.
#[tokio::test]
async fn a_full_queue_and_a_wait_that_is_over_are_llm_busy() {
    let rig = Arc::new(
        rig(SECOND, |config| {
            config.limits.max_in_flight = one(1);
            config.limits.max_queue = 1;
            config.limits.queue_timeout = Some(Duration::from_millis(600));
        })
        .await,
    );
    let holder = holding(&rig).await;
    let waiter = queue(&rig, "waits", &foreground()).await;
    let full = rig.ask("too many").await.unwrap_err();
    assert!(
        matches!(
            &full,
            LlmError::Busy {
                cause: BusyCause::QueueFull,
                ..
            }
        ),
        "{full}"
    );
    let over = waiter.await.unwrap().unwrap_err();
    assert!(
        matches!(
            &over,
            LlmError::Busy {
                cause: BusyCause::WaitedTooLong,
                ..
            }
        ),
        "{over}"
    );
    for error in [full, over] {
        assert_eq!(
            (error.code().as_str(), error.code().status()),
            ("LLM_BUSY", 503)
        );
        assert!(
            error
                .retry_after()
                .is_some_and(|hint| hint >= Duration::from_secs(1))
        );
    }
    holder.await.unwrap().unwrap();
    assert_eq!(rig.mock.stats().requests, 1);
    assert_eq!(
        rig.records.outcomes(),
        ["queue_full", "waited_too_long", "answered"]
    );
}

#[tokio::test]
async fn a_deadline_in_the_queue_ends_the_wait() {
    let rig = Arc::new(rig(SECOND, |config| config.limits.max_in_flight = one(1)).await);
    let holder = holding(&rig).await;
    let deadline = tokio::time::Instant::now() + Duration::from_millis(50);
    let call = CallContext {
        deadline: Some(deadline),
        ..foreground()
    };
    assert_eq!(
        rig.ask_with(request("late"), &call).await,
        Err(LlmError::DeadlineExceeded)
    );
    holder.await.unwrap().unwrap();
    assert_eq!(rig.records.outcomes(), ["left_queue", "answered"]);
}

/// R13.2: a 429 shrinks admission and pauses it; the waiters go when the pause is over.
#[tokio::test]
async fn a_429_pauses_the_provider_and_admission_recovers() {
    let scenario = r#"
        [[rule]]
        name = "less"
        when = { nth = 1 }
        fault = { kind = "status", status = 429, retry_after_ms = 1200 }
        [[rule]]
        name = "ok"
        reply = { text = "fine" }
    "#;
    let rig = Arc::new(rig(scenario, |config| config.retry = RetryPolicy::NONE).await);
    rig.ask("first").await.unwrap_err();
    let view = *rig.providers.views()[0].state.as_ref().unwrap();
    assert_eq!(view.admission_limit, 1);
    assert!(view.paused_for > Duration::from_millis(300), "{view:?}");
    let begun = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..4).map(|_| start(&rig, "next", &foreground())).collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(300),
        "they waited for the pause"
    );
    let view = *rig.providers.views()[0].state.as_ref().unwrap();
    assert!(view.admission_limit > 1, "{view:?}");
}

/// R13.1: requests per minute, on paused time.
#[tokio::test(start_paused = true)]
async fn requests_per_minute_open_the_gate_by_time_alone() {
    use tidegate_llm::{CallClass, Dice, LimiterSettings, ProviderLimiter};
    let settings = LimiterSettings::from_numbers(8, Some(2), 8, 0).unwrap();
    let limiter = ProviderLimiter::new(crate::support::name("p"), settings, Dice::from_fn(|| 0.0));
    let begun = tokio::time::Instant::now();
    let mut starts = Vec::new();
    for _ in 0..5 {
        let mut slot = limiter.acquire(CallClass::Foreground, None).await.unwrap();
        slot.sent();
        starts.push(begun.elapsed().as_secs());
    }
    assert_eq!(starts, [0, 0, 60, 60, 120]);
}

/// A caller that is chosen and leaves before it notices gives the slot to the next.
#[tokio::test(start_paused = true)]
async fn a_slot_granted_to_a_caller_that_left_goes_on_to_the_next() {
    use tidegate_llm::{CallClass, Dice, LimiterSettings, ProviderLimiter};
    let settings = LimiterSettings {
        max_in_flight: one(1),
        ..LimiterSettings::default()
    };
    let limiter = ProviderLimiter::new(crate::support::name("p"), settings, Dice::from_fn(|| 0.0));
    let slot = limiter.acquire(CallClass::Foreground, None).await.unwrap();
    let mut leaver = Box::pin(limiter.acquire(CallClass::Foreground, None));
    let mut next = Box::pin(limiter.acquire(CallClass::Background, None));
    assert!(futures::poll!(&mut leaver).is_pending() && futures::poll!(&mut next).is_pending());
    drop(slot);
    assert_eq!(
        (limiter.view().in_flight, limiter.view().waiting_background),
        (1, 1),
        "the leaver was chosen"
    );
    drop(leaver);
    assert!(futures::poll!(&mut next).is_ready());
    drop(next);
    assert_eq!(limiter.view().in_flight, 0);
}
