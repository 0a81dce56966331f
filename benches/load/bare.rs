//! Pingora with nothing in it: one peer, the body passed on as it comes. What the edge is measured against.

use crate::reading::Reading;
use async_trait::async_trait;
use pingora::Result;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

struct Bare {
    engine: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.engine, false, String::new())))
    }
}

pub fn serve(address: &str, engine: &str) {
    run(address, Bare { engine: engine.parse().unwrap() });
}

pub fn serve_reading(address: &str, engine: &str) {
    run(address, Reading { engine: engine.parse().unwrap() });
}

/// Pingora's defaults, one thread, as the edge beside it has.
fn run<P>(address: &str, proxy: P)
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    let conf = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, proxy);
    service.add_tcp(address);
    server.add_service(service);
    server.run(RunArgs::default());
}
