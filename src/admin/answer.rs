//! The shapes of an answer, and the headers all of them have.

use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

/// An answer before its common headers.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    headers: Vec<(HeaderName, &'static str)>,
    body: Vec<u8>,
}

/// An answer without an endpoint's help: the request could not be read.
pub fn error(status: StatusCode, code: &str, message: &str) -> Response<Vec<u8>> {
    Answer::error(status, code, message).into_response()
}

impl Answer {
    pub(super) fn new(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status, content_type, headers: Vec::new(), body }
    }

    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
    }

    pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(status, "application/json", body),
            Err(fault) => {
                log::error!("an admin answer cannot be written: {fault}");
                Self::text(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written\n")
            }
        }
    }

    /// The shape in which clients of the traffic listener get errors.
    pub(super) fn error(status: StatusCode, code: &str, message: &str) -> Self {
        let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
        let error = json!({ "message": message, "type": kind, "code": code, "param": null });
        Self::json(status, &json!({ "error": error }))
    }

    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn into_response(self) -> Response<Vec<u8>> {
        let length = self.body.len();
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in self.headers {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}
