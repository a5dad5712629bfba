//! JSON schemas for answers, as both of OpenAI's APIs have them.

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList, is_given};
use crate::part::AnswerFormat;

/// The name of a schema where a dialect needs one and the customer's has none.
pub(crate) const SCHEMA_NAME: &str = "answer";

/// A JSON schema for answers, as OpenAI has it.
pub(crate) fn schema_format<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
) -> Result<AnswerFormat<'a>, Untranslatable> {
    let (mut name, mut description, mut schema, mut is_strict) = (None, None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "description" => description = Some(at.text(value)?),
            "schema" => schema = Some(at.json_object(value)?),
            "strict" => is_strict = Some(at.boolean(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let schema = at.needed("schema", schema)?;
    Ok(AnswerFormat::Schema { name, description, schema, is_strict })
}
