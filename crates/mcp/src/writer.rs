//! Writes objects of JSON member by member.

use serde::Serialize;
use serde_json::Value;

use super::text::TextOrTree;
use tollgate_protocols::splice::push_json_string;

/// An object that is being written, behind whatever stands before it.
pub(super) struct ObjectWriter {
    json: Vec<u8>,
    /// Byte in front of the next member.
    before: u8,
}

impl ObjectWriter {
    /// Begins an object behind `json`.
    pub(super) fn new(json: Vec<u8>) -> Self {
        Self { json, before: b'{' }
    }

    /// Ends the object and returns its text.
    pub(super) fn end(mut self) -> Vec<u8> {
        if self.before == b'{' {
            self.json.push(b'{');
        }
        self.json.push(b'}');
        self.json
    }

    /// Writes a string member. The name must need no escapes.
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        push_json_string(&mut self.json, text);
    }

    /// A member that is a text most often.
    pub(super) fn text_or_tree(&mut self, name: &'static str, value: &TextOrTree<'_>) {
        match value {
            TextOrTree::Text(text) => self.text(name, text),
            TextOrTree::Tree(tree) => self.value(name, tree),
        }
    }

    /// Writes a member whose value is JSON already.
    pub(super) fn json(&mut self, name: &'static str, json: &str) {
        self.name(name);
        self.json.extend_from_slice(json.as_bytes());
    }

    /// A member of any type. All that is written here can be, being texts, numbers and trees; were one
    /// value not, `null` would stand in its place and no half of it, so that the rest is still read as it
    /// was meant.
    pub(super) fn value(&mut self, name: &'static str, value: &impl Serialize) {
        self.name(name);
        self.push(value);
    }

    /// A member of any name.
    pub(super) fn member(&mut self, name: &str, value: &Value) {
        self.json.push(std::mem::replace(&mut self.before, b','));
        push_json_string(&mut self.json, name);
        self.json.push(b':');
        self.push(value);
    }

    /// A member that `write` appends.
    pub(super) fn nested(&mut self, name: &'static str, write: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.name(name);
        self.json = write(std::mem::take(&mut self.json));
    }

    /// A member that is an array, whose elements `write` appends.
    pub(super) fn array<T>(
        &mut self,
        name: &'static str,
        elements: &[T],
        write: impl Fn(&T, Vec<u8>) -> Vec<u8>,
    ) {
        self.nested(name, |mut json| {
            json.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    json.push(b',');
                }
                json = write(element, json);
            }
            json.push(b']');
            json
        });
    }

    fn push(&mut self, value: &impl Serialize) {
        let start = self.json.len();
        if serde_json::to_writer(&mut self.json, value).is_err() {
            self.json.truncate(start);
            self.json.extend_from_slice(b"null");
        }
    }

    fn name(&mut self, name: &'static str) {
        self.json.reserve(name.len() + 4);
        self.json.push(std::mem::replace(&mut self.before, b','));
        self.json.push(b'"');
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_written_one_behind_the_other() {
        let mut object = ObjectWriter::new(b"x".to_vec());
        object.text("a", "b\"");
        object.json("c", "[1]");
        object.value("d", &json!({"e": null}));
        object.member("\"", &json!(1));
        object.array("f", &[1, 2], |number, mut json| {
            json.extend_from_slice(number.to_string().as_bytes());
            json
        });
        object.nested("g", |json| ObjectWriter::new(json).end());
        let expected = br#"x{"a":"b\"","c":[1],"d":{"e":null},"\"":1,"f":[1,2],"g":{}}"#;
        assert_eq!(object.end(), expected);
    }

    #[test]
    fn of_what_cannot_be_written_no_half_is() {
        let mut object = ObjectWriter::new(Vec::new());
        object.value("a", &[vec![], vec![((), 1)]].map(BTreeMap::from_iter));
        object.text("b", "c");
        assert_eq!(object.end(), br#"{"a":null,"b":"c"}"#);
    }
}
