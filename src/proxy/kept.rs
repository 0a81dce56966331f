//! What lasts as long as a connection in Pingora is what it keeps of a proxy before it. Neither clients nor
//! workers have one here, so the edge keeps in that place what it has to know of a connection.

use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use std::sync::Arc;

pub(super) fn keep<T: Send + Sync + 'static>(data: Arc<T>) -> ProxyDigest {
    let none = ResponseHeader::build(http::StatusCode::OK, Some(0));
    // A head of a known status can be built.
    let none = none.unwrap_or_else(|_| ServerSession::generate_error(400));
    ProxyDigest::new(Box::new(none), Some(Box::new(data)))
}

pub(super) fn kept<T: Send + Sync + 'static>(digest: Option<&ProxyDigest>) -> Option<&Arc<T>> {
    digest?.user_data.as_ref()?.downcast_ref()
}
