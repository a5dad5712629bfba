//! The models that may serve requests for another one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::did_you_mean;
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use tollgate_protocols::Operation;

/// Maximum number of fallbacks: each reads every request for the model that lists it.
const FALLBACKS_MAX: usize = 8;

/// Models that a list of fallbacks can name, with their operations.
pub(super) struct TypedOperations {
    /// All configured model ids.
    ids: Vec<String>,
    /// The operations of those that could be read.
    operations: HashMap<String, Vec<Operation>>,
}

impl TypedOperations {
    /// Reads the models of the whole file.
    pub(super) fn new(document: &Document, models: &raw::OrderedMap<raw::ModelEntry>) -> Self {
        let ids = document.keys(&["models"]).into_iter().map(str::to_owned).collect();
        let read = models
            .0
            .iter()
            .map(|(id, model)| (id.clone(), model.operations.iter().map(|name| name.0).collect()));
        Self { ids, operations: read.collect() }
    }

    /// Compiles the list of the model `id`, and notes what of it cannot be followed.
    pub(super) fn compile(
        &self,
        document: &mut Document,
        at: &DocumentPath,
        id: &str,
        fallbacks: &[String],
    ) -> Vec<Arc<str>> {
        if fallbacks.is_empty() {
            return Vec::new();
        }
        if id.ends_with('*') {
            let help = "a name that no upstream knows would be served by another model";
            let message = "a pattern has no fallbacks";
            document.note(Fault::at_key(at, message).help(help));
        }
        if fallbacks.len() > FALLBACKS_MAX {
            let message = format!("{} models are too many", fallbacks.len());
            let help = format!("at most {FALLBACKS_MAX}: each of them reads every request");
            document.note(Fault::at_key(at, message).help(help));
            return Vec::new();
        }
        let mut compiled: Vec<Arc<str>> = Vec::with_capacity(fallbacks.len());
        for (index, name) in fallbacks.iter().enumerate() {
            let is_repeated = compiled.iter().any(|other| **other == **name);
            let fault = match self.fault(id, name) {
                None if is_repeated => Some((format!("`{name}` is here twice"), None)),
                fault => fault,
            };
            match fault {
                None => compiled.push(name.as_str().into()),
                Some((message, help)) => {
                    let fault = Fault::at_value(&at.index(index), message);
                    document.note(fault.maybe_help(help));
                }
            }
        }
        compiled
    }

    /// Reason why `name` cannot serve requests for the model `id`, with a remedy.
    fn fault(&self, id: &str, name: &str) -> Option<(String, Option<String>)> {
        if name == id {
            return Some((format!("`{id}` cannot be a fallback of its own"), None));
        }
        if name.ends_with('*') {
            let help = "name one of the models that it fits, with an entry of its own";
            return Some((format!("`{name}` is a pattern"), Some(help.to_owned())));
        }
        if !self.ids.iter().any(|other| other == name) {
            let is_fitting = |other: &&str| *other != id && !other.ends_with('*');
            let others: Vec<&str> =
                self.ids.iter().map(String::as_str).filter(is_fitting).collect();
            let help = did_you_mean(name, "the models are", &others);
            return Some((format!("there is no model `{name}`"), help));
        }
        let (own, others) = self.operations.get(id).zip(self.operations.get(name))?;
        let is_shared = |one: &&Operation| others.contains(one);
        match own.iter().filter(is_shared).collect::<Vec<_>>().as_slice() {
            [] => Some((format!("`{name}` shares no operation with `{id}`"), None)),
            [only] if only.info().is_task => {
                let message = format!("`{name}` shares nothing but videos with `{id}`");
                let help = "a video is never submitted to another model";
                Some((message, Some(help.to_owned())))
            }
            _ => None,
        }
    }
}
