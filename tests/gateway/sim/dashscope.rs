//! Images and speech in DashScope's own protocol.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tollgate::sim::Sim;

use super::speech::samples;
use super::{client, json_of, post, sim};

const GENERATION: &str = "/api/v1/services/aigc/multimodal-generation/generation";

fn image(size: Option<&str>) -> Value {
    let content = json!([{"image": "https://a.test/1.png"}, {"image": "b"}, {"text": "A toll."}]);
    let mut body = json!({
        "model": "qwen-image", "input": {"messages": [{"role": "user", "content": content}]},
    });
    if let Some(size) = size {
        body["parameters"] = json!({"size": size, "n": 1});
    }
    body
}

fn speech(text: &str, voice: &str) -> Value {
    json!({"model": "qwen3-tts-flash", "input": {"text": text, "voice": voice}})
}

/// The answer of a simulator that was told `settings` in the path.
async fn usage_of(sim: &Sim, settings: &str, body: &Value) -> Value {
    json_of(post(sim, &format!("/sim:{settings}{GENERATION}"), body).await).await
}

#[tokio::test]
async fn images_are_urls_with_usage_in_two_dialects() {
    let sim = sim(&[]);
    let body = json_of(post(&sim, GENERATION, &image(Some("1664*928"))).await).await;
    let choice = &body["output"]["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["role"]),
        (&json!("stop"), &json!("assistant"))
    );
    assert_eq!(body["usage"], json!({"image_count": 1, "width": 1664, "height": 928}));
    assert!(body["request_id"].is_string(), "{body}");
    let url = choice["message"]["content"][0]["image"].as_str().expect("a URL");
    let file = client().get(url).send().await.expect("a file");
    assert_eq!(file.headers()["content-type"], "image/png");
    assert!(file.bytes().await.expect("bytes").starts_with(b"\x89PNG"));

    let body = usage_of(&sim, "usage-dialect=output", &image(None)).await;
    let expected = json!({
        "output_width": 1024, "output_height": 1024,
        "input_image_count": 2, "output_image_count": 1,
    });
    assert_eq!(body["usage"], expected);
    for (settings, expected) in [
        ("usage=completion=3", json!(3)),
        ("fault=usage-negative", json!(-200)),
        ("fault=usage-huge", json!(i64::MAX)),
        ("fault=usage-missing", json!(null)),
    ] {
        let body = usage_of(&sim, settings, &image(None)).await;
        assert_eq!(body["usage"]["image_count"], expected, "{settings}");
    }
}

#[tokio::test]
async fn speech_is_a_file_as_long_as_its_text() {
    let sim = sim(&["key=sk-1"]);
    let ask = async |path: String, text: &str| {
        let request = client().post(format!("http://{}{path}", sim.addr())).bearer_auth("sk-1");
        json_of(request.json(&speech(text, "Cherry")).send().await.expect("an answer")).await
    };
    let body = ask(GENERATION.to_owned(), "模拟 upstream").await;
    assert_eq!(body["usage"], json!({"characters": 11}), "characters, not bytes");
    let (output, audio) = (&body["output"], &body["output"]["audio"]);
    assert_eq!((&output["finish_reason"], &audio["data"]), (&json!("stop"), &json!("")));
    assert!(audio["id"].is_string() && audio["expires_at"].as_u64() > Some(1_700_000_000));
    let url = audio["url"].as_str().expect("a URL");
    assert!(url.starts_with(&format!("http://{}/sim/results/", sim.addr())), "{url}");
    let file = client().get(url).send().await.expect("a file");
    assert_eq!(file.status(), StatusCode::OK, "the name is enough, no key is asked for");
    assert_eq!(file.headers()["content-type"], "audio/wav");
    let announced = file.content_length();
    let wav = file.bytes().await.expect("bytes");
    assert_eq!(announced, Some(wav.len() as u64));
    assert_eq!(samples(&wav), 11 * 1200, "a twentieth of a second for each character");

    let body = ask(GENERATION.to_owned(), &"x".repeat(5000)).await;
    let url = body["output"]["audio"]["url"].as_str().expect("a URL").to_owned();
    let wav = client().get(url).send().await.expect("a file").bytes().await.expect("bytes");
    assert_eq!(samples(&wav), 60 * 24_000, "a minute at most");
    let h2 = crate::harness::http_builder().http2_prior_knowledge().build().expect("a client");
    let request = h2.post(format!("http://{}{GENERATION}", sim.addr())).bearer_auth("sk-1");
    let body = request.json(&speech("Hello!", "Cherry")).send().await.expect("an answer");
    let url = json_of(body).await["output"]["audio"]["url"].as_str().expect("a URL").to_owned();
    assert!(url.starts_with(&format!("http://{}/", sim.addr())), "HTTP/2 has no Host: {url}");
    let unknown = format!("http://{}/sim/results/song-1-2.wav", sim.addr());
    let unknown = client().get(unknown).send().await.expect("an answer");
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_file_is_served_as_its_path_says() {
    let sim = sim(&[]);
    let fetch = async |settings: &str| {
        let body = usage_of(&sim, settings, &speech("0123456789", "Ethan")).await;
        let url = body["output"]["audio"]["url"].as_str().expect("a URL").to_owned();
        assert!(url.contains(&format!("/sim:{settings}/sim/results/")), "{url}");
        let begin = Instant::now();
        let response = client().get(url).send().await.expect("a head");
        (response.bytes().await, begin.elapsed())
    };
    let (whole, took) = fetch("chunks=5;interval-ms=20").await;
    assert_eq!(samples(&whole.expect("a file")), 12_000);
    assert!(took >= Duration::from_millis(80), "4 waits between 5 chunks: {took:?}");
    let (short, _) = fetch("chunks=4;fault=eof-after=1").await;
    assert_eq!(short.expect("an end as if whole").len(), (44 + 24_000) / 4);
    let (cut, _) = fetch("chunks=4;fault=cut-after=1").await;
    assert!(cut.is_err(), "the connection closes before the announced end");
}

#[tokio::test]
async fn errors_come_in_dashscopes_envelope() {
    let sim = sim(&[]);
    for body in [
        json!({"model": "m"}),
        json!({"model": "m", "input": {"prompt": "A toll."}}),
        json!({"model": "m", "input": {"messages": [{"content": [{"image": "a"}]}]}}),
        image(Some("large")),
        speech("", "Cherry"),
        speech("Hello!", "alloy"),
    ] {
        let response = post(&sim, GENERATION, &body).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
        let error = json_of(response).await;
        assert_eq!(error["code"], "InvalidParameter", "{body}");
        assert!(error["message"].is_string() && error["request_id"].is_string(), "{error}");
        assert!(error.get("error").is_none(), "no envelope of OpenAI's: {error}");
    }
    for (settings, status, code) in [
        ("fault=status=400", 400, "InvalidParameter"),
        ("key=sk-1", 401, "InvalidApiKey"),
        ("fault=status=403", 403, "AccessDenied"),
        ("fault=status=429", 429, "Throttling.RateQuota"),
        ("fault=status=503", 503, "InternalError"),
        ("fault=status=400;error-code=Arrearage", 400, "Arrearage"),
        ("fault=error-in-200", 200, "InternalError"),
        ("fault=error-in-200;error-code=DataInspectionFailed", 200, "DataInspectionFailed"),
    ] {
        let path = format!("/sim:{settings}{GENERATION}");
        let response = post(&sim, &path, &speech("Hello!", "Cherry")).await;
        assert_eq!(response.status().as_u16(), status, "{settings}");
        let error = json_of(response).await;
        assert_eq!(error["code"], code, "{settings}");
        assert!(error.get("output").is_none(), "{settings}: {error}");
    }
}
