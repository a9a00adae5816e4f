//! Tools over real child processes.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod support;

use std::time::Duration;

use support::{
    acme, children, fixture, host, is_alive, name, offered, program, quick, spec, until,
    until_ready,
};
use tidegate_agent::{
    ToolHost,
    tools::{Offer, Reached, ServerState, ToolLimits},
};
use tidegate_model::{Code, api::SideEffectLevel};
use tokio::time::{Instant, sleep};

async fn call(
    host: &ToolHost,
    offer: &Offer,
    tool: &str,
    arguments: &str,
) -> (Option<Code>, String) {
    let answer = host.call(offer, tool, arguments).await;
    assert!(
        answer.code.is_none() || answer.is_error,
        "a code is an error"
    );
    (answer.code, answer.text)
}

/// R20.1, O-21: offered = the operator's marks minus what the server calls writing; anything else is refused before the
/// server hears of it.
#[tokio::test]
async fn only_read_tools_are_offered_and_called() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls");
    let mut notes = spec("normal");
    program(&mut notes)
        .env
        .insert("FIXTURE_LOG".to_owned(), log.to_str().unwrap().into());
    let host = host(vec![notes]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let names = offered(&offer);
    assert!(names.contains(&"notes__read_note".to_owned()), "{names:?}");
    for refused in [
        "notes__write_note",
        "notes__lying_write",
        "notes__honest_write",
    ] {
        assert!(!names.contains(&refused.to_owned()), "{refused} is offered");
        let (code, text) = call(&host, &offer, refused, "{}").await;
        assert_eq!(code, Some(Code::ToolNotReadOnly), "{text}");
    }
    let (code, _) = call(&host, &offer, "notes__no_such", "{}").await;
    assert_eq!(code, Some(Code::ToolUnavailable));
    let (code, _) = call(&host, &offer, "notes__read_note", "[1]").await;
    assert_eq!(code, Some(Code::InvalidArgument));
    let (code, text) = call(&host, &offer, "notes__read_note", r#"{"about": "tides"}"#).await;
    assert_eq!((code, text.as_str()), (None, "note of tides"));
    assert_eq!(
        std::fs::read_to_string(log).unwrap(),
        "read_note\n",
        "nothing else reached the server"
    );
    assert_eq!(offer.map()["notes__read_note"], "notes/read_note");
    host.shutdown().await;
}

/// R20.1: with a journal of effects, tools that write are offered too, each with what it may do; unmarked is `write`.
#[tokio::test]
async fn tools_are_offered_up_to_what_the_caller_can_answer_for() {
    let mut notes = spec("normal");
    let once = SideEffectLevel::Idempotent;
    notes.tools.insert("write_note".to_owned(), once);
    let host = host(vec![notes]);
    for (most, levels) in [
        (SideEffectLevel::Read, [None, None]),
        (once, [Some(once), None]),
        (
            SideEffectLevel::Write,
            [Some(once), Some(SideEffectLevel::Write)],
        ),
    ] {
        let offer = host.offer(&acme(), most).await;
        let level = |name| offer.level(name);
        assert_eq!(level("notes__read_note"), Some(SideEffectLevel::Read));
        assert_eq!(
            ["notes__write_note", "notes__lying_write"].map(level),
            levels,
            "{most}"
        );
        let answer = host.call(&offer, "notes__lying_write", "{}").await;
        let reached = if levels[1].is_some() {
            Reached::Answered
        } else {
            Reached::No
        };
        assert_eq!(answer.reached, reached, "{}", answer.text);
    }
    host.shutdown().await;
}

/// O-21, R20.2: hints that change during a run take away and never add; a changed mark does the same.
#[tokio::test]
async fn what_changes_after_the_offer_takes_away() {
    let host = host(vec![spec("normal")]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    assert_eq!(call(&host, &offer, "notes__change", "{}").await.0, None);
    until("the changed list is read", || {
        let tools = host.view().remove(0).tools;
        tools
            .iter()
            .any(|tool| tool.name == "read_note" && tool.refused.is_some())
    })
    .await;
    assert_eq!(
        call(&host, &offer, "notes__read_note", "{}").await.0,
        Some(Code::ToolNotReadOnly)
    );
    let mut marks = spec("normal");
    marks.tools.insert("env".to_owned(), SideEffectLevel::Write);
    marks
        .tools
        .insert("write_note".to_owned(), SideEffectLevel::Read);
    host.configure(vec![marks]);
    until("the new marks hold", || {
        let tools = host.view().remove(0).tools;
        tools
            .iter()
            .any(|tool| tool.name == "env" && tool.level == SideEffectLevel::Write)
    })
    .await;
    assert_eq!(
        call(&host, &offer, "notes__env", "{}").await.0,
        Some(Code::ToolNotReadOnly)
    );
    let (code, _) = call(&host, &offer, "notes__write_note", "{}").await;
    assert_eq!(
        code,
        Some(Code::ToolNotReadOnly),
        "a frozen offer only narrows"
    );
    host.shutdown().await;
}

/// R20.1: a server for some tenants is neither shown to nor called for others.
#[tokio::test]
async fn tenants_see_their_own_servers() {
    let mut notes = spec("normal");
    notes.tenants = Some(vec![acme()]);
    let host = host(vec![notes.clone()]);
    let globex = "globex".parse().unwrap();
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    assert!(!offer.is_empty());
    assert!(host.offer(&globex, SideEffectLevel::Read).await.is_empty());
    notes.tenants = Some(vec![globex]);
    host.configure(vec![notes]);
    assert_eq!(
        call(&host, &offer, "notes__read_note", "{}").await.0,
        Some(Code::ToolUnavailable)
    );
    host.shutdown().await;
}

/// Children get `PATH`, `HOME` and what the operator gave, and nothing else of our environment.
#[tokio::test]
async fn the_environment_of_a_server_is_bare() {
    assert!(
        std::env::vars().any(|(name, _)| name.starts_with("CARGO")),
        "there is something to leak"
    );
    let mut notes = spec("normal");
    program(&mut notes)
        .env
        .insert("FIXTURE_ROOT".to_owned(), "/srv/notes".into());
    let host = host(vec![notes]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let (_, text) = call(&host, &offer, "notes__env", "{}").await;
    let mut names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert!(
        names.contains(&"FIXTURE_ROOT") && names.contains(&"PATH"),
        "{names:?}"
    );
    assert!(
        names
            .iter()
            .all(|name| ["FIXTURE_ROOT", "HOME", "PATH"].contains(name)),
        "{names:?}"
    );
    host.shutdown().await;
}

/// O-25: a server's secrets come back neither in an answer, nor in an error, nor in its last words.
#[tokio::test]
async fn secrets_of_a_server_stay_with_it() {
    let canary = "canary-0123456789";
    let mut notes = spec("normal");
    program(&mut notes)
        .env
        .insert("FIXTURE_TOKEN".to_owned(), canary.into());
    let host = host(vec![notes]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    for tool in ["notes__env", "notes__boom"] {
        let answer = host.call(&offer, tool, "{}").await;
        assert!(
            !answer.text.contains(canary) && answer.text.contains("[redacted]"),
            "{}",
            answer.text
        );
        assert!(
            !format!("{answer:?}").contains("redacted"),
            "contents stay out of logs"
        );
    }
    host.shutdown().await;
    let mut dying = spec("dies");
    program(&mut dying)
        .env
        .insert("FIXTURE_TOKEN".to_owned(), canary.into());
    let host = ToolHost::new(quick());
    host.configure(vec![dying]);
    until("it is down", || {
        matches!(host.view()[0].state, ServerState::Down { .. })
    })
    .await;
    let ServerState::Down { reason, .. } = host.view().remove(0).state else {
        panic!("is down")
    };
    assert!(
        reason.contains("bad token [redacted]") && reason.contains("exit status: 3"),
        "{reason}"
    );
    host.shutdown().await;
}

/// O-26: a call ends at its total limit although progress keeps coming; the limits hold over fifty calls.
#[tokio::test]
async fn progress_does_not_prolong_a_call() {
    let mut notes = spec("normal");
    notes.call_timeout = Duration::from_millis(200);
    let host = ToolHost::new(quick());
    host.configure(vec![notes]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let mut timeouts = 0;
    for _ in 0..50 {
        let started = Instant::now();
        let (code, text) = call(&host, &offer, "notes__progress", "{}").await;
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
        assert!(
            matches!(code, Some(Code::ToolTimeout | Code::ToolUnavailable)),
            "{text}"
        );
        timeouts += usize::from(code == Some(Code::ToolTimeout));
        assert!(children() <= 16 + 1, "{} children", children());
        if code == Some(Code::ToolUnavailable) {
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(timeouts >= 3, "{timeouts}");
    host.shutdown().await;
}

/// O-26: a server that never finishes its handshake or dies at once is bounded, backs off and holds up nobody for long.
#[tokio::test]
async fn servers_that_never_come_up_are_bounded() {
    for mode in ["never", "dies"] {
        let host = ToolHost::new(ToolLimits {
            offer_wait: Duration::from_secs(2),
            ..quick()
        });
        host.configure(vec![spec(mode)]);
        until("it is down", || {
            matches!(host.view()[0].state, ServerState::Down { .. })
        })
        .await;
        let started = Instant::now();
        assert!(host.offer(&acme(), SideEffectLevel::Read).await.is_empty());
        assert!(
            started.elapsed() < Duration::from_millis(500),
            "a failed server is not waited for"
        );
        let ServerState::Down { reason, .. } = host.view().remove(0).state else {
            continue;
        };
        assert!(
            reason.contains("handshake") || reason.contains("exit status"),
            "{reason}"
        );
        host.shutdown().await;
    }
    let mut missing = spec("normal");
    program(&mut missing).command = "/no/such/program".to_owned();
    let host = ToolHost::new(quick());
    host.configure(vec![missing]);
    until("it is down", || {
        matches!(host.view()[0].state, ServerState::Down { .. })
    })
    .await;
    let ServerState::Down { reason, .. } = host.view().remove(0).state else {
        panic!("is down")
    };
    assert!(
        reason.contains("/no/such/program") && reason.contains("check"),
        "{reason}"
    );
    host.shutdown().await;
}

/// O-26: never more processes than stated; a place that comes free is used.
#[tokio::test]
async fn processes_are_bounded() {
    let servers = |names: &[&str]| {
        names
            .iter()
            .map(|server| {
                let mut spec = spec("normal");
                spec.name = name(server);
                spec
            })
            .collect::<Vec<_>>()
    };
    let host = ToolHost::new(ToolLimits {
        processes: 2,
        offer_wait: Duration::from_millis(300),
        ..quick()
    });
    host.configure(servers(&["a", "b", "c"]));
    let ready = |host: &ToolHost| {
        host.view()
            .iter()
            .filter(|server| server.state == ServerState::Ready)
            .count()
    };
    until("two are ready", || ready(&host) == 2).await;
    let waiting = host
        .view()
        .into_iter()
        .find(|server| server.state == ServerState::WaitingForProcess)
        .unwrap();
    let kept: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .filter(|server| *server == waiting.name.as_str())
        .collect();
    host.configure(servers(&kept));
    until("the third is ready", || ready(&host) == 1).await;
    host.shutdown().await;
}

/// Answers are bounded, and one that is too long to be read at all costs a time limit and nothing more.
#[tokio::test]
async fn large_answers_are_cut() {
    let mut notes = spec("normal");
    notes.call_timeout = Duration::from_secs(3);
    let host = host(vec![notes]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let (code, text) = call(&host, &offer, "notes__big", r#"{"bytes": 1000000}"#).await;
    assert_eq!(code, None);
    assert!(
        text.len() < 33 << 10 && text.ends_with("of 1000000 bytes shown]"),
        "{} bytes",
        text.len()
    );
    let (code, _) = call(&host, &offer, "notes__big", r#"{"bytes": 20000000}"#).await;
    assert!(code.is_some());
    let (_, text) = call(&host, &offer, "notes__read_note", "{}").await;
    assert_eq!(text, "note of nothing");
    host.shutdown().await;
}

/// A tool's own failure is told from ours, and a server that crashes in a call is started again.
#[tokio::test]
async fn failures_are_told_apart() {
    let host = ToolHost::new(quick());
    host.configure(vec![spec("normal")]);
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let answer = host.call(&offer, "notes__fail", "{}").await;
    assert_eq!(
        (answer.code, answer.is_error, answer.text.as_str()),
        (None, true, "no such note")
    );
    let answer = host.call(&offer, "notes__crash", "{}").await;
    assert_eq!(
        (answer.code, answer.reached),
        (Some(Code::ToolUnavailable), Reached::Unknown)
    );
    let deadline = Instant::now() + support::SOON;
    let text = loop {
        let (code, text) = call(&host, &offer, "notes__read_note", "{}").await;
        match code {
            None => break text,
            Some(code) => assert_eq!(code, Code::ToolUnavailable, "{text}"),
        }
        assert!(Instant::now() < deadline, "it does not come back");
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(text, "note of nothing", "the same tools are usable again");
    host.shutdown().await;
}

/// The whole process group of a server ends with its host, whether it is shut down or dropped.
#[tokio::test]
async fn nothing_of_a_server_is_left_behind() {
    for orderly in [true, false] {
        let host = host(vec![spec("normal")]);
        let offer = host.offer(&acme(), SideEffectLevel::Read).await;
        let (_, pid) = call(&host, &offer, "notes__child", "{}").await;
        let pid: i32 = pid.parse().unwrap();
        assert!(is_alive(pid));
        if orderly {
            host.shutdown().await;
        } else {
            drop((host, offer));
        }
        until("the grandchild is gone", || !is_alive(pid)).await;
    }
    until("no process of ours is left", || {
        let program = fixture().file_name().unwrap().to_str().unwrap();
        let stats = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let me = format!(" {} ", std::process::id());
        !stats
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .any(|stat| stat.contains(&format!("({program}) Z{me}")))
    })
    .await;
}

/// Servers whose process need not change keep it when the configuration does.
#[tokio::test]
async fn a_reconfiguration_disturbs_only_what_changed() {
    let host = host(vec![spec("normal")]);
    until_ready(&host).await;
    let offer = host.offer(&acme(), SideEffectLevel::Read).await;
    let (_, pid) = call(&host, &offer, "notes__child", "{}").await;
    let mut longer = spec("normal");
    longer.call_timeout = Duration::from_secs(5);
    host.configure(vec![longer.clone()]);
    assert!(is_alive(pid.parse().unwrap()), "same process");
    program(&mut longer).args.push("other".to_owned());
    host.configure(vec![longer]);
    until("the old process is gone", || {
        !is_alive(pid.parse().unwrap())
    })
    .await;
    until_ready(&host).await;
    host.shutdown().await;
}
