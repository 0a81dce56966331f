//! A client's bytes on their way to Pingora and back, for the heads that Pingora does not let through.
//!
//! What is no HTTP/1 head Pingora answers itself, with an empty 400, before any phase of ours. So
//! whatever is written while a head is awaited is that answer, and the edge's own goes in its place:
//! its shape, booked like any other request. And a head above `max_header_bytes` ends here, while
//! Pingora would still gather it.
//!
//! Deliberately absent: what is no HTTP/2. There the h2 library resets the stream or the connection,
//! or says 431, and tells nobody.

use super::context::RequestContext;
use super::failure::{LINGER, LINGER_IDLE};
use super::observe;
use super::reply::Refusal;
use super::request_filter::new_request_id;
use super::seats::Connection;
use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora::protocols::{Shutdown, Stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::timeout;

const ILLEGIBLE: Refusal = Refusal::BadRequest("the request's head is not valid HTTP, or too long");

/// See the module.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    connection: Arc<Connection>,
    /// What is left of the edge's answer to a head nobody can read; nothing else is written then.
    refusal: Option<Bytes>,
}

impl Wire {
    pub(super) fn new(stream: Stream, connection: Arc<Connection>) -> Self {
        Self { stream, connection, refusal: None }
    }

    /// Books the request that was none and says so, whatever Pingora wanted to say.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, why: Refusal) -> Poll<io::Result<()>> {
        if self.refusal.is_none() {
            self.refusal = Some(self.book(why));
        }
        let Self { stream, refusal: Some(left), .. } = self else { return Poll::Ready(Ok(())) };
        while !left.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => left.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The answer.
    fn book(&self, refusal: Refusal) -> Bytes {
        let mut ctx = RequestContext::new(Arc::clone(self.connection.state()));
        ctx.request_id = new_request_id();
        let (status, body) = (refusal.status(), refusal.body());
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             x-request-id: {}\r\nconnection: close\r\n\r\n",
            body.len(),
            ctx.request_id
        );
        ctx.answer.status = status.as_u16();
        ctx.refusal = Some(refusal);
        ctx.client = self.connection.client();
        observe::request_ended(&mut ctx);
        [head.into_bytes(), body].concat().into()
    }

    fn is_refusing(&self) -> bool {
        self.refusal.is_some() || self.connection.head_bytes().is_some()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(head) = this.connection.head_bytes() else {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        };
        // Pingora has as much and wants more, so this is not the body.
        if 0 < head && this.connection.most_head_bytes() < head {
            ready!(
                this.poll_refuse(cx, Refusal::HeadersTooLarge(this.connection.most_head_bytes()))
            )?;
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.connection.more_of_head((buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_refusing() {
            return this.poll_refuse(cx, ILLEGIBLE).map_ok(|()| bytes.len());
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_refusing() {
            let length = slices.iter().map(|slice| slice.len()).sum();
            return this.poll_refuse(cx, ILLEGIBLE).map_ok(|()| length);
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Wire {
    /// Hears a refused client out for a moment, as [`super::failure`] does.
    async fn shutdown(&mut self) {
        self.stream.shutdown().await;
        if self.refusal.is_none() {
            return;
        }
        let stream = &mut self.stream;
        let rest = async {
            let mut waste = [0; 4096];
            while let Ok(Ok(1..)) = timeout(LINGER_IDLE, stream.read(&mut waste)).await {}
        };
        // Whoever sends for longer is cut off.
        let _ = timeout(LINGER, rest).await;
    }
}

as_its_stream!(Wire);
