//! Bodies come to the engine as they were sent, or the figures are worth nothing.

use crate::proxies::Proxy;
use crate::wrk::{self, Load};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sends bodies of every measured size, and compares what the engine sends back, byte by byte.
pub fn passes_bodies_on(proxy: &Proxy) {
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for bytes in [2 << 10, 16 << 10, 220 << 10] {
        let body = chat(bytes);
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-kind: echo\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(body.as_bytes()).unwrap();
        let (head, mut echoed) = answer_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200"), "{} at {bytes} bytes: {head}", proxy.name);
        while echoed.len() < length {
            let mut piece = vec![0; length - echoed.len()];
            let read = client.read(&mut piece).unwrap();
            assert!(0 < read, "{} sends {} of {length} bytes", proxy.name, echoed.len());
            echoed.extend_from_slice(&piece[..read]);
        }
        assert!(echoed == body.as_bytes(), "{} changes a body of {bytes} bytes", proxy.name);
    }
}

/// Waits until it sends requests on: some listen before they know their workers.
pub fn serves(proxy: &Proxy) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while wrk::run(proxy.address, Load::named("2k:1"), 1).bad != 0 {
        assert!(Instant::now() < deadline, "{} serves nothing", proxy.name);
    }
}

/// Of about that many bytes, no two places in it alike.
fn chat(bytes: usize) -> String {
    let words: String = (0..bytes / 7).map(|at| format!("{at:06} ")).collect();
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{words}"}}]}}"#)
}

/// The head, and what came with it.
fn answer_head(client: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return (String::from_utf8_lossy(&bytes).into_owned(), rest);
        }
        let mut piece = [0; 4096];
        let read = client.read(&mut piece).unwrap();
        assert!(0 < read, "no answer");
        bytes.extend_from_slice(&piece[..read]);
    }
}
