//! `/v1/chat/completions`: tools or functions, then messages.

use super::envelope::{Fields, Written};
use super::sink::{PromptSink, Writer};
use super::turns;

pub(super) fn write<S: PromptSink>(
    out: &mut Writer<'_, S>,
    fields: &Fields<'_>,
) -> Option<Written> {
    fields.messages?;
    turns::tools(out, fields.tools);
    turns::tools(out, fields.functions);
    turns::turns(out, fields.messages);
    Some(Written::Text)
}
