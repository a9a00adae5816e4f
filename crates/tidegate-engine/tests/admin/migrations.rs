use tidegate_store::{
    ConnectOptions, connect,
    migrate::{
        Applicant, MigrateError, MigrationState, MigrationStatus, OPTIONAL_SETS, check, migrate,
        migrate_with, status,
    },
};
use tidegate_testkit::{TestCluster, TestDb};

use crate::pooler::Pooler;

fn applicant(version: &str) -> Applicant {
    Applicant {
        by: "cli:root".to_owned(),
        server_version: version.to_owned(),
    }
}

fn pool(url: &str) -> sqlx::PgPool {
    connect(&ConnectOptions::new(url)).unwrap()
}

async fn execute(db: &TestDb, statement: &'static str) {
    sqlx::query(statement).execute(db.pool()).await.unwrap();
}

/// The migrations that every database has.
async fn demanded(db: &TestDb) -> Vec<MigrationStatus> {
    let mut all = status(&pool(&db.url())).await.unwrap();
    all.retain(|m| m.state != MigrationState::NotExecuted);
    all
}

/// R1.6, R15.1: an optional migration is added by name, once, is shown as executed or not, and is never missed.
#[tokio::test]
async fn an_optional_migration_is_executed_by_name() {
    let db = TestDb::new().await;
    let here = pool(&db.url());
    let state = async || {
        let all = status(&here).await.unwrap();
        let found = all
            .into_iter()
            .find(|m| m.version == OPTIONAL_SETS[0].version);
        found.unwrap()
    };
    assert_eq!(state().await.state, MigrationState::NotExecuted);
    check(&here, "0.1.0").await.unwrap();
    for expected in [vec![OPTIONAL_SETS[0].version], Vec::new()] {
        let done = migrate_with(&here, &applicant("0.1.0"), &OPTIONAL_SETS).await;
        assert_eq!(done.unwrap().applied, expected);
    }
    let executed = state().await;
    assert_eq!(executed.state, MigrationState::Applied);
    assert_eq!(executed.applied_by.as_deref(), Some("cli:root"));
    assert_eq!(check(&here, "0.1.0").await.unwrap().warning, None);
    assert!(
        migrate(&here, &applicant("0.1.0"))
            .await
            .unwrap()
            .applied
            .is_empty()
    );
}

/// R1.6: many instances at once migrate once; each run that changed something is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_instances_migrate_once() {
    let db = TestDb::empty().await;
    let before = check(&pool(&db.url()), "0.1.0").await.unwrap_err();
    assert!(matches!(before, MigrateError::Pending(_)), "{before}");
    assert!(before.to_string().contains("tidegate migrate"), "{before}");
    let url = db.url();
    let runs = (0..8).map(|_| async { migrate(&pool(&url), &applicant("0.1.0")).await.unwrap() });
    let applied: Vec<i64> = futures::future::join_all(runs)
        .await
        .into_iter()
        .flat_map(|report| report.applied)
        .collect();
    let all = demanded(&db).await;
    assert!(all.iter().all(|m| m.state == MigrationState::Applied));
    assert_eq!(applied.len(), all.len(), "each was applied by one of them");
    for migration in &all {
        assert_eq!(migration.applied_by.as_deref(), Some("cli:root"));
        assert_eq!(migration.server.as_deref(), Some("0.1.0"));
        assert!(!migration.description.is_empty() && migration.digest.len() == 16);
    }
    let logged: i64 = sqlx::query_scalar("SELECT count(*) FROM migration_log")
        .fetch_one(db.pool())
        .await
        .unwrap();
    assert_eq!(usize::try_from(logged).unwrap(), all.len());
    let locks: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!(locks, 0, "no lock is left behind");
    assert_eq!(
        check(&pool(&db.url()), "0.1.0").await.unwrap().warning,
        None
    );
}

/// R1.6: without a schema to make tables in, nothing is made; the search_path is named, and what to do.
#[tokio::test]
async fn a_search_path_without_a_schema_is_named() {
    let db = TestDb::empty().await;
    for odd in ["gone", "pg_catalog, public"] {
        let set = format!("ALTER DATABASE {} SET search_path = {odd}", db.name());
        let set = sqlx::query(sqlx::AssertSqlSafe(set));
        set.execute(db.pool()).await.unwrap();
        let here = pool(&db.url());
        for refused in [
            migrate(&here, &applicant("0.1.0")).await.unwrap_err(),
            check(&here, "0.1.0").await.unwrap_err(),
            status(&here).await.unwrap_err(),
        ] {
            assert!(refused.to_string().contains(odd), "{refused}");
            let remedy = refused.remedy().unwrap();
            assert!(remedy.contains("search_path = public"), "{remedy}");
        }
    }
}

/// R1.6: what another program has under a name of ours is named and left alone, and nothing is made beside it.
#[tokio::test]
async fn objects_of_another_program_are_named() {
    let cases = [
        ("CREATE TABLE tenants (id int)", "tenants"),
        ("CREATE VIEW run_events AS SELECT 1", "run_events"),
        ("CREATE TYPE providers AS ENUM ('x')", "providers"),
        (
            "CREATE FUNCTION refuse_change() RETURNS int LANGUAGE sql RETURN 1",
            "refuse_change",
        ),
        ("CREATE TABLE cluster (id int)", "cluster"),
        (
            "CREATE TABLE _sqlx_migrations (version int)",
            "_sqlx_migrations",
        ),
    ];
    for (theirs, name) in cases {
        let db = TestDb::empty().await;
        execute(&db, theirs).await;
        let here = pool(&db.url());
        let refused = migrate(&here, &applicant("0.1.0")).await.unwrap_err();
        // Who only looks is not told to migrate it.
        let looked = check(&here, "0.1.0").await.unwrap_err();
        let shown = status(&here).await.unwrap_err();
        for refused in [&refused, &looked, &shown] {
            let named = matches!(refused, MigrateError::Foreign { name: theirs } if theirs == name);
            assert!(named, "{theirs}: {refused}");
        }
        let made: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname <> $1",
        )
        .bind(name)
        .fetch_one(db.pool())
        .await
        .unwrap();
        assert_eq!(made, 0, "{theirs}");
        let remedy = refused.remedy().unwrap();
        assert!(remedy.contains("a database of its own"), "{remedy}");
    }
}

/// R1.6: what was installed is found where it is; a schema that was put before it later is named, and no second record
/// is begun there.
#[tokio::test]
async fn a_schema_put_before_ours_is_named() {
    let db = TestDb::new().await;
    execute(&db, "CREATE SCHEMA later").await;
    let set = format!(
        "ALTER DATABASE {} SET search_path = later, public",
        db.name()
    );
    let set = sqlx::query(sqlx::AssertSqlSafe(set));
    set.execute(db.pool()).await.unwrap();
    let here = pool(&db.url());
    for refused in [
        migrate(&here, &applicant("0.1.0")).await.unwrap_err(),
        check(&here, "0.1.0").await.unwrap_err(),
        status(&here).await.unwrap_err(),
    ] {
        let told = refused.to_string();
        assert!(
            told.contains("\"public\"") && told.contains("\"later\""),
            "{told}"
        );
        assert!(refused.remedy().unwrap().contains("first"), "{told}");
    }
    let made: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'later'")
        .fetch_one(db.pool())
        .await
        .unwrap();
    assert_eq!(made, 0);
}

/// R1.6: the record of another program's migrations is no record of ours.
#[tokio::test]
async fn migrations_of_another_program_are_not_ours() {
    let db = TestDb::empty().await;
    execute(
        &db,
        "CREATE TABLE _sqlx_migrations (version bigint PRIMARY KEY, description text NOT NULL,
             installed_on timestamptz NOT NULL DEFAULT now(), success boolean NOT NULL, checksum bytea NOT NULL,
             execution_time bigint NOT NULL)",
    )
    .await;
    execute(
        &db,
        "INSERT INTO _sqlx_migrations VALUES (1, 'theirs', now(), true, '\\x00', 0)",
    )
    .await;
    let here = pool(&db.url());
    for refused in [
        migrate(&here, &applicant("0.1.0")).await.unwrap_err(),
        check(&here, "0.1.0").await.unwrap_err(),
        status(&here).await.unwrap_err(),
    ] {
        assert!(matches!(refused, MigrateError::Foreign { .. }), "{refused}");
    }
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert_eq!(tables, 1, "nothing was made beside it");
}

/// R1.6: a database that is too new refuses, one release newer only warns.
#[tokio::test]
async fn a_database_that_is_too_new_is_refused() {
    let db = TestDb::new().await;
    let ours = pool(&db.url());
    let refused = async |part: &str| {
        for error in [
            check(&ours, "0.1.0").await.unwrap_err(),
            migrate(&ours, &applicant("0.1.0")).await.unwrap_err(),
        ] {
            assert!(matches!(error, MigrateError::TooNew(_)), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    };
    execute(&db, "UPDATE cluster SET lowest_protocol = 2").await;
    refused("protocol version 2").await;
    execute(
        &db,
        "UPDATE cluster SET lowest_protocol = 1, oldest_server = '0.2.0'",
    )
    .await;
    refused("from 0.2.0 on").await;
    execute(&db, "UPDATE cluster SET oldest_server = '0.1.0'").await;
    execute(
        &db,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'of the future', true, '\\x00', 0)",
    )
    .await;
    refused("9999").await;
    let unknown = status(&ours).await.unwrap();
    assert_eq!(unknown.last().unwrap().state, MigrationState::Unknown);
    execute(&db, "UPDATE cluster SET newest_server = '0.3.0'").await;
    refused("more than one release").await;
    execute(&db, "UPDATE cluster SET newest_server = '0.2.0'").await;
    let warning = check(&ours, "0.1.0").await.unwrap().warning.unwrap();
    assert!(warning.contains("one release older"), "{warning}");
    assert!(
        migrate(&ours, &applicant("0.1.0"))
            .await
            .unwrap()
            .warning
            .is_some()
    );
}

/// R1.6: a newer server leaves its mark, so that older ones can tell.
#[tokio::test]
async fn a_newer_server_leaves_its_mark() {
    let db = TestDb::new().await;
    migrate(&pool(&db.url()), &applicant("0.2.0"))
        .await
        .unwrap();
    migrate(&pool(&db.url()), &applicant("0.1.9"))
        .await
        .unwrap();
    let newest: String = sqlx::query_scalar("SELECT newest_server FROM cluster")
        .fetch_one(db.pool())
        .await
        .unwrap();
    assert_eq!(newest, "0.2.0");
}

#[tokio::test]
async fn a_migration_that_was_changed_afterwards_is_named() {
    let db = TestDb::new().await;
    execute(
        &db,
        "UPDATE _sqlx_migrations SET checksum = '\\x00' WHERE version = 3",
    )
    .await;
    let error = migrate(&pool(&db.url()), &applicant("0.1.0"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, MigrateError::Changed { version: 3 }),
        "{error}"
    );
    let all = status(&pool(&db.url())).await.unwrap();
    assert_eq!(all[2].state, MigrationState::Changed);
}

/// R1.6: migrations want a direct connection; a pooler in transaction mode is noticed and nothing is done.
#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused() {
    let db = TestDb::empty().await;
    let pooler = Pooler::start(db.target(), db.name()).await;
    let behind = pool(&db.url_at(pooler.address()));
    let error = migrate(&behind, &applicant("0.1.0")).await.unwrap_err();
    assert!(matches!(error, MigrateError::Pooler), "{error}");
    assert!(error.to_string().contains("direct connection"), "{error}");
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert_eq!(tables, 0);
}

#[tokio::test]
async fn a_standby_is_refused() {
    let cluster = TestCluster::start(|options| options).await;
    let db = cluster.empty_db().await;
    let standby = cluster.standby().await;
    let copy = db.on(&standby);
    let error = migrate(&pool(&copy.url()), &applicant("0.1.0"))
        .await
        .unwrap_err();
    assert!(matches!(error, MigrateError::Standby), "{error}");
}

/// O-29: a caller who goes away in the middle leaves neither a lock nor half a schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_goes_away_leaves_no_lock() {
    let db = TestDb::empty().await;
    for ms in [1, 5, 20, 60] {
        let migrating = pool(&db.url());
        let applicant = applicant("0.1.0");
        let limit = std::time::Duration::from_millis(ms);
        let _ = tokio::time::timeout(limit, migrate(&migrating, &applicant)).await;
    }
    let limit = std::time::Duration::from_secs(20);
    let done = tokio::time::timeout(limit, migrate(&pool(&db.url()), &applicant("0.1.0"))).await;
    done.expect("no lock is left behind").unwrap();
    let all = demanded(&db).await;
    assert!(all.iter().all(|m| m.state == MigrationState::Applied));
}
