//! The admin listener, asked by the demo itself.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The whole answer as it came; `None`: the listener is not there, or not yet.
pub(super) async fn get(address: SocketAddr, path: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    Some(answer)
}

/// Is every model served?
pub(super) async fn is_ready(address: SocketAddr) -> bool {
    get(address, "/readyz").await.is_some_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

/// What follows the head of an answer.
pub(super) fn body(mut answer: Vec<u8>) -> Option<Vec<u8>> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(answer.split_off(end + 4))
}
