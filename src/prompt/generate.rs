//! SGLang's `/generate`: text or token ids, one or several, and images beside them.

use super::completions::longest;
use super::envelope::{Fields, Written};
use super::media;
use super::sink::{PromptSink, Writer};

pub(super) fn write<S: PromptSink>(
    out: &mut Writer<'_, S>,
    fields: &Fields<'_>,
) -> Option<Written> {
    let written = longest(out, fields.input_ids.or(fields.text)?)?;
    // Where in the text the images stand is not known here. Behind it they leave the text's own
    // bytes a prefix.
    if let Some(images) = fields.image_data {
        media::write(out, images);
    }
    Some(written)
}
