//! TLS on the listener, by the binary (R1.10).

use std::path::Path;

use tidegate_testkit::{Authority, Proc, TestDb};

use crate::rig::{Ended, ready, run, serve};

async fn ask(url: &str, authority: &Path) -> Ended {
    let proc = Proc::tidegate(&["me", "--ca"])
        .args([authority])
        .env("TIDEGATE_URL", url)
        .env("TIDEGATE_KEY", "tg_nobody");
    run(proc).await
}

/// R1.10: the right authority gets an answer, another one none; half a configuration is refused.
#[tokio::test]
async fn the_listener_speaks_tls() {
    let db = TestDb::new().await;
    let ours = Authority::new("ours").localhost().to_files();
    let other = Authority::new("other").localhost().to_files();

    let half = serve(&db).env("TIDEGATE_TLS_CERT", &ours.certificate);
    let refused = run(half).await.failed_with(2);
    assert!(
        refused.stderr.contains("TIDEGATE_TLS_KEY"),
        "{}",
        refused.stderr
    );

    let mut server = serve(&db)
        .env("TIDEGATE_TLS_CERT", &ours.certificate)
        .env("TIDEGATE_TLS_KEY", &ours.key)
        .start();
    let url = ready(&mut server).await["url"]
        .as_str()
        .expect("url")
        .to_owned();
    assert!(url.starts_with("https://"), "{url}");
    let known = ask(&url, &ours.authority).await.failed_with(1);
    assert!(
        known.stderr.contains("[UNAUTHENTICATED]"),
        "{}",
        known.stderr
    );
    let unknown = ask(&url, &other.authority).await.failed_with(3);
    assert!(unknown.stderr.contains("certificate"), "{}", unknown.stderr);
}
