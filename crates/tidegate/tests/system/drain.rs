//! SIGTERM drains (R1.7).

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_testkit::{Proc, Running, TestDb};

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

/// A provider that takes half a minute, a tenant, two servers of which the second executes nothing.
struct World {
    first: Running,
    second: Running,
    acme: Cli,
    _provider: MockHandle,
    _db: TestDb,
}

impl World {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let scenario = Scenario::parse(SLOW).expect("scenario");
        let provider = MockProvider::start(scenario).await.expect("provider");
        let bootstrap = with_database(&db, &["key", "bootstrap", "--json"]);
        let secret = run(bootstrap).await.succeeded().json()["secret"].clone();
        let mut first = serve(&db).env("TIDEGATE_GRACE_MS", "300").start();
        let mut second = serve(&db).env("RUN_EXECUTION_CONCURRENCY", "0").start();
        ready(&mut first).await;
        let url = text(&ready(&mut second).await["url"]);
        let admin = Cli {
            url: url.clone(),
            key: text(&secret),
        };
        let made: &[&[&str]] = &[
            &["provider", "set", "p", "--base-url", provider.url()],
            &[
                "model",
                "set",
                "m",
                "--provider",
                "p",
                "--upstream-model",
                "x",
                "--default",
            ],
            &["tenant", "create", "acme"],
        ];
        for args in made {
            admin.run(args).await;
        }
        let key = ["key", "create", "--role", "member", "--tenant", "acme"];
        let key = text(&admin.run(&key).await.json()["secret"]);
        Self {
            first,
            second,
            acme: Cli { url, key },
            _provider: provider,
            _db: db,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// R1.7: what runs is handed back, not left to expire; it costs no attempt and waits for another server.
#[tokio::test]
async fn a_drained_server_hands_its_runs_back() {
    let mut world = World::new().await;
    let say = ["conversation", "say", "new", "hello", "--no-wait"];
    let run_id = text(&world.acme.run(&say).await.json()["runId"]);
    until(&world.acme, &run_id, |run| run["state"] == "running").await;

    world.first.term();
    let began = Instant::now();
    let ended = world.first.wait(Duration::from_secs(20)).await;
    assert!(ended.success(), "{}", world.first.output());
    // The lease is 30 s long: only a hand-back makes the run wait again now.
    let run = until(&world.acme, &run_id, |run| run["state"] == "queued").await;
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(run["attempts"], 0, "a drain costs no attempt");
    let explain = world.acme.run(&["run", "explain", &run_id]).await.json();
    assert_eq!(explain["attempts"][0]["outcome"], "released");

    // A second request ends at once.
    world.second.term();
    world.second.term();
    let ended = world.second.wait(Duration::from_secs(20)).await;
    assert!(ended.success(), "{}", world.second.output());
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
