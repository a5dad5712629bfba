//! `POST /v1/moderations`: whether texts and pictures are harmful, over upstreams that speak OpenAI's
//! protocol. The body is relayed as it is but for the model's name, which may be left out
//! (OpenAI's API reference, "Moderations").
//!
//! OpenAI asks nothing for it and reports no usage. Others bill tokens, or have models of language
//! judge, which put a template around each input.

use super::allowed_keys::AllowedKey;
use super::estimate::ReadTokens;
use super::json::{Object, Value};
use super::json_scan::UsageScan;
use super::limits::ModelLimits;
use super::request_policy::{Allowlist, Field};
use super::splice::{Splice, json_string};
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, metering,
    request_policy,
};
use crate::codec::bounds_in_field;
use crate::metering::relays_scanned_document;
use tollgate_money::price::{Unit, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// Inputs at most in one request: as many as OpenAI embeds.
const INPUTS_MAX: u64 = 2048;
/// Tokens that stand around each input: the template of Llama Guard 3, with its categories, has some
/// 220.
const INPUT_TOKENS_ADDED_MAX: u64 = 512;

/// Fields of a request. The input is checked where it is measured.
static FIELDS: Allowlist =
    Allowlist::of_fields(&[("input", Field::Plain), ("model", Field::Plain)]);

/// The codec of moderations.
#[derive(Debug)]
pub struct OpenaiModerations;

impl Codec for OpenaiModerations {
    fn operation(&self) -> Operation {
        Operation::Moderations
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/moderations"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&FIELDS)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let has_passed = request_policy::check_fields(body, &FIELDS, limits)?;
        let inputs = Inputs::read(body)?;
        let context = Some(limits.input_tokens_max).filter(|tokens| *tokens > 0);
        let whole = context.map(|context| context.saturating_mul(inputs.count));
        let bills_tokens = limits.priced.has_unit(Unit::InputTokens);
        let tokens = match (whole, inputs.has_pictures || has_passed) {
            // What a picture or an unknown field comes to, only the model's context bounds.
            (Some(whole), true) => whole,
            (None, true) if bills_tokens && inputs.has_pictures => {
                let message = "pictures are not offered here: what they cost is not known. An operator \
                               can bound it with `context_tokens_max` in models.yaml";
                return Err(GatewayError::invalid("input", message));
            }
            _ => inputs.tokens_max.min(whole.unwrap_or(u64::MAX)),
        };
        let of = |input_tokens: u64| Usage { input_tokens, ..Usage::ZERO };
        let bounds =
            RequestBounds::from_body(body, of(tokens), of(inputs.tokens_about.min(tokens)));
        let insertion = body.get("model").is_none().then(|| body.insertion_point());
        Ok(Box::new(ModerationCall { bounds, insertion, tokens_max: whole.unwrap_or(u64::MAX) }))
    }
}

/// Inputs to moderate.
#[derive(Default)]
struct Inputs {
    count: u64,
    tokens_max: u64,
    tokens_about: u64,
    has_pictures: bool,
}

impl Inputs {
    /// Reads `input`: a string, an array of strings, or an array of texts and pictures.
    fn read(body: &Object<'_>) -> Result<Self, GatewayError> {
        let invalid = || {
            let message = "`input` must be a string, a non-empty array of strings, or one of objects \
                           with the `type` `text` or `image_url`";
            GatewayError::invalid("input", message)
        };
        let input = body.get_non_null("input").ok_or_else(invalid)?;
        let mut inputs = Self::default();
        if input.text().starts_with(b"\"") {
            inputs.add(&input).ok_or_else(invalid)?;
            return Ok(inputs);
        }
        let mut first = None;
        for element in input.elements().ok_or_else(invalid)? {
            let is_text = element.text().starts_with(b"\"");
            // Upstreams refuse mixed arrays; the count is checked here so that no more are measured.
            if *first.get_or_insert(is_text) != is_text || inputs.count >= INPUTS_MAX {
                return Err(invalid());
            }
            inputs.add(&element).ok_or_else(invalid)?;
        }
        if inputs.count == 0 { Err(invalid()) } else { Ok(inputs) }
    }

    /// Adds a text, or a part that is a text or a picture; `None` for anything else.
    fn add(&mut self, input: &Value<'_>) -> Option<()> {
        self.count += 1;
        self.tokens_max = self.tokens_max.saturating_add(INPUT_TOKENS_ADDED_MAX);
        if let Some(text) = input.as_str() {
            self.add_text(&text);
            return Some(());
        }
        let part = input.as_object().ok()?;
        let kind = part.get("type")?.as_str()?;
        // Any other member could carry text that nobody has counted.
        let is_listed = |key: &str| key == "type" || key == kind;
        if !part.keys().all(is_listed) {
            return None;
        }
        match &*kind {
            "text" => self.add_text(&part.get("text")?.as_str()?),
            "image_url" => {
                let picture = part.get("image_url")?.as_object().ok()?;
                picture.get("url")?.as_str()?;
                picture.keys().all(|key| key == "url").then_some(())?;
                self.has_pictures = true;
            }
            _ => return None,
        }
        Some(())
    }

    fn add_text(&mut self, text: &str) {
        let tokens = ReadTokens::measure(text).bounded();
        self.tokens_max = self.tokens_max.saturating_add(tokens.most);
        self.tokens_about = self.tokens_about.saturating_add(tokens.about);
    }
}

#[derive(Debug)]
struct ModerationCall {
    bounds: RequestBounds,
    /// Position for the model's name in a body without one; true if a comma precedes it.
    insertion: Option<(usize, bool)>,
    /// Maximum tokens that the model accepts for so many inputs.
    tokens_max: u64,
}

impl Call for ModerationCall {
    bounds_in_field!();

    /// Always true: embeddings have no output, so the request determines the whole cost.
    fn is_all_shown(&self) -> bool {
        true
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let Some((at, comma)) = self.insertion else {
            return self.bounds.model.rename(upstream_model);
        };
        let comma = if comma { "," } else { "" };
        let mut splice = Splice::default();
        splice.replace(at..at, format!("{comma}\"model\":{}", json_string(upstream_model)));
        splice
    }

    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        Box::new(ModerationMeter {
            scan: UsageScan::default(),
            min_usage: self.bounds.min_usage,
            tokens_max: self.tokens_max,
        })
    }
}

/// Meter for an answer that is relayed unchanged.
struct ModerationMeter {
    scan: UsageScan,
    min_usage: Usage,
    tokens_max: u64,
}

impl ModerationMeter {
    fn reported(&self) -> Option<u64> {
        metering::input_tokens(&self.scan)
    }
}

impl Meter for ModerationMeter {
    relays_scanned_document!();

    fn has_failed(&self) -> bool {
        self.scan.has_only_error() && self.reported().is_none()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        match self.reported() {
            Some(input_tokens) => (Usage { input_tokens, ..Usage::ZERO }, UsageSource::Upstream),
            None => (self.min_usage, UsageSource::Estimated),
        }
    }

    fn is_above_limits(&self) -> bool {
        self.reported().is_some_and(|tokens| tokens > self.tokens_max)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::limits::PricedFeatures;

    fn limits(context: u64) -> ModelLimits {
        let priced = PricedFeatures { units: vec![Unit::InputTokens], ..PricedFeatures::default() };
        ModelLimits { input_tokens_max: context, priced, ..ModelLimits::default() }
    }

    fn read(body: &str, limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
        let object = Object::parse(body.as_bytes()).expect("JSON");
        OpenaiModerations.read(&Request::Json(object), limits)
    }

    #[test]
    fn every_shape_of_input_is_bounded() {
        let picture =
            json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
        let text = json!({"type": "text", "text": "abc"});
        for (input, context, max_usage) in [
            (json!("abc"), 0, 512 + 3),
            (json!(""), 0, 512),
            (json!(["abc", "\u{4f60}"]), 0, 2 * 512 + 6),
            (json!(["abc", "d"]), 100, 200),
            (json!([text]), 0, 512 + 3),
            (json!([text, picture]), 32_768, 65_536),
            (json!("\u{fdfa}".repeat(100)), 0, 512 + 3300),
        ] {
            let body = json!({"model": "m", "input": input}).to_string();
            let call = read(&body, &limits(context)).expect("valid");
            assert_eq!(call.max_usage().input_tokens, max_usage, "{input}");
            assert!(call.min_usage().input_tokens <= max_usage, "{input}");
        }
    }

    #[test]
    fn unbounded_and_unlisted_fields_are_refused() {
        let picture = r#"{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}"#;
        for (input, param) in [
            ("null".to_owned(), "input"),
            ("5".to_owned(), "input"),
            ("[]".to_owned(), "input"),
            ("[1]".to_owned(), "input"),
            ("[[1]]".to_owned(), "input"),
            (r#"["a",{"type":"text","text":"b"}]"#.to_owned(), "input"),
            (r#"[{"type":"text"}]"#.to_owned(), "input"),
            (r#"[{"type":"text","text":"a","image_url":{"url":"b"}}]"#.to_owned(), "input"),
            (r#"[{"type":"text","text":"a","text":"b"}]"#.to_owned(), "input"),
            (r#"[{"type":"input_audio","input_audio":{"data":"b"}}]"#.to_owned(), "input"),
            (r#"[{"type":"image_url","image_url":{"file_id":"a"}}]"#.to_owned(), "input"),
            (format!("[{picture}]"), "input"),
            (r#""a","policy":"b""#.to_owned(), "policy"),
        ] {
            let error = read(&format!(r#"{{"model":"m","input":{input}}}"#), &limits(0));
            assert_eq!(error.expect_err(&input).param.as_deref(), Some(param), "{input}");
        }
        let many = json!({"model": "m", "input": vec!["a"; 2049]}).to_string();
        assert_eq!(read(&many, &limits(0)).expect_err("2049").param.as_deref(), Some("input"));
        let free = ModelLimits::default();
        let body = format!(r#"{{"model":"m","input":[{picture}]}}"#);
        assert!(read(&body, &free).is_ok(), "where tokens have no price, a picture costs nothing");
    }

    #[test]
    fn the_models_name_may_be_left_out() {
        for (body, sent) in [
            (r#"{"input":"a"}"#, r#"{"input":"a","model":"there"}"#),
            (r#"{ "model" : null,"input":"a"}"#, r#"{ "model" : "there","input":"a"}"#),
            (r#"{"model":"here","input":"a"}"#, r#"{"model":"there","input":"a"}"#),
            (r#"{"model":"there","input":"a"}"#, r#"{"model":"there","input":"a"}"#),
        ] {
            let call = read(body, &limits(0)).expect("valid");
            assert_eq!(call.splice("there").apply(&Bytes::from_static(body.as_bytes())), sent);
        }
    }

    #[test]
    fn what_is_reported_is_believed_and_what_is_not_is_estimated() {
        let measured = |answer: &'static str| {
            let mut meter =
                read(r#"{"input":"some text"}"#, &limits(10)).expect("valid").meter(Framing::Json);
            for piece in answer.as_bytes().chunks(5) {
                assert_eq!(meter.relay(Bytes::from_static(piece)), piece);
            }
            assert!(meter.is_complete() && meter.finish().is_empty() && !meter.changes_length());
            (meter.measure(), meter.is_above_limits(), meter.has_failed())
        };
        let used = |input_tokens| Usage { input_tokens, ..Usage::ZERO };
        let upstream = UsageSource::Upstream;
        let answer = r#"{"id":"modr-1","results":[{"flagged":false}],"usage":{"total_tokens":9}}"#;
        assert_eq!(measured(answer), ((used(9), upstream), false, false));
        let answer = r#"{"results":[{}],"usage":{"prompt_tokens":11,"total_tokens":3}}"#;
        assert_eq!(measured(answer), ((used(11), upstream), true, false));
        let ((usage, source), ..) = measured(r#"{"results":[{"flagged":true}]}"#);
        assert!(source == UsageSource::Estimated && (1..=9).contains(&usage.input_tokens));
        assert!(measured(r#"{"error":{"message":"no"}}"#).2);
    }
}
