//! `GET /`: what there is to ask.

use super::answer::Answer;
use http::{StatusCode, header};

/// The page; nothing from elsewhere, nothing that runs.
const PAGE: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>Tidegate</title>
<meta name=\"viewport\" content=\"width=device-width\">
<h1>Tidegate</h1>
<ul>
<li><a href=\"/livez\">/livez</a>: the process answers
<li><a href=\"/readyz\">/readyz</a>: new traffic may be sent here, or why not
<li><a href=\"/metrics\">/metrics</a>: Prometheus text
<li><a href=\"/v1/workers\">/v1/workers</a>: workers with health, breaker and report
<li><a href=\"/v1/routing\">/v1/routing</a>: learned routes, their speeds and shares
<li>POST /v1/workers/{id}/drain, /v1/workers/{id}/activate: stop and resume new requests to a worker
<li><a href=\"/v1/config\">/v1/config</a>: the configuration in force, and what was rejected or waits for an upgrade
<li><a href=\"/v1/decisions\">/v1/decisions</a>: the latest requests and why they went where they went
<li>POST /v1/reload: reads the configuration again, and says what is wrong with it
<li>POST /v1/explain: what would happen to a request now; sends nothing
</ul>
</html>
";

pub(super) fn answer() -> Answer {
    Answer::new(StatusCode::OK, "text/html; charset=utf-8", PAGE.as_bytes().to_vec())
        .with(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'")
}
