use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;
use tidegate_engine::{
    ready::readiness,
    redis_link::{self, RedisState, probe},
    settings::Settings,
};
use tidegate_testkit::{Authority, Handshake, Target, TestRedis, TlsFront};

use crate::rig::{World, eventually};

fn settings(url: &str, authority: Option<PathBuf>) -> Settings {
    Settings {
        rate_limit_redis_url: Some(SecretString::from(url.to_owned())),
        rate_limit_redis_ca: authority,
        ..World::settings()
    }
}

async fn found(settings: &Settings) -> (bool, String) {
    match probe(settings).await {
        RedisState::Known { ok, detail } => (ok, detail),
        RedisState::Unused => panic!("Redis is configured"),
    }
}

/// R1.3, R14.2: Redis is optional; what is found is said, an evicting one included, and nothing is fatal.
#[tokio::test]
async fn what_is_found_of_redis_is_said() {
    assert_eq!(probe(&World::settings()).await, RedisState::Unused);
    let redis = TestRedis::start().await;
    let (ok, detail) = found(&settings(&redis.url(), None)).await;
    assert!(ok, "{detail}");
    set_policy(&redis, "allkeys-lru").await;
    let (ok, detail) = found(&settings(&redis.url(), None)).await;
    assert!(
        ok && detail.contains("allkeys-lru") && detail.contains("noeviction"),
        "{detail}"
    );
    set_policy(&redis, "noeviction").await;
    let (ok, detail) = found(&settings(&redis.url(), None)).await;
    assert!(ok && detail.contains("keeps"), "{detail}");

    redis.kill9();
    let secret = redis.url().replace("redis://", "redis://:s3cret@");
    let (ok, detail) = found(&settings(&secret, None)).await;
    assert!(!ok && detail.contains("refuses connections"), "{detail}");
    assert!(
        !detail.contains("s3cret") && !detail.contains("127.0.0.1"),
        "{detail}"
    );
    let world = World::new().await;
    let engine = world.engine(settings(&redis.url(), None)).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(redis_link::run(engine.clone(), stop.clone()));
    let shown = || async {
        let ready = readiness(&engine).await;
        ready.ready
            && ready
                .checks
                .iter()
                .any(|c| c.name == "redis" && !c.ok && c.detail.contains("refuses"))
    };
    eventually(
        "shown, and ready all the same",
        Duration::from_secs(5),
        shown,
    )
    .await;
    stop.cancel();
    task.await.unwrap();
}

async fn set_policy(redis: &TestRedis, policy: &str) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(redis.address())
        .await
        .unwrap();
    let command = format!("CONFIG SET maxmemory-policy {policy}\r\n");
    stream.write_all(command.as_bytes()).await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

/// R1.10: TLS to Redis with the right authority works; a wrong or expired certificate is refused, with what to do.
#[tokio::test]
async fn a_wrong_certificate_of_redis_is_refused() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let redis = TestRedis::start().await;
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let front = async |certificate| {
        TlsFront::start(
            Target::Tcp(redis.address()),
            &certificate,
            Handshake::Direct,
        )
        .await
    };
    let good = ours.localhost();
    let authority = good.to_files().authority;
    let url = |front: &TlsFront| format!("rediss://localhost:{}", front.address().port());
    let right = front(good).await;
    let (ok, detail) = found(&settings(&url(&right), Some(authority.clone()))).await;
    assert!(ok, "{detail}");
    for wrong in [
        theirs.localhost(),
        ours.expired(),
        ours.server(&["elsewhere.example"]),
    ] {
        let wrong = front(wrong).await;
        let (ok, detail) = found(&settings(&url(&wrong), Some(authority.clone()))).await;
        assert!(!ok && detail.contains("certificate is refused"), "{detail}");
        assert!(detail.contains("RATE_LIMIT_REDIS_CA"), "{detail}");
    }
    // Without the authority's file only those of the system count.
    let (ok, detail) = found(&settings(&url(&right), None)).await;
    assert!(!ok && detail.contains("certificate"), "{detail}");
    let nowhere = Some(PathBuf::from("/nonexistent/ca.pem"));
    let (ok, detail) = found(&settings(&url(&right), nowhere)).await;
    assert!(!ok && detail.contains("cannot be read"), "{detail}");
}

/// R14.2: a frozen Redis costs its time and no more.
#[tokio::test]
async fn a_frozen_redis_is_noticed_in_its_time() {
    let redis = TestRedis::start().await;
    redis.freeze();
    let began = tokio::time::Instant::now();
    let (ok, detail) = found(&settings(&redis.url(), None)).await;
    assert!(!ok, "{detail}");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    redis.thaw();
}
