//! The span of a finished request, with the names of OpenTelemetry's conventions for generative AI.

use std::time::{Duration, SystemTime};

use tollgate_money::money::Nanousd;
use tollgate_money::price::Side;
use tollgate_protocols::Operation;
use tollgate_telemetry::finished::{FinishedRequest, RequestSettlement};

/// The span of one request. It is made of [`FinishedRequest`] alone, so no prompt, answer or key can be in it.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpan {
    /// The operation and the model; for other paths, the method and the route.
    pub name: String,
    /// Time of the request's head.
    pub began: SystemTime,
    /// Time of the end.
    pub ended: SystemTime,
    /// Time of the first byte of the response, if there was one.
    pub first_byte: Option<SystemTime>,
    /// Attributes with their names; absent values have none.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// The error code of a request that the gateway or an upstream failed.
    pub error: Option<&'static str>,
    /// The `traceparent` header of the client's own span.
    pub traceparent: Option<String>,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Count(i64),
}

impl From<&FinishedRequest<'_>> for RequestSpan {
    fn from(finished: &FinishedRequest<'_>) -> Self {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_millis(finished.ended_at.0);
        let began = ended.checked_sub(finished.duration).unwrap_or(ended);
        // A client's own error is no error of the server's span; a response that broke off behind its 200 is.
        let has_failed =
            finished.status >= 500 || (finished.status < 300 && !finished.error_code.is_empty());
        Self {
            name: name(finished),
            began,
            ended,
            first_byte: finished.ttfb.map(|ttfb| began + ttfb),
            attributes: attributes(finished),
            error: has_failed.then_some(finished.error_code),
            traceparent: finished.traceparent.map(str::to_owned),
        }
    }
}

fn name(finished: &FinishedRequest<'_>) -> String {
    match finished.operation {
        Some(operation) => format!("{} {}", operation_name(operation), finished.model),
        None => format!("{} {}", finished.method, finished.route),
    }
    .trim_end()
    .to_owned()
}

/// The conventions' name of an operation, or the gateway's where they have none.
fn operation_name(operation: Operation) -> &'static str {
    operation.info().trace_name.unwrap_or(operation.as_str())
}

fn attributes(finished: &FinishedRequest<'_>) -> Vec<(&'static str, AttributeValue)> {
    let text = |value: Option<String>| value.unwrap_or_default();
    let operation = finished.operation.map(|operation| operation_name(operation).to_owned());
    let requested = finished.requested_model.unwrap_or(finished.model);
    let response_model = finished.requested_model.map(|_| finished.model.to_owned());
    let mut all = vec![
        ("http.request.method", AttributeValue::Text(finished.method.to_owned())),
        ("http.route", AttributeValue::Text(finished.route.to_owned())),
        ("http.response.status_code", AttributeValue::Count(finished.status.into())),
        ("tollgate.request_id", AttributeValue::Text(finished.request_id.to_string())),
    ];
    let texts = [
        ("gen_ai.operation.name", text(operation)),
        ("gen_ai.provider.name", finished.upstream.to_owned()),
        ("gen_ai.request.model", requested.to_owned()),
        ("gen_ai.response.model", text(response_model)),
        ("error.type", finished.error_code.to_owned()),
        ("client.address", text(finished.client.map(|client| client.to_string()))),
        ("tollgate.account_id", text(finished.account_id.map(|id| id.to_string()))),
        ("tollgate.key_id", text(finished.key_id.map(|id| id.to_string()))),
    ];
    add_texts(&mut all, texts);
    if let Some(settled) = &finished.settled {
        add_settlement(&mut all, settled);
    }
    all
}

fn add_texts<const N: usize>(
    all: &mut Vec<(&'static str, AttributeValue)>,
    texts: [(&'static str, String); N],
) {
    let present = texts.into_iter().filter(|(_, value)| !value.is_empty());
    all.extend(present.map(|(name, value)| (name, AttributeValue::Text(value))));
}

fn add_settlement(all: &mut Vec<(&'static str, AttributeValue)>, settled: &RequestSettlement) {
    let owed = Some(settled.owed).filter(|owed| *owed > Nanousd::ZERO);
    let texts = [
        ("tollgate.usage_source", settled.source.as_str().to_owned()),
        ("tollgate.cost_usd", settled.cost.to_string()),
        ("tollgate.owed_usd", owed.map(|owed| owed.to_string()).unwrap_or_default()),
    ];
    add_texts(all, texts);
    let usage = &settled.usage;
    let written = usage
        .cache_write_tokens
        .saturating_add(usage.cache_write_1h_tokens)
        .saturating_add(usage.cache_write_12h_tokens);
    let counts = [
        // The conventions count cached tokens as input too.
        ("gen_ai.usage.input_tokens", usage.input_tokens_total()),
        ("gen_ai.usage.output_tokens", usage.total(Side::Output)),
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", written),
    ];
    let present = counts.into_iter().filter(|(_, tokens)| *tokens > 0);
    all.extend(present.map(|(name, tokens)| {
        (name, AttributeValue::Count(i64::try_from(tokens).unwrap_or(i64::MAX)))
    }));
}
