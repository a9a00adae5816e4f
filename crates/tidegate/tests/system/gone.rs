//! An instance that is gone is shown as such, and not by what it last said of itself.

use std::time::Instant;

use tidegate_testkit::{Proc, TestDb};

use crate::rig::{Ended, PATIENCE, ready, run, serve, with_database};

/// R21.4: state and time, in place of what ran when it was last seen; the doctor says the same.
#[tokio::test]
async fn an_instance_that_is_gone_is_shown_with_the_time() {
    let db = TestDb::new().await;
    let made = run(with_database(&db, &["key", "bootstrap", "--json"])).await;
    let key = made.succeeded().json()["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let start = || {
        serve(&db)
            .env("TIDEGATE_INSTANCE_HEARTBEAT_MS", "200")
            .start()
    };
    let (mut stays, mut goes) = (start(), start());
    let said = ready(&mut stays).await;
    let url = said["url"].as_str().expect("url").to_owned();
    let gone = ready(&mut goes).await["instance"]
        .as_str()
        .expect("an instance")
        .to_owned();
    let ask = async |args: &[&str]| -> Ended {
        let proc = Proc::tidegate(args)
            .env("TIDEGATE_URL", &url)
            .env("TIDEGATE_KEY", &key);
        run(proc).await
    };
    goes.kill9();
    let deadline = Instant::now() + PATIENCE;
    let shown = loop {
        let shown = ask(&["instances"]).await.succeeded().stdout;
        let line = shown.lines().find(|line| line.contains(&gone));
        let line = line.unwrap_or_else(|| panic!("{gone} is not shown:\n{shown}"));
        if line.contains("gone since") {
            break line.to_owned();
        }
        assert!(Instant::now() < deadline, "{shown}");
    };
    assert!(
        !shown.contains(" of ") && !shown.contains("polls"),
        "{shown}"
    );
    let doctor = ask(&["doctor"]).await.stdout;
    assert!(
        doctor.contains(&format!("{gone} is gone since")),
        "{doctor}"
    );
    assert!(doctor.contains("intake: takes work"), "{doctor}");
}
