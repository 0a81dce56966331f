//! The hash that stands for an image, a sound or a file.

use super::canonical;
use super::json::Value;
use super::sink::{HASH, PromptSink, Writer};
use std::num::NonZeroU32;
use tidegate_policy::prefix::{PrefixHasher, Root};

/// Large, since only the last key of the chain is used.
const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// Writes the hash of a part. Its place in memory, its spelling and the order of its members do
/// not count, so the same picture has the same bytes in every request.
pub(super) fn write<S: PromptSink>(out: &mut Writer<'_, S>, part: Value<'_>) {
    let mut hasher = PrefixHasher::new(BLOCK_BYTES, Root::new("media"));
    let mut inner = Writer::new(&mut hasher);
    canonical::envelope(&mut inner, part, 2);
    inner.flush();
    out.tag(HASH);
    if let Some(hash) = hasher.finish().keys().last() {
        out.bytes(&hash.0.to_le_bytes());
    }
}
