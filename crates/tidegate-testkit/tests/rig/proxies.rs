use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tidegate_testkit::{Proxy, Target, TestDb, Way};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SHORT: Duration = Duration::from_millis(100);

/// A server that sends back what it gets.
async fn echo() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Target::Tcp(address)
}

async fn exchange(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(back)
}

async fn rig() -> (Proxy, TcpStream) {
    let proxy = Proxy::start(echo().await).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut stream, b"ping").await.unwrap(), b"ping");
    (proxy, stream)
}

#[tokio::test]
async fn a_pause_holds_bytes_and_a_black_hole_eats_them() {
    let (proxy, mut stream) = rig().await;
    proxy.pause();
    let waiting = tokio::time::timeout(SHORT, exchange(&mut stream, b"held"));
    assert!(waiting.await.is_err());
    proxy.heal();
    let mut held = [0; 4];
    stream.read_exact(&mut held).await.unwrap();
    assert_eq!(&held, b"held");

    proxy.black_hole();
    let waiting = tokio::time::timeout(SHORT, exchange(&mut stream, b"gone"));
    assert!(waiting.await.is_err());
    proxy.heal();
    assert_eq!(exchange(&mut stream, b"next").await.unwrap(), b"next");
}

#[tokio::test]
async fn a_delay_applies_each_way() {
    let (proxy, mut stream) = rig().await;
    proxy.delay(SHORT);
    let start = Instant::now();
    exchange(&mut stream, b"slow").await.unwrap();
    assert!(start.elapsed() >= 2 * SHORT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn cuts_reach_open_connections_and_refusal_new_ones() {
    let (proxy, mut stream) = rig().await;
    proxy.refuse();
    assert_eq!(exchange(&mut stream, b"open").await.unwrap(), b"open");
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert!(exchange(&mut refused, b"new").await.is_err());
    proxy.cut();
    let error = exchange(&mut stream, b"cut").await.unwrap_err();
    assert!(matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    ));
    proxy.heal();
    let mut fresh = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(exchange(&mut fresh, b"again").await.unwrap(), b"again");
    assert_eq!(proxy.accepted(), 3);
    assert_eq!(proxy.open(), 1);
}

#[tokio::test]
async fn a_paused_connection_can_be_cut() {
    let (proxy, mut stream) = rig().await;
    proxy.pause();
    stream.write_all(b"held").await.unwrap();
    proxy.cut();
    let mut back = [0; 4];
    assert!(stream.read_exact(&mut back).await.is_err());
}

#[tokio::test]
async fn a_cut_in_the_middle_lets_exactly_so_many_bytes_through() {
    let proxy = Proxy::start(echo().await).await;
    proxy.cut_after(Way::Down, 6);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(b"0123456789").await.unwrap();
    let mut back = Vec::new();
    let error = stream.read_to_end(&mut back).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(back, b"012345");
}

#[tokio::test]
async fn a_database_behind_the_proxy_goes_away_and_comes_back() {
    let db = TestDb::empty().await;
    let proxy = Proxy::start(db.target()).await;
    let url = db.url_at(proxy.address());
    let one = async |pool: &sqlx::PgPool| {
        sqlx::query_scalar::<_, i32>("SELECT 1")
            .fetch_one(pool)
            .await
    };
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    assert_eq!(one(&pool).await.unwrap(), 1);
    proxy.down();
    assert!(one(&pool).await.is_err());
    proxy.heal();
    assert_eq!(one(&pool).await.unwrap(), 1);
}
