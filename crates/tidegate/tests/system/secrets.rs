//! Rotation of the key that seals secrets (R1.8), and what dangles after a restore (R4.7), from the command line.

use serde_json::Value;
use tidegate_testkit::{Proc, TestDb};

use crate::rig::{KEY, OTHER_KEY, ready, run, serve, with_database};

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
