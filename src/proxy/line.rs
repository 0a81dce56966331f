//! A worker's connection, on which a request's head and body leave together.
//!
//! Pingora writes a head and flushes it, then it writes the body: two packets, and a worker that is woken
//! twice for each prompt. A body that was read whole before a worker was chosen is at hand by then, so the
//! head waits in its [`Line`] for the body, which follows before anything else is awaited.
//!
//! Connections with TLS are Pingora's own, as only those have a say in their ALPN.

use super::kept::{keep, kept};
use super::patience::Watch;
use async_trait::async_trait;
use once_cell::sync::Lazy;
use pingora::connectors::http::custom::{Connection, Connector};
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::tls::{ALPN, CustomALPN};
use pingora::protocols::{Digest, Shutdown, Stream};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::Peer;
use pingora::{ErrorType, OrErr, Result};
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::iter::once;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Has Pingora ask [`Lines`] for a new connection. Without TLS the name is told to nobody.
pub(super) static BY_LINE: Lazy<ALPN> =
    Lazy::new(|| ALPN::Custom(CustomALPN::new(b"tidegate-line".to_vec())));

/// Connects to workers without TLS; Pingora speaks HTTP/1.1 on what it gets, and pools it.
pub(super) struct Lines(TransportConnector);

impl Lines {
    pub(super) fn new(conf: &ServerConf) -> Self {
        Self(TransportConnector::new(Some(ConnectorOptions::from_server_conf(conf))))
    }
}

#[async_trait]
impl Connector for Lines {
    type Session = ();

    async fn get_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        peer: &P,
    ) -> Result<(Connection<()>, bool)> {
        let mut stream = self.0.new_stream(peer).await?;
        let watch = Watch::over(stream.id()).or_err(ErrorType::InternalError, "watch a worker")?;
        let control = Arc::new(Control { body_follows: AtomicBool::new(false), watch });
        stream.set_proxy_digest(keep(Arc::clone(&control)));
        Ok((Connection::Stream(Box::new(Line::new(stream, control))), false))
    }

    /// None: they are HTTP/1.1 to Pingora, and in its pool.
    async fn reused_http_session<P: Peer + Send + Sync + 'static>(&self, _peer: &P) -> Option<()> {
        None
    }

    async fn release_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        (): (),
        _peer: &P,
        _idle_timeout: Option<Duration>,
    ) {
    }
}

/// What the edge says to a connection Pingora has.
#[derive(Debug)]
pub(super) struct Control {
    body_follows: AtomicBool,
    watch: Arc<Watch>,
}

impl Control {
    /// `None`: a connection of Pingora's own.
    pub(super) fn of(connection: Option<&Digest>) -> Option<&Self> {
        kept(connection?.proxy_digest.as_deref()).map(Arc::as_ref)
    }

    /// A request comes. `body_follows`: one at hand, which Pingora sends right after the head.
    pub(super) fn request(&self, body_follows: bool) {
        self.body_follows.store(body_follows, Ordering::Relaxed);
    }

    pub(super) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

/// See the module.
#[derive(Debug)]
struct Line {
    stream: Stream,
    control: Arc<Control>,
    /// A head that waits for its body.
    head: Vec<u8>,
    /// How much of it went.
    gone: usize,
    /// Was anything read since the head came?
    was_read: bool,
    /// Is the head to go without its body?
    goes_alone: bool,
}

impl Line {
    fn new(stream: Stream, control: Arc<Control>) -> Self {
        Self { stream, control, head: Vec::new(), gone: 0, was_read: false, goes_alone: false }
    }

    fn waits(&self) -> bool {
        self.gone < self.head.len()
    }

    /// Writes what waits and `slices` behind it; how much of `slices` was taken.
    fn poll_write_behind(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        while self.waits() {
            let waiting = self.head.len() - self.gone;
            let written = {
                let head = IoSlice::new(&self.head[self.gone..]);
                let all: SmallVec<[IoSlice<'_>; 8]> = once(&head).chain(slices).copied().collect();
                ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &all))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gone += written.min(waiting);
            if waiting <= written {
                // An idle connection need not keep a head, however long it was.
                self.head = Vec::new();
            }
            if waiting < written {
                return Poll::Ready(Ok(written - waiting));
            }
        }
        match slices {
            [] => Poll::Ready(Ok(0)),
            [slice] => Pin::new(&mut self.stream).poll_write(cx, slice),
            slices => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Pingora may look for an answer once before it writes the body it has. Should there be none
        // the second time either, the head goes alone.
        this.goes_alone |= this.waits() && std::mem::replace(&mut this.was_read, true);
        if this.goes_alone {
            ready!(this.poll_write_behind(cx, &[]))?;
            ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
            this.goes_alone = false;
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // A head is written whole.
        if this.control.body_follows.swap(false, Ordering::Relaxed) {
            (this.head, this.gone) = (bytes.to_vec(), 0);
            this.was_read = false;
            return Poll::Ready(Ok(bytes.len()));
        }
        this.poll_write_behind(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_behind(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.waits() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.control.watch.leave();
    }
}

#[async_trait]
impl Shutdown for Line {
    async fn shutdown(&mut self) {
        self.stream.shutdown().await;
    }
}

as_its_stream!(Line);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pingora::protocols::l4::stream::Stream as Socket;
    use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;
    use std::sync::Mutex;
    use std::task::Waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    const HEAD: &[u8] = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n";

    async fn line() -> (Line, Arc<Control>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (worker, _) = listener.accept().await.unwrap();
        let (line, control) = over(client.as_raw_fd(), Box::new(Socket::from(client)));
        (line, control, worker)
    }

    fn over(connection: i32, stream: Stream) -> (Line, Arc<Control>) {
        let watch = Watch::over(connection).unwrap();
        let control = Arc::new(Control { body_follows: AtomicBool::new(false), watch });
        (Line::new(stream, Arc::clone(&control)), control)
    }

    async fn received(worker: &mut TcpStream) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let count = worker.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    }

    #[tokio::test]
    async fn a_head_leaves_with_the_body_behind_it() {
        let (mut line, control, mut worker) = line().await;
        for _ in 0..2 {
            control.request(true);
            line.write_all(HEAD).await.unwrap();
            line.flush().await.unwrap();
            let mut none = [0; 1];
            let error = worker.try_read(&mut none).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            line.write_all(b"body").await.unwrap();
            assert_eq!(received(&mut worker).await, [HEAD, b"body"].concat());
        }
    }

    #[tokio::test]
    async fn a_head_without_a_body_at_hand_leaves_at_once() {
        let (mut line, control, mut worker) = line().await;
        control.request(false);
        line.write_all(HEAD).await.unwrap();
        line.flush().await.unwrap();
        assert_eq!(received(&mut worker).await, HEAD);
    }

    #[tokio::test]
    async fn a_head_whose_body_does_not_come_leaves_when_an_answer_is_asked_for_again() {
        let (mut line, control, mut worker) = line().await;
        control.request(true);
        line.write_all(HEAD).await.unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        for sent in [false, true] {
            let mut none = [0; 1];
            let read = Pin::new(&mut line).poll_read(&mut cx, &mut ReadBuf::new(&mut none));
            assert!(read.is_pending());
            assert_ne!(line.waits(), sent);
        }
        assert_eq!(received(&mut worker).await, HEAD);
    }

    #[tokio::test]
    async fn a_body_that_no_socket_takes_at_once_follows_whole() {
        let (mut line, control, mut worker) = line().await;
        let body: Vec<u8> = (0..16 << 20).map(|at| (at % 251) as u8).collect();
        control.request(true);
        let whole = [HEAD, &body].concat();
        let mut read = vec![0; whole.len()];
        let (sent, received) = tokio::join!(
            async {
                line.write_all(HEAD).await?;
                line.write_all(&body).await?;
                line.flush().await
            },
            worker.read_exact(&mut read)
        );
        sent.unwrap();
        received.unwrap();
        assert!(read == whole);
    }

    /// Takes a few bytes at a time, and none now and then.
    #[derive(Debug)]
    struct Narrow {
        takes: Vec<usize>,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl VirtualSocket for Narrow {
        fn set_socket_option(&self, _option: VirtualSockOpt) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsyncRead for Narrow {
        fn poll_read(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            _buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let takes = self.takes.pop().unwrap_or(bytes.len()).min(bytes.len());
            if takes == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.taken.lock().unwrap().extend_from_slice(&bytes[..takes]);
            Poll::Ready(Ok(takes))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        /// `takes`: how much the socket takes each time it is asked.
        #[test]
        fn a_full_socket_loses_and_repeats_nothing(
            takes in prop::collection::vec(0usize..80, 0..20),
            pieces in prop::collection::vec("[a-z]{1,60}", 1..4),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let taken = Arc::new(Mutex::new(Vec::new()));
            let narrow = Narrow { takes, taken: Arc::clone(&taken) };
            let socket = Socket::from(VirtualSocketStream::new(Box::new(narrow)));
            let somewhere = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let (mut line, control) = over(somewhere.as_raw_fd(), Box::new(socket));
            control.request(true);
            runtime.block_on(async {
                line.write_all(HEAD).await.unwrap();
                line.flush().await.unwrap();
                for piece in &pieces {
                    line.write_all(piece.as_bytes()).await.unwrap();
                }
                line.flush().await.unwrap();
            });
            prop_assert_eq!(&*taken.lock().unwrap(), &[HEAD, pieces.concat().as_bytes()].concat());
        }
    }
}
