//! Rotation of the key that seals secrets (R1.8), and what dangles after a restore (R4.7), from the command line.

use base64::Engine as _;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use tidegate_mock_provider::{MockHandle, MockProvider, Scenario};
use tidegate_testkit::{Proc, Running, TestDb};

use crate::rig::{Ended, KEY, OTHER_KEY, ready, run, serve, with_database};

const THIRD_KEY: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

const CANARY: &str = "sk-canary-5a1f0c";

/// R1.8: both keys, then rotate, then the new key alone; the old one is refused; the secret is shown nowhere.
#[tokio::test]
async fn a_rotation_ends_with_the_new_key_alone() {
    let db = TestDb::new().await;
    let bootstrap = with_database(&db, &["key", "bootstrap", "--json"]);
    let admin = run(bootstrap).await.succeeded().json()["secret"].clone();
    store_a_secret(&db, admin.as_str().expect("secret")).await;

    let early = with_database(&db, &["secrets", "rotate"]).env("CONFIG_ENC_KEY", OTHER_KEY);
    run(early).await.failed_with(2);
    let rotate = with_database(&db, &["secrets", "rotate", "--json"])
        .env("CONFIG_ENC_KEY", OTHER_KEY)
        .env("CONFIG_ENC_KEY_PREVIOUS", KEY);
    let rotated = run(rotate).await.succeeded();
    assert_eq!(rotated.json()["complete"], true);
    assert_eq!(
        rotated.json()["keys"].as_array().map(Vec::len),
        Some(1),
        "{}",
        rotated.stdout
    );

    let status =
        with_database(&db, &["secrets", "status", "--json"]).env("CONFIG_ENC_KEY", OTHER_KEY);
    let status = run(status).await.succeeded();
    assert_eq!(status.json()["unreadable"], Value::Array(Vec::new()));
    run(serve(&db)).await.failed_with(2);
    for text in [&rotated.stdout, &rotated.stderr, &status.stdout] {
        assert!(!text.contains(CANARY) && !text.contains(KEY) && !text.contains(OTHER_KEY));
    }
}

/// R1.8: a rotation under a running server is refused before it changes anything, with the steps; `--force` goes ahead.
/// What cannot be opened then makes `status` fail, and a wrong previous key is named.
#[tokio::test]
async fn a_rotation_under_a_running_server_is_refused() {
    let db = TestDb::new().await;
    let mut server = serve(&db).start();
    ready(&mut server).await;
    let with_keys = |args: &[&str], previous: &str| {
        with_database(&db, args)
            .env("CONFIG_ENC_KEY", OTHER_KEY)
            .env("CONFIG_ENC_KEY_PREVIOUS", previous)
    };
    let wrong = with_keys(&["secrets", "rotate"], THIRD_KEY);
    let wrong = run(wrong).await.failed_with(2);
    let named = "CONFIG_ENC_KEY_PREVIOUS is not the key of this database";
    assert!(wrong.stderr.contains(named), "{}", wrong.stderr);
    let refused = run(with_keys(&["secrets", "rotate"], KEY)).await;
    let refused = refused.failed_with(1);
    for word in ["ins_", "restart one after the other", "--force"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    run(with_database(&db, &["secrets", "status"]))
        .await
        .succeeded();
    let forced = with_keys(&["secrets", "rotate", "--force"], KEY);
    run(forced).await.succeeded();
    server.term();
    server.wait(crate::rig::PATIENCE).await;

    sqlx::query(
        "INSERT INTO providers (name, kind, base_url, sealed, sealed_key)
         VALUES ('p', 'openai', 'http://127.0.0.1:9/v1', '\\x00', 'lost')",
    )
    .execute(db.pool())
    .await
    .expect("a row of a lost key");
    let status = with_database(&db, &["secrets", "status"]).env("CONFIG_ENC_KEY", OTHER_KEY);
    let status = run(status).await.failed_with(1);
    assert!(status.stdout.contains("providers p"), "{}", status.stdout);
}

/// R1.8: a previous key that cannot be meant is refused at the start, and one that opens nothing is named there.
#[tokio::test]
async fn a_previous_key_that_opens_nothing_is_said_at_the_start() {
    let db = TestDb::new().await;
    let with_previous = |args: &[&str], previous: &str| {
        with_database(&db, args).env("CONFIG_ENC_KEY_PREVIOUS", previous)
    };
    let same = serve(&db).env("CONFIG_ENC_KEY_PREVIOUS", KEY);
    let same = run(same).await.failed_with(2);
    let told = "CONFIG_ENC_KEY_PREVIOUS holds the same key as CONFIG_ENC_KEY";
    assert!(same.stderr.contains(told), "{}", same.stderr);
    let mut server = serve(&db).env("CONFIG_ENC_KEY_PREVIOUS", OTHER_KEY).start();
    ready(&mut server).await;
    server.term();
    server.wait(crate::rig::PATIENCE).await;
    let told = "nothing in this database is sealed with it";
    assert!(server.output().contains(told), "{}", server.output());
    let status = run(with_previous(&["secrets", "status"], OTHER_KEY)).await;
    let status = status.succeeded();
    assert!(status.stderr.contains(told), "{}", status.stderr);
    let doctor = run(with_previous(&["doctor"], OTHER_KEY)).await;
    assert!(doctor.stdout.contains(told), "{}", doctor.stdout);
    for text in [
        &same.stderr,
        &server.output(),
        &status.stderr,
        &doctor.stdout,
    ] {
        assert!(!text.contains(KEY) && !text.contains(OTHER_KEY));
    }
}

async fn store_a_secret(db: &TestDb, admin: &str) {
    let mut server = serve(db).start();
    let url = ready(&mut server).await["url"].clone();
    let set = Proc::tidegate(&[
        "provider",
        "set",
        "p",
        "--base-url",
        "http://127.0.0.1:9/v1",
    ])
    .args(["--api-key-env", "PROVIDER_KEY"])
    .env("PROVIDER_KEY", CANARY)
    .env("TIDEGATE_URL", url.as_str().expect("url"))
    .env("TIDEGATE_KEY", admin);
    let done = run(set).await.succeeded();
    assert!(!done.stdout.contains(CANARY) && done.stdout.contains("sealed"));
    server.term();
    let ended = server.wait(crate::rig::PATIENCE).await;
    assert!(ended.success(), "{}", server.output());
    assert!(!server.output().contains(CANARY));
}

/// R4.7: what dangles can be asked before any server runs.
#[tokio::test]
async fn recover_lists_what_dangles() {
    let db = TestDb::new().await;
    run(with_database(&db, &["recover", "--json"]))
        .await
        .succeeded()
        .json();
    let shown = run(with_database(&db, &["recover"])).await.succeeded();
    assert!(shown.stdout.contains("generation"), "{}", shown.stdout);
}

/// A key whose encoded forms differ from it.
const ECHOED: &str = "sk-canary/5a+1f=0c/long enough";
/// The forms in which a provider may repeat a key.
const FORMS: [&str; 6] = ["plain", "url", "base64", "basic", "quoted_url", "split"];

/// A server that logs at level debug, a provider that repeats its key, a tenant.
struct Echo {
    server: Running,
    db: TestDb,
    url: String,
    member: String,
    _provider: MockHandle,
}

impl Echo {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let scenario = Scenario::parse(&FORMS.map(rule).concat()).expect("scenario");
        let provider = MockProvider::start(scenario).await.expect("provider");
        let bootstrap = with_database(&db, &["key", "bootstrap", "--json"]);
        let admin = text(&run(bootstrap).await.succeeded().json()["secret"]);
        let mut server = serve(&db).env("TIDEGATE_LOG_LEVEL", "debug").start();
        let url = text(&ready(&mut server).await["url"]);
        let made: &[&[&str]] = &[
            &[
                "provider",
                "set",
                "p",
                "--base-url",
                provider.url(),
                "--api-key-env",
                "PROVIDER_KEY",
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
            &["tenant", "create", "acme"],
        ];
        for args in made {
            run(cli(&url, &admin, args)).await.succeeded();
        }
        let member = ["key", "create", "--role", "member", "--tenant", "acme"];
        let member = run(cli(&url, &admin, &member)).await.succeeded();
        Self {
            member: text(&member.json()["secret"]),
            server,
            db,
            url,
            _provider: provider,
        }
    }

    async fn run(&self, args: &[&str]) -> Ended {
        run(cli(&self.url, &self.member, args)).await
    }
}

fn rule(form: &str) -> String {
    format!(
        "[[rule]]\nname = \"{form}\"\nwhen = {{ text_contains = \"echo {form}\" }}\n\
         fault = {{ kind = \"status\", status = 401, code = \"invalid_api_key\", message = \"no\", \
         echo_key = \"{form}\" }}\n"
    )
}

fn cli(url: &str, key: &str, args: &[&str]) -> Proc {
    Proc::tidegate(args)
        .args(["--json"])
        .env("TIDEGATE_URL", url)
        .env("TIDEGATE_KEY", key)
        .env("PROVIDER_KEY", ECHOED)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// O-25: a provider that repeats its key in an error, in any form, with debug logging on: the key is in no answer, no
/// event, no log and no column of the database, and the error is still useful.
#[tokio::test]
async fn an_echoed_key_goes_nowhere() {
    let echo = Echo::new().await;
    let mut seen = String::new();
    for form in FORMS {
        let say = ["conversation", "say", "new", &format!("echo {form}")];
        let failed = echo.run(&say).await.failed_with(4);
        assert!(
            failed.stdout.contains("PROVIDER_FAILED"),
            "{form}: {}",
            failed.stdout
        );
        seen += &(failed.stdout + &failed.stderr);
    }
    let listed = echo.run(&["run", "list"]).await.succeeded();
    assert!(
        listed.stdout.contains("401"),
        "the status is told: {}",
        listed.stdout
    );
    seen += &(listed.stdout + &echo.server.output());
    assert_free_of_key("answers and logs", &seen);
    assert_no_column_holds_the_key(&echo.db).await;
}

/// Every form in which the key could be read.
fn readable_forms() -> [String; 3] {
    let encoded = ECHOED.replace('/', "%2F").replace('+', "%2B");
    let encoded = encoded.replace('=', "%3D").replace(' ', "%20");
    let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(ECHOED);
    [ECHOED.to_owned(), encoded, base64]
}

fn assert_free_of_key(what: &str, text: &str) {
    for form in readable_forms() {
        assert!(!text.contains(&form), "{what}: {form}");
    }
}

async fn assert_no_column_holds_the_key(db: &TestDb) {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(table_name) FROM information_schema.tables
         WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
    )
    .fetch_all(db.pool())
    .await
    .expect("tables");
    assert!(tables.len() > 10, "{tables:?}");
    for table in tables {
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT t::text FROM {table} t")))
                .fetch_all(db.pool())
                .await
                .expect("rows");
        assert_free_of_key(&table, &rows.concat());
    }
}
