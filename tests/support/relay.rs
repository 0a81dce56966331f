//! Carries bytes between plain TCP, which engines and clients of tests speak, and sockets of other
//! kinds.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A file of the key pairs `one` and `two`: `one.pem`, `one.key`, `one-ca.pem`. Both are called
/// `edge.test`, and each by its own name, `one.test`.
pub fn pem(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(file)
}

/// Shakes hands with `edge.test`, if `pair`'s authority vouches for it.
pub async fn shake_hands(
    address: SocketAddr,
    pair: &str,
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem(&format!("{pair}-ca.pem"))).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("edge.test").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Where plain HTTP/1.1 may be sent to a TLS listener.
pub async fn to_tls(edge: SocketAddr) -> SocketAddr {
    relayed(move || shake_hands(edge, "one", "http/1.1")).await
}

/// Where plain TCP may be sent to a unix socket.
pub async fn to_unix(path: PathBuf) -> SocketAddr {
    relayed(move || UnixStream::connect(path.clone())).await
}

async fn relayed<S, F>(connect: impl Fn() -> F + Send + 'static) -> SocketAddr
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(joined(stream, connect()));
        }
    });
    address
}

/// A TLS listener before an engine, with a key pair.
pub async fn from_tls(engine: SocketAddr, pair: &str) -> SocketAddr {
    let chain = CertificateDer::pem_file_iter(pem(&format!("{pair}.pem"))).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(pem(&format!("{pair}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    joined(stream, TcpStream::connect(engine)).await;
                }
            });
        }
    });
    address
}

/// A unix socket before an engine.
pub fn from_unix(engine: SocketAddr, path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(joined(stream, TcpStream::connect(engine)));
        }
    });
}

async fn joined<A, B>(mut a: A, b: impl Future<Output = io::Result<B>>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    if let Ok(mut b) = b.await {
        // An error is the end of one of them.
        let _ = copy_bidirectional(&mut a, &mut b).await;
    }
}
