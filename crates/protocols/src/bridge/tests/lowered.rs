//! A customer's lowered limit is all that changes of what goes upstream.

use serde_json::{Value, json};

use super::*;
use crate::output_limit::OutputLimit;

/// The upstream's body for a customer's request with this limit, lowered to `tokens` if given.
fn upstream_body(
    codec: &dyn Codec,
    request: &Value,
    lowered: Option<u64>,
) -> (Value, crate::OutputBound) {
    let mut request = request.clone();
    let operation = codec.operation();
    let streams = operation.names_model_in_path();
    if streams && let Some(members) = request.as_object_mut() {
        members.remove("stream");
    }
    let limits = limits();
    let of = |text: &[u8]| -> (Bytes, Option<Bytes>, crate::OutputBound) {
        let object = Object::parse(text).expect("JSON");
        let request = match streams {
            true => Request::JsonAt(object, ModelInPath { model: "m", streams: false }),
            false => Request::Json(object),
        };
        let call = codec.read(&request, &limits).unwrap_or_else(|error| panic!("{error:?}"));
        let edited = lowered.map(|tokens| {
            let limit = OutputLimit::read(operation, &request, &limits).expect("a limit");
            let splice = limit.lowered(tokens).expect("a lower one");
            splice.apply(&Bytes::copy_from_slice(text))
        });
        let sent = call.splice("theirs").apply(&Bytes::copy_from_slice(text));
        (sent, edited, call.output_bound())
    };
    let text = request.to_string();
    let (sent, edited, max_usage) = of(text.as_bytes());
    let (sent, max_usage) = match edited {
        None => (sent, max_usage),
        Some(edited) => {
            let object = Object::parse(&edited).expect("JSON");
            let request = match streams {
                true => Request::JsonAt(object, ModelInPath { model: "m", streams: false }),
                false => Request::Json(object),
            };
            let call = codec.read(&request, &limits).unwrap_or_else(|error| panic!("{error:?}"));
            (call.splice("theirs").apply(&edited), call.output_bound())
        }
    };
    (serde_json::from_slice(&sent).expect("JSON"), max_usage)
}

/// The limit in an upstream's body, which is taken out of it.
fn take_limit(operation: Operation, is_converse: bool, body: &mut Value) -> Option<Value> {
    let (object, field) = match (operation, is_converse) {
        (_, true) => (Some("inferenceConfig"), "maxTokens"),
        (Operation::Responses, _) => (None, "max_output_tokens"),
        (Operation::GenerateContent, _) => (Some("generationConfig"), "maxOutputTokens"),
        _ => (None, "max_tokens"),
    };
    let members = match object {
        Some(object) => body.get_mut(object)?,
        None => &mut *body,
    };
    let limit = members.as_object_mut()?.remove(field);
    if let Some(object) = object
        && body[object] == json!({})
    {
        body.as_object_mut()?.remove(object);
    }
    limit
}

/// The request without a limit.
fn without_limit(operation: Operation, request: &Value) -> Value {
    let mut request = request.clone();
    take_limit(operation, false, &mut request);
    request
}

/// Twenty cells: each dialect of customers over its own protocol and over all others.
#[test]
fn the_limit_is_all_that_changes_upstream_in_every_cell() {
    let own = TESTED.iter().map(|it| {
        let spoken = [&CHAT, &MESSAGES, &RESPONSES, &GEMINI];
        let spoken = spoken.iter().find(|spoken| spoken.operation == it.operation).expect("one");
        (spoken.codec, it.operation, false)
    });
    let bridged = BRIDGES.iter().map(|it| {
        let is_converse = it.dialects() == [Dialect::Bedrock];
        (it as &dyn Codec, it.upstreams.operation, is_converse)
    });
    let mut cells = 0;
    for (codec, upstream, is_converse) in own.chain(bridged) {
        let customer = tested(codec.operation());
        let limited = (customer.request)(false);
        let unlimited = without_limit(customer.operation, &limited);
        for (request, before, tokens) in [(&limited, Some(60), 50), (&unlimited, None, 50)] {
            let (mut full, full_bound) = upstream_body(codec, request, None);
            let (mut low, low_bound) = upstream_body(codec, request, Some(tokens));
            let what = format!("{codec:?}: {full}\n{low}");
            // Some dialects must be told, and are told the most of the model.
            let upstream_limit =
                take_limit(upstream, is_converse, &mut full).and_then(|it| it.as_u64());
            assert!(
                upstream_limit == before || upstream_limit == Some(1000) && before.is_none(),
                "{what}"
            );
            let upstream_limit = take_limit(upstream, is_converse, &mut low);
            assert_eq!(upstream_limit, Some(json!(tokens)), "{what}");
            assert_eq!(full, low, "{what}");
            assert_eq!(full_bound.limit, before.unwrap_or(1000), "{what}");
            assert_eq!((low_bound.limit, low_bound.per_token), (tokens, full_bound.per_token));
        }
        cells += 1;
    }
    assert_eq!(cells, 20, "every dialect over every other and its own");
}
