//! Commands: completions, `--json` everywhere, refusals with codes and remedies.

use serde_json::Value;
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, KEY, eventually, ready, run, serve, with_database};

pub struct World {
    _server: Running,
    pub db: TestDb,
    url: String,
    admin: String,
}

impl World {
    pub async fn new() -> Self {
        let db = TestDb::new().await;
        let secret = run(with_database(&db, &["key", "bootstrap", "--json"]))
            .await
            .succeeded()
            .json();
        let mut server = serve(&db).start();
        let said = ready(&mut server).await;
        Self {
            _server: server,
            db,
            url: said["url"].as_str().expect("url").to_owned(),
            admin: secret["secret"].as_str().expect("secret").to_owned(),
        }
    }

    pub async fn with_key(&self, key: &str, args: &[&str]) -> Ended {
        let proc = Proc::tidegate(args)
            .env("TIDEGATE_URL", &self.url)
            .env("TIDEGATE_KEY", key);
        run(proc).await
    }

    /// A tenant, a provider, a model and a tool server; gives back the tenant's key.
    async fn fill(&self) -> String {
        let made: &[&[&str]] = &[
            &["tenant", "create", "acme", "--display-name", "Acme"],
            &[
                "provider",
                "set",
                "p",
                "--base-url",
                "http://127.0.0.1:9/v1",
                "--rpm",
                "10",
            ],
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
            &[
                "tool",
                "set",
                "t",
                "--read",
                "look",
                "--tenant",
                "acme",
                "--",
                "/bin/false",
                "-x",
            ],
        ];
        for args in made {
            let done = self.admin(&[&["--json"], *args].concat()).await;
            done.succeeded().json();
        }
        // Else what `doctor` says of it would change from one look to the next.
        eventually("the tool server is down", async || {
            self.admin(&["tool", "list"])
                .await
                .stdout
                .contains("down on 1")
        })
        .await;
        let key = [
            "key",
            "create",
            "--role",
            "member",
            "--tenant",
            "acme",
            "--scope",
            "runs:business",
        ];
        let created = self
            .admin(&[&["--json"], &key[..]].concat())
            .await
            .succeeded()
            .json();
        created["secret"].as_str().expect("secret").to_owned()
    }

    pub async fn admin(&self, args: &[&str]) -> Ended {
        self.with_key(&self.admin, args).await
    }
}

/// R22.2: shell completions.
#[tokio::test]
async fn completions_are_written_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = run(Proc::tidegate(&["completions", shell]))
            .await
            .succeeded();
        assert!(ended.stdout.contains("explain"), "{shell}");
    }
    run(Proc::tidegate(&["completions", "tcsh"]))
        .await
        .failed_with(2);
}

/// R22.2: a command line that cannot be read is a failure like others.
#[tokio::test]
async fn a_wrong_command_line_is_answered_in_json() {
    let wrong: [(&[&str], &str); 4] = [
        (&["--json", "run", "get"], "<RUN_ID>"),
        (&["--json", "bogus"], "bogus"),
        (&["run", "list", "--json", "--state", "foo"], "--state"),
        (&["--json", "run"], "a command is missing"),
    ];
    for (args, word) in wrong {
        let ended = run(Proc::tidegate(args)).await.failed_with(2);
        let said: Value = serde_json::from_str(&ended.stderr).expect("one JSON document");
        let message = said["error"]["messages"][0].as_str().expect("a message");
        assert!(message.contains(word), "{said}");
        assert!(said["error"]["remedy"].is_string(), "{said}");
    }
    let plain = ["tool", "set", "t", "--bogus", "--", "--json"];
    let ended = run(Proc::tidegate(&plain)).await.failed_with(2);
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
}

/// R22.2: the exit codes stand in the help.
#[tokio::test]
async fn help_lists_commands_and_exit_codes() {
    let ended = run(Proc::tidegate(&["--help"])).await.succeeded();
    for word in ["Exit codes", "demo", "doctor", "conversation", "130"] {
        assert!(ended.stdout.contains(word), "{word}");
    }
    let flags = run(Proc::tidegate(&["serve", "--help"])).await.succeeded();
    assert!(flags.stdout.contains("--lease-ms") && !flags.stdout.contains("--enc-key"));
}

/// R1.4, R1.9: every setting with value, source, scope and meaning; secrets are redacted.
#[tokio::test]
async fn config_shows_everything_but_secrets() {
    let proc = |args: &[&str]| {
        Proc::tidegate(args)
            .env("CONFIG_DB_URL", "postgres://u:hunter2@h/d")
            .env("CONFIG_ENC_KEY", KEY)
            .env("TIDEGATE_LEASE_MS", "60000")
    };
    let ended = run(proc(&["config", "--json", "--renew-ms", "1000"]))
        .await
        .succeeded();
    assert!(!ended.stdout.contains("hunter2") && !ended.stdout.contains(KEY));
    let rows = ended.json();
    let row = |name: &str| {
        let rows = rows.as_array().expect("a list");
        rows.iter()
            .find(|row| row["name"] == name)
            .expect("a setting")
            .clone()
    };
    assert_eq!(row("lease_ms")["value"], "60000");
    assert_eq!(row("lease_ms")["source"], "environment TIDEGATE_LEASE_MS");
    assert_eq!(row("renew_ms")["source"], "flag --renew-ms");
    assert_eq!(row("max_attempts")["source"], "default");
    assert_eq!(row("llm_provider_rpm")["scope"], "instance");
    assert_eq!(row("lease_ms")["scope"], "cluster");
    let table = run(proc(&["config"])).await.succeeded();
    assert!(!table.stdout.contains("hunter2") && table.stdout.contains("RUN_FAIRNESS"));
    let features = run(proc(&["config", "features", "--json"]))
        .await
        .succeeded()
        .json();
    let features = features.as_array().expect("a list");
    assert!(
        features
            .iter()
            .any(|one| one["built"] == true && one["onHere"] == true)
    );
    assert!(
        features
            .iter()
            .any(|one| one["built"] == false && one["onHere"] == false)
    );
}

/// R1.4: docs/configuration.md is what the table says.
#[tokio::test]
async fn the_page_on_configuration_is_fresh() {
    let ended = run(Proc::tidegate(&["config", "--markdown"]))
        .await
        .succeeded();
    let path = crate::rig::checkout().join("docs/configuration.md");
    let page = std::fs::read_to_string(path).expect("docs/configuration.md");
    assert_eq!(
        page.trim(),
        ended.stdout.trim(),
        "run `tidegate config --markdown > docs/configuration.md`"
    );
}

/// What an administrator may look at.
const ADMIN_VIEWS: &[&[&str]] = &[
    &["tenant", "list"],
    &["tenant", "get", "acme"],
    &["tenant", "limits", "acme"],
    &["key", "list"],
    &["provider", "list"],
    &["model", "list"],
    &["tool", "list"],
    &["pool", "list"],
    &["instances"],
    &["audit"],
    &["config", "revisions"],
    &["doctor"],
];

/// R22.2: `--json` everywhere, and a table for people; neither shows a key.
#[tokio::test]
async fn an_administrators_answers_can_be_json() {
    let world = World::new().await;
    world.fill().await;
    for args in ADMIN_VIEWS {
        let human = world.admin(args).await;
        let json = world.admin(&[&["--json"], *args].concat()).await;
        assert_eq!(human.code(), json.code(), "{args:?} {}", json.stderr);
        assert!(!human.stdout.is_empty(), "{args:?} {}", human.stderr);
        json.json();
        assert!(!json.stdout.contains(&world.admin) && !human.stdout.contains(&world.admin));
    }
}

/// R21.1: the doctor looks whether vacuum follows, and names who keeps it from that.
#[tokio::test]
async fn the_doctor_names_who_holds_a_snapshot() {
    let db = TestDb::new().await;
    let hot_tables = async || {
        let doctor = with_database(&db, &["doctor", "--json"]);
        let findings = run(doctor.env("TIDEGATE_SNAPSHOT_HELD_MAX_MS", "1000"))
            .await
            .json();
        let findings = findings.as_array().expect("findings").clone();
        let hot = findings
            .into_iter()
            .find(|one| one["check"] == "hot tables");
        hot.expect("a finding")
    };
    assert_eq!(hot_tables().await["state"], "ok");
    let mut held = db.pool().begin().await.expect("begin");
    sqlx::raw_sql(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM run_queue",
    )
    .execute(&mut *held)
    .await
    .expect("snapshot");
    eventually("the doctor names it", async || {
        let found = hot_tables().await;
        found["state"] == "warn" && found["remedy"].to_string().contains("pg_terminate_backend")
    })
    .await;
    held.commit().await.expect("commit");
    assert_eq!(hot_tables().await["state"], "ok");
}

/// R3.14, R22.2: schedules from the command line, fired by the server.
#[tokio::test]
async fn a_schedule_is_written_shown_fired_and_removed() {
    let world = World::new().await;
    let member = world.fill().await;
    let call = async |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        world
            .with_key(&member, &[&["schedule"], &args[..]].concat())
            .await
    };
    let put = "put monthly-report --cron @monthly --time-zone Europe/Berlin --capability chat --input \"report\" --catch-up-window-ms 31622400000";
    let put = call(put).await.succeeded();
    assert!(
        put.stdout.contains("@monthly (Europe/Berlin)"),
        "{}",
        put.stdout
    );
    assert!(put.stdout.contains("next due"), "{}", put.stdout);
    let refused = call(
        "put bad --cron @monthly --time-zone Europe/Berlim --capability chat --input \"report\"",
    )
    .await;
    assert_ne!(refused.code(), 0, "{}", refused.stdout);
    assert!(
        refused.stderr.contains("did you mean Europe/Berlin?"),
        "{}",
        refused.stderr
    );
    sqlx::query("UPDATE schedules SET next_due_at = clock_timestamp() - interval '40 days'")
        .execute(world.db.pool())
        .await
        .expect("due");
    eventually("the server fires it", async || {
        let view = call("get monthly-report --json").await.succeeded().json();
        view["lastRun"]["runId"].is_string()
    })
    .await;
    let runs = ["run", "list", "--schedule", "monthly-report", "--json"];
    let runs = world.with_key(&member, &runs).await.succeeded().json();
    assert_eq!(runs["items"][0]["kind"], "scheduled", "{runs}");
    call("pause monthly-report").await.succeeded();
    let list = call("list").await.succeeded();
    assert!(list.stdout.contains("paused"), "{}", list.stdout);
    let resumed = call("resume monthly-report --json")
        .await
        .succeeded()
        .json();
    assert_eq!(resumed["nextDueTimes"].as_array().expect("times").len(), 5);
    call("delete monthly-report").await.succeeded();
    let gone = call("get monthly-report").await;
    assert!(gone.stderr.contains("NOT_FOUND"), "{}", gone.stderr);
}

/// R22.2: the same for what a tenant may do.
#[tokio::test]
async fn a_tenants_answers_can_be_json() {
    let world = World::new().await;
    let member = world.fill().await;
    let run_id = submit(&world, &member).await;
    let views: &[&[&str]] = &[
        &["me"],
        &["me", "limits"],
        &["me", "usage"],
        &["run", "list"],
        &["run", "get", &run_id],
        &["run", "explain", &run_id],
        &["run", "cancel", &run_id],
        &["run", "cancel", "--state", "queued"],
        &["run", "requeue", "--all"],
    ];
    for args in views {
        world.with_key(&member, args).await.succeeded();
        let args = [&["--json"], *args].concat();
        world.with_key(&member, &args).await.succeeded().json();
    }
    let watched = world
        .with_key(&member, &["run", "watch", &run_id, "--json"])
        .await
        .failed_with(4);
    for line in watched.stdout.lines() {
        serde_json::from_str::<Value>(line).expect("each event is a line of JSON");
    }
}

/// Following a run stops with Ctrl-C (exit code 130); the run goes on.
#[tokio::test]
async fn an_interrupted_watch_says_how_to_go_on() {
    let world = World::new().await;
    let member = world.fill().await;
    let run_id = submit(&world, &member).await;
    let mut watch = Proc::tidegate(&["run", "watch", &run_id])
        .env("TIDEGATE_URL", &world.url)
        .env("TIDEGATE_KEY", &member)
        .start();
    watch.line_with("queued").await;
    watch.signal(nix::sys::signal::Signal::SIGINT);
    let status = watch.wait(crate::rig::PATIENCE).await;
    assert_eq!(status.code(), Some(130), "{}", watch.output());
    assert!(watch.stderr().contains("--after 1"), "{}", watch.output());
    let get = ["run", "get", &run_id, "--json"];
    let run = world.with_key(&member, &get).await.succeeded().json();
    assert_eq!(run["state"], "queued");
}

async fn submit(world: &World, member: &str) -> String {
    let args = [
        "run",
        "submit",
        "report",
        "--input",
        "{\"n\":1}",
        "--idempotency-key",
        "k1",
        "--json",
    ];
    let first = world.with_key(member, &args).await.succeeded().json();
    let again = world.with_key(member, &args).await.succeeded().json();
    assert_eq!(first["runId"], again["runId"]);
    assert_eq!(again["repeated"], true);
    first["runId"].as_str().expect("a run").to_owned()
}

/// R22.2: a failure says what was wrong, the code and what to do; its exit code is documented.
#[tokio::test]
async fn failures_have_a_code_a_remedy_and_an_exit_code() {
    let world = World::new().await;
    let absent = format!("run_{}", "0".repeat(32));
    let forbidden = world.admin(&["run", "get", &absent]).await.failed_with(1);
    assert!(
        forbidden.stderr.contains("[FORBIDDEN]") && forbidden.stderr.contains("what to do"),
        "{}",
        forbidden.stderr
    );
    let unknown = world.with_key("tg_nobody", &["me"]).await.failed_with(1);
    assert!(
        unknown.stderr.contains("[UNAUTHENTICATED]"),
        "{}",
        unknown.stderr
    );
    let json = world
        .with_key("tg_nobody", &["me", "--json"])
        .await
        .failed_with(1);
    let failure: Value = serde_json::from_str(&json.stderr).expect("a failure is JSON too");
    assert_eq!(failure["error"]["code"], "UNAUTHENTICATED");
    let careless = world
        .admin(&["tenant", "delete", "acme"])
        .await
        .failed_with(2);
    assert!(
        careless.stderr.contains("--confirm acme"),
        "{}",
        careless.stderr
    );
    let twice = run(with_database(&world.db, &["key", "bootstrap"]))
        .await
        .failed_with(1);
    assert!(
        twice.stderr.contains("[STATE_CONFLICT]"),
        "{}",
        twice.stderr
    );

    let nowhere = Proc::tidegate(&["me"])
        .env("TIDEGATE_URL", "http://127.0.0.1:1")
        .env("TIDEGATE_KEY", "tg_x");
    let unreachable = run(nowhere).await.failed_with(3);
    assert!(
        unreachable.stderr.contains("127.0.0.1:1"),
        "{}",
        unreachable.stderr
    );
    let nameless = Proc::tidegate(&["me"])
        .env("XDG_DATA_HOME", "/nonexistent")
        .env("TIDEGATE_PROFILE", "/nonexistent/p.toml");
    let unnamed = run(nameless).await.failed_with(2);
    assert!(
        unnamed.stderr.contains("/nonexistent/p.toml"),
        "{}",
        unnamed.stderr
    );
}

/// Bad input: an override is given or cleared, and nothing is dropped by leaving flags away (R15.1).
#[tokio::test]
async fn an_override_is_cleared_only_by_its_flag() {
    let world = World::new().await;
    world.fill().await;
    let with_tiers = ["migrate", "--with", "tenant-resource-tiers"];
    run(with_database(&world.db, &with_tiers)).await.succeeded();
    let given = async |flags: &[&str]| {
        let args = [&["tenant", "override", "acme"], flags].concat();
        world.admin(&args).await
    };
    let own = given(&["--weight", "7"]).await.succeeded();
    assert!(own.stdout.contains("tenant override"), "{}", own.stdout);
    let refused = given(&[]).await.failed_with(2);
    for flag in [
        "--tier",
        "--foreground",
        "--background",
        "--weight",
        "--clear",
    ] {
        assert!(refused.stderr.contains(flag), "{}", refused.stderr);
    }
    given(&["--clear", "--weight", "2"]).await.failed_with(2);
    let kept = world.admin(&["tenant", "limits", "acme"]).await;
    assert!(kept.stdout.contains("tenant override"), "{}", kept.stdout);
    let cleared = given(&["--clear"]).await.succeeded();
    assert!(!cleared.stdout.contains("override"), "{}", cleared.stdout);
}

/// The contract comes from the routes.
#[tokio::test]
async fn the_contract_is_printed() {
    let ended = run(Proc::tidegate(&["openapi"])).await.succeeded();
    assert!(
        ended.json()["openapi"]
            .as_str()
            .expect("a version")
            .starts_with("3.1")
    );
}
