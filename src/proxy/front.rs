//! The door of each traffic listener: how long a client may take for a request's head.
//!
//! Pingora bounds single reads, which a client that sends a byte now and then never exceeds. Here
//! the head as a whole has a deadline: `client_header` on a new connection, `client_idle` more on
//! one that already served a request.

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::Edge;

/// Once the listeners are closed: for connections that were accepted just before to finish their
/// handshakes and send a request, and for idle ones to be told by an answer that they end.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

tokio::task_local! {
    static HEAD_READ: Cell<bool>;
}

/// Called when a request's head was read, from within [`FrontDoor`] or any other server.
pub(super) fn head_was_read() {
    // Without a front door (an embedding program's own service) there is nobody to tell.
    let _ = HEAD_READ.try_with(|read| read.set(true));
}

/// Pingora's proxy behind the edge's own deadline for heads.
pub struct FrontDoor {
    proxy: Arc<HttpProxy<Edge>>,
    options: HttpServerOptions,
    edge: Edge,
}

impl FrontDoor {
    /// `options` says whether HTTP/2 is taken without TLS.
    pub fn new(proxy: HttpProxy<Edge>, edge: Edge, options: HttpServerOptions) -> Self {
        Self { proxy: Arc::new(proxy), options, edge }
    }
}

#[async_trait]
impl HttpServerApp for FrontDoor {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let timeouts = self.edge.client_timeouts();
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(timeouts.idle.as_secs().max(1)));
        }
        // `persist_connection_context` leaves a mark on a connection that is used again.
        let mark = session.take_connection_user_context();
        let wait = if mark.is_some() { timeouts.idle + timeouts.header } else { timeouts.header };
        session.set_connection_user_context(mark);
        HEAD_READ
            .scope(Cell::new(false), async {
                tokio::select! {
                    biased;
                    reuse = self.proxy.process_new_http(session, shutdown) => reuse,
                    () = head_overdue(wait) => None,
                }
            })
            .await
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

/// Returns when the head did not come in time; never, if it did.
async fn head_overdue(wait: Duration) {
    tokio::time::sleep(wait).await;
    if HEAD_READ.with(Cell::get) {
        std::future::pending::<()>().await;
    }
}
