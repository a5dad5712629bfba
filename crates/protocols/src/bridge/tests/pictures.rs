//! Pictures of a customer's, held as the upstream gets them.

use super::super::BRIDGES;
use crate::json::Object;
use crate::limits::ModelLimits;
use crate::media::PictureFamily;
use crate::{Codec as _, ModelInPath, Operation, Request};

/// A screenshot of 1024 × 1024 pixels.
fn screenshot() -> String {
    format!("iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU{}", "Zm9vYmFy".repeat(2_000))
}

#[test]
fn a_picture_is_held_by_its_formula_however_it_is_translated() {
    let data = screenshot();
    let requests = [
        (
            Operation::Chat,
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"hi"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}]}}"#
            ),
        ),
        (
            Operation::Messages,
            format!(
                r#"{{"model":"m","max_tokens":90,"messages":[{{"role":"user","content":[{{"type":"text","text":"hi"}},{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}]}}]}}"#
            ),
        ),
        (
            Operation::Responses,
            format!(
                r#"{{"model":"m","store":false,"input":[{{"role":"user","content":[{{"type":"input_text","text":"hi"}},{{"type":"input_image","image_url":"data:image/png;base64,{data}"}}]}}]}}"#
            ),
        ),
        (
            Operation::GenerateContent,
            format!(
                r#"{{"contents":[{{"role":"user","parts":[{{"text":"hi"}},{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}]}}]}}"#
            ),
        ),
    ];
    let mut cells = 0;
    for (operation, body) in &requests {
        for bridge in BRIDGES.iter().filter(|bridge| bridge.customers.operation == *operation) {
            let limits = ModelLimits {
                input_tokens_max: 1_000_000,
                output_tokens_max: 1_000,
                pictures: Some(PictureFamily::AnthropicHigh),
                ..ModelLimits::default()
            };
            let object = Object::parse(body.as_bytes()).expect("JSON");
            let named = ModelInPath { model: "m", streams: false };
            let request = match operation.names_model_in_path() {
                true => Request::JsonAt(object, named),
                false => Request::Json(object),
            };
            let call = bridge.read(&request, &limits).expect("translated");
            let (tokens, what) = (
                call.max_usage().input_tokens,
                format!("{operation} over {:?}", bridge.dialects()),
            );
            assert!((1_399..3_000).contains(&tokens), "{what}: {tokens}");
            assert!(call.input_ways().has_media && !call.is_all_shown(), "{what}");
            cells += 1;
        }
    }
    assert!(cells >= 14, "{cells}");
}
