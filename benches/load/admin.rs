//! Asks an edge about itself.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The whole answer to a request without a body, as `GET /metrics`.
pub fn call(admin: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{request}: {answer}");
    answer
}
