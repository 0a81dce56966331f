//! The edge as a part of somebody else's server, as the crate's documentation has it.

#![allow(clippy::unwrap_used)]

mod support;

use async_trait::async_trait;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use support::client::{chat, post};
use support::edge::is_listening;
use support::engine::Engine;
use support::metrics::Page;
use support::until;
use tidegate::config::{Config, Overrides};
use tidegate::state::State;
use tidegate::{fleet, proxy::Edge};

struct Workers(Arc<State>);

#[async_trait]
impl BackgroundService for Workers {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let end = async move {
            let _ = shutdown.changed().await;
        };
        fleet::run(self.0.fleets(), end).await;
    }
}

/// Serves until the test's process ends.
fn serve(state: Arc<State>, address: SocketAddr) {
    std::thread::spawn(move || {
        let mut server = Server::new_with_opt_and_conf(Opt::default(), ServerConf::default());
        server.bootstrap();
        let edge = Edge::new(Arc::clone(&state));
        let mut traffic = pingora_proxy::http_proxy_service(&server.configuration, edge);
        traffic.add_tcp(&address.to_string());
        server.add_service(traffic);
        server.add_service(background_service("workers", Workers(state)));
        server.run_forever();
    });
}

#[tokio::test]
async fn an_edge_in_another_server_probes_routes_and_counts() {
    let engine = Engine::start().await;
    let yaml = format!(
        "version: 1\ntidegate:\n  health: {{interval: 50ms}}\n  models:\n    - name: m\n      policy: least_load\n      workers: [{{id: w0, url: '{}'}}]\n",
        engine.url()
    );
    let config = Config::from_yaml(&yaml, Path::new("."), &Overrides::default()).unwrap();
    let state = State::new(Arc::new(config)).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    serve(Arc::clone(&state), address);
    until("a listener", || async { is_listening(address).await.then_some(()) }).await;
    until("a good probe", || {
        let rows = state.running().fleets.rows();
        std::future::ready(rows[0].healthy.then_some(()))
    })
    .await;
    let answer = post(address, "/v1/chat/completions", &chat("m", "hello")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-tidegate-decision"), Some("least_load"));
    assert_eq!(engine.received().len(), 1);
    until("the booking", || {
        let page = Page(state.metrics.page().unwrap());
        let done = page.sum("tidegate_requests_total", &[r#"outcome="ok""#]);
        std::future::ready((done == 1.0).then_some(()))
    })
    .await;
}
