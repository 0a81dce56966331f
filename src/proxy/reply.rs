//! Answers the edge makes itself: one JSON shape, a distinct code each.

use http::StatusCode;
use std::time::Duration;

/// Why the edge answered instead of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The request cannot be understood or is dangerous to pass on.
    BadRequest(&'static str),
    /// No configured model has this name.
    ModelNotFound(String),
    /// The client's body came too slowly.
    RequestTimeout,
    /// A body without a length that cannot be replayed.
    LengthRequired,
    /// Above `max_body_bytes`; the limit.
    BodyTooLarge(u64),
    /// Every routable worker's queue is at or above `shed_queue_limit`, or the edge's own is full;
    /// when that may be over.
    FleetSaturated(Duration),
    /// Above `max_header_bytes`; the limit.
    HeadersTooLarge(u64),
    /// No connection to any worker tried.
    WorkerUnreachable,
    /// The worker closed before it answered.
    WorkerClosed,
    /// Nobody to send it to; when there may be.
    NoRoutableWorker(Duration),
    /// The client's own route is none; why.
    InvalidRoute(String),
    /// No route is complete now, or not the client's own.
    NoRoute {
        /// As the client is told.
        why: String,
        /// When there may be one.
        wait: Duration,
    },
    /// It waited for a worker for `max_wait`; how long others will.
    QueueTimeout(Duration),
    /// Too many buffered bodies for too long.
    NoRoomForBody,
    /// No answer within `first_byte`.
    FirstByteTimeout,
    /// The answer stopped for `stream_idle`.
    StreamIdleTimeout,
    /// A fault of the edge.
    Internal,
}

impl Refusal {
    /// HTTP status.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::InvalidRoute(_) => StatusCode::BAD_REQUEST,
            Self::ModelNotFound(_) => StatusCode::NOT_FOUND,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::LengthRequired => StatusCode::LENGTH_REQUIRED,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::FleetSaturated(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadersTooLarge(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::WorkerUnreachable | Self::WorkerClosed => StatusCode::BAD_GATEWAY,
            Self::NoRoutableWorker(_)
            | Self::NoRoute { .. }
            | Self::QueueTimeout(_)
            | Self::NoRoomForBody => StatusCode::SERVICE_UNAVAILABLE,
            Self::FirstByteTimeout | Self::StreamIdleTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The `code` field.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::ModelNotFound(_) => "model_not_found",
            Self::RequestTimeout => "request_timeout",
            Self::LengthRequired => "length_required",
            Self::BodyTooLarge(_) => "body_too_large",
            Self::FleetSaturated(_) => "fleet_saturated",
            Self::HeadersTooLarge(_) => "headers_too_large",
            Self::WorkerUnreachable => "worker_unreachable",
            Self::WorkerClosed => "worker_closed",
            Self::NoRoutableWorker(_) => "no_routable_worker",
            Self::InvalidRoute(_) => "invalid_route",
            Self::NoRoute { .. } => "no_route",
            Self::QueueTimeout(_) | Self::NoRoomForBody => "queue_timeout",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::StreamIdleTimeout => "stream_idle_timeout",
            Self::Internal => "internal_error",
        }
    }

    /// `Retry-After`, where waiting helps.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::FleetSaturated(wait)
            | Self::NoRoutableWorker(wait)
            | Self::NoRoute { wait, .. }
            | Self::QueueTimeout(wait) => Some(*wait),
            // Bodies come and go with their requests.
            Self::NoRoomForBody => Some(Duration::from_secs(1)),
            Self::BadRequest(_)
            | Self::InvalidRoute(_)
            | Self::ModelNotFound(_)
            | Self::RequestTimeout
            | Self::LengthRequired
            | Self::BodyTooLarge(_)
            | Self::HeadersTooLarge(_)
            | Self::WorkerUnreachable
            | Self::WorkerClosed
            | Self::FirstByteTimeout
            | Self::StreamIdleTimeout
            | Self::Internal => None,
        }
    }

    /// What the client is told. Names no worker but those the client named itself.
    pub(super) fn message(&self) -> String {
        match self {
            Self::BadRequest(why) => (*why).to_owned(),
            Self::ModelNotFound(name) => format!("The model `{name}` does not exist"),
            Self::RequestTimeout => "The request body did not arrive in time".to_owned(),
            Self::LengthRequired => "A body over 64 KiB needs a Content-Length here".to_owned(),
            Self::BodyTooLarge(limit) => format!("The request body is over {limit} bytes"),
            Self::FleetSaturated(_) => "Every worker of this model is saturated".to_owned(),
            Self::HeadersTooLarge(limit) => format!("The request head is over {limit} bytes"),
            Self::WorkerUnreachable => "No worker could be reached".to_owned(),
            Self::WorkerClosed => "The worker closed the connection before it answered".to_owned(),
            Self::NoRoutableWorker(_) => "No worker of this model can take the request".to_owned(),
            Self::InvalidRoute(why) | Self::NoRoute { why, .. } => why.clone(),
            Self::QueueTimeout(_) => "No worker could take the request in time".to_owned(),
            Self::NoRoomForBody => "The edge holds too many request bodies".to_owned(),
            Self::FirstByteTimeout => "The worker did not answer in time".to_owned(),
            Self::StreamIdleTimeout => "The worker's answer stopped".to_owned(),
            Self::Internal => "The edge failed".to_owned(),
        }
    }

    /// The body: `{"error":{"message","type","code","param":null}}`.
    pub(super) fn body(&self) -> Vec<u8> {
        let kind = if self.status().is_client_error() && !matches!(self, Self::FleetSaturated(_)) {
            "invalid_request_error"
        } else {
            "server_error"
        };
        serde_json::json!({
            "error": { "message": self.message(), "type": kind, "code": self.code(), "param": null }
        })
        .to_string()
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_openai_shape_with_its_own_code() {
        let refusal = Refusal::ModelNotFound("a\"b".to_owned());
        let value: serde_json::Value = serde_json::from_slice(&refusal.body()).unwrap_or_default();
        assert_eq!(value["error"]["code"], "model_not_found");
        assert_eq!(value["error"]["type"], "invalid_request_error");
        assert_eq!(value["error"]["message"], "The model `a\"b` does not exist");
        assert!(value["error"]["param"].is_null());
    }
}
