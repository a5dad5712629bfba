//! The values of a deployment, with those of a shared credential.

use super::Migration;
use super::tree::YamlNode;

/// The values of a deployment, its own before those of a shared credential.
pub(super) struct Values<'a> {
    /// The deployment's own `litellm_params`.
    pub(super) params: &'a YamlNode,
    /// The entry's shared credential in `credential_list`.
    pub(super) shared: Option<&'a YamlNode>,
}

impl<'a> Values<'a> {
    /// The value of a field.
    pub(super) fn get(&self, field: &str) -> Option<&'a YamlNode> {
        self.params.get(field).or_else(|| self.shared.and_then(|values| values.get(field)))
    }

    /// The value of a field in the syntax of the new files: LiteLLM's `os.environ/NAME` becomes `${NAME}`,
    /// and `$` is escaped as `$$`. `None` if the field is absent or not text.
    pub(super) fn filled(&self, field: &str) -> Option<String> {
        self.get(field).and_then(YamlNode::text).map(Migration::filled)
    }
}
