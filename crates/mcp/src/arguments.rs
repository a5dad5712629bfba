//! Arguments of a call: read into a type of the tool's own, and what it passes on of them.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::tool_error::ToolError;

/// The arguments of a call.
///
/// # Errors
/// Fault of the arguments: a missing one, or one too many.
pub(super) fn read<'de, T: Deserialize<'de>>(arguments: JsonObject) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!("`{path}`: ") };
        ToolError::arguments(format!("{at}{}", error.into_inner()))
    })
}

/// Adds the fields of `extra` to a request. Fields that the tool has set stay; objects are merged.
pub(super) fn add(body: &mut Value, extra: Option<Map<String, Value>>) {
    let Value::Object(body) = body else { return };
    for (name, value) in extra.into_iter().flatten() {
        match (body.get_mut(&name), value) {
            (None, value) => {
                body.insert(name, value);
            }
            (Some(Value::Object(own)), Value::Object(more)) => {
                for (name, value) in more {
                    own.entry(name).or_insert(value);
                }
            }
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn more_fields_do_not_change_those_of_the_tool() {
        let mut body = json!({"model": "m", "parameters": {"n": 1}});
        let more = json!({"model": "other", "parameters": {"n": 9, "seed": 7}, "user": "me"});
        let Value::Object(more) = more else { panic!("an object") };
        add(&mut body, Some(more));
        assert_eq!(body, json!({"model": "m", "parameters": {"n": 1, "seed": 7}, "user": "me"}));
    }
}
