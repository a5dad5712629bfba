//! The doors through which customers make calls, each as a client that can leave at any moment.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Http1,
    Http2,
    WebSocket,
    Mcp,
    /// The requests of the console's page: streams, with a key for an hour.
    Playground,
}

impl Door {
    pub(crate) const ALL: [Self; 5] =
        [Self::Http1, Self::Http2, Self::WebSocket, Self::Mcp, Self::Playground];
}

/// A customer at one address.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) gateway: SocketAddr,
    pub(crate) key: String,
    /// The address that it connects from, in 127.0.0.0/8.
    pub(crate) address: Ipv4Addr,
    /// Bytes that its kernel takes of answers ahead of it; the system's default without.
    pub(crate) receive_bytes: Option<u32>,
}

/// A call that was sent. Dropping it hangs up.
pub(crate) enum SentCall {
    /// Over HTTP/1.1.
    Plain(TcpStream),
    /// A turn on a WebSocket, which stays open behind it.
    Turn(TcpStream),
    /// A stream, and its connection where it has one for itself.
    Stream(ResponseFuture, Option<Streams>),
}

/// A connection of HTTP/2 that is driven by a task; closed on drop.
pub(crate) struct Streams {
    send: SendRequest<Bytes>,
    /// The number of requests that were sent over it.
    pub(crate) sent: usize,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// With a whole answer of status 200, and no error within.
    Well,
    /// With another answer, or none in time.
    Badly(String),
    /// Without an answer, since the connection was not made or broke.
    Cut(String),
}

fn other(error: impl ToString) -> io::Error {
    io::Error::other(error.to_string())
}

impl Caller {
    /// A connection to the gateway.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        if let Some(bytes) = self.receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(SocketAddr::from((self.address, 0)))?;
        let stream = timeout(Duration::from_secs(20), socket.connect(self.gateway)).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection of HTTP/2 to the gateway.
    pub(crate) async fn streams(&self) -> io::Result<Streams> {
        let made = h2::client::handshake(self.connect().await?).await;
        let (send, connection) = made.map_err(other)?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Streams { send, sent: 0, driver })
    }

    /// An open WebSocket.
    pub(crate) async fn websocket(&self) -> io::Result<TcpStream> {
        let mut stream = self.connect().await?;
        let head = format!(
            "GET /v1/responses HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            self.key
        );
        stream.write_all(head.as_bytes()).await?;
        let mut read = Vec::new();
        // The body of a refusal may come with its head.
        while !read.windows(4).any(|four| four == b"\r\n\r\n") {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(other(String::from_utf8_lossy(&read)));
            }
        }
        match read.starts_with(b"HTTP/1.1 101") {
            true => Ok(stream),
            false => Err(other(String::from_utf8_lossy(&read))),
        }
    }

    /// A request over HTTP/1.1 to a path.
    pub(crate) fn post(&self, path: &str, more: &str, body: &str) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        head.into_bytes()
    }

    /// Sends a call through a door, and waits for nothing.
    pub(crate) async fn send(&self, door: Door, model: &str, prompt: &str) -> io::Result<SentCall> {
        let chat =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        match door {
            Door::Http1 => self.write("/v1/chat/completions", "Connection: close\r\n", &chat).await,
            Door::Playground => {
                let streams = chat.replacen('{', r#"{"stream":true,"#, 1);
                let lines = format!("Origin: http://{}\r\nConnection: close\r\n", self.gateway);
                self.write("/v1/chat/completions", &lines, &streams).await
            }
            Door::Mcp => {
                let lines = "Accept: application/json, text/event-stream\r\n\
                             MCP-Protocol-Version: 2025-06-18\r\nConnection: close\r\n";
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"chat","arguments":{{"model":"{model}","prompt":"{prompt}"}}}}}}"#
                );
                self.write("/mcp", lines, &call).await
            }
            Door::WebSocket => {
                let mut stream = self.websocket().await?;
                stream.write_all(&turn(model, prompt, true)).await?;
                Ok(SentCall::Turn(stream))
            }
            Door::Http2 => {
                let mut streams = self.streams().await?;
                let answer = streams.send(self, model, prompt).await?;
                Ok(SentCall::Stream(answer, Some(streams)))
            }
        }
    }

    async fn write(&self, path: &str, lines: &str, body: &str) -> io::Result<SentCall> {
        let mut stream = self.connect().await?;
        stream.write_all(&self.post(path, lines, body)).await?;
        Ok(SentCall::Plain(stream))
    }

    /// A whole call through a door.
    pub(crate) async fn call(&self, door: Door, model: &str, prompt: &str) -> CallEnd {
        let model = if door == Door::WebSocket { &format!("{model}-responses") } else { model };
        let called = async { self.send(door, model, prompt).await?.ended().await };
        judged(timeout(Duration::from_secs(60), called).await)
    }

    /// A whole call over a connection that is open.
    pub(crate) async fn ask_over(&self, mut stream: TcpStream) -> CallEnd {
        const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
        let request = self.post("/v1/chat/completions", "Connection: close\r\n", CHAT);
        let called = async {
            stream.write_all(&request).await?;
            SentCall::Plain(stream).ended().await
        };
        judged(timeout(Duration::from_secs(60), called).await)
    }

    /// A whole call over HTTP/1.1 to a path.
    pub(crate) async fn call_path(&self, path: &str, body: &str) -> CallEnd {
        let called = async { self.write(path, "Connection: close\r\n", body).await?.ended().await };
        judged(timeout(Duration::from_secs(60), called).await)
    }
}

fn judged(called: Result<io::Result<CallEnd>, tokio::time::error::Elapsed>) -> CallEnd {
    match called {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => CallEnd::Cut(format!("{error}")),
        Err(_) => CallEnd::Badly("nothing within a minute".to_owned()),
    }
}

impl Streams {
    /// A chat on another stream.
    pub(crate) async fn send(
        &mut self,
        by: &Caller,
        model: &str,
        prompt: &str,
    ) -> io::Result<ResponseFuture> {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        let request = http::Request::post("http://gateway/v1/chat/completions")
            .header("authorization", format!("Bearer {}", by.key))
            .header("content-type", "application/json");
        let request = request.body(()).map_err(other)?;
        std::future::poll_fn(|context| self.send.poll_ready(context)).await.map_err(other)?;
        let (answer, mut stream) = self.send.send_request(request, false).map_err(other)?;
        stream.send_data(body.into(), true).map_err(other)?;
        self.sent += 1;
        Ok(answer)
    }
}

/// A frame of a client with this text, masked with zeros.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    let length = text.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => frame.push(0x80 | short),
        (_, Ok(middling)) => {
            frame.push(0x80 | 126);
            frame.extend(middling.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// A message that asks for a turn, or warms one up.
pub(crate) fn turn(model: &str, prompt: &str, generate: bool) -> Vec<u8> {
    frame(&format!(
        r#"{{"type":"response.create","model":"{model}","store":false,"generate":{generate},"input":"{prompt}"}}"#
    ))
}

impl SentCall {
    /// The end of the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(crate) async fn ended(self) -> io::Result<CallEnd> {
        match self {
            Self::Plain(mut stream) => {
                let mut read = Vec::new();
                if stream.read_to_end(&mut read).await? == 0 {
                    return Err(other("the connection was closed without an answer"));
                }
                let text = String::from_utf8_lossy(&read);
                let is_good = text.starts_with("HTTP/1.1 200")
                    && !text.contains("\"isError\":true")
                    && !text.contains("\"error\":{");
                Ok(if is_good { CallEnd::Well } else { CallEnd::Badly(short(&text)) })
            }
            Self::Turn(mut stream) => loop {
                let text = next_text(&mut stream).await?;
                if text.contains("\"type\":\"response.completed\"") {
                    return Ok(CallEnd::Well);
                }
                if text.contains("\"type\":\"error\"") || text.contains("response.failed") {
                    return Ok(CallEnd::Badly(short(&text)));
                }
            },
            Self::Stream(answer, _connection) => {
                let answer = answer.await.map_err(other)?;
                let (status, mut body) = (answer.status(), answer.into_body());
                let mut read = Vec::new();
                while let Some(piece) = body.data().await {
                    let piece = piece.map_err(other)?;
                    drop(body.flow_control().release_capacity(piece.len()));
                    read.extend_from_slice(&piece);
                }
                match status.as_u16() {
                    200 => Ok(CallEnd::Well),
                    _ => Ok(CallEnd::Badly(format!("{status} {}", String::from_utf8_lossy(&read)))),
                }
            }
        }
    }

    /// Waits until anything comes, as a refusal does; for ever on a stream.
    pub(crate) async fn stirs(&mut self) {
        match self {
            Self::Plain(stream) | Self::Turn(stream) => drop(stream.readable().await),
            Self::Stream(answer, _) => drop(answer.await),
        }
    }
}

fn short(text: &str) -> String {
    let body = text.split_once("\r\n\r\n").map_or(text, |(_, body)| body);
    let status = text.lines().next().unwrap_or("no answer");
    format!("{:.60} {:.200}", status, body)
}

/// The text of the next message; frames of control are passed over.
pub(crate) async fn next_text(stream: &mut TcpStream) -> io::Result<String> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head).await?;
        let length = match head[1] & 0x7f {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length).map_err(other)?];
        stream.read_exact(&mut payload).await?;
        match head[0] & 0x0f {
            1 => return Ok(String::from_utf8_lossy(&payload).into_owned()),
            8 => return Err(other("the gateway closed the WebSocket")),
            _ => {}
        }
    }
}
