//! How one value is read. Each function gives a reader; its error says what would be valid.

use super::Secret;
use super::node::{Node, parse_scalar};
use super::section::Item;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `true` or `false`.
pub(super) fn boolean(item: &Item<'_>) -> Result<bool, String> {
    match *item.scalar() {
        Node::Bool(value) => Ok(value),
        _ => Err("must be true or false".into()),
    }
}

/// A whole number.
pub(super) fn integer(range: RangeInclusive<u64>) -> impl Fn(&Item<'_>) -> Result<u64, String> {
    move |item| {
        let value = match *item.scalar() {
            Node::Int(value) => u64::try_from(value).ok(),
            _ => None,
        };
        let valid = value.filter(|value| range.contains(value));
        valid.ok_or_else(|| match *range.end() {
            most if most < UNBOUNDED => {
                format!("must be a whole number {}", between(&range, u64::to_string))
            }
            _ => format!("must be a whole number of at least {}", range.start()),
        })
    }
}

fn between<T: PartialEq>(range: &RangeInclusive<T>, show: impl Fn(&T) -> String) -> String {
    format!("from {} to {}", show(range.start()), show(range.end()))
}

/// Most of what has no bound of its own: exact in every number format on the way.
pub(super) const MANY: u64 = 1 << 53;
/// From here on a bound is only what the number's type holds and not worth naming.
const UNBOUNDED: u64 = u32::MAX as u64;

/// A whole number from 1.
pub(super) fn count(most: u32) -> impl Fn(&Item<'_>) -> Result<NonZeroU32, String> {
    move |item| {
        let value = integer(1..=most.into())(item)?;
        // The range makes it fit and not zero.
        Ok(u32::try_from(value).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN))
    }
}

/// A whole number from 1.
pub(super) fn tally(item: &Item<'_>) -> Result<NonZeroU64, String> {
    let value = integer(1..=MANY)(item)?;
    Ok(NonZeroU64::new(value).unwrap_or(NonZeroU64::MIN))
}

/// A finite number.
pub(super) fn number(range: RangeInclusive<f64>) -> impl Fn(&Item<'_>) -> Result<f64, String> {
    move |item| {
        let value = as_number(&item.scalar()).filter(|value| range.contains(value));
        value.ok_or_else(|| format!("must be a number {}", between(&range, f64::to_string)))
    }
}

pub(super) fn as_number(node: &Node) -> Option<f64> {
    match *node {
        Node::Int(value) => Some(value as f64),
        Node::Float(value) => Some(value),
        _ => None,
    }
}

/// One of a closed set of words.
pub(super) fn choice<T: Copy>(
    words: &'static [(&'static str, T)],
) -> impl Fn(&Item<'_>) -> Result<T, String> {
    move |item| {
        let found = words.iter().find(|(word, _)| item.text() == Some(*word));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let valid: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            format!("must be one of: {}", valid.join(", "))
        })
    }
}

/// A text that is not empty and has no control characters.
pub(super) fn text(most: usize) -> impl Fn(&Item<'_>) -> Result<String, String> {
    move |item| match item.text() {
        Some(text)
            if !text.is_empty() && text.len() <= most && !text.contains(char::is_control) =>
        {
            Ok(text.to_owned())
        }
        Some(_) => Err(format!("must be 1 to {most} bytes of printable text")),
        None => Err("must be a text; put quotes around it".into()),
    }
}

/// A secret: visible ASCII, as a header carries it. The value must not be part of a message.
pub(super) fn secret(item: &Item<'_>) -> Result<Secret, String> {
    match item.text() {
        Some(text) if !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b)) => {
            Ok(Secret::new(text.to_owned()))
        }
        Some(_) => Err("must be printable ASCII and not empty".into()),
        None => Err("must be a text; put quotes around it".into()),
    }
}

/// A file's path; a relative one starts at `base`.
pub(super) fn path(base: &Path) -> impl Fn(&Item<'_>) -> Result<PathBuf, String> + '_ {
    move |item| text(4096)(item).map(|text| base.join(text))
}

/// A length of time.
pub(super) fn duration(
    range: RangeInclusive<Duration>,
) -> impl Fn(&Item<'_>) -> Result<Duration, String> {
    move |item| {
        let value = duration_of_node(item.scalar().as_ref());
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let range = between(&range, |d| show_duration(*d));
            format!(
                "must be a duration {range}, such as 500ms, 2s or 10m; a bare number is seconds"
            )
        })
    }
}

/// A length of time as the file has it; `None` if it is none.
pub fn duration_of(text: &str) -> Option<Duration> {
    duration_of_node(&parse_scalar(text))
}

fn duration_of_node(node: &Node) -> Option<Duration> {
    let nanos = match node {
        Node::Text(text) => parse_unit(text, &TIME_UNITS),
        node => as_number(node).map(|seconds| seconds * 1e9),
    };
    nanos.filter(|nanos| (0.0..1e19).contains(nanos)).map(from_nanos)
}

fn from_nanos(nanos: f64) -> Duration {
    // In range and not negative, asked before: the cast cuts nothing off.
    Duration::from_nanos(nanos.round() as u64)
}

const TIME_UNITS: [(&str, f64); 4] = [("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// As [`duration`] reads it, in the largest unit that divides it.
pub(super) fn show_duration(value: Duration) -> String {
    let nanos = value.as_nanos();
    for (unit, size) in [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000)] {
        if 0 < nanos && nanos.is_multiple_of(size) {
            return format!("{}{unit}", nanos / size);
        }
    }
    match nanos {
        0 => "0s".into(),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
        _ => format!("{}s", value.as_secs_f64()),
    }
}

const KIB: f64 = 1024.0;
const SIZE_UNITS: [(&str, f64); 7] = [
    ("B", 1.0),
    ("KiB", KIB),
    ("MiB", KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
];

/// A number of bytes.
pub(super) fn size(range: RangeInclusive<u64>) -> impl Fn(&Item<'_>) -> Result<u64, String> {
    move |item| {
        let bytes = match item.scalar().as_ref() {
            Node::Text(text) => parse_unit(text, &SIZE_UNITS),
            node => as_number(node),
        };
        let whole = bytes.filter(|b| (0.0..=MANY as f64).contains(b) && b.fract() == 0.0);
        let value = whole.map(|bytes| bytes as u64).filter(|bytes| range.contains(bytes));
        value.ok_or_else(|| {
            let range = between(&range, |bytes| show_size(*bytes));
            format!("must be a size {range}, such as 64KiB or 1GiB; a bare number is bytes")
        })
    }
}

/// As [`size`] reads it, in the largest binary unit that divides it.
pub(super) fn show_size(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1u64 << 10)] {
        if 0 < bytes && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

/// `12`, `1.5` followed by one of the units, in any case.
fn parse_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    Some(number.parse::<f64>().ok()? * factor)
}
