//! The document that describes the admin API: OpenAPI 3.1, made from the table of routes.
//!
//! `schemars` gives JSON Schema 2020-12, which OpenAPI 3.1 takes as it is, and the schemas of the
//! YAML files come from it already; so no second library describes types.

use serde_json::{Map, Value, json};

use super::description::Schemas;
use super::route::AdminRoute;

/// Introduction of the document.
const INTRODUCTION: &str = "Operators open accounts, give credit and make keys over this API, on \
                            an address of its own. Money is US dollars in decimal strings, times \
                            are RFC 3339, and a field that is not listed is refused by name.";

/// The document of these routes, and the schemas that are read and written differently under one
/// name: a document can only have one of them.
pub(super) fn document_of(routes: &[AdminRoute]) -> (Value, Vec<String>) {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes {
        let operation = route.document(&mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    let (components, torn) = schemas.into_components();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate's admin API",
            "version": "v1",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {"x-request-id": {
                "description": "Id of this request in the log.",
                "required": true,
                "schema": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"},
            }},
            "securitySchemes": {"adminToken": {
                "type": "http",
                "scheme": "bearer",
                "description": "`admin.token` of `routes.yaml`, or `<data_dir>/admin-token`.",
            }},
        },
    });
    (document, torn)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::table;

    #[test]
    fn a_schema_means_the_same_when_it_is_read_and_written() {
        let (_, torn) = document_of(&table::routes());
        assert_eq!(torn, Vec::<String>::new(), "give the type that is written another name");
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let (document, _) = document_of(&table::routes());
        let paths = document["paths"].as_object().expect("paths");
        let operations =
            paths.values().flat_map(|path| path.as_object().expect("methods").values());
        let names: Vec<_> = operations.map(|operation| &operation["operationId"]).collect();
        let different: BTreeSet<_> = names.iter().map(|name| name.to_string()).collect();
        assert_eq!(different.len(), names.len(), "two operations share a name: {names:?}");
    }
}
