//! One question to an admin listener.

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest answer read, bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Where an admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp(String, u16),
    Unix(PathBuf),
}

pub(super) type AskError = Box<dyn std::error::Error + Send + Sync>;

/// Status and body of the answer. The request's target may be a whole URL.
pub(super) async fn ask(
    endpoint: &Endpoint,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), AskError> {
    match endpoint {
        Endpoint::Tcp(host, port) => {
            over(TcpStream::connect((host.as_str(), *port)).await?, request).await
        }
        Endpoint::Unix(path) => over(UnixStream::connect(path).await?, request).await,
    }
}

async fn over<S>(
    stream: S,
    mut request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), AskError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let path = request.uri().path_and_query().cloned().ok_or("no path")?;
    *request.uri_mut() = Uri::from(path);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok((head.status, body))
}
