//! One GET at a worker, over TCP, TLS or a unix socket, on a kept connection.

use super::Target;
use crate::config::{Authorities, Scheme};
use crate::fleet::WorkerAddress;
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper_rustls::{
    ConfigBuilderExt, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder,
};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tidegate_reports::MAX_BODY_BYTES;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tower_service::Service;

/// Shorter than the 5 s after which the engines' common server, uvicorn, closes an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Polls of one worker follow one another; a few are for workers that share an address.
const IDLE_CONNECTIONS: usize = 4;

/// Most bytes of an answer's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum GetError {
    /// The request cannot be written as HTTP.
    #[error("request: {0}")]
    Request(#[from] http::Error),
    /// An https worker's server name is none.
    #[error("server name: {0}")]
    ServerName(#[from] InvalidDnsNameError),
    /// The CAs cannot be used.
    #[error("CAs: {0}")]
    Roots(String),
    /// No connection, or none that lasted until the answer's head.
    #[error("{}", with_causes(.0))]
    Send(#[from] legacy::Error),
    /// The answer broke off.
    #[error("{}", with_causes(.0))]
    Body(#[from] hyper::Error),
    /// The answer is longer than what is read.
    #[error("longer than {limit} bytes")]
    TooLong { limit: usize },
}

/// hyper's errors say where; their causes say what.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

type Http<C> = legacy::Client<C, Empty<Bytes>>;

#[derive(Clone, Debug)]
enum Client {
    Plain(Http<HttpConnector>),
    Tls(Http<HttpsConnector<HttpConnector>>),
    Unix(Http<UnixConnector>),
}

impl Client {
    fn request(&self, request: Request<Empty<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
            Self::Unix(client) => client.request(request),
        }
    }
}

/// The client of a worker that cannot share one, and what it was made for.
#[derive(Debug)]
pub(super) struct OwnClient {
    client: Client,
    address: WorkerAddress,
    sni: Option<String>,
    ca: Option<Authorities>,
}

/// What all polls share: the connections to plain workers and the system's CAs.
#[derive(Debug)]
pub struct Scraper {
    plain: Http<HttpConnector>,
    system_roots: OnceLock<Result<ClientConfig, String>>,
}

impl Default for Scraper {
    fn default() -> Self {
        Self::new()
    }
}

impl Scraper {
    /// Opens nothing yet.
    pub fn new() -> Self {
        Self { plain: http(tcp_connector()), system_roots: OnceLock::new() }
    }

    /// A way to `target`.
    pub(super) fn line<'a>(
        &self,
        target: &'a Target,
        deadline: Instant,
        own: &mut Option<OwnClient>,
    ) -> Result<Line<'a>, GetError> {
        let is_plain =
            target.scheme == Scheme::Http && matches!(target.address, WorkerAddress::Tcp(_));
        let client = match own {
            _ if is_plain => self.plain.clone().into(),
            Some(own) if own.leads_to(target) => own.client.clone(),
            Some(_) | None => {
                let client = self.own_client(target)?;
                let (address, sni) = (target.address.clone(), target.sni.clone());
                let ca = target.ca.clone();
                *own = Some(OwnClient { client: client.clone(), address, sni, ca });
                client
            }
        };
        Ok(Line { client, target, deadline })
    }

    fn own_client(&self, target: &Target) -> Result<Client, GetError> {
        if let WorkerAddress::Unix(path) = &target.address {
            return Ok(Client::Unix(http(UnixConnector(Arc::clone(path)))));
        }
        let roots = match &target.ca {
            Some(own) => own_roots(own).map_err(GetError::Roots)?,
            None => self.system_roots()?,
        };
        let builder = HttpsConnectorBuilder::new().with_tls_config(roots).https_only();
        let builder = match &target.sni {
            Some(name) => {
                let name = ServerName::try_from(name.clone())?;
                builder.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
            None => builder,
        };
        Ok(Client::Tls(http(builder.enable_http1().wrap_connector(tcp_connector()))))
    }

    fn system_roots(&self) -> Result<ClientConfig, GetError> {
        let roots = self.system_roots.get_or_init(|| {
            let builder = tls_builder().map_err(|error| error.to_string())?;
            let builder = builder.with_native_roots().map_err(|error| error.to_string())?;
            Ok(builder.with_no_client_auth())
        });
        roots.clone().map_err(GetError::Roots)
    }
}

impl From<Http<HttpConnector>> for Client {
    fn from(client: Http<HttpConnector>) -> Self {
        Self::Plain(client)
    }
}

impl OwnClient {
    fn leads_to(&self, target: &Target) -> bool {
        self.address == target.address && self.sni == target.sni && self.ca == target.ca
    }
}

/// A way to one worker, for one poll.
pub(super) struct Line<'a> {
    client: Client,
    target: &'a Target,
    /// When the poll ends.
    pub(super) deadline: Instant,
}

impl Line<'_> {
    /// Status and body; the body of a 200 only.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Vec<u8>), GetError> {
        let response = self.client.request(self.request(path)?).await?;
        let status = response.status();
        let body = match status {
            StatusCode::OK => read(response.into_body()).await?,
            _ => Vec::new(),
        };
        Ok((status, body))
    }

    fn request(&self, path: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
        let uri = match (&self.target.address, self.target.scheme) {
            (WorkerAddress::Tcp(address), Scheme::Http) => format!("http://{address}{path}"),
            (WorkerAddress::Tcp(address), Scheme::Https) => format!("https://{address}{path}"),
            // The connector knows the socket; the authority is only hyper's key for its pool.
            (WorkerAddress::Unix(_), Scheme::Http | Scheme::Https) => format!("http://unix{path}"),
        };
        let mut request =
            Request::get(uri).header(HOST, &self.target.host).header(USER_AGENT, AGENT);
        if let Some(auth) = &self.target.auth {
            request = request.header(&auth.name, auth.value.expose());
        }
        request.body(Empty::new())
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, GetError> {
    let announced = body.size_hint().lower();
    if (MAX_BODY_BYTES as u64) < announced {
        return Err(GetError::TooLong { limit: MAX_BODY_BYTES });
    }
    let mut bytes = Vec::with_capacity(announced as usize);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if MAX_BODY_BYTES < bytes.len() + data.len() {
            return Err(GetError::TooLong { limit: MAX_BODY_BYTES });
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn http<C>(connector: C) -> Http<C>
where
    C: legacy::connect::Connect + Clone,
{
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .build(connector)
}

fn tcp_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

type TlsBuilder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

fn tls_builder() -> Result<TlsBuilder, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

fn own_roots(own: &Authorities) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in own.certificates() {
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    let builder = tls_builder().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Connects to one unix socket, whatever it is asked for.
#[derive(Clone, Debug)]
struct UnixConnector(Arc<Path>);

impl Service<Uri> for UnixConnector {
    type Response = TokioIo<UnixStream>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}
