//! Which JSON object is what.

use crate::number::Scalar;
use crate::{LoadReport, MAX_RANKS, ReportError, get_load, v1_loads};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

/// The keys that tell the shapes apart.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow, default)]
    loads: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    load: Scalar,
    #[serde(default)]
    num_reqs: Scalar,
    #[serde(default)]
    num_running_reqs: Scalar,
    #[serde(default)]
    num_waiting_reqs: Scalar,
}

/// Reads a body that starts with `{`.
pub(crate) fn parse_object(body: &[u8]) -> Result<LoadReport, ReportError> {
    let shape: Shape<'_> = object(body)?;
    if let Some(list) = shape.loads {
        return v1_loads::from_list(list);
    }
    if shape.num_running_reqs.is_present() {
        return v1_loads::parse_lone(body);
    }
    if shape.num_reqs.is_present() {
        return get_load::parse_lone(body);
    }
    if shape.num_waiting_reqs.is_present() {
        return v1_loads::parse_lone(body);
    }
    if shape.load.is_present() {
        return get_load::from_load(shape.load);
    }
    Err(ReportError::Foreign)
}

/// Reads one object, and only an object: a derived reader would take a list of values too.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ReportError> {
    match body.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(body).map_err(broken),
        Some(_) | None => Err(ReportError::Foreign),
    }
}

/// JSON of another shape is foreign; what is no JSON is broken.
pub(crate) fn broken(error: serde_json::Error) -> ReportError {
    match error.classify() {
        Category::Data => ReportError::Foreign,
        Category::Io | Category::Syntax | Category::Eof => {
            ReportError::BrokenJson { line: error.line(), column: error.column() }
        }
    }
}

/// `dp_size` of SGLang's `/get_server_info` (`/server_info`), from 1 to [`MAX_RANKS`].
pub fn dp_size_of_server_info(body: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct ServerInfo {
        #[serde(default)]
        dp_size: Scalar,
    }
    let info: ServerInfo = object(body).ok()?;
    let dp_size = info.dp_size.capacity()?;
    u32::try_from(dp_size).ok().filter(|&ranks| ranks as usize <= MAX_RANKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dp_size_is_read_from_server_info_and_never_guessed() {
        let read = |body: &str| dp_size_of_server_info(body.as_bytes());
        assert_eq!(read(r#"{"model_path":"m","dp_size":4,"internal_states":[{}]}"#), Some(4));
        for body in [r#"{"dp_size":0}"#, r#"{"dp_size":1025}"#, r#"{"tp_size":8}"#, "[4]", "", "{"]
        {
            assert_eq!(read(body), None, "{body}");
        }
    }
}
