//! Charges, whatever customers, the upstream and the network do.
//!
//! The demo's `gpt-4o-mini` costs 150 nano-dollars an input token and 600 an output token.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::harness::{Admin, Customer, Demo, connect, eventually_async, poll_async};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

const INPUT: i64 = 150;
const OUTPUT: i64 = 600;

/// A chat request; `sim` are headers that tell the simulated upstream what to do.
fn request(
    demo: &Demo,
    customer: &Customer,
    body: &Value,
    sim: &[(&str, &str)],
) -> reqwest::RequestBuilder {
    let url = format!("{}/v1/chat/completions", demo.base_url);
    let request = crate::harness::http().post(url).bearer_auth(&customer.key).json(body);
    sim.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

fn hello(extra: Value) -> Value {
    let mut body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
    let members = extra.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_calls_on_money_for_ten_exactly_ten_succeed() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    // What is used is what is held: the whole body as input, and all of max_tokens.
    let body = hello(json!({"max_tokens": 100}));
    let tokens = serde_json::to_vec(&body).expect("JSON").len() as i64;
    let each = tokens * INPUT + 100 * OUTPUT;
    let usage = format!("prompt={tokens},completion=100");
    let credit = tollgate::money::Nanousd::new(each * 10).to_string();
    let customer = admin.customer(&credit).await;
    let http = crate::harness::http();
    let calls = (0..1000).map(|_| {
        let url = format!("{}/v1/chat/completions", demo.base_url);
        let request =
            http.post(url).bearer_auth(&customer.key).json(&body).header("x-sim-usage", &usage);
        async move {
            let answer = request.send().await.expect("an answer");
            (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
        }
    });
    let answers: Vec<_> = futures_util::stream::iter(calls).buffer_unordered(200).collect().await;
    let paid = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(paid, 10, "exactly ten calls are paid for");
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 200) {
        let code = answer["error"]["code"].as_str().unwrap_or_default();
        assert!(
            *status == 402 && ["insufficient_balance", "balance_held"].contains(&code),
            "{status} {answer}"
        );
    }
    let balance = admin.settled(&customer.account).await;
    assert_eq!((balance.available, balance.spent), (0, each * 10), "{balance:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_upstream_cost_nothing() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    for (fault, status) in [
        ("status=500", 502),
        ("status=401", 502),
        ("status=404", 502),
        ("status=400", 400),
        ("reset", 502),
        ("reset-after-body", 502),
        // Behind it the target is left alone for as long as it has asked.
        ("status=429", 429),
    ] {
        let call = request(&demo, &customer, &hello(json!({})), &[("x-sim-fault", fault)]);
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{fault}");
        assert!(answer.headers().contains_key("x-request-id"), "{fault}");
        let body: Value = answer.json().await.expect("JSON");
        assert!(body["error"]["message"].is_string(), "{fault}: {body}");
        let balance = admin.settled(&customer.account).await;
        assert_eq!(balance.spent, 0, "{fault} was charged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_that_is_missing_or_cannot_be_true_is_estimated() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for stream in [false, true] {
        for fault in ["usage-missing", "usage-negative"] {
            let customer = admin.customer("1.00").await;
            let call = request(
                &demo,
                &customer,
                &hello(json!({"stream": stream})),
                &[("x-sim-fault", fault)],
            );
            let answer = call.send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{fault}");
            answer.bytes().await.expect("a whole answer");
            let balance = admin.settled(&customer.account).await;
            assert!((1..100_000).contains(&balance.spent), "{fault}, stream {stream}: {balance:?}");
            let settlements = admin.settlements(&customer.account).await;
            let [one] = settlements.as_slice() else { panic!("one settlement: {settlements:?}") };
            assert_eq!(one["usage_source"], "estimated", "{fault}, stream {stream}: {one}");
        }
    }
}

/// Its limits are out of date then, and who asks for more must not pay less.
#[tokio::test(flavor = "multi_thread")]
async fn usage_above_the_limits_is_charged_as_reported() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for stream in [false, true] {
        let customer = admin.customer("1.00").await;
        let call = request(
            &demo,
            &customer,
            &hello(json!({"stream": stream})),
            &[("x-sim-usage", "prompt=10,completion=50000")],
        );
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a whole answer");
        let balance = admin.settled(&customer.account).await;
        assert!(balance.spent >= 50_000 * OUTPUT, "stream {stream}: {balance:?}");
        let settlements = admin.settlements(&customer.account).await;
        assert_eq!(settlements[0]["usage_source"], "upstream", "{settlements:?}");
    }
    let huge = admin.customer("1.00").await;
    let call = request(&demo, &huge, &hello(json!({})), &[("x-sim-fault", "usage-huge")]);
    assert_eq!(call.send().await.expect("an answer").status(), 200);
    let balance = admin.settled(&huge.account).await;
    assert_eq!(balance.available, 0, "as far as the account can pay: {balance:?}");
    let metrics = crate::harness::http().get(format!("{}/metrics", demo.admin_url)).send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    let line = "tollgate_usage_above_limits_total{model=\"gpt-4o-mini\"} 3";
    assert!(metrics.contains(line), "{metrics}");
}

/// Of a model that reasons nobody knows what an answer costs before its end: it is read on.
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_before_any_output_is_charged_by_the_report() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let usage = ("x-sim-usage", "prompt=10,completion=20000,reasoning=19990");
    for stream in [false, true] {
        let customer = admin.customer("1.00").await;
        let body = hello(json!({"model": "gpt-5", "stream": stream, "max_tokens": 30_000}));
        let slow = [usage, ("x-sim-delay-ms", "1500"), ("x-sim-interval-ms", "100")];
        let call = request(&demo, &customer, &body, &slow).send();
        let hung_up = tokio::time::timeout(Duration::from_millis(400), call).await;
        assert!(hung_up.is_err(), "the answer was to take longer");
        eventually_async("the answer is read on", async || {
            let metrics = crate::harness::http().get(format!("{}/metrics", demo.admin_url));
            let metrics = metrics.send().await.expect("an answer").text().await.expect("text");
            metrics.contains("tollgate_orphans 1\n")
        })
        .await;
        let balance = admin.settled(&customer.account).await;
        // $1.25 and $10 a million.
        assert_eq!(balance.spent, 10 * 1_250 + 20_000 * 10_000, "stream {stream}: {balance:?}");
        let settlements = admin.settlements(&customer.account).await;
        assert_eq!(settlements[0]["usage_source"], "upstream", "{settlements:?}");
    }
}

/// A picture's base64 would be 100,000 tokens if it were words.
#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_not_billed_as_text() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let with_picture = |data: &str| {
        let url = format!("data:image/png;base64,{data}");
        let picture = json!([{"type": "image_url", "image_url": {"url": url}}]);
        hello(json!({"messages": [{"role": "user", "content": picture}]}))
    };
    let body = with_picture(&"iVBORw0KGgo+".repeat(40_000));
    let call = request(&demo, &customer, &body, &[("x-sim-fault", "usage-missing")]);
    assert_eq!(call.send().await.expect("an answer").status(), 200);
    let spent = admin.settled(&customer.account).await.spent;
    // Only the upstream knows what it comes to: without its report the bound is charged, which is the
    // most of a picture without a header and the longest answer, and not 120,000 tokens of letters.
    let text = i64::try_from(with_picture("").to_string().len()).expect("short");
    let input = text + 48_169;
    assert_eq!(spent, input * 150 + 16_384 * OUTPUT, "the bound of a call with a picture");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_is_charged_for_the_relayed_part() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let slow = [("x-sim-chunks", "200"), ("x-sim-words", "1"), ("x-sim-interval-ms", "20")];
    let call = request(&demo, &customer, &hello(json!({"stream": true})), &slow);
    let mut stream = call.send().await.expect("an answer").bytes_stream();
    for _ in 0..5 {
        stream.next().await.expect("a chunk").expect("bytes");
    }
    drop(stream);
    let balance = admin.settled(&customer.account).await;
    assert!(balance.spent >= 4 * OUTPUT, "at least what was read: {balance:?}");
    assert!(balance.spent < 100 * OUTPUT, "not what was never sent: {balance:?}");
    let settlements = admin.settlements(&customer.account).await;
    assert_eq!(settlements.len(), 1, "{settlements:?}");
    assert_eq!(settlements[0]["usage_source"], "estimated", "{settlements:?}");

    // Hanging up before the first byte is no way to use a model for nothing either.
    let before = balance.spent;
    let call = request(&demo, &customer, &hello(json!({})), &[("x-sim-delay-ms", "2000")]);
    let hung_up = tokio::time::timeout(Duration::from_millis(300), call.send()).await;
    assert!(hung_up.is_err(), "the answer was to take longer");
    let balance = admin.settled(&customer.account).await;
    assert!(balance.spent > before, "the input was charged: {balance:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_reaches_its_hold_takes_a_second_or_is_cut() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    // The upstream goes on for 400 chunks whatever `max_tokens` says.
    let runaway = [
        ("x-sim-chunks", "400"),
        ("x-sim-words", "1"),
        ("x-sim-interval-ms", "2"),
        ("x-sim-max-tokens", "ignore"),
    ];
    let body = hello(json!({"stream": true, "max_tokens": 10}));
    let text = |customer: Customer| {
        let call = request(&demo, &customer, &body, &runaway);
        async move {
            let text = call.send().await.expect("an answer").text().await.expect("text");
            (customer, text)
        }
    };
    let (rich, whole) = text(admin.customer("1.00").await).await;
    assert!(whole.trim_end().ends_with("data: [DONE]"), "money for more: {whole}");
    let balance = admin.settled(&rich.account).await;
    assert!(balance.spent >= 400 * OUTPUT, "all of it was paid for: {balance:?}");

    let (poor, cut) = text(admin.customer("0.0001").await).await;
    let last = cut.trim_end().rsplit("\n\n").next().unwrap_or_default();
    assert!(last.contains("insufficient_balance"), "no money for more: {last}");
    let balance = admin.settled(&poor.account).await;
    assert!(balance.available >= 0 && balance.spent > 0, "{balance:?}");
}

/// The cost of reasoning is reported at the end only, so the answer is read to its end for the bill. The
/// customer, who receives no more, does not wait for that, nor does a further request over the same
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_ends_at_once_although_it_is_read_on() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("0.0005").await;
    let body = hello(json!({"model": "gpt-5", "stream": true, "max_tokens": 10})).to_string();
    let host = demo.base_url.trim_start_matches("http://").to_owned();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nx-sim-chunks: 300\r\n\
         x-sim-words: 1\r\nx-sim-interval-ms: 20\r\nx-sim-max-tokens: ignore\r\n\r\n{body}",
        customer.key,
        body.len(),
    );
    let query = tokio::task::spawn_blocking(move || {
        let mut connection = connect(host.parse().expect("an address"));
        connection.write_all(request.as_bytes()).expect("sent");
        let mut cut = String::new();
        // Within 5 s of silence.
        connection.read_to_string(&mut cut).expect("the connection ends");
        cut
    });
    let cut = query.await.expect("no panic");
    assert!(cut.contains("insufficient_balance"), "no money for more: {cut}");
    assert!(cut.ends_with("\n\n\r\n0\r\n\r\n"), "the body has its end: {cut}");
    let metrics = crate::harness::http().get(format!("{}/metrics", demo.admin_url)).send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    assert!(metrics.contains("tollgate_orphans 1\n"), "the upstream has not ended: {metrics}");
    let balance = admin.settled(&customer.account).await;
    assert!(balance.available == 0 && balance.spent > 0, "{balance:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_money_is_402_and_says_which_kind() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("0.000001").await;
    let answer = request(&demo, &customer, &hello(json!({})), &[]).send().await.expect("an answer");
    assert_eq!(answer.status(), 402);
    assert_eq!(answer.headers()["x-should-retry"], "false");
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["error"]["code"], "insufficient_balance", "{body}");

    // It says what would have been enough, and what makes a request cheaper.
    let poor = admin.customer("0.000000001").await;
    for (path, body, advice) in [
        ("/v1/chat/completions", hello(json!({})), "No output limit would do: its input and"),
        (
            "/v1/responses",
            json!({"model": "gpt-4o-mini", "input": "hi"}),
            "No output limit would do: its input and",
        ),
        ("/v1/embeddings", json!({"model": "vyg-4", "input": "hi"}), "Add $"),
        ("/v1/audio/speech", json!({"model": "qf3-tts-flash", "input": "hi"}), "Add $"),
        ("/v1/images/generations", json!({"model": "pimg-2", "prompt": "a"}), "Add $"),
        ("/v1/videos/generations", json!({"model": "gif-video", "prompt": "a"}), "Add $"),
    ] {
        let answer = demo.post(path, &body, "").bearer_auth(&poor.key).send().await;
        let answer: Value = answer.expect("an answer").json().await.expect("JSON");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        let text_found = format!(", and $0.000000001 is available. {advice}");
        assert!(message.contains(&text_found), "{path}: {message}");
        assert!(answer["error"].get("max_tokens_affordable").is_none(), "{path}: {answer}");
    }

    // Money for one call, and one call in flight.
    let customer = admin.customer("0.00003").await;
    let small = hello(json!({"max_tokens": 10}));
    let slow = request(&demo, &customer, &small, &[("x-sim-delay-ms", "1000")]);
    let slow = tokio::spawn(slow.send());
    let is_held = async || admin.balance(&customer.account).await.held != 0;
    eventually_async("the slow call holds its money", is_held).await;
    let answer = request(&demo, &customer, &small, &[]).send().await.expect("an answer");
    assert_eq!(answer.status(), 402);
    assert!(answer.headers().contains_key("retry-after"), "when to try again");
    assert_eq!(answer.headers()["x-should-retry"], "true", "SDKs give up at a 402 unless told");
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(body["error"]["code"], "balance_held", "{body}");
    assert_eq!(slow.await.expect("no panic").expect("an answer").status(), 200);
}

/// The sum that would have been enough is enough, and so is the limit, which is exact to the token but for
/// its own digits, each of which is a byte of input.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_largest_output_limit_that_is_served() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let limited = |extra: Value, field: &str, tokens: u64| {
        let mut body = json!({"model": "gpt-4o-mini"});
        let members = body.as_object_mut().expect("an object");
        members.extend(extra.as_object().expect("an object").clone());
        members.insert(field.to_owned(), tokens.into());
        body
    };
    let messages = json!({"messages": [{"role": "user", "content": "hi"}]});
    for (path, extra, field, place) in [
        ("/v1/chat/completions", messages.clone(), "max_completion_tokens", "/error"),
        ("/v1/messages", messages.clone(), "max_tokens", "/error/details"),
        ("/v1/responses", json!({"input": "hi"}), "max_output_tokens", "/error"),
    ] {
        let ask = async |balance: &str, tokens: u64| {
            let customer = admin.customer(balance).await;
            let body = limited(extra.clone(), field, tokens);
            let query = demo.post(path, &body, "").bearer_auth(&customer.key);
            let answer = query.header("x-tollgate-clamp", "never").send().await;
            let answer = answer.expect("an answer");
            (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
        };
        let (status, refused) = ask("0.002", 16_000).await;
        assert_eq!(status, 402, "{path}: {refused}");
        let named = refused.pointer(&format!("{place}/max_tokens_affordable"));
        let tokens = named.and_then(Value::as_u64).unwrap_or_else(|| panic!("{refused}"));
        let message = refused["error"]["message"].as_str().expect("a text");
        let thousands = format!("{},{:03}", tokens / 1_000, tokens % 1_000);
        let text_found = format!("with `{field}` of at most {thousands}; or add $");
        assert!(message.contains(&text_found), "{path}: {message}");
        let (status, answer) = ask("0.002", tokens).await;
        assert_eq!(status, 200, "{path} with {tokens}: {answer}");
        let (status, answer) = ask("0.002", tokens + 2).await;
        assert_eq!(status, 402, "{path} with {tokens} and 2 more: {answer}");
        let more = message.split("or add $").nth(1).expect("a sum").trim_end_matches('.');
        let amount = |text: &str| text.parse::<tollgate::money::Nanousd>().expect("an amount");
        let enough = amount("0.002").checked_add(amount(more)).expect("small");
        let (status, answer) = ask(&enough.to_string(), 16_000).await;
        assert_eq!(status, 200, "{path} with {enough}: {answer}");
        let less = tollgate::money::Nanousd::new(enough.get() - 1).to_string();
        assert_eq!(ask(&less, 16_000).await.0, 402, "{path} with {less}");
    }
    // Any other word is refused by name.
    let customer = admin.customer("0.002").await;
    let body = hello(json!({"max_tokens": 16_000}));
    let answer = request(&demo, &customer, &body, &[("x-tollgate-clamp", "always")]).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 400);
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["error"]["param"], "x-tollgate-clamp", "{answer}");
}

/// As of a few seconds ago: what is settled shows once the ledger has written it out.
#[tokio::test(flavor = "multi_thread")]
async fn customers_see_what_they_have_used() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let stranger = admin.customer("1.00").await;
    for _ in 0..3 {
        let answer = request(&demo, &customer, &hello(json!({})), &[]).send().await;
        assert_eq!(answer.expect("an answer").status(), 200);
    }
    let spent = admin.settled(&customer.account).await.spent;
    let usage = async |customer: &crate::harness::Customer, query: &str| -> (u16, Value) {
        let url = format!("{}/v1/usage{query}", demo.base_url);
        let answer = crate::harness::http().get(url).bearer_auth(&customer.key).send().await;
        let answer = answer.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    };
    let row = poll_async("three calls are counted", Duration::from_secs(15), async || {
        let (status, shown) = usage(&customer, "").await;
        assert_eq!(status, 200, "{shown}");
        let row = &shown["data"][0];
        if row["calls"] == 3 { Ok(row.clone()) } else { Err(shown) }
    })
    .await;
    assert_eq!(row["model"], "gpt-4o-mini");
    assert!(row["key_id"].as_str().is_some_and(|id| id.starts_with("key_")), "{row}");
    assert!(row["input_tokens"].as_u64() > Some(0) && row["output_tokens"].as_u64() > Some(0));
    let cost: tollgate::money::Nanousd =
        serde_json::from_value(row["cost"].clone()).expect("money");
    assert_eq!(cost.get(), spent, "{row}");
    // Operators see the same, by the day and by the hour.
    for by in ["day", "hour"] {
        let shown = admin.get(&format!("/accounts/{}/usage?by={by}", customer.account)).await;
        let [shown] = shown["data"].as_array().expect("rows").as_slice() else { panic!("{shown}") };
        assert_eq!((&shown["calls"], &shown["cost"]), (&row["calls"], &row["cost"]), "{shown}");
        assert_eq!((&shown["key_id"], &shown["model"]), (&row["key_id"], &row["model"]));
        assert_eq!(shown["usage"]["output_tokens"], row["output_tokens"], "{shown}");
    }
    let account = format!("/accounts/{}/usage", customer.account);
    let old = admin.get(&format!("{account}?to=2020-01-01T00:00:00Z")).await;
    assert_eq!(old["data"], json!([]));
    for query in
        ["from=2020-01-01T00:00:00Z", "by=hour&from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z"]
    {
        let refused = admin.get(&format!("{account}?{query}")).await;
        assert_eq!(refused["error"]["param"], "from", "{refused}");
    }
    let (_, strangers) = usage(&stranger, "?days=366").await;
    assert_eq!(strangers["data"], json!([]), "nobody sees another account's");
    for query in ["?days=0", "?days=367", "?days=x"] {
        let (status, error) = usage(&customer, query).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("days")), "{query}: {error}");
    }
}
