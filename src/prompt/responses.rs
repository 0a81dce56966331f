//! `/v1/responses`: tools, instructions, then input, which is a string or a list of items.

use super::envelope::{Fields, Written};
use super::sink::{PromptSink, Writer};
use super::turns;

pub(super) fn write<S: PromptSink>(
    out: &mut Writer<'_, S>,
    fields: &Fields<'_>,
) -> Option<Written> {
    fields.input?;
    turns::tools(out, fields.tools);
    turns::spoken(out, "system", fields.instructions);
    turns::turns(out, fields.input);
    Some(Written::Text)
}
