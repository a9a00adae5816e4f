//! What a command finds out before it does anything: this machine first, then the database with its own words.

use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use serde_json::Value;
use tidegate_testkit::{Authority, Proc, TestDb, scratch};

use crate::rig::{Ended, KEY, ready, run, run_where_it_is, serve, with_database};

async fn is_untouched(db: &TestDb) -> bool {
    sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NULL")
        .fetch_one(db.pool())
        .await
        .expect("an answer")
}

/// R1.1, R1.10: a port that is taken, a certificate that cannot be read, an authority that is none: each is named with
/// its setting before the database is touched, and without it nothing stands in the way.
#[tokio::test]
async fn this_machine_is_looked_at_before_the_database() {
    let db = TestDb::empty().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let good = Authority::new("ours").localhost().to_files();
    let no_pem = scratch::directory("no-pem").join("file");
    std::fs::write(&no_pem, "hello").expect("a file");
    let no_pem = no_pem.display().to_string();
    for (name, value, said) in [
        ("TIDEGATE_LISTEN", address.as_str(), address.as_str()),
        ("TIDEGATE_METRICS_LISTEN", &address, &address),
        (
            "TIDEGATE_TLS_CERT",
            "/nonexistent/cert",
            "/nonexistent/cert",
        ),
        ("TIDEGATE_TLS_CERT", &no_pem, &no_pem),
        (
            "TIDEGATE_LLM_EXTRA_CA",
            "/nonexistent/ca",
            "/nonexistent/ca",
        ),
        ("RATE_LIMIT_REDIS_CA", &no_pem, "is no PEM file"),
    ] {
        let mut proc = serve(&db).env(name, value);
        if name == "TIDEGATE_TLS_CERT" {
            proc = proc.env("TIDEGATE_TLS_KEY", &good.key);
        }
        let ended = run(proc).await.failed_with(2);
        assert!(ended.stderr.contains(name), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{name}: {}", ended.stderr);
        assert!(is_untouched(&db).await, "{name}: the database was migrated");
    }
    // Far from a database as well: nobody waits for one to learn of a port.
    let began = Instant::now();
    let proc = serve(&db)
        .env("CONFIG_DB_URL", "postgres://nobody@127.0.0.1:1/none")
        .env("TIDEGATE_LISTEN", &address);
    run(proc).await.failed_with(2);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

/// The database's own words and what to do, in place of a pool that timed out; at once, in every command that needs it.
#[tokio::test]
async fn commands_say_why_the_database_cannot_be_reached() {
    let db = TestDb::new().await;
    let nowhere = "postgres://nobody@127.0.0.1:1/none".to_owned();
    let missing = db.url().replace(db.name(), "no_such_database");
    let stranger = db.url().replacen("://tidegate", "://stranger", 1);
    assert!(missing != db.url() && stranger != db.url());
    let commands: [&[&str]; 5] = [
        &["migrate", "status"],
        &["secrets", "status"],
        &["recover"],
        &["key", "bootstrap"],
        &["doctor"],
    ];
    for (url, exit, words, remedy) in [
        (&nowhere, 3, "onnection refused", "PostgreSQL runs"),
        (
            &missing,
            2,
            "\"no_such_database\" does not exist",
            "createdb",
        ),
        (
            &stranger,
            2,
            "stranger",
            "user and password in CONFIG_DB_URL",
        ),
    ] {
        for command in commands {
            let began = Instant::now();
            let proc = with_database(&db, command)
                .env("CONFIG_DB_URL", url)
                .env("TIDEGATE_PROFILE", "")
                .env("HOME", "/nonexistent");
            let ended = run(proc).await;
            let said = format!("{}{}", ended.stdout, ended.stderr);
            let expected = if command == ["doctor"] { 1 } else { exit };
            assert_eq!(ended.code(), expected, "{command:?}: {said}");
            // The doctor's table breaks no words; elsewhere all of it is one line.
            assert!(said.contains(words), "{command:?}: {said}");
            assert!(said.contains(remedy), "{command:?}: {said}");
            assert!(!said.contains("pool timed out"), "{command:?}: {said}");
            assert!(began.elapsed() < Duration::from_secs(15), "{command:?}");
        }
    }
}

/// A PgBouncer that was not told to ignore start-up parameters never will let a server in: no patience, and the setting.
#[tokio::test]
async fn a_pooler_that_refuses_parameters_is_named_with_its_setting() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Whoever leaves in the middle is not waited for.
            let _left = refuse_parameters(client);
        }
    });
    let url = format!("postgres://tidegate@127.0.0.1:{port}/tidegate?sslmode=disable");
    let serve = Proc::tidegate(&["serve"])
        .env("CONFIG_ENC_KEY", KEY)
        .env("TIDEGATE_LISTEN", "127.0.0.1:0");
    for proc in [serve, Proc::tidegate(&["migrate"])] {
        let began = Instant::now();
        let ended = run(proc.env("CONFIG_DB_URL", &url)).await.failed_with(2);
        assert!(
            ended
                .stderr
                .contains("unsupported startup parameter: options")
                && ended.stderr.contains("ignore_startup_parameters"),
            "{}",
            ended.stderr
        );
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{}",
            ended.stderr
        );
    }
}

/// Reads the start of a session and answers in PgBouncer's words.
fn refuse_parameters(mut client: std::net::TcpStream) -> std::io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let rest = u32::from_be_bytes(length).saturating_sub(4);
    std::io::copy(&mut (&client).take(rest.into()), &mut std::io::sink())?;
    let fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
    let size = u32::try_from(fields.len() + 4).unwrap_or(0);
    client.write_all(b"E")?;
    client.write_all(&size.to_be_bytes())?;
    client.write_all(fields)
}

/// R1.1: a PostgreSQL older than 15 is refused by `serve`, `migrate` and the doctor, before anything is made in it. The
/// function that tells the version is covered by one of another schema, as the search path allows.
#[tokio::test]
async fn an_old_postgresql_is_refused() {
    let db = TestDb::empty().await;
    for statement in [
        "CREATE SCHEMA old".to_owned(),
        "CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql AS $$
             SELECT CASE $1 WHEN 'server_version_num' THEN '140012' WHEN 'server_version' THEN '14.12'
                    ELSE pg_catalog.current_setting($1) END $$"
            .to_owned(),
        format!(
            "ALTER DATABASE {} SET search_path = old, pg_catalog, public",
            db.name()
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(db.pool())
            .await
            .expect("a database that says it is old");
    }
    for proc in [
        serve(&db),
        serve(&db).args(["--no-migrate"]),
        with_database(&db, &["migrate"]),
    ] {
        let ended = run(proc).await.failed_with(2);
        assert!(
            ended.stderr.contains("PostgreSQL 14.12 is too old")
                && ended.stderr.contains("15 or later"),
            "{}",
            ended.stderr
        );
    }
    assert!(is_untouched(&db).await);
    let doctor = run(with_database(&db, &["doctor", "--json"])).await;
    let findings: Value = serde_json::from_str(&doctor.stdout).expect("findings");
    assert!(findings.to_string().contains("is too old"), "{findings}");
}

/// The demo's tools read a checkout; elsewhere it says so before it starts anything.
#[tokio::test]
async fn the_demo_wants_a_checkout_before_it_starts() {
    let dir = scratch::directory("no-checkout");
    let data = scratch::directory("demo-data");
    let demo = Proc::tidegate(&["demo", "--once"])
        .args(["--data-dir".as_ref(), data.as_os_str()])
        .current_dir(&dir);
    let ended = run_where_it_is(demo).await.failed_with(2);
    assert!(
        ended.stderr.contains("git checkout") && ended.stderr.contains("make demo"),
        "{}",
        ended.stderr
    );
    let left = std::fs::read_dir(&data).expect("the directory").count();
    assert_eq!(left, 0, "nothing was made: {}", ended.stderr);
}

/// R1.10: what trying again cannot cure is said at once: an authority that is not the server's, the wrong scheme.
#[tokio::test]
async fn a_command_does_not_try_again_what_stays_wrong() {
    let db = TestDb::new().await;
    let ours = Authority::new("ours").server(&["127.0.0.1"]).to_files();
    let other = Authority::new("other").localhost().to_files();
    let mut server = serve(&db)
        .env("TIDEGATE_TLS_CERT", &ours.certificate)
        .env("TIDEGATE_TLS_KEY", &ours.key)
        .start();
    let url = ready(&mut server).await["url"]
        .as_str()
        .expect("url")
        .to_owned();
    let plain = url.replacen("https", "http", 1);
    for (url, authority, said) in [
        (&url, &other.authority, "--ca FILE"),
        (
            &url.replacen("127.0.0.1", "localhost", 1),
            &ours.authority,
            "name",
        ),
        (&plain, &ours.authority, "https://"),
    ] {
        let began = Instant::now();
        let proc = Proc::tidegate(&["me"])
            .env("TIDEGATE_URL", url)
            .env("TIDEGATE_KEY", "tg_nobody")
            .env("TIDEGATE_CA", authority);
        let ended = run(proc).await.failed_with(3);
        assert!(ended.stderr.contains(said), "{url}: {}", ended.stderr);
        // The patience of a command is 15 s; a loaded machine may take a while to start one.
        assert!(
            began.elapsed() < Duration::from_secs(12),
            "{url}: {}",
            ended.stderr
        );
    }
}

/// The error document of a failed command, which has a code and a remedy in every case.
fn refused(ended: &Ended) -> Value {
    let said: Value = serde_json::from_str(&ended.stderr).expect("one JSON document");
    let error = said["error"].clone();
    assert!(
        error["remedy"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{said}"
    );
    assert!(error["code"].is_string(), "{said}");
    error
}

/// Arguments, variables, and what the refusal says.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

/// Bad input: what gave an address or a key is named, nothing is sent, and a key is not shown.
#[tokio::test]
async fn a_wrong_key_or_address_is_refused_at_once_with_its_source() {
    let dir = scratch::directory("profile");
    let profile = dir.join("profile.toml");
    std::fs::write(
        &profile,
        "url = 'http://127.0.0.1:9'\ndefault = 'acme'\n[keys]\nacme = \"tg_secret\\r\"\n",
    )
    .expect("a profile");
    let profile = profile.display().to_string();
    let flag: &[&str] = &["--json", "me", "--url", "foo"];
    let cases: [Case; 4] = [
        (flag, &[("TIDEGATE_KEY", "tg_nobody")], "--url: not a URL"),
        (
            &["--json", "me"],
            &[("TIDEGATE_URL", "foo"), ("TIDEGATE_KEY", "tg_nobody")],
            "TIDEGATE_URL: not a URL",
        ),
        (
            &["--json", "me"],
            &[
                ("TIDEGATE_URL", "http://127.0.0.1:9"),
                ("TIDEGATE_KEY", "tg_secret\r"),
            ],
            "TIDEGATE_KEY: the API key ends in a line break",
        ),
        (
            &["--json", "me", "--as", "acme"],
            &[("TIDEGATE_PROFILE", &profile)],
            "`acme` in the profile",
        ),
    ];
    for (args, env, said) in cases {
        let began = std::time::Instant::now();
        let proc = Proc::tidegate(args);
        let proc = env
            .iter()
            .fold(proc, |proc, (name, value)| proc.env(name, value));
        let ended = run(proc).await.failed_with(2);
        let error = refused(&ended);
        let message = error["messages"][0].as_str().expect("a message");
        assert!(message.contains(said), "{error}");
        assert_eq!(error["code"], "USAGE");
        assert!(!ended.stderr.contains("tg_secret"), "{error}");
        assert!(began.elapsed().as_secs() < 12, "{error}");
    }
}

/// R22.2: failures of the command itself have a code and a remedy, and name what to correct.
#[tokio::test]
async fn failures_of_the_command_itself_have_a_code_and_a_remedy() {
    let nowhere = Proc::tidegate(&["--json", "me"])
        .env("TIDEGATE_URL", "http://127.0.0.1:1")
        .env("TIDEGATE_KEY", "tg_nobody");
    let ended = run(nowhere).await.failed_with(3);
    let error = refused(&ended);
    assert_eq!(error["code"], "UNREACHABLE");
    assert!(
        error["remedy"]
            .as_str()
            .expect("a remedy")
            .contains("--url"),
        "{error}"
    );
    let setting = Proc::tidegate(&["--json", "config"]).env("TIDEGATE_LISTEN", "here");
    let error = refused(&run(setting).await.failed_with(2));
    assert_eq!(error["code"], "USAGE");
    let data = scratch::directory("pg-bin");
    let dev = Proc::tidegate(&["--json", "dev", "--once"])
        .args(["--data-dir".as_ref(), data.as_os_str()])
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("PG_BIN", "/nonexist");
    let error = refused(&run(dev).await.failed_with(2));
    let message = error["messages"][0].as_str().expect("a message");
    assert!(message.starts_with("PG_BIN: /nonexist"), "{error}");
    let time = [
        "--json",
        "run",
        "submit",
        "chat",
        "--deadline",
        "99999-01-01T00:00:00Z",
    ];
    let error = refused(&run(Proc::tidegate(&time)).await.failed_with(2));
    assert!(
        error["messages"][0]
            .as_str()
            .expect("a message")
            .contains("2030-01-31"),
        "{error}"
    );
}
