//! A client that writes and sees bytes.

use super::within;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// `code` of an error of the edge.
    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Every value of a header, in order.
pub fn values<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let found = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str()).collect()
}

/// A connection.
pub struct Connection {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = within("connect", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// From another address of this machine than others.
    pub async fn open_from(client: [u8; 4], address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((client, 0))).unwrap();
        let stream = within("connect", socket.connect(address)).await.unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        within("send", self.stream.write_all(bytes)).await.unwrap();
    }

    /// Has the other side closed it by now?
    pub fn is_closed(&self) -> bool {
        let closed = self.stream.try_read(&mut [0; 1]);
        !matches!(closed, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// The head of the next answer.
    pub async fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more().await,
                "closed inside a head: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Answer { status, headers, body: Vec::new() }
    }

    /// The next whole answer, interim ones left out.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        while answer.status < 200 {
            answer = self.head().await;
        }
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.buffer.len() < length {
                assert!(self.more().await, "closed inside a body");
            }
            answer.body = self.buffer.drain(..length).collect();
        } else if answer.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                answer.body.extend_from_slice(&chunk);
            }
        }
        answer
    }

    /// The next chunk of a chunked answer; `None` at its proper end.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        self.try_chunk().await.expect("the stream was cut")
    }

    /// The same; `Err` if the stream was cut.
    pub async fn try_chunk(&mut self) -> Result<Option<Vec<u8>>, ()> {
        let line = loop {
            if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                break at;
            }
            if !self.more().await {
                return Err(());
            }
        };
        let size = std::str::from_utf8(&self.buffer[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.buffer.len() < line + 2 + size + 2 {
            if !self.more().await {
                return Err(());
            }
        }
        let chunk = self.buffer[line + 2..line + 2 + size].to_vec();
        self.buffer.drain(..line + 4 + size);
        Ok(if size == 0 { None } else { Some(chunk) })
    }

    /// This many bytes as they come.
    pub async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.more().await, "closed before {count} bytes");
        }
        self.buffer.drain(..count).collect()
    }

    /// Waits for the other side to close; what came before that.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    async fn more(&mut self) -> bool {
        let read = within("an answer", self.stream.read_buf(&mut self.buffer)).await;
        matches!(read, Ok(n) if n > 0)
    }
}

/// A request with a length.
pub fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    request_with(method, path, "", body)
}

/// The same with more header lines, each ending in CRLF.
pub fn request_with(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// One request over a new connection.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut connection = Connection::open(address).await;
    connection.send(bytes).await;
    connection.answer().await
}

pub async fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    exchange(address, &request("POST", path, body.as_bytes())).await
}

pub async fn get(address: SocketAddr, path: &str) -> Answer {
    exchange(address, &request("GET", path, b"")).await
}

/// A chat with one user message.
pub fn chat(model: &str, text: &str) -> String {
    serde_json::json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
        .to_string()
}
