//! The models that a key may use, as far as a tool can name them.

use std::sync::Arc;

use tollgate_config::snapshot::{Model, Snapshot};
use tollgate_ledger::Key;
use tollgate_protocols::Operation;

/// A model, and the name that it is listed by: its id, or a name that its pattern fits.
#[derive(Clone, Debug)]
pub(super) struct UsableModel<'a> {
    /// Name for the caller; with an asterisk at its end for all names with that prefix.
    pub(super) name: &'a str,
    pub(super) model: &'a Arc<Model>,
}

/// The models for any of these operations that the gateway has a path for.
pub(super) fn usable_models<'a>(
    snapshot: &'a Snapshot,
    key: &'a Key,
    operations: &[Operation],
) -> Vec<UsableModel<'a>> {
    let has_path =
        |operation: &Operation| snapshot.routes.iter().any(|route| route.operation == *operation);
    let does = |model: &Model| {
        operations.iter().any(|operation| model.serves(*operation) && has_path(operation))
    };
    let mut found = Vec::new();
    for model in snapshot.models.iter().filter(|model| does(model)) {
        // The id stands for the whole pattern here, so a key of one name within it comes below.
        if key.may_use(&model.id, &model.id) {
            found.push(UsableModel { name: &model.id, model });
        } else if model.is_wildcard() {
            // A key for some names alone may have some of those that the pattern fits.
            let names = key.models.iter().flatten().map(String::as_str);
            let fits =
                |name: &&str| snapshot.model(name).is_some_and(|found| Arc::ptr_eq(found, model));
            found.extend(names.filter(fits).map(|name| UsableModel { name, model }));
        }
    }
    found
}
