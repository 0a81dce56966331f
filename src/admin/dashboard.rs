//! `GET /` and what it loads: the dashboard, a page that asks the other endpoints.
//!
//! The files hold no secret and are given to whoever may connect; a page that lacks the token asks its
//! reader for it. Scripts and styles come from here alone, and none stands in the page.

use super::answer::Answer;
use http::{StatusCode, header};

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $content_type:ident $file:literal,)*) => {
        &[$(File {
            path: $path,
            content_type: $content_type,
            text: include_str!(concat!("dashboard/", $file)),
        }),*]
    };
}

const FILES: &[File] = files![
    "/" HTML "page.html",
    "/dashboard/style.css" STYLE "style.css",
    "/dashboard/icon.svg" IMAGE "icon.svg",
    "/dashboard/main.js" SCRIPT "main.js",
    "/dashboard/ask.js" SCRIPT "ask.js",
    "/dashboard/dom.js" SCRIPT "dom.js",
    "/dashboard/charts.js" SCRIPT "charts.js",
    "/dashboard/overview.js" SCRIPT "overview.js",
    "/dashboard/workers.js" SCRIPT "workers.js",
    "/dashboard/routing.js" SCRIPT "routing.js",
    "/dashboard/decisions.js" SCRIPT "decisions.js",
    "/dashboard/story.js" SCRIPT "story.js",
    "/dashboard/config.js" SCRIPT "config.js",
];

/// Nothing from elsewhere, nothing inline, no text that becomes markup, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

pub(super) fn find(path: &str) -> Option<File> {
    FILES.iter().find(|file| file.path == path).copied()
}

impl File {
    pub(super) fn answer(self) -> Answer {
        Answer::new(StatusCode::OK, self.content_type, self.text.as_bytes().to_vec())
            .with(header::CONTENT_SECURITY_POLICY, POLICY)
            .with(header::REFERRER_POLICY, "no-referrer")
    }
}
