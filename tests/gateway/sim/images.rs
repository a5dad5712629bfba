//! Images in OpenAI's protocol, and as xAI and Ark answer on the same path.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tollgate::sim::Sim;

use super::{chunks, client, json_of, post, sim};

const GENERATIONS: &str = "/v1/images/generations";
const EDITS: &str = "/v1/images/edits";

fn order(model: &str, fields: Value) -> Value {
    let mut body = json!({"model": model, "prompt": "A toll gate in the rain"});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

async fn made(sim: &Sim, path: &str, model: &str, fields: Value) -> Value {
    let response = post(sim, path, &order(model, fields)).await;
    assert_eq!(response.status(), StatusCode::OK, "{model} at {path}");
    json_of(response).await
}

async fn refused(sim: &Sim, model: &str, fields: Value) -> Value {
    let response = post(sim, GENERATIONS, &order(model, fields.clone())).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{model}: {fields}");
    let error = json_of(response).await["error"].clone();
    assert_eq!(error["type"], "invalid_request_error", "{error}");
    error
}

/// A PNG as far as its size: the rest does not matter here.
fn png(width: u8, height: u8) -> Vec<u8> {
    let size = [0, 0, 0, width, 0, 0, 0, height];
    [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(), &size, b"\r\n--and more\xFF"].concat()
}

async fn edit(sim: &Sim, settings: &str, parts: &[(&str, &[u8])]) -> Response {
    let mut body = Vec::new();
    for (name, data) in parts {
        let file = if data.starts_with(b"\x89PNG") { "; filename=\"a.png\"" } else { "" };
        let head =
            format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend([head.as_bytes(), data, b"\r\n"].concat());
    }
    body.extend(b"--limit--\r\n");
    let request = client().post(format!("http://{}{settings}{EDITS}", sim.addr())).body(body);
    let content_type = "multipart/form-data; boundary=limit";
    request.header("content-type", content_type).send().await.expect("an answer")
}

const MODEL: (&str, &[u8]) = ("model", b"gpt-image-1");
const PROMPT: (&str, &[u8]) = ("prompt", b"Add a toll gate");

#[tokio::test]
async fn gpt_images_come_in_base64_with_their_usage() {
    let sim = sim(&[]);
    let body = made(&sim, GENERATIONS, "gpt-image-1", json!({})).await;
    let image = body["data"][0]["b64_json"].as_str().expect("base64");
    assert!(STANDARD.decode(image).expect("base64").starts_with(b"\x89PNG\r\n\x1a\n"));
    assert!(body["created"].as_u64() > Some(1_700_000_000), "{body}");
    let details = |body: &Value| {
        ["background", "output_format", "quality", "size"].map(|name| body[name].clone())
    };
    assert_eq!(details(&body), ["opaque", "png", "medium", "1024x1024"]);
    let expected = json!({
        "input_tokens": 6, "input_tokens_details": {"text_tokens": 6, "image_tokens": 0},
        "output_tokens": 1056, "total_tokens": 1062,
    });
    assert_eq!(body["usage"], expected, "23 bytes of prompt");

    let request = json!({
        "n": 3, "quality": "high", "size": "1536x1024", "background": "transparent",
        "output_format": "webp",
    });
    let body = made(&sim, GENERATIONS, "gpt-image-1", request).await;
    assert_eq!(body["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(details(&body), ["transparent", "webp", "high", "1536x1024"]);
    assert_eq!(body["usage"]["output_tokens"], 3 * 4160);
    let body = made(&sim, GENERATIONS, "gpt-image-1", json!({"quality": "low"})).await;
    assert_eq!(body["usage"]["output_tokens"], 272);

    let error = refused(&sim, "gpt-image-1", json!({"response_format": "url"})).await;
    assert_eq!(error["code"], "unknown_parameter");
    assert_eq!(error["message"], "Unknown parameter: 'response_format'.");
    for wrong in [json!({"n": 0}), json!({"n": 11}), json!({"n": "1"}), json!({"prompt": ""})] {
        refused(&sim, "gpt-image-1", wrong).await;
    }
}

#[tokio::test]
async fn usage_of_images_is_configurable() {
    let sim = sim(&[]);
    for (settings, expected) in [
        ("usage=prompt=12,completion=34", json!([12, 12, 0, 34, 46])),
        ("fault=usage-negative", json!([-100, -100, 0, -200, -300])),
        ("fault=usage-huge", json!([i64::MAX, i64::MAX, 0, i64::MAX, i64::MAX])),
    ] {
        let path = format!("/sim:{settings}{GENERATIONS}");
        let usage = made(&sim, &path, "gpt-image-1", json!({})).await["usage"].clone();
        let details = &usage["input_tokens_details"];
        let found = json!([
            usage["input_tokens"],
            details["text_tokens"],
            details["image_tokens"],
            usage["output_tokens"],
            usage["total_tokens"],
        ]);
        assert_eq!(found, expected, "{settings}");
    }
    let path = format!("/sim:fault=usage-missing{GENERATIONS}");
    let body = made(&sim, &path, "gpt-image-1", json!({})).await;
    assert!(body.get("usage").is_none(), "{body}");
    let form = [MODEL, PROMPT, ("image", &png(1, 1))];
    for (settings, text, image) in [
        ("/sim:usage=prompt=200", 6, 194),
        ("/sim:usage=prompt=150", 0, 150),
        ("/sim:fault=usage-negative", -100, 0),
    ] {
        let usage = json_of(edit(&sim, settings, &form).await).await["usage"].clone();
        let expected = json!({"text_tokens": text, "image_tokens": image});
        assert_eq!(usage["input_tokens_details"], expected, "parts of what was told: {settings}");
    }
}

#[tokio::test]
async fn other_families_answer_with_urls_by_default() {
    let sim = sim(&[]);
    let body = made(&sim, GENERATIONS, "dall-e-2", json!({"n": 2})).await;
    let url = body["data"][1]["url"].as_str().expect("a URL");
    let file = client().get(url).send().await.expect("a file");
    assert_eq!(file.headers()["content-type"], "image/png");
    let names: Vec<&String> = body.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["created", "data"], "no usage and none of gpt-image's fields");

    let body = made(&sim, GENERATIONS, "grok-2-image", json!({})).await;
    assert!(body["data"][0]["url"].is_string(), "{body}");
    assert_eq!(body["data"][0]["revised_prompt"], "");
    assert!(body.get("usage").is_none(), "{body}");
    for model in ["dall-e-2", "grok-2-image"] {
        let body = made(&sim, GENERATIONS, model, json!({"response_format": "b64_json"})).await;
        assert!(body["data"][0]["b64_json"].is_string(), "{body}");
        assert!(body["data"][0].get("url").is_none(), "{body}");
        refused(&sim, model, json!({"response_format": "png"})).await;
    }
}

#[tokio::test]
async fn ark_counts_images_and_makes_several_in_sequence_only() {
    let sim = sim(&[]);
    let path = "/api/v3/images/generations";
    let body = made(&sim, path, "seedream", json!({"n": 4, "size": "1024x512"})).await;
    let data = body["data"].as_array().expect("images");
    assert_eq!(data.len(), 1, "there is no `n`");
    assert!(data[0]["url"].is_string() && data[0]["size"] == "1024x512", "{body}");
    let expected = json!({"generated_images": 1, "output_tokens": 2048, "total_tokens": 2048});
    assert_eq!(body["usage"], expected, "a token for 256 pixels");

    let options = |mode: &str, max: u32| {
        json!({
            "sequential_image_generation": mode,
            "sequential_image_generation_options": {"max_images": max},
        })
    };
    for (mode, expected) in [("auto", 3), ("disabled", 1)] {
        let body = made(&sim, path, "seedream", options(mode, 3)).await;
        assert_eq!(body["usage"]["generated_images"], expected, "{mode}");
        assert_eq!(body["data"].as_array().map(Vec::len), Some(expected), "{mode}");
    }
    let many = post(&sim, path, &order("seedream", options("auto", 16))).await;
    assert_eq!(many.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn edits_count_their_images_and_compare_masks() {
    let sim = sim(&[]);
    let (wide, high) = (png(2, 1), png(1, 2));
    let form = [MODEL, ("image[]", &wide), PROMPT, ("image[]", &high), ("n", b"2")];
    let body = json_of(edit(&sim, "", &form).await).await;
    assert_eq!(body["data"].as_array().map(Vec::len), Some(2));
    let expected = json!({
        "input_tokens": 392, "input_tokens_details": {"text_tokens": 4, "image_tokens": 388},
        "output_tokens": 2112, "total_tokens": 2504,
    });
    assert_eq!(body["usage"], expected, "two images and 15 bytes in, two images out");

    let masked = [MODEL, PROMPT, ("image", &wide), ("mask", &png(2, 1))];
    assert_eq!(edit(&sim, "", &masked).await.status(), StatusCode::OK);
    let masked = [MODEL, PROMPT, ("image", &wide), ("mask", &high)];
    let refused = edit(&sim, "", &masked).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(json_of(refused).await["error"]["code"], "invalid_mask");

    let image: (&str, &[u8]) = ("image", &wide);
    let seventeen = [vec![MODEL, PROMPT], vec![image; 17]].concat();
    for form in [&[MODEL, PROMPT][..], &[MODEL, image], &seventeen] {
        assert_eq!(edit(&sim, "", form).await.status(), StatusCode::BAD_REQUEST, "{form:?}");
    }
    let json = post(&sim, EDITS, &order("gpt-image-1", json!({}))).await;
    assert_eq!(json.status(), StatusCode::BAD_REQUEST, "edits are forms");
}

#[tokio::test]
async fn images_are_streamed_with_partial_ones_before() {
    let sim = sim(&[]);
    let request = json!({"stream": true, "partial_images": 2, "size": "auto"});
    let text = |response: Response| async { response.text().await.expect("text") };
    let stream = text(post(&sim, GENERATIONS, &order("gpt-image-1", request.clone())).await).await;
    let names: Vec<&str> = stream.lines().filter_map(|it| it.strip_prefix("event: ")).collect();
    let partial = "image_generation.partial_image";
    assert_eq!(names, [partial, partial, "image_generation.completed"]);
    let events = chunks(&stream);
    for (event, name) in events.iter().zip(names) {
        assert_eq!(event["type"], name);
        assert!(event["b64_json"].is_string() && event["created_at"].is_u64(), "{event}");
        assert_eq!((&event["size"], &event["quality"]), (&json!("1024x1024"), &json!("medium")));
        assert_eq!(
            (&event["background"], &event["output_format"]),
            (&json!("opaque"), &json!("png"))
        );
    }
    assert_eq!((&events[1]["partial_image_index"], &events[1]["usage"]), (&json!(1), &json!(null)));
    assert_eq!(events[2]["usage"]["total_tokens"], 1062);

    let path = format!("/sim:fault=error-after=1{GENERATIONS}");
    let cut = chunks(&text(post(&sim, &path, &order("gpt-image-1", request)).await).await);
    assert_eq!(cut.len(), 2, "a partial image and an error: {cut:?}");
    assert!(cut[1]["error"]["message"].is_string(), "{cut:?}");
    let path = format!("/sim:fault=usage-missing{GENERATIONS}");
    let request = order("gpt-image-1", json!({"stream": true}));
    let silent = chunks(&text(post(&sim, &path, &request).await).await);
    assert_eq!((silent.len(), silent[0].get("usage")), (1, None), "{silent:?}");

    let image = png(1, 1);
    let form = [MODEL, PROMPT, ("image", &image), ("stream", b"true"), ("partial_images", b"1")];
    let names: Vec<Value> = chunks(&text(edit(&sim, "", &form).await).await)
        .iter()
        .map(|it| it["type"].clone())
        .collect();
    assert_eq!(names, ["image_edit.partial_image", "image_edit.completed"]);
    for wrong in [json!({"stream": true, "n": 2}), json!({"stream": true, "partial_images": 4})] {
        refused(&sim, "gpt-image-1", wrong).await;
    }
}

#[tokio::test]
async fn images_have_the_configured_size() {
    let sim = sim(&["image-bytes=100000"]);
    let body = made(&sim, GENERATIONS, "gpt-image-1", json!({"n": 2})).await;
    for index in 0..2 {
        let image = body["data"][index]["b64_json"].as_str().expect("base64");
        assert_eq!(image.len(), 100_000);
        assert!(STANDARD.decode(image).is_ok(), "it is base64 all the same");
    }
}

#[tokio::test]
async fn a_blind_simulator_makes_images_without_looking() {
    let sim = sim(&["blind=on"]);
    for path in [GENERATIONS, EDITS] {
        let request = client().post(format!("http://{}{path}", sim.addr()));
        let response = request.body(vec![b'x'; 1 << 20]).send().await.expect("an answer");
        assert_eq!(response.headers()["x-sim-body-bytes"], "1048576", "{path}");
        let body = json_of(response).await;
        assert!(body["data"][0]["b64_json"].is_string(), "{path}: {body}");
        assert_eq!(body["usage"]["total_tokens"], 1068, "{path}: {body}");
    }
    assert_eq!(sim.requests_total(), 0, "nothing is recorded");
}
