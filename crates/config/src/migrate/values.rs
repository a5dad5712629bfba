//! The values of a deployment, with those of a shared credential.

use super::Migration;
use super::tree::Node;

/// The values of a deployment, its own before those of a shared credential.
pub(super) struct Values<'a> {
    /// The deployment's own `litellm_params`.
    pub(super) params: &'a Node,
    /// What `credential_list` has for it.
    pub(super) shared: Option<&'a Node>,
}

impl<'a> Values<'a> {
    /// The value of a field.
    pub(super) fn get(&self, field: &str) -> Option<&'a Node> {
        self.params.get(field).or_else(|| self.shared.and_then(|values| values.get(field)))
    }

    /// A field as text of ours, with variables of ours.
    pub(super) fn filled(&self, field: &str) -> Option<String> {
        self.get(field).and_then(Node::text).map(Migration::filled)
    }
}
