//! Start-up refusals: exit codes and messages (R1.1, R1.4, R1.6).

use std::time::Instant;

use tidegate_testkit::{Proc, TestDb};

use crate::rig::{KEY, OTHER_KEY, run, serve, with_database};

/// R1.1: both missing, both named, before any connection.
#[tokio::test]
async fn serve_names_everything_that_is_missing() {
    let ended = run(Proc::tidegate(&["serve"])).await.failed_with(2);
    assert_eq!(ended.stdout, "");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stderr);
    assert!(
        lines[0].starts_with("error: CONFIG_DB_URL is not set"),
        "{}",
        lines[0]
    );
    assert!(lines[0].contains("postgres://user:password@host:5432/database"));
    assert!(
        lines[1].starts_with("error: CONFIG_ENC_KEY is not set"),
        "{}",
        lines[1]
    );
    assert!(lines[1].contains("`openssl rand -base64 32`"));
}

/// R1.1: a malformed value is refused before any connection is tried, and not shown.
#[tokio::test]
async fn malformed_values_are_refused_at_once() {
    let began = Instant::now();
    for (name, value, said) in [
        (
            "CONFIG_ENC_KEY",
            "hunter2hunter2",
            "32 random bytes in base64",
        ),
        ("CONFIG_ENC_KEY", "aHVudGVyMg==", "found 7 bytes"),
        ("CONFIG_DB_URL", "hunter2.example", "postgres://"),
        ("TIDEGATE_LEASE_MS", "10", "an integer from 200"),
        ("TIDEGATE_RENEW_MS", "15000", "TIDEGATE_LEASE_MS"),
        ("TIDEGATE_LESAE_MS", "1", "did you mean `TIDEGATE_LEASE_MS`"),
        ("TIDEGATE_LOG_LEVEL", "tidegate=loud", "TIDEGATE_LOG_LEVEL"),
    ] {
        let base = Proc::tidegate(&["serve"])
            .env("CONFIG_DB_URL", "postgres://nobody@127.0.0.1:1/none")
            .env("CONFIG_ENC_KEY", KEY)
            .env("TIDEGATE_LISTEN", "127.0.0.1:0")
            .env(name, value);
        let ended = run(base).await.failed_with(2);
        assert!(ended.stderr.contains(name), "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{name}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    // Seven processes; one that tried the dead database would take half a minute.
    assert!(began.elapsed().as_secs() < 25, "{:?}", began.elapsed());
}

/// R1.1: an unreachable database is no configuration error: 30 s of tries, then exit code 3.
#[tokio::test]
async fn an_unreachable_database_is_tried_for_half_a_minute() {
    let began = Instant::now();
    let base = Proc::tidegate(&["serve"])
        .env(
            "CONFIG_DB_URL",
            "postgres://nobody:hunter2@127.0.0.1:1/none",
        )
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("CONFIG_ENC_KEY", KEY);
    let ended = run(base).await.failed_with(3);
    let took = began.elapsed().as_secs();
    assert!((28..60).contains(&took), "{took} s");
    assert!(
        ended.stderr.contains("cannot be reached (tried for 30 s)"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("CONFIG_DB_URL") && !ended.stderr.contains("hunter2"));
}

/// R1.1: a key that is not this database's ends the process with 2 before anything is served.
#[tokio::test]
async fn a_wrong_key_is_refused_before_anything_is_served() {
    let db = TestDb::new().await;
    run(with_database(&db, &["secrets", "status"]))
        .await
        .succeeded();
    // A migration that is pending is not applied with a wrong key: the schema is untouched.
    sqlx::query(
        "DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)",
    )
    .execute(db.pool())
    .await
    .expect("a pending migration");
    let ended = run(serve(&db).env("CONFIG_ENC_KEY", OTHER_KEY))
        .await
        .failed_with(2);
    assert_eq!(ended.stdout, "", "nothing was served");
    assert!(
        ended
            .stderr
            .contains("CONFIG_ENC_KEY is not the key of this database"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("CONFIG_ENC_KEY_PREVIOUS"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains(OTHER_KEY) && !ended.stderr.contains(KEY));
}

/// R1.6: a database of a later release is refused with a reason.
#[tokio::test]
async fn a_database_that_is_too_new_is_refused() {
    let db = TestDb::new().await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time)
         VALUES (9999, 'of a later release', now(), true, '\\x00', 0)",
    )
    .execute(db.pool())
    .await
    .expect("a migration that this release does not know");
    sqlx::query("UPDATE cluster SET newest_server = '9.0.0', oldest_server = '8.0.0'")
        .execute(db.pool())
        .await
        .expect("a later release was here");
    let ended = run(serve(&db)).await.failed_with(2);
    assert!(
        ended
            .stderr
            .contains("the database is too new for this server"),
        "{}",
        ended.stderr
    );
}

/// R1.6: with --no-migrate a database that lacks migrations is refused, and `migrate` makes it whole.
#[tokio::test]
async fn serve_can_be_told_not_to_migrate() {
    let db = TestDb::empty().await;
    let refused = run(serve(&db).args(["--no-migrate"])).await.failed_with(2);
    assert!(
        refused.stderr.contains("`tidegate migrate`"),
        "{}",
        refused.stderr
    );
    let before = run(with_database(&db, &["migrate", "status", "--json"]))
        .await
        .succeeded();
    assert!(
        before
            .json()
            .as_array()
            .expect("a list")
            .iter()
            .all(|one| one["state"] == "pending" || one["state"] == "not executed")
    );
    let done = run(with_database(&db, &["migrate", "--json"]))
        .await
        .succeeded();
    assert!(
        !done.json()["applied"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    let again = run(with_database(&db, &["migrate", "--json"]))
        .await
        .succeeded();
    assert!(
        again.json()["applied"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    let after = run(with_database(&db, &["migrate", "status", "--json"]))
        .await
        .succeeded();
    for one in after.json().as_array().expect("a list") {
        if one["description"] == "tenant resource tiers" {
            assert_eq!(one["state"], "not executed");
            continue;
        }
        assert_eq!(one["state"], "applied");
        assert!(
            one["appliedBy"]
                .as_str()
                .expect("a name")
                .starts_with("cli:")
        );
    }
}

/// R1.10: a port that is taken is named with the setting to change.
#[tokio::test]
async fn a_taken_port_is_named() {
    let db = TestDb::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let ended = run(serve(&db).env("TIDEGATE_LISTEN", &address))
        .await
        .failed_with(2);
    assert!(
        ended.stderr.contains("TIDEGATE_LISTEN") && ended.stderr.contains(&address),
        "{}",
        ended.stderr
    );
}

/// R1.1: a database in which the texts of tenants have no room is refused before anything is made in it.
#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let db = TestDb::empty().await;
    let name = format!("{}_latin", db.name());
    let sql = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let made = sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(db.pool())
        .await;
    made.expect("made");
    let url = db.url().replace(db.name(), &name);
    let migrate = with_database(&db, &["migrate"]).env("CONFIG_DB_URL", &url);
    let ended = run(migrate).await.failed_with(2);
    assert!(ended.stderr.contains("needs UTF8"), "{}", ended.stderr);
    let sql = format!("DROP DATABASE {name}");
    let gone = sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(db.pool())
        .await;
    gone.expect("dropped");
}

/// R1.1: a database that has no place for our tables is refused like others: by name, with the remedy, exit code 2.
#[tokio::test]
async fn a_database_without_room_for_our_tables_is_refused() {
    let cases = [
        ("CREATE TABLE tenants (id int)", "tenants", "createdb"),
        ("CREATE TABLE cluster (id int)", "cluster", "createdb"),
        (
            "ALTER DATABASE NAME SET search_path = gone",
            "(gone)",
            "ALTER ROLE",
        ),
    ];
    for (made, name, remedy) in cases {
        let db = TestDb::empty().await;
        let made = sqlx::AssertSqlSafe(made.replace("NAME", db.name()));
        sqlx::query(made).execute(db.pool()).await.expect("made");
        for proc in [serve(&db), with_database(&db, &["migrate"])] {
            let ended = run(proc).await.failed_with(2);
            assert!(ended.stderr.contains(name), "{}", ended.stderr);
            assert!(ended.stderr.contains(remedy), "{}", ended.stderr);
        }
    }
}

/// R2.1: a first key whose secret could not be written down was not made; another one can be.
#[tokio::test]
async fn a_first_key_that_nobody_saw_is_taken_back() {
    let db = TestDb::new().await;
    let program = crate::rig::program();
    let lost = tokio::process::Command::new("sh")
        .args(["-c", "exec \"$0\" key bootstrap >/dev/full"])
        .arg(&program)
        .env("CONFIG_DB_URL", db.url())
        .env("CONFIG_ENC_KEY", KEY)
        .output()
        .await
        .expect("ended");
    let said = String::from_utf8_lossy(&lost.stderr);
    assert_eq!(lost.status.code(), Some(1), "{said}");
    assert!(said.contains("the key was revoked"), "{said}");
    let made = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
    assert_eq!(made.succeeded().json()["key"]["role"], "super_admin");
    let lost = tokio::process::Command::new("sh")
        .args(["-c", "exec \"$0\" openapi >/dev/full"])
        .arg(&program)
        .status();
    assert_eq!(lost.await.expect("ended").code(), Some(1));
}

/// R2.1: the first key migrates the database and says so, beside the answer; a second one has nothing to say of it.
#[tokio::test]
async fn the_first_key_says_that_it_migrated() {
    for flags in [&["key", "bootstrap"][..], &["key", "bootstrap", "--json"]] {
        let db = TestDb::empty().await;
        let ended = run(with_database(&db, flags)).await.succeeded();
        let (applied, last): (i64, i64) =
            sqlx::query_as("SELECT count(*), max(version) FROM _sqlx_migrations")
                .fetch_one(db.pool())
                .await
                .expect("migrations");
        let said = format!(
            "the database was migrated: applied {applied} migrations, it is at version {last}"
        );
        let first = ended.stderr.lines().next();
        assert_eq!(first, Some(said.as_str()), "{}", ended.stderr);
        assert!(!ended.stdout.contains("migrat"), "{}", ended.stdout);
        if flags.contains(&"--json") {
            assert_eq!(ended.json()["key"]["role"], "super_admin");
        }
        let again = run(with_database(&db, flags)).await.failed_with(1);
        assert!(!again.stderr.contains("migrat"), "{}", again.stderr);
    }
}
