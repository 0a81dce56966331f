//! What Pingora asks a connection besides its bytes.

/// A type with a `stream` under it answers as that does.
macro_rules! as_its_stream {
    ($layer:ty) => {
        #[async_trait::async_trait]
        impl pingora::protocols::Peek for $layer {
            async fn try_peek(&mut self, buf: &mut [u8]) -> std::io::Result<bool> {
                self.stream.try_peek(buf).await
            }
        }

        impl pingora::protocols::UniqueID for $layer {
            fn id(&self) -> pingora::protocols::UniqueIDType {
                self.stream.id()
            }
        }

        impl pingora::protocols::Ssl for $layer {
            fn get_ssl(&self) -> Option<&pingora::protocols::tls::TlsRef> {
                self.stream.get_ssl()
            }

            fn get_ssl_digest(&self) -> Option<std::sync::Arc<pingora::protocols::tls::SslDigest>> {
                self.stream.get_ssl_digest()
            }

            fn selected_alpn_proto(&self) -> Option<pingora::protocols::tls::ALPN> {
                self.stream.selected_alpn_proto()
            }
        }

        impl pingora::protocols::GetTimingDigest for $layer {
            fn get_timing_digest(&self) -> Vec<Option<pingora::protocols::TimingDigest>> {
                self.stream.get_timing_digest()
            }

            fn get_read_pending_time(&self) -> std::time::Duration {
                self.stream.get_read_pending_time()
            }

            fn get_write_pending_time(&self) -> std::time::Duration {
                self.stream.get_write_pending_time()
            }
        }

        impl pingora::protocols::GetProxyDigest for $layer {
            fn get_proxy_digest(
                &self,
            ) -> Option<std::sync::Arc<pingora::protocols::raw_connect::ProxyDigest>> {
                self.stream.get_proxy_digest()
            }

            fn set_proxy_digest(&mut self, digest: pingora::protocols::raw_connect::ProxyDigest) {
                self.stream.set_proxy_digest(digest);
            }
        }

        impl pingora::protocols::GetSocketDigest for $layer {
            fn get_socket_digest(
                &self,
            ) -> Option<std::sync::Arc<pingora::protocols::SocketDigest>> {
                self.stream.get_socket_digest()
            }

            fn set_socket_digest(&mut self, digest: pingora::protocols::SocketDigest) {
                self.stream.set_socket_digest(digest);
            }
        }
    };
}
