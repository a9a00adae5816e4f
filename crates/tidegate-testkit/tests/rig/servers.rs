use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sqlx::Connection;
use tidegate_testkit::{Authority, Handshake, Target, TestDb, TestRedis, TlsFront};

fn ping(address: SocketAddr) -> std::io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    (&stream).write_all(b"PING\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

#[tokio::test]
async fn redis_is_private_freezes_and_restarts_on_its_port() {
    let redis = TestRedis::start().await;
    assert_eq!(ping(redis.address()).unwrap(), "+PONG");
    redis.freeze();
    assert!(ping(redis.address()).is_err());
    redis.thaw();
    assert_eq!(ping(redis.address()).unwrap(), "+PONG");
    let url = redis.url();
    redis.kill9();
    assert!(ping(redis.address()).is_err());
    redis.restart().await;
    assert_eq!(ping(redis.address()).unwrap(), "+PONG");
    assert_eq!(redis.url(), url);
    let shared = TestRedis::shared().await;
    assert_ne!(shared.fresh_url(), shared.fresh_url());
}

#[tokio::test]
async fn r1_10_a_tls_front_is_verified_against_its_authority() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let db = TestDb::empty().await;
    let good = TlsFront::start(db.target(), &right.localhost(), Handshake::Postgres).await;
    let old = TlsFront::start(db.target(), &right.expired(), Handshake::Postgres).await;
    let connect = async |front: &TlsFront, authority: &Authority| {
        let file = authority.localhost().to_files().authority;
        let url = db.url_at(front.address());
        let url = format!("{url}?sslmode=verify-full&sslrootcert={}", file.display());
        let mut connection = sqlx::PgConnection::connect(&url).await?;
        sqlx::query_scalar::<_, i32>("SELECT 1")
            .fetch_one(&mut connection)
            .await
    };
    assert_eq!(connect(&good, &right).await.unwrap(), 1);
    assert!(connect(&good, &wrong).await.is_err(), "wrong authority");
    assert!(connect(&old, &right).await.is_err(), "expired");
}

#[tokio::test]
async fn r1_10_a_tls_front_before_redis_speaks_nothing_else() {
    let redis = TestRedis::start().await;
    let certificate = Authority::new("redis authority").localhost();
    let target = Target::Tcp(redis.address());
    let front = TlsFront::start(target, &certificate, Handshake::Direct).await;
    assert_ne!(ping(front.address()).unwrap_or_default(), "+PONG");
    assert_eq!(ping(redis.address()).unwrap(), "+PONG");
}
