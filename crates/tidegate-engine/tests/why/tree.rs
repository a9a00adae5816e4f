//! Children, waits and people through the use cases.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_engine::{Principal, leases, runs, tenants, worker};
use tidegate_model::{
    Code, PoolId, RunId,
    api::{
        AnswerInput, Ask, AttemptAnswer, AttemptUsage, ChildAccepted, ContextAnswer,
        ContextRequest, Lease, RunBudget, SetTenantState, SubmitChild, WaitByCause,
        WaitForChildren, WaitRun,
    },
    queue_reason::QueueReason,
    run::{AskKind, RunState, ServiceClass, WaitMode, WaitOn},
};

use crate::rig::{World, acme, claim_on, member, operator, settings, task};

type Change = fn(&mut SubmitChild);

fn builtin() -> Principal {
    Principal::built_in_worker(PoolId::builtin())
}

fn child(lease: &Lease, key: &str) -> SubmitChild {
    SubmitChild {
        fence: lease.fence,
        key: key.to_owned(),
        capability: "chat".parse().expect("capability"),
        requirements: None,
        input: json!({"n": 1}),
        service_class: None,
        priority: None,
        deadline: None,
        run_at: None,
        max_attempts: None,
        budget: None,
    }
}

fn waiting(lease: &Lease) -> WaitRun {
    WaitRun {
        fence: lease.fence,
        children: None,
        input: None,
        until: None,
        messages: Vec::new(),
        usage: AttemptUsage::default(),
    }
}

fn on_children(lease: &Lease, runs: Option<&[RunId]>) -> WaitRun {
    WaitRun {
        children: Some(WaitForChildren {
            runs: runs.map(<[RunId]>::to_vec),
            mode: None,
        }),
        ..waiting(lease)
    }
}

fn asking(lease: &Lease, prompt: &str) -> WaitRun {
    WaitRun {
        input: Some(Ask {
            kind: AskKind::Text,
            prompt: prompt.to_owned(),
            choices: vec!["red".to_owned(), "blue".to_owned()],
            call_id: None,
        }),
        ..waiting(lease)
    }
}

fn all(lease: &Lease) -> WaitRun {
    WaitRun {
        children: Some(WaitForChildren {
            runs: None,
            mode: Some(WaitMode::All),
        }),
        ..waiting(lease)
    }
}

impl World {
    async fn born(&self, lease: &Lease, key: &str) -> RunId {
        let accepted = self.start(lease, child(lease, key)).await;
        accepted.expect("a child").run_id
    }

    async fn start(&self, lease: &Lease, request: SubmitChild) -> Result<ChildAccepted, Code> {
        worker::children::submit_child(&self.engine, &builtin(), lease.run.run_id, request)
            .await
            .map_err(|error| error.code())
    }

    async fn park(&self, lease: &Lease, request: WaitRun) -> Result<AttemptAnswer, Code> {
        worker::wait::wait(&self.engine, &builtin(), lease.run.run_id, request)
            .await
            .map_err(|error| error.code())
    }

    async fn context(&self, lease: &Lease, only: Option<Vec<RunId>>) -> ContextAnswer {
        let request = ContextRequest {
            fence: lease.fence,
            limit: 10,
            children: only,
        };
        worker::context::context(&self.engine, &builtin(), lease.run.run_id, request)
            .await
            .expect("context")
    }

    async fn set_state(&self, state: &str) {
        let request = SetTenantState {
            state: state.parse().expect("state"),
        };
        tenants::set_state(&self.engine, &operator(), &acme(), request)
            .await
            .expect("set state");
    }

    async fn leased(&self, capability: &str) -> Lease {
        let run = self.submit(task(capability)).await;
        self.expect_start(&PoolId::builtin(), run).await
    }

    async fn answer(&self, run: RunId, answer: AnswerInput) -> Result<RunState, Code> {
        runs::input::answer(&self.engine, &member("acme"), run, answer)
            .await
            .map(|view| view.state)
            .map_err(|error| error.code())
    }
}

/// O-07, R3.13: whatever speaks against a child is told to the parent at once, by code; nothing stays behind.
#[tokio::test]
async fn a_refused_child_is_an_answer() {
    let world = World::new(settings()).await;
    let mut request = task("chat");
    request.budget = Some(RunBudget {
        tokens: Some(100),
        execution_ms: None,
    });
    let run = world.submit(request).await;
    let lease = world.expect_start(&PoolId::builtin(), run).await;
    world
        .start(&lease, child(&lease, "known"))
        .await
        .expect("accepted");
    let began = Instant::now();
    let cases: [(Code, Change); 6] = [
        (Code::Unsatisfiable, |c| {
            c.capability = "song".parse().expect("capability");
        }),
        (Code::IdempotencyConflict, |c| {
            c.key = "known".to_owned();
            c.input = json!({"n": 2});
        }),
        (Code::DelegationExceedsParent, |c| {
            c.service_class = Some(ServiceClass::Interactive);
        }),
        (Code::DelegationExceedsParent, |c| {
            c.budget = Some(RunBudget {
                tokens: Some(101),
                execution_ms: None,
            });
        }),
        (Code::InvalidArgument, |c| c.key = "two words".to_owned()),
        (Code::InvalidArgument, |c| c.max_attempts = Some(0)),
    ];
    for (code, change) in cases {
        let mut request = child(&lease, "new");
        change(&mut request);
        assert_eq!(world.start(&lease, request).await, Err(code));
    }
    world.set_state("suspended").await;
    assert_eq!(
        world.start(&lease, child(&lease, "new")).await,
        Err(Code::TenantSuspended)
    );
    world.set_state("active").await;
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "all of them at once"
    );
    assert_eq!(world.context(&lease, None).await.children.len(), 1);
    world.complete(&lease).await;
    let late = world.start(&lease, child(&lease, "late")).await;
    assert_eq!(late, Err(Code::ParentEnded));
    let mut made_up = child(&lease, "late");
    made_up.fence.number = 99;
    assert_eq!(world.start(&lease, made_up).await, Err(Code::LeaseLost));
}

/// R3.13: what a parent waits for is shown, and only its own children can be waited for.
#[tokio::test]
async fn a_wait_on_children_is_shown() {
    let world = World::new(settings()).await;
    let lease = world.leased("chat").await;
    let parent = lease.run.run_id;
    let none = world.park(&lease, on_children(&lease, None)).await;
    assert_eq!(none, Err(Code::InvalidArgument));
    let runs = [world.born(&lease, "a").await, world.born(&lease, "b").await];
    let foreign = [runs[0], RunId::new()];
    let refused = world.park(&lease, on_children(&lease, Some(&foreign)));
    assert_eq!(refused.await, Err(Code::InvalidArgument));
    let parked = world.park(&lease, all(&lease)).await.expect("parked");
    assert_eq!(parked.state, RunState::Waiting);
    let view = world.get(parent).await;
    assert_eq!(view.queue_reason, None);
    let wait = view.waiting_for.expect("waits");
    assert_eq!(
        (wait.on, wait.mode),
        (WaitOn::Children, Some(WaitMode::All))
    );
    assert_eq!(wait.runs.len(), 2);
    let shows = format!("tidegate run children {parent}");
    assert!(wait.remedy.contains(&shows), "{}", wait.remedy);
    let tree = runs::children::tree(&world.engine, &member("acme"), parent).await;
    let tree = tree.expect("tree").items;
    assert!(
        tree.iter()
            .all(|run| (run.parent_run_id, run.depth) == (parent, 1))
    );
    assert_eq!(tree.iter().map(|run| run.run_id).collect::<Vec<_>>(), runs);
    let foreign = runs::children::tree(&world.engine, &member("globex"), parent).await;
    let code = foreign.map_err(|error| error.code()).err();
    assert_eq!(code, Some(Code::NotFound));
}

/// R3.13: the next attempt of a parent finds its children with their ends and results.
#[tokio::test]
async fn a_parent_goes_on_from_its_childrens_ends() {
    let world = World::new(settings()).await;
    let pool = PoolId::builtin();
    let lease = world.leased("chat").await;
    let parent = lease.run.run_id;
    let good = world.born(&lease, "good").await;
    let bad = world.born(&lease, "bad").await;
    world.park(&lease, all(&lease)).await.expect("parked");
    for lease in world.claim(&pool, 2).await {
        assert_eq!(lease.run.parent_run_id, Some(parent));
        if lease.run.run_id == good {
            world.complete(&lease).await;
        } else {
            world.fail(bad, lease.fence, Code::Cancelled, 0).await;
        }
    }
    let resumed = world.expect_start(&pool, parent).await;
    let children = world.context(&resumed, None).await.children;
    let seen: Vec<_> = children
        .iter()
        .map(|c| (c.key.as_str(), c.state, c.code, c.retryable))
        .collect();
    let expected = [
        ("good", RunState::Succeeded, None, None),
        ("bad", RunState::Failed, Some(Code::Cancelled), Some(false)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(children[0].result, Some(json!({"ok": true})));
    let one = world.context(&resumed, Some(vec![bad])).await.children;
    assert_eq!((one.len(), one[0].run_id), (1, bad));
    let explained = runs::explain::explain(&world.engine, &member("acme"), parent).await;
    let waits = explained.expect("explain").waits;
    let backed_off = |wait: &WaitByCause| wait.code == QueueReason::RetryBackoff;
    assert!(!waits.iter().any(backed_off), "{waits:?}");
    world.complete(&resumed).await;
    tidegate_testkit::audit(world.db.pool()).await;
}

/// R3.7: a turn that waits keeps its conversation busy and says so; cancel frees it.
#[tokio::test]
async fn a_waiting_turn_keeps_its_conversation_busy() {
    let world = World::new(settings()).await;
    let pool = PoolId::builtin();
    let conversation = world.conversation().await;
    let turn = world.turn(conversation).await;
    let lease = world.expect_start(&pool, turn).await;
    let next = world.turn(conversation).await;
    let asked = world.park(&lease, asking(&lease, "which colour?")).await;
    assert_eq!(asked.expect("parked").state, RunState::Waiting);
    let reason = world.expect_reason(next, QueueReason::ConversationBusy);
    let reason = reason.await;
    assert_eq!(reason.facts["activeState"], "waiting");
    let shows = format!("tidegate run get {turn}");
    assert!(reason.remedy.contains(&shows), "{}", reason.remedy);
    world.expect_no_start(&pool).await;
    let cancelled = runs::cancel::cancel(&world.engine, &member("acme"), turn).await;
    assert_eq!(cancelled.expect("cancel").state, RunState::Cancelled);
    world.expect_start(&pool, next).await;
}

/// R3.15: what a run asks is shown; only what fits is taken, once; the next attempt has the answer.
#[tokio::test]
async fn a_person_is_asked_and_answers() {
    let world = World::new(settings()).await;
    let lease = world.leased("chat").await;
    let run = lease.run.run_id;
    let other = world.leased("chat").await.run.run_id;
    let empty = world.park(&lease, asking(&lease, " ")).await;
    assert_eq!(empty, Err(Code::InvalidArgument));
    let asked = world.park(&lease, asking(&lease, "which colour?")).await;
    asked.expect("parked");
    let wait = world.get(run).await.waiting_for.expect("waits");
    assert_eq!((wait.on, wait.ask_no), (WaitOn::Input, Some(1)));
    assert_eq!(wait.ask.expect("a question").prompt, "which colour?");
    let text = |text: &str, ask_no| AnswerInput {
        ask_no,
        text: Some(text.to_owned()),
        ..AnswerInput::default()
    };
    for (of, answer, expected) in [
        (run, text("green", None), Err(Code::InvalidArgument)),
        (other, text("red", None), Err(Code::StateConflict)),
        (run, text("red", None), Ok(RunState::Queued)),
        (run, text("red", None), Err(Code::StateConflict)),
        (run, text("red", Some(1)), Ok(RunState::Queued)),
        (run, text("blue", Some(1)), Err(Code::StateConflict)),
    ] {
        assert_eq!(world.answer(of, answer).await, expected);
    }
    let resumed = world.expect_start(&PoolId::builtin(), run).await;
    let inputs = world.context(&resumed, None).await.inputs;
    let answers: Vec<_> = inputs
        .iter()
        .map(|input| input.answer.text.as_deref())
        .collect();
    assert_eq!(answers, [Some("red")]);
}

/// R3.13: an end that another instance writes is found by the next poll where no wake-up comes through.
#[tokio::test]
async fn a_lost_notification_costs_one_poll() {
    let world = World::new(settings()).await;
    let other = world.instance(settings()).await;
    let pool = PoolId::builtin();
    let lease = world.leased("chat").await;
    let id = world
        .start(&lease, child(&lease, "a"))
        .await
        .expect("child")
        .run_id;
    let claimed = world.expect_start(&pool, id).await;
    world
        .park(&lease, on_children(&lease, Some(&[id])))
        .await
        .expect("parked");
    // Nobody listens to hints here, and the claim waits on the other instance.
    let waits = tokio::spawn(async move { claim_on(&other, &PoolId::builtin(), 1, 20_000).await });
    world.complete(&claimed).await;
    let ended = Instant::now();
    let resumed = waits.await.expect("claims");
    assert_eq!(resumed[0].run.run_id, lease.run.run_id);
    assert!(
        ended.elapsed() < Duration::from_secs(5),
        "{:?}",
        ended.elapsed()
    );
}

/// R3.13: a time wakes; without anything to wait for, and with two things at once, there is no wait.
#[tokio::test]
async fn a_time_wakes() {
    let world = World::new(settings()).await;
    let lease = world.leased("chat").await;
    assert_eq!(
        world.park(&lease, waiting(&lease)).await,
        Err(Code::InvalidArgument)
    );
    let both = WaitRun {
        children: Some(WaitForChildren::default()),
        ..asking(&lease, "which?")
    };
    assert_eq!(world.park(&lease, both).await, Err(Code::InvalidArgument));
    let until = world.now().await - chrono::Duration::seconds(1);
    let asks = WaitRun {
        until: Some(until),
        ..asking(&lease, "which?")
    };
    world.park(&lease, asks).await.expect("parked");
    let swept = leases::sweep::sweep(&world.engine).await.expect("sweep");
    assert_eq!(swept.woken, 1);
    let resumed = world
        .expect_start(&PoolId::builtin(), lease.run.run_id)
        .await;
    assert_eq!(resumed.attempt, 1);
    assert_eq!(world.context(&resumed, None).await.inputs, []);
    let events: Vec<Value> = sqlx::query_scalar(
        "SELECT body FROM run_events WHERE run_id = $1 AND kind IN ('run.waiting', 'run.woken') ORDER BY seq",
    )
    .bind(lease.run.run_id.as_uuid())
    .fetch_all(world.db.pool())
    .await
    .expect("events");
    assert_eq!(
        (&events[0]["on"], &events[1]["by"]),
        (&json!("input"), &json!("time"))
    );
}
