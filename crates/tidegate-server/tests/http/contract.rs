//! The OpenAPI document: valid, whole, and the one that is committed.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use tidegate_server::{openapi, openapi_text, routes::ROUTES};

const VERBS: [&str; 4] = ["get", "post", "put", "delete"];

fn document() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

/// Every operation with its path and method.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut found = Vec::new();
    for (path, item) in paths {
        for verb in VERBS {
            if let Some(operation) = item.get(verb) {
                found.push((verb.to_uppercase(), path.clone(), operation.clone()));
            }
        }
    }
    found
}

#[test]
fn the_document_has_every_route_of_the_table_and_no_other() {
    let served: BTreeSet<_> = operations(&document())
        .into_iter()
        .map(|(verb, path, _)| (verb, path))
        .collect();
    let listed: BTreeSet<_> = ROUTES
        .iter()
        .map(|route| (route.verb.as_str().to_owned(), route.path.to_owned()))
        .collect();
    assert_eq!(
        listed.len(),
        ROUTES.len(),
        "a route stands twice in the table"
    );
    assert_eq!(served, listed);
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                found.push(target.clone());
            }
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_openapi_3_1_and_all_its_references_lead_somewhere() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut targets = Vec::new();
    references(&document, &mut targets);
    assert!(targets.len() > 50);
    for target in targets {
        let pointer = target.strip_prefix('#').expect(&target);
        assert!(
            document.pointer(pointer).is_some(),
            "{target} is not in the document"
        );
    }
}

#[test]
fn every_operation_is_named_described_and_says_how_it_fails() {
    let document = document();
    let mut names = HashSet::new();
    for (verb, path, operation) in operations(&document) {
        let place = format!("{verb} {path}");
        let name = operation["operationId"].as_str().expect(&place);
        assert!(names.insert(name.to_owned()), "{name} is used twice");
        let about = operation.get("summary").or(operation.get("description"));
        assert!(about.is_some(), "{place} is not described");
        let failure = &operation["responses"]["default"]["content"]["application/problem+json"];
        assert!(failure.is_object(), "{place} does not say how it fails");
        let declared: HashSet<&str> = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        let in_path: HashSet<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        assert_eq!(declared, in_path, "{place}");
    }
}

/// R2.4, R3.2: neither tenant nor kind can be named where work is submitted, and unknown fields are refused.
#[test]
fn submissions_have_no_field_for_tenant_or_kind() {
    let document = document();
    for name in ["SubmitRun", "SubmitTurn", "CreateConversation"] {
        let schema = &document["components"]["schemas"][name];
        let fields = schema["properties"].as_object().expect(name);
        assert!(
            !fields.contains_key("tenant") && !fields.contains_key("kind"),
            "{name}"
        );
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
}

/// Clients are generated from the committed document; `TIDEGATE_BLESS=1` writes it anew.
#[test]
fn the_committed_document_is_the_one_made_from_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/tidegate.json");
    let made = openapi_text();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == made,
        "openapi/tidegate.json is out of date: run TIDEGATE_BLESS=1 cargo test -p tidegate-server --test http contract"
    );
}
