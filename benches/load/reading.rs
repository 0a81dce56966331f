//! Bare Pingora that does what any router of prompts has to: it reads the whole body and hashes it before it
//! picks the peer. For bodies with a length over HTTP/1.1, which is what the generator sends.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{ProxyHttp, Session};
use std::hint::black_box;
use std::net::SocketAddr;
use xxhash_rust::xxh3::Xxh3Default;

/// Pingora's own constant for its retry buffer, bytes.
const REPLAY_LIMIT: usize = 65_536;

pub struct Reading {
    pub engine: SocketAddr,
}

/// A body beyond the retry buffer, which Pingora cannot send again by itself.
#[derive(Default)]
pub struct Long {
    body: Option<Bytes>,
}

#[async_trait]
impl ProxyHttp for Reading {
    type CTX = Option<Long>;

    fn new_ctx(&self) -> Option<Long> {
        None
    }

    async fn request_filter(&self, session: &mut Session, long: &mut Option<Long>) -> Result<bool> {
        let length = session.req_header().headers.get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let length = length.ok_or_else(|| Error::new(ErrorType::InvalidHTTPHeader))?;
        let mut whole = BytesMut::with_capacity(if length <= REPLAY_LIMIT { 0 } else { length });
        let (mut hash, mut left) = (Xxh3Default::new(), length);
        loop {
            // Late: Pingora sends nothing of a body that was read without its buffer, and nothing of one that
            // outgrew it.
            if left <= REPLAY_LIMIT {
                session.enable_retry_buffering();
            }
            let Some(piece) = session.read_request_body().await? else { break };
            left -= piece.len();
            hash.update(&piece);
            if REPLAY_LIMIT < length {
                whole.extend_from_slice(&piece);
            }
        }
        black_box(hash.digest());
        *long = (REPLAY_LIMIT < length).then(|| Long { body: Some(whole.freeze()) });
        Ok(false)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        piece: &mut Option<Bytes>,
        _end: bool,
        long: &mut Option<Long>,
    ) -> Result<()> {
        if let Some(long) = long {
            *piece = long.body.take();
        }
        Ok(())
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Option<Long>) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.engine, false, String::new())))
    }
}
