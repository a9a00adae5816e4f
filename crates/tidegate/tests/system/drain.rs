//! SIGTERM drains (R1.7).

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_mock_provider::{MockProvider, Scenario};
use tidegate_testkit::{Proc, TestDb};

use crate::rig::{Ended, ready, run, serve, with_database};

const SLOW: &str = r#"
name = "slow"
[[rule]]
name = "all"
reply = { text = "one two three four five six seven eight nine ten", delay_ms = 3000 }
"#;

struct Cli {
    url: String,
    key: String,
}

impl Cli {
    async fn run(&self, args: &[&str]) -> Ended {
        let proc = Proc::tidegate(args)
            .args(["--json"])
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", &self.key);
        run(proc).await.succeeded()
    }
}

/// R1.7: what runs is handed back, not left to expire; it costs no attempt and runs elsewhere.
#[tokio::test]
async fn a_drained_server_hands_its_runs_back() {
    let db = TestDb::new().await;
    let provider = MockProvider::start(Scenario::parse(SLOW).expect("scenario"))
        .await
        .expect("provider");
    let secret = run(with_database(&db, &["key", "bootstrap", "--json"]))
        .await
        .succeeded()
        .json()["secret"]
        .clone();
    let mut first = serve(&db).env("TIDEGATE_GRACE_MS", "300").start();
    let mut second = serve(&db).env("RUN_EXECUTION_CONCURRENCY", "0").start();
    ready(&mut first).await;
    let url = ready(&mut second).await["url"].clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let admin = Cli {
        url: text(&url),
        key: text(&secret),
    };
    admin
        .run(&["provider", "set", "p", "--base-url", provider.url()])
        .await;
    admin
        .run(&[
            "model",
            "set",
            "m",
            "--provider",
            "p",
            "--upstream-model",
            "x",
            "--default",
        ])
        .await;
    admin.run(&["tenant", "create", "acme"]).await;
    let key = admin
        .run(&["key", "create", "--role", "member", "--tenant", "acme"])
        .await;
    let acme = Cli {
        url: text(&url),
        key: text(&key.json()["secret"]),
    };
    let accepted = acme
        .run(&["conversation", "say", "new", "hello", "--no-wait"])
        .await
        .json();
    let run_id = text(&accepted["runId"]);
    until(&acme, &run_id, |run| run["state"] == "running").await;

    first.term();
    let began = Instant::now();
    assert!(
        first.wait(Duration::from_secs(20)).await.success(),
        "{}",
        first.output()
    );
    // The lease is 30 s long: only a hand-back makes the run wait again now.
    let run_view = until(&acme, &run_id, |run| run["state"] == "queued").await;
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(run_view["attempts"], 0, "a drain costs no attempt");
    let explain = acme.run(&["run", "explain", &run_id]).await.json();
    assert_eq!(explain["attempts"][0]["outcome"], "released");

    // A second request ends at once.
    second.term();
    second.term();
    assert!(
        second.wait(Duration::from_secs(20)).await.success(),
        "{}",
        second.output()
    );
}

async fn until(cli: &Cli, run_id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let run = cli.run(&["run", "get", run_id]).await.json();
        if wanted(&run) {
            return run;
        }
        assert!(Instant::now() < deadline, "{run}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
