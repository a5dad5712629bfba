//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: what is held for a file, whatever it says of
//! its length, and what is charged for it.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::sim::Sim;

use crate::harness::{Answer, Gateway, ask_over, connect, sha256, simulator};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const TRANSLATIONS: &str = "/v1/audio/translations";

/// Models at a simulator with these settings: by the second for $0.0001, by the second with the least of ten,
/// and by tokens for $2.50 and $10 a million.
fn gateway(sim: &Sim, settings: &str) -> Gateway {
    let upstreams = format!(
        "  openai: {{ protocol: openai, base_url: 'http://{}/sim:{settings}/v1', \
         timeouts: {{ connect: 1s, read: 30s }} }}\n",
        sim.addr()
    );
    let model = |name: &str, more: &str| {
        format!(
            "  {name}:\n    operations: [transcription, audio_translation]\n    \
             targets: [{{ upstream: openai }}]\n    {more}\n"
        )
    };
    let seconds = "prices: { per_audio_second: 0.0001 }";
    let models = [
        model("whisper-1", seconds),
        model("streaming", seconds),
        model("least", &format!("{seconds}\n    limits: {{ billed_seconds_min: 10 }}")),
        model(
            "gpt-4o-transcribe",
            "prices: { input_per_1m_tokens: 2.50, output_per_1m_tokens: 10 }\n    \
             limits: { context_tokens_max: 16000, output_tokens_max: 2000, seconds_max: 1500 }",
        ),
    ];
    // Files of an hour take a busy machine longer than the seconds that other tests allow.
    let limits = "  body_max: 32MiB\n  body_timeout: 30s\n  read_timeout: 30s\n";
    Gateway::limited(limits, &upstreams, &format!("models:\n{}", models.concat()))
}

/// A part of a form: its name, and its content; a name with a dot behind a blank is that of its file.
type Part<'a> = (&'a str, &'a [u8]);

fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        let (name, file) = name.split_once(' ').unwrap_or((name, ""));
        let file = if file.is_empty() { String::new() } else { format!("; filename=\"{file}\"") };
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend(head.as_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

fn post(gateway: &Gateway, path: &str, body: &[u8]) -> Answer {
    post_as(gateway, &gateway.key, path, body)
}

fn post_as(gateway: &Gateway, key: &str, path: &str, body: &[u8]) -> Answer {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = connect(gateway.address);
    let socket = stream.try_clone().expect("a second handle");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    ask_over(&mut stream, &socket, &[head.as_bytes(), body].concat())
}

fn hear(gateway: &Gateway, model: &str, file: &[u8], more: &[Part<'_>]) -> Answer {
    let parts = [&[("file speech", file), ("model", model.as_bytes())][..], more].concat();
    post(gateway, TRANSCRIPTIONS, &form(&parts))
}

/// Spent amount of the account.
fn spent(gateway: &Gateway) -> Value {
    gateway.settled()["spent"].clone()
}

/// WAV of 8,000 bytes a second that says that it has so many bytes.
fn wav(seconds: u32, message: u32) -> Vec<u8> {
    let mut file = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend([8_000_u32, 8_000].iter().flat_map(|number| number.to_le_bytes()));
    file.extend(b"\x01\0\x08\0data");
    file.extend(message.to_le_bytes());
    file.resize(file.len() + seconds as usize * 8_000, 0x80);
    file
}

/// MP3 at 8 kbit/s, in frames of 72 ms, whose first says that there is no other.
fn mp3(frames: usize) -> Vec<u8> {
    let mut frame = vec![0xff, 0xe3, 0x18, 0xc4];
    frame.resize(72, 0);
    let mut file = frame.repeat(frames);
    file[13..29].copy_from_slice(b"Xing\0\0\0\x03\0\0\0\x01\0\0\0\x48");
    file
}

/// Ogg with so many packets of Opus, of 60 ms and a byte each, whose pages say that nothing has been heard.
fn ogg(packets: usize) -> Vec<u8> {
    let head = b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0".to_vec();
    let mut file = page(2, &[head]);
    file.extend(page(0, &[b"OpusTags\0\0\0\0\0\0\0\0".to_vec()]));
    for at in (0..packets).step_by(200) {
        file.extend(page(0, &vec![vec![0b0001_1000]; 200.min(packets - at)]));
    }
    file
}

fn page(flags: u8, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut page = [b"OggS\0", &[flags][..], &[0; 20]].concat();
    page.push(u8::try_from(packets.len()).expect("few"));
    page.extend(packets.iter().map(|packet| u8::try_from(packet.len()).expect("short")));
    page.extend(packets.concat());
    let sum = page.iter().fold(0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            if sum >> 31 == 0 { sum << 1 } else { sum << 1 ^ 0x04c1_1db7 }
        })
    });
    page[22..26].copy_from_slice(&sum.to_le_bytes());
    page
}

#[test]
fn every_way_of_answering_costs_what_is_reported_or_what_is_held() {
    let sim = simulator(&[]);
    for (model, format, settings, cost) in [
        ("whisper-1", "json", "delay-ms=0", "0.009"),
        ("whisper-1", "verbose_json", "usage=prompt=88", "0.0088"),
        ("whisper-1", "json", "fault=usage-missing", "0.009"),
        ("whisper-1", "json", "fault=usage-negative", "0.009"),
        ("whisper-1", "text", "delay-ms=0", "0.009"),
        ("whisper-1", "srt", "delay-ms=0", "0.009"),
        ("whisper-1", "vtt", "delay-ms=0", "0.009"),
        ("least", "json", "usage=prompt=3", "0.001"),
        ("gpt-4o-transcribe", "json", "usage=prompt=900,completion=25", "0.0025"),
        ("gpt-4o-transcribe", "diarized_json", "usage=prompt=900,completion=25", "0.0025"),
        // Ten tokens a second, and of the text a token for a word, about.
        ("gpt-4o-transcribe", "json", "fault=usage-missing", ""),
        ("gpt-4o-transcribe", "text", "delay-ms=0", ""),
    ] {
        let gateway = gateway(&sim, settings);
        let answer =
            hear(&gateway, model, &wav(90, 720_000), &[("response_format", format.as_bytes())]);
        assert_eq!(answer.status(), 200, "{model} {format} {settings}: {answer:?}");
        let is_text = ["text", "srt", "vtt"].contains(&format);
        assert_eq!(answer.head().contains("text/plain"), is_text, "{}", answer.head());
        let spent = spent(&gateway);
        match cost {
            "" => {
                let spent: f64 = spent.as_str().expect("text").parse().expect("dollars");
                assert!((0.002_25..0.003).contains(&spent), "{model} {format}: {spent}");
            }
            cost => assert_eq!(spent, json!(cost), "{model} {format} {settings}"),
        }
    }
}

#[test]
fn a_form_goes_upstream_byte_for_byte_to_both_paths() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let file = wav(1, 0);
    let body = form(&[
        ("timestamp_granularities[]", b"word"),
        ("file a b.wav", &file),
        ("temperature", b"0.2"),
        ("model", b"whisper-1"),
        ("timestamp_granularities[]", b"segment"),
    ]);
    let answer = post(&gateway, TRANSCRIPTIONS, &body);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(sim.requests().last().expect("a request").body_sha256, sha256(&body));
    let body = form(&[("file a.wav", &file), ("model", b"whisper-1"), ("prompt", b"a")]);
    assert_eq!(post(&gateway, TRANSLATIONS, &body).status(), 200);
    let last = sim.requests().last().expect("a request").clone();
    assert!(last.path.ends_with("/v1/audio/translations"), "{}", last.path);
    assert_eq!(spent(&gateway), json!("0.0002"));
}

#[test]
fn a_balance_pays_for_a_file_to_the_nano_dollar() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    // By tokens: 900 of sound and 64 around them for $2.50, and 2,000 to write for $10 a million.
    for (model, need, less) in
        [("whisper-1", "0.009", "0.008999999"), ("gpt-4o-transcribe", "0.02241", "0.022409999")]
    {
        let form = form(&[("file a.wav", &wav(90, 0)), ("model", model.as_bytes())]);
        let ask = |credit| {
            post_as(&gateway, &gateway.customer("other", Some(credit)), TRANSCRIPTIONS, &form)
        };
        let refused = ask(less);
        assert_eq!((refused.status(), ask(need).status()), (402, 200), "{}", refused.json());
        let error = &refused.json()["error"];
        assert_eq!(error["code"], "insufficient_balance");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(need) && message.contains("shorter audio"), "{message}");
    }
}

#[test]
fn a_file_is_held_as_long_as_it_is_decoded() {
    let sim = simulator(&[]);
    // Each of these says that it has a second or nothing, and is an hour long or a little more.
    let mut riddled = mp3(2);
    for _ in 0..50_000 {
        riddled.extend(b"\xff\xe3 rubbish");
        riddled.extend(&mp3(1)[..4]);
        riddled.extend([0; 68]);
    }
    for (name, file, seconds) in [
        ("WAV of a second", wav(3_600, 8_000), 3_600),
        ("WAV of nothing", wav(3_600, 0), 3_600),
        ("MP3 of a frame", mp3(50_000), 3_600),
        ("MP3 in rubbish", riddled, 3_600),
        ("Ogg of no position", ogg(60_000), 3_600),
        ("two streams of Ogg", [ogg(30_000), ogg(30_000)].concat(), 3_600),
    ] {
        // The upstream bills all of it, and the account has less: nothing is asked.
        let gateway = gateway(&sim, &format!("usage=prompt={seconds}"));
        let before = sim.requests_total();
        let form = form(&[("file speech", &file), ("model", b"whisper-1")]);
        let poor = gateway.customer("other", Some("0.359999999"));
        let answer = post_as(&gateway, &poor, TRANSCRIPTIONS, &form);
        assert_eq!((answer.status(), sim.requests_total()), (402, before), "{name}");
        let answer = post(&gateway, TRANSCRIPTIONS, &form);
        assert_eq!(answer.status(), 200, "{name}: {}", answer.json());
        assert_eq!(spent(&gateway), json!("0.36"), "{name}");
    }
}

#[test]
fn forms_that_lie_or_go_on_are_refused_and_cost_nothing() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let file = wav(1, 8_000);
    let model = ("model", &b"whisper-1"[..]);
    let many: Vec<Part<'_>> = (0..10_000).map(|_| ("include[]", &b"logprobs"[..])).collect();
    let many = [&[("file a.wav", &file[..]), model][..], &many].concat();
    let endless = form(&[("file a.wav", &file), model]);
    let endless = &endless[..endless.len() - 4];
    for (name, body, param) in [
        ("two files", form(&[("file a.wav", &file), ("file b.wav", &file), model]), json!("file")),
        ("no file", form(&[model]), json!("file")),
        ("a URL", form(&[("url", b"https://example.com/a.wav"), model]), json!("url")),
        ("a name that is false", form(&[("file a.mp3", &file), model]), json!("file")),
        ("no audio", form(&[("file a.wav", b"a text"), model]), json!("file")),
        ("an empty file", form(&[("file a.wav", b""), model]), json!("file")),
        ("two models", form(&[("file a.wav", &file), model, model]), json!("model")),
        ("no end", endless.to_vec(), Value::Null),
        ("10,000 parts", form(&many), Value::Null),
    ] {
        let answer = post(&gateway, TRANSCRIPTIONS, &body);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status(), &error["param"]), (400, &param), "{name}: {error}");
    }
    let long = hear(&gateway, "gpt-4o-transcribe", &wav(1_501, 0), &[]);
    assert_eq!((long.status(), &long.json()["error"]["param"]), (400, &json!("file")));
    let streamed = form(&[("file a.wav", &file), model, ("stream", b"true")]);
    let answer = post(&gateway, TRANSLATIONS, &streamed);
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("stream")));
    assert_eq!((spent(&gateway), sim.requests_total()), (json!("0.00"), 0));
}

#[test]
fn a_stream_is_charged_by_its_report_or_when_it_breaks_by_its_content() {
    let sim = simulator(&[]);
    let stream = [("stream", &b"true"[..])];
    for (model, settings, cost) in [
        ("gpt-4o-transcribe", "usage=prompt=900,completion=25", "0.0025"),
        ("streaming", "usage=prompt=90", "0.009"),
        ("streaming", "fault=usage-missing", "0.009"),
        ("streaming", "fault=cut-after=3", "0.009"),
        // Whisper answers with a document.
        ("whisper-1", "usage=prompt=90", "0.009"),
    ] {
        let gateway = gateway(&sim, settings);
        let answer = hear(&gateway, model, &wav(90, 0), &stream);
        assert_eq!(answer.status(), 200, "{model} {settings}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body()).into_owned();
        assert_eq!(text.contains("transcript.text.delta"), model != "whisper-1", "{text}");
        assert_eq!(spent(&gateway), json!(cost), "{model} {settings}");
    }
    let gateway = gateway(&sim, "fault=cut-after=3");
    let answer = hear(&gateway, "gpt-4o-transcribe", &wav(90, 0), &stream);
    assert_eq!(answer.status(), 200);
    let spent: f64 = spent(&gateway).as_str().expect("text").parse().expect("dollars");
    assert!((0.002_25..0.0024).contains(&spent), "what was heard, and some words: {spent}");
}

#[test]
fn failures_cost_nothing() {
    let sim = simulator(&[]);
    for (settings, status) in [
        ("fault=status=500", 502),
        ("fault=status=429", 429),
        ("fault=error-in-200", 502),
        ("fault=garbage", 502),
        ("fault=reset", 502),
    ] {
        let gateway = gateway(&sim, settings);
        for model in ["whisper-1", "gpt-4o-transcribe"] {
            let answer = hear(&gateway, model, &wav(9, 0), &[]);
            assert_eq!(answer.status(), status, "{model} {settings}: {answer:?}");
        }
        assert_eq!(spent(&gateway), json!("0.00"), "{settings}");
    }
}
