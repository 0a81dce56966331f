//! `upstream_auth:` and `load_reports.auth:`: `bearer` or `header: {name, value}`.

use crate::config::kinds::secret;
use crate::config::section::{Item, Section};
use crate::config::{Secret, UpstreamAuth};
use http::HeaderName;

/// Headers that carry the connection, not the request.
const NOT_OURS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn credentials(mut from: Section<'_>) -> Option<UpstreamAuth> {
    let bearer = from.confidential("bearer", token);
    let both = from.has("bearer") && from.has("header");
    let given = from.has("header");
    let mut inner = from.section("header");
    let header = if given {
        let name = inner.required("name", header_name);
        let value = inner.confidential("value", secret);
        if value.is_none() && !inner.failed("value") {
            inner.problem("value", "is missing");
        }
        name.zip(value).map(|(name, value)| UpstreamAuth { name, value })
    } else {
        let _ = inner.optional("name", None, header_name);
        let _ = inner.confidential("value", secret);
        None
    };
    drop(inner);
    if both {
        from.scope.problem(&from.path, "", "must have `bearer` or `header`, not both");
    }
    bearer.or(header)
}

fn token(item: &Item<'_>) -> Result<UpstreamAuth, String> {
    let value = secret(item)?;
    if value.expose().contains(' ') {
        return Err("must be the token alone, without `Bearer` and spaces".into());
    }
    let value = Secret::new(format!("Bearer {}", value.expose()));
    Ok(UpstreamAuth { name: "authorization".into(), value })
}

/// A header's name in lower case.
pub(super) fn header_name(item: &Item<'_>) -> Result<String, String> {
    let name = item.text().and_then(|text| HeaderName::from_bytes(text.as_bytes()).ok());
    match name {
        Some(name) if NOT_OURS.contains(&name.as_str()) => {
            Err("cannot be a header that belongs to the connection".into())
        }
        Some(name) => Ok(name.as_str().to_owned()),
        None => Err("must be a header's name, such as x-api-key".into()),
    }
}
