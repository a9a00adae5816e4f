//! A connection pooler in transaction mode, small and strict: any number of clients share one server session, which goes
//! to another client after each transaction. Prepared statements are renamed per client, as newer poolers do.
//! Notifications reach nobody, as in the real ones.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use tidegate_testkit::Target;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream, unix::OwnedWriteHalf},
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
};

const SSL_REQUEST: u32 = 80_877_103;
const PROTOCOL: u32 = 196_608;

/// A running pooler.
pub struct Pooler {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pooler {
    pub async fn start(target: Target, database: &str) -> Self {
        let Target::Unix(socket) = target else {
            panic!("a socket is expected")
        };
        let server = UnixStream::connect(socket).await.expect("the server");
        let (server, greeting) = Server::log_in(server, database).await;
        let server = Arc::new(Mutex::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            let mut clients = 0;
            while let Ok((client, _)) = listener.accept().await {
                clients += 1;
                let (server, greeting) = (Arc::clone(&server), greeting.clone());
                tokio::spawn(async move {
                    // A client that goes away ends here; its transaction, if any, is over by then in these tests.
                    let _ = serve(client, &server, &greeting, clients).await;
                });
            }
        });
        Self { address, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The one session that all clients share.
struct Server {
    to: OwnedWriteHalf,
    answers: UnboundedReceiver<Vec<u8>>,
}

impl Server {
    fn over(stream: UnixStream) -> Self {
        let (from, to) = stream.into_split();
        Self {
            to,
            answers: messages_of(from),
        }
    }

    /// Logs in and keeps what clients are greeted with.
    async fn log_in(mut stream: UnixStream, database: &str) -> (Self, Vec<u8>) {
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for text in ["user", "tidegate", "database", database] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).expect("short");
        stream
            .write_all(&length.to_be_bytes())
            .await
            .expect("start");
        stream.write_all(&body).await.expect("start");
        let mut greeting = Vec::new();
        loop {
            let message = read_message(&mut stream).await.expect("greeting");
            greeting.extend_from_slice(&message);
            assert_ne!(message[0], b'E', "{}", String::from_utf8_lossy(&message));
            if message[0] == b'Z' {
                return (Self::over(stream), greeting);
            }
        }
    }
}

/// The messages of a stream. Reading them in a task of its own makes waiting for one safe to give up.
fn messages_of<S>(mut stream: S) -> UnboundedReceiver<Vec<u8>>
where
    S: AsyncRead + Unpin + Send + 'static,
{
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok(message) = read_message(&mut stream).await {
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    receiver
}

fn gone() -> std::io::Error {
    std::io::ErrorKind::UnexpectedEof.into()
}

/// A message with its type and length.
async fn read_message<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut message = head.to_vec();
    message.resize(1 + length, 0);
    stream.read_exact(&mut message[5..]).await?;
    Ok(message)
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut S,
    greeting: &[u8],
) -> std::io::Result<()> {
    loop {
        let length = client.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await?;
        if body[..4] == SSL_REQUEST.to_be_bytes() {
            client.write_all(b"N").await?;
        } else {
            // Start-up parameters are ignored, as a pooler is often told to.
            return client.write_all(greeting).await;
        }
    }
}

async fn serve(
    mut client: TcpStream,
    server: &Mutex<Server>,
    greeting: &[u8],
    number: u32,
) -> std::io::Result<()> {
    greet(&mut client, greeting).await?;
    let (from, mut to) = client.into_split();
    let mut messages = messages_of(from);
    let mut names = HashMap::new();
    while let Some(message) = messages.recv().await {
        // One transaction: from the first message to the server's word that it is idle.
        let mut server = server.lock().await;
        let mut session = Session::new(&mut server);
        let mut next = Some(message);
        while !session.is_over() || next.is_some() {
            if let Some(message) = next.take() {
                if message[0] == b'X' {
                    return session.abandon().await;
                }
                session.send(&rename(message, number, &mut names)).await?;
            }
            tokio::select! {
                answer = session.server.answers.recv() => {
                    let answer = answer.ok_or_else(gone)?;
                    session.note(&answer);
                    if answer[0] != b'A' && to.write_all(&answer).await.is_err() {
                        return session.abandon().await;
                    }
                }
                message = messages.recv() => match message {
                    Some(message) => next = Some(message),
                    None => return session.abandon().await,
                },
            }
        }
    }
    Ok(())
}

/// The server's session while one client has it.
struct Session<'a> {
    server: &'a mut Server,
    /// Answers that the server still owes.
    owed: u32,
    idle: bool,
}

impl<'a> Session<'a> {
    fn new(server: &'a mut Server) -> Self {
        Self {
            server,
            owed: 0,
            idle: false,
        }
    }

    fn is_over(&self) -> bool {
        self.owed == 0 && self.idle
    }

    async fn send(&mut self, message: &[u8]) -> std::io::Result<()> {
        self.owed += u32::from(matches!(message[0], b'S' | b'Q'));
        self.idle = false;
        self.server.to.write_all(message).await
    }

    fn note(&mut self, answer: &[u8]) {
        if answer[0] == b'Z' {
            self.owed -= 1;
            self.idle = answer[5] == b'I';
        }
    }

    /// Cleans up after a client that went away in the middle.
    async fn abandon(mut self) -> std::io::Result<()> {
        const SYNC: &[u8] = b"S\0\0\0\x04";
        const ROLLBACK: &[u8] = b"Q\0\0\0\x0dROLLBACK\0";
        self.send(SYNC).await?;
        self.send(ROLLBACK).await?;
        while self.owed > 0 {
            let answer = self.server.answers.recv().await.ok_or_else(gone)?;
            self.note(&answer);
        }
        Ok(())
    }
}

/// Gives a client's prepared statements names of their own.
fn rename(message: Vec<u8>, client: u32, names: &mut HashMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let body = &message[5..];
    let end = |from: usize| from + body[from..].iter().position(|b| *b == 0).unwrap_or(0);
    // Where the statement's name begins.
    let start = match message[0] {
        b'P' => 0,
        b'B' => end(0) + 1,
        b'D' | b'C' if body[0] == b'S' => 1,
        _ => return message,
    };
    let stop = end(start);
    if start == stop {
        return message;
    }
    let own = names
        .entry(body[start..stop].to_vec())
        .or_insert_with(|| [format!("c{client}_").as_bytes(), &body[start..stop]].concat());
    let renamed = [&body[..start], own.as_slice(), &body[stop..]].concat();
    let length = u32::try_from(renamed.len() + 4).expect("short");
    [&message[..1], &length.to_be_bytes(), &renamed].concat()
}
