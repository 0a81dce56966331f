//! The door of each traffic listener: it seats a connection, and ends one that is silent for too long.
//!
//! Pingora bounds single reads of HTTP/1, which a client that sends a byte now and then never
//! exceeds, and nothing of HTTP/2. Here a connection has `client_header` for the head of its first
//! request, and `client_idle` without one later on; `client_header` more for an HTTP/1 head that has
//! begun. Over TLS it has `client_header` for its handshake before all that. Where the seats end,
//! [`super::seats`] says who stays.

use super::Edge;
use super::kept::{keep, kept};
use super::line::Lines;
use super::seats::{AtWork, Connection, Seats};
use super::wire::Wire;
use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::listeners::PreTlsProcess;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{GetProxyDigest, Stream};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{HttpProxy, ProcessCustomSession, ProxyServiceBuilder, Session};
use std::future::ready;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// Once the listeners are closed: for connections that were accepted just before to finish their
/// handshakes and send a request, and for idle ones to be told by an answer that they end.
const SETTLE: Duration = Duration::from_secs(2);

/// The proxy of a traffic listener, behind its seats.
pub struct FrontDoor {
    hall: Arc<Hall>,
    seats: Arc<Seats>,
}

impl FrontDoor {
    /// `options` says whether HTTP/2 is taken without TLS.
    pub fn new(
        conf: &Arc<ServerConf>,
        edge: Edge,
        options: HttpServerOptions,
        seats: Arc<Seats>,
    ) -> Self {
        let edge = edge.on_lines();
        let mut proxy = proxy_on_lines(conf, edge.clone());
        // Refused with an answer and a count of our own.
        let mut taken = HttpServerOptions::default();
        taken.allow_connect_method_proxying = true;
        proxy.server_options = Some(taken);
        Self { hall: Arc::new(Hall { proxy: Arc::new(proxy), options, edge }), seats }
    }
}

fn proxy_on_lines(conf: &Arc<ServerConf>, edge: Edge) -> HttpProxy<Edge, Lines> {
    // For clients that speak another protocol than HTTP; no listener has one.
    let hang_up: ProcessCustomSession<Edge, Lines> = Arc::new(|_, _, _| Box::pin(ready(None)));
    let service = ProxyServiceBuilder::new(conf, edge).custom(Lines::new(conf), hang_up).build();
    // Pingora makes a proxy with a connector only inside a service of its own, and it is to be behind
    // the door of this one.
    let service = ManuallyDrop::new(service);
    let Some(proxy) = service.app_logic() else {
        unreachable!("a service has its app until it starts");
    };
    // SAFETY: the service is neither used nor dropped from here on, so this stays the only proxy.
    #[allow(unsafe_code)]
    unsafe {
        ptr::read(proxy)
    }
}

#[async_trait]
impl ServerApp for FrontDoor {
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let connection = match seated(stream.get_proxy_digest().as_deref()) {
            Some(connection) => connection,
            None => {
                let connection = self.seats.take()?;
                stream.set_proxy_digest(keep(Arc::clone(&connection)));
                connection
            }
        };
        let digest = || stream.get_socket_digest();
        connection.opened(|| digest().and_then(|digest| client(digest.peer_addr())));
        let stream: Stream = Box::new(Wire::new(stream, Arc::clone(&connection)));
        tokio::select! {
            biased;
            stream = self.hall.process_new(stream, shutdown) => stream,
            () = connection.is_over() => None,
        }
    }

    async fn cleanup(&self) {
        self.hall.cleanup().await;
    }
}

/// The same for a listener with TLS: nobody gets a handshake without a seat.
pub struct TlsDoor(pub Arc<Seats>);

#[async_trait]
impl PreTlsProcess for TlsDoor {
    async fn process(&self, socket: &mut Socket) -> Result<()> {
        let connection = self.0.take().ok_or_else(|| Error::new(ErrorType::AcceptError))?;
        let out_of_descriptors = |error| Error::because(ErrorType::AcceptError, "TLS", error);
        connection.shakes_hands(socket.as_raw_fd()).map_err(out_of_descriptors)?;
        socket.set_proxy_digest(keep(Arc::clone(&connection)));
        Ok(())
    }
}

/// The address of a client, as text; `None`: it has none.
pub(super) fn client(address: Option<&SocketAddr>) -> Option<Arc<str>> {
    Some(address?.as_inet()?.ip().to_string().into())
}

fn seated(digest: Option<&ProxyDigest>) -> Option<Arc<Connection>> {
    kept(digest).cloned()
}

/// A request's head was read. `None` in an embedding program's own service, which has no seats.
pub(super) fn request_came(session: &Session) -> Option<AtWork> {
    let digest = session.digest()?.proxy_digest.as_deref();
    Some(seated(digest)?.request(session.is_http2()))
}

/// What a connection with a seat finds.
struct Hall {
    proxy: Arc<HttpProxy<Edge, Lines>>,
    options: HttpServerOptions,
    edge: Edge,
}

#[async_trait]
impl HttpServerApp for Hall {
    /// Not `async`: the session is large, and each future around another moves it once more.
    fn process_new_http<'h, 's, 'f>(
        self: &'h Arc<Self>,
        mut session: ServerSession,
        shutdown: &'s ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'f>>
    where
        'h: 'f,
        's: 'f,
        Self: 'f,
    {
        if let ServerSession::H1(_) = session
            && let Some(connection) =
                session.digest().and_then(|of| seated(of.proxy_digest.as_deref()))
        {
            connection.awaits_head();
        }
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(self.edge.client_idle().as_secs().max(1)));
        }
        self.proxy.process_new_http(session, shutdown)
    }

    /// Runs when the listeners are closed.
    async fn http_cleanup(&self) {
        // Pingora closes whatever sent no head yet, connections of this moment among them.
        tokio::time::sleep(SETTLE).await;
        self.proxy.http_cleanup().await;
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.proxy.h2_options()
    }
}
