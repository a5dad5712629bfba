//! `POST /v1/images/generations` and `/v1/images/edits`: every family end to end, on the wire and in
//! the ledger.

use crate::harness::{Admin, Customer, Demo, sha256};
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

/// A nano-dollar in cents.
const CENT: i64 = 10_000_000;

fn family_q(model: &str, content: Value) -> Value {
    json!({"model": model, "input": {"messages": [{"role": "user", "content": content}]}})
}

fn a_cat() -> Value {
    json!([{"text": "a cat"}])
}

async fn generate(
    demo: &Demo,
    customer: &Customer,
    body: &Value,
    sim: &str,
) -> (u16, Option<String>, Value) {
    let call = demo.post("/v1/images/generations", body, sim).bearer_auth(&customer.key);
    let answer = call.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let retry = answer.headers().get("retry-after").map(|value| value.to_str().expect("text"));
    let retry = retry.map(str::to_owned);
    (status, retry, answer.json().await.expect("JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn family_q_is_passed_through_and_billed_by_the_image() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let edit = json!([{"image": "https://example.com/a.png"}, {"text": "a hat"}]);
    for (model, content, sim, cost) in [
        ("qf-image-2.0", a_cat(), "", 35 * CENT / 10),
        ("qf-image-max", a_cat(), "usage-dialect:output", 75 * CENT / 10),
        ("qf-image-edit-plus", edit, "", 3 * CENT),
    ] {
        let customer = admin.customer("1.00").await;
        let (status, _, answer) = generate(&demo, &customer, &family_q(model, content), sim).await;
        assert_eq!(status, 200, "{model}: {answer}");
        let image = &answer["output"]["choices"][0]["message"]["content"][0]["image"];
        assert!(image.as_str().is_some_and(|url| url.starts_with("http")), "{answer}");
        assert_eq!(admin.settled(&customer.account).await.spent, cost, "{model}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn family_q_errors_have_both_shapes_and_cost_nothing() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let unknown = family_q("qf-image-9", a_cat());
    let good = family_q("qf-image-2.0", a_cat());
    // A target of its own, for the other one gets no calls after five failures in a row.
    let pro = family_q("qf-image-2.0-pro", a_cat());
    let without_image = family_q("qf-image-edit", a_cat());
    let in_200 = "fault:error-in-200 error-code:InvalidParameter";
    let overdue = "fault:error-in-200 error-code:Arrearage";
    // What the upstream says about the request goes on as it is, with a status that fits.
    for sim in [in_200, "fault:status=400"] {
        let (status, _, answer) = generate(&demo, &customer, &good, sim).await;
        assert_eq!((status, &answer["code"]), (400, &json!("InvalidParameter")), "{sim}: {answer}");
        assert!(answer["error"].is_null(), "the upstream's own words: {answer}");
    }
    for (body, sim, status, code) in [
        (&without_image, "", 400, "InvalidParameter"),
        (&unknown, "", 400, "InvalidParameter"),
        (&json!({"model": "qf-image-2.0", "prompt": "x"}), "", 400, "InvalidParameter"),
        (&good, "fault:status=401", 502, "service_unavailable"),
        (&good, "fault:status=500", 502, "service_unavailable"),
        (&good, overdue, 502, "service_unavailable"),
        (&good, "fault:status=400 error-code:Arrearage", 502, "service_unavailable"),
        (&good, "fault:garbage", 502, "BadGateway"),
        // Behind it the target is left alone for as long as it has asked.
        (&pro, "fault:status=429", 429, "Throttling.RateQuota"),
    ] {
        let (found, retry, answer) = generate(&demo, &customer, body, sim).await;
        assert_eq!(found, status, "{sim}: {answer}");
        assert_eq!(answer["code"], code, "{sim}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{sim}: {answer}");
        assert_eq!(answer["message"], answer["error"]["message"], "{sim}: {answer}");
        assert!(answer["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{answer}");
        assert_eq!(retry.is_some(), status == 429, "{sim}");
        assert!(!answer.to_string().contains("Arrearage"), "the operator's account: {answer}");
    }
    // The field at fault, by its whole path.
    let of = |name: &str, value: Value| {
        let mut body = good.clone();
        body["parameters"] = json!({name: value});
        body
    };
    for (body, param, message) in [
        (of("n", json!(2)), "parameters.n", "`n` must be 1"),
        (of("n", json!(0)), "parameters.n", "`n` must be 1"),
        (
            of("seed", json!(-1)),
            "parameters.seed",
            "`seed` must be an integer from 0 to 4294967295",
        ),
        (of("size", json!(5)), "parameters.size", "`size` must be a string"),
        (of("watermark", json!("no")), "parameters.watermark", "`watermark` must be a boolean"),
        (json!({"model": "qf-image-2.0", "input": "x"}), "input", "`input` must be an object"),
    ] {
        let (status, _, answer) = generate(&demo, &customer, &body, "").await;
        let error = &answer["error"];
        assert_eq!((status, &answer["code"]), (400, &json!("InvalidParameter")), "{answer}");
        assert_eq!((&error["param"], &error["message"]), (&json!(param), &json!(message)));
    }
    let poor = admin.customer("0.01").await;
    let (status, _, answer) = generate(&demo, &poor, &good, "").await;
    assert_eq!((status, &answer["code"]), (402, &json!("insufficient_balance")), "{answer}");
    let balance = admin.settled(&customer.account).await;
    assert_eq!((balance.spent, balance.available), (0, 100 * CENT));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_in_openais_words_are_billed_by_tokens_or_by_the_image() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let figures = "usage:prompt=10,completion=1000";
    for (body, sim, cost) in [
        // $5 a million for input, $30 for output.
        (json!({"model": "pimg-2", "prompt": "p", "size": "2048x1152"}), figures, 30_050_000),
        (
            json!({"model": "pimg-2", "prompt": "p", "response_format": "b64_json"}),
            figures,
            30_050_000,
        ),
        (json!({"model": "grok-2-image", "prompt": "p", "n": 2}), "", 14 * CENT),
        (
            json!({"model": "gemini-2.5-flash-image", "prompt": "p"}),
            "fault:usage-missing",
            39_000_000,
        ),
        (json!({"model": "seedream-4-0", "prompt": "p", "size": "2K"}), "", 3 * CENT),
        (
            json!({
                "model": "seedream-4-0",
                "prompt": "p",
                "sequential_image_generation": "auto",
                "sequential_image_generation_options": {"max_images": 3},
            }),
            "",
            9 * CENT,
        ),
    ] {
        let customer = admin.customer("5.00").await;
        let (status, _, answer) = generate(&demo, &customer, &body, sim).await;
        assert_eq!(status, 200, "{body}: {answer}");
        assert_eq!(admin.settled(&customer.account).await.spent, cost, "{body}: {answer}");
    }
    let customer = admin.customer("5.00").await;
    for (body, param) in [
        (json!({"model": "pimg-2", "prompt": "p", "size": "1000x1000"}), "size"),
        (json!({"model": "pimg-2", "prompt": "p", "size": "3856x2160"}), "size"),
        (json!({"model": "pimg-2", "prompt": "p", "size": "3840x1264"}), "size"),
        (json!({"model": "pimg-1", "prompt": "p", "size": "2048x1152"}), "size"),
        (json!({"model": "pimg-1", "prompt": ""}), "prompt"),
        (json!({"model": "grok-2-image", "prompt": "p", "stream": true}), "stream"),
        (json!({"model": "nothing", "prompt": "p"}), "model"),
    ] {
        let (status, _, answer) = generate(&demo, &customer, &body, "").await;
        assert!(status == 400 || param == "model" && status == 404, "{body}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{body}: {answer}");
        assert!(answer["code"].is_null(), "OpenAI's shape: {answer}");
    }
    assert_eq!(admin.settled(&customer.account).await.spent, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_images_is_billed_once_it_is_complete() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let body = json!({"model": "pimg-1", "prompt": "p", "stream": true, "partial_images": 2});
    let figures = "usage:prompt=10,completion=1000";
    for (sim, spent) in [
        (figures.to_owned(), 40_050_000),
        // Events above a megabyte are looked into as well.
        (format!("{figures} image-bytes:3000000"), 40_050_000),
        ("fault:cut-after=1".to_owned(), 0),
    ] {
        let customer = admin.customer("5.00").await;
        let call = demo.post("/v1/images/generations", &body, &sim).bearer_auth(&customer.key);
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.headers()["content-type"], "text/event-stream; charset=utf-8");
        let text = answer.text().await.expect("text");
        assert_eq!(text.contains("image_generation.completed"), spent > 0, "{sim}");
        assert_eq!(text.contains("\"error\""), spent == 0, "{sim}: an end is no success");
        assert_eq!(admin.settled(&customer.account).await.spent, spent, "{sim}");
    }
}

/// A PNG of this size, as far as a reader of sizes looks, and so many bytes.
fn png(width: u32, height: u32, length: usize) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend_from_slice(&width.to_be_bytes());
    file.extend_from_slice(&height.to_be_bytes());
    file.extend_from_slice(b"\x08\x06\0\0\0");
    file.resize(length.max(file.len()), 0xA5);
    file
}

fn image(name: &'static str, file: Vec<u8>) -> Form {
    Form::new().part(name, Part::bytes(file).file_name("a.png"))
}

async fn edit(demo: &Demo, customer: &Customer, form: Form, sim: &str) -> (u16, Value) {
    let mut call = crate::harness::http()
        .post(format!("{}/v1/images/edits", demo.base_url))
        .bearer_auth(&customer.key)
        .multipart(form);
    for pair in sim.split_whitespace() {
        let (name, value) = pair.split_once(':').expect("name:value");
        call = call.header(format!("x-sim-{name}"), value);
    }
    let answer = call.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_billed_by_tokens_or_by_the_image() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let figures = "usage:prompt=200,completion=1000";
    for (form, sim, cost) in [
        // $5 a million for words, $8 for the tokens of pictures, 194 and 200 of them, $30 for output.
        (image("image", png(64, 64, 0)).text("model", "pimg-2"), figures, 31_582_000),
        (
            image("image[]", png(64, 64, 0))
                .part("image[]", Part::bytes(png(9, 9, 0)).file_name("b.png"))
                .part("mask", Part::bytes(png(64, 64, 0)).file_name("m.png"))
                .text("model", "pimg-2")
                .text("response_format", "b64_json")
                .text("quality", "high"),
            figures,
            31_600_000,
        ),
        (image("image", png(64, 64, 0)).text("model", "dle-2").text("n", "2"), "", 4 * CENT),
        (
            image("image", png(64, 64, 0)).text("model", "dle-2").text("size", "256x256"),
            "",
            16_000_000,
        ),
    ] {
        let customer = admin.customer("9.00").await;
        let (status, answer) = edit(&demo, &customer, form.text("prompt", "a hat"), sim).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer["data"][0]["b64_json"].is_string(), "the contract's default: {answer}");
        assert_eq!(admin.settled(&customer.account).await.spent, cost, "{answer}");
    }
}

/// Spec section 2.3, row by row.
#[tokio::test(flavor = "multi_thread")]
async fn edits_that_are_not_on_offer_are_refused() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("9.00").await;
    let pimg = || image("image", png(64, 64, 0)).text("model", "pimg-2");
    let dle = || image("image", png(64, 64, 0)).text("model", "dle-2");
    let mask = |file| Part::bytes(file).file_name("m.png");
    for (form, status, code, param) in [
        (pimg().text("size", "256x256"), 400, "invalid_request_error", "size"),
        (pimg().text("size", "2048x2048"), 400, "invalid_request_error", "size"),
        (dle().text("size", "1024x1536"), 400, "invalid_request_error", "size"),
        (pimg().text("n", "11"), 400, "invalid_request_error", "n"),
        (pimg().text("n", "010"), 400, "invalid_request_error", "n"),
        (pimg().text("n", "1").text("n", "2"), 400, "invalid_request_error", "n"),
        (pimg().text("model", "dle-2"), 400, "invalid_request_error", "model"),
        (pimg().text("quality", "best"), 400, "invalid_request_error", "quality"),
        (pimg().text("response_format", "url"), 400, "invalid_request_error", "response_format"),
        (dle().text("output_format", "png"), 400, "invalid_request_error", "output_format"),
        (
            pimg().text("background", "transparent").text("output_format", "jpeg"),
            400,
            "invalid_request_error",
            "background",
        ),
        (pimg().part("mask", mask(png(64, 65, 0))), 400, "invalid_mask", "mask"),
        (pimg().part("mask", mask(b"GIF89a".to_vec())), 400, "invalid_mask", "mask"),
        (dle().part("image", mask(png(64, 64, 0))), 400, "invalid_request_error", "image"),
        (
            image("image", b"GIF89a".to_vec()).text("model", "pimg-2"),
            400,
            "invalid_request_error",
            "image",
        ),
        (
            image("image", png(8, 8, 0)).text("model", "gpt-4o"),
            400,
            "invalid_request_error",
            "model",
        ),
        (image("image", png(8, 8, 0)).text("model", "pimg-9"), 404, "model_not_found", "model"),
    ] {
        let (found, answer) = edit(&demo, &customer, form.text("prompt", "a hat"), "").await;
        assert_eq!(found, status, "{param}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
    let (status, answer) = edit(&demo, &customer, pimg(), "").await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt")), "{answer}");
    let form = Form::new().text("model", "pimg-2").text("prompt", "p");
    let (status, answer) = edit(&demo, &customer, form, "").await;
    let message = "`image` is required: a PNG, JPEG or WebP file";
    assert_eq!((status, &answer["error"]["message"]), (400, &json!(message)), "{answer}");
    let poor = admin.customer("0.50").await;
    let (status, answer) = edit(&demo, &poor, pimg().text("prompt", "p"), "").await;
    assert_eq!((status, &answer["error"]["code"]), (402, &json!("insufficient_balance")));
    let balance = admin.settled(&customer.account).await;
    assert_eq!((balance.spent, balance.available), (0, 900 * CENT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_28_megabytes_goes_on_byte_for_byte() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("9.00").await;
    let boundary = "----a-boundary-of-the-customers";
    let file = png(64, 64, 28 << 20);
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\
         Content-Type: image/png\r\n\r\n"
    );
    let field = |name: &str, value: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}"
        )
    };
    let tail = |model: &str| {
        let (model, prompt) = (field("model", model), field("prompt", "a hat"));
        format!("{model}{prompt}\r\n--{boundary}--\r\n")
    };
    let body = [head.as_bytes(), &file, tail("pimg-2").as_bytes()].concat();
    let sent = [head.as_bytes(), &file, tail("gpt-image-2").as_bytes()].concat();
    let answer = crate::harness::http()
        .post(format!("{}/v1/images/edits", demo.base_url))
        .bearer_auth(&customer.key)
        .header("content-type", format!("multipart/form-data; boundary={boundary}"))
        .body(body)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    let digest = answer.headers()["x-sim-body-sha256"].to_str().expect("hex").to_owned();
    assert_eq!(answer.headers()["x-sim-body-bytes"], sent.len().to_string());
    assert_eq!(digest, sha256(&sent), "only the model's name has changed");
    // What stands around the parts (RFC 2046, section 5.1.1) stays here.
    for (before, behind) in [("", "\r\n"), ("A form.\r\n", "The end."), ("\r\n\r\n", "\r\n\r\n")] {
        let around = [before.as_bytes(), head.as_bytes(), &png(64, 64, 100)].concat();
        let body = [&around[..], tail("pimg-2").as_bytes(), behind.as_bytes()].concat();
        let sent = [head.as_bytes(), &png(64, 64, 100), tail("gpt-image-2").as_bytes()].concat();
        let answer = crate::harness::http()
            .post(format!("{}/v1/images/edits", demo.base_url))
            .bearer_auth(&customer.key)
            .header("content-type", format!("multipart/form-data; boundary={boundary}"))
            .body(body)
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), 200, "{before:?} {behind:?}");
        let digest = answer.headers()["x-sim-body-sha256"].to_str().expect("hex").to_owned();
        assert_eq!(digest, sha256(&sent), "{before:?} {behind:?}");
    }
}
