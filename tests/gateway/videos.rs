//! Video: `POST /v1/videos/generations` and the record of a task, every family end to end, on the wire
//! and in the ledger.

use std::time::Duration;

use crate::harness::{
    Gateway, VIDEO_MODELS, ask, connect, eventually, let_pass, poll, rounds, sha256,
};
use serde_json::{Value, json};
use tollgate::sim::{Behaviour, Faults, Sim, SimOptions, SimulatedRefusal};

const PATH: &str = "/v1/videos/generations";

/// A gateway over simulated upstreams that all have these settings, and asks them often.
fn gateway(sim: &Sim, settings: &str) -> Gateway {
    gateway_with(sim, settings, ", repeat_window: none")
}

/// The same with more settings of `tasks`.
fn gateway_with(sim: &Sim, settings: &str, tasks: &str) -> Gateway {
    let (at, more) = (sim.addr(), if settings.is_empty() { "" } else { ";" });
    let base = format!("http://{at}/sim:task-pending-ms=20;task-running-ms=30{more}{settings}");
    let upstreams = format!(
        "  dashscope: {{ protocol: dashscope, base_url: '{base}' }}
  ark: {{ protocol: ark, base_url: '{base}' }}
  xai: {{ protocol: xai, base_url: '{base}' }}
tasks: {{ poll_min: 50ms, poll_max: 100ms, webhook_hosts: ['127.0.0.1:*']{tasks} }}
"
    );
    Gateway::serving(&upstreams, &format!("models:\n{VIDEO_MODELS}"))
}

fn family_v(more: Value) -> Value {
    let mut body = json!({
        "model": "vf2.7-t2v",
        "duration": 5,
        "resolution": "720p",
        "input": {"prompt": "a lighthouse"},
        "parameters": {"resolution": "720P", "duration": 5},
    });
    let members = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

fn submit_with(gateway: &Gateway, lines: &str, body: &Value) -> crate::harness::Answer {
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n{lines}", body.len());
    ask(gateway.address, &gateway.post(PATH, &lines, &body))
}

fn submit(gateway: &Gateway, body: &Value) -> crate::harness::Answer {
    submit_with(gateway, "", body)
}

fn record(gateway: &Gateway, id: &str) -> crate::harness::Answer {
    ask(gateway.address, &gateway.get(&format!("{PATH}/{id}")))
}

/// The record once the task has ended.
fn ended(gateway: &Gateway, id: &str) -> Value {
    poll("the task ends", Duration::from_secs(10), || {
        let record = record(gateway, id).json();
        let status = record["status"].as_str().unwrap_or_default().to_owned();
        let has_ended = ["succeeded", "failed", "expired", "cancelled"].contains(&&*status);
        if has_ended { Ok(record) } else { Err(record) }
    })
}

#[test]
fn family_v_is_priced_stripped_and_settled_by_what_was_made() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let answer = submit(&gateway, &family_v(json!({})));
    assert_eq!(answer.status(), 202, "{answer:?}");
    let accepted = answer.json();
    let id = accepted["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("gt_"), "{accepted}");
    assert_eq!(accepted["status"], "processing");
    assert_eq!(gateway.balance()["available"], "9.50", "five seconds are held, or spent already");
    let done = ended(&gateway, &id);
    assert_eq!(done["status"], "succeeded", "{done}");
    assert!(done["content"][0]["video_url"].is_string(), "{done}");
    for (field, value) in
        [("duration", json!(5)), ("resolution", json!("720p")), ("aspect_ratio", json!("16:9"))]
    {
        assert_eq!(done[field], value, "{done}");
    }
    let balance = gateway.settled();
    assert_eq!((&balance["spent"], &balance["available"]), (&json!("0.50"), &json!("9.50")));
    let [task] = sim.tasks().try_into().expect("one submit");
    assert_eq!(task.model, "wan2.7-t2v");
    let stranger = gateway.stranger();
    let as_stranger = |id: &str| {
        let request = format!(
            "GET {PATH}/{id} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {stranger}\r\n\r\n"
        );
        let answer = ask(gateway.address, request.as_bytes());
        (answer.status(), answer.json()["error"].clone())
    };
    let unknown = as_stranger("gt_00000000000000000000000000000000");
    assert_eq!((unknown.0, &unknown.1["code"]), (404, &json!("ResourceNotFound")));
    assert_eq!(as_stranger(&id), unknown, "another's task is like none");
}

/// Family S: the same bytes there and back, and its upstream's id.
#[test]
fn family_s_is_passed_through_and_billed_by_tokens() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "usage=completion=100000");
    let body = r#"{ "model":"sf-1-5-pro-251215","content":[{"type":"text","text":"a lighthouse"}], "duration" : 5,"resolution":"720p"}"#;
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post(PATH, &lines, body));
    assert_eq!(answer.status(), 200, "{}", answer.json());
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("cgt-"), "{id}");
    assert_eq!(answer.body(), format!(r#"{{"id":"{id}"}}"#).into_bytes());
    let done = ended(&gateway, &id);
    assert_eq!(done["status"], "succeeded", "{done}");
    assert!(done["content"]["video_url"].is_string(), "as its upstream has it: {done}");
    // $2.40 a million.
    assert_eq!(gateway.settled()["spent"], "0.24");
    let [task] = sim.tasks().try_into().expect("one submit");
    let sent = body.replace("sf-1-5-pro-251215", "seedance-1-5-pro-251215");
    assert_eq!(task.body_sha256, sha256(sent.as_bytes()), "only the model's name has changed");
    let draft = json!({
        "model": "sf-1-5-pro-251215",
        "content": [{"type": "text", "text": "x"}, {"type": "draft_task", "draft_task": {"task_id": "cgt-20260101000000-abcde"}}],
    });
    let refused = submit(&gateway, &draft);
    assert_eq!(refused.status(), 404, "a stranger's task: {}", refused.json());
    assert_eq!(refused.json()["error"]["code"], "ResourceNotFound");
}

#[test]
fn family_g_is_billed_by_seconds_also_when_it_is_withheld() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    for (settings, status, code) in
        [("", "succeeded", Value::Null), ("task-end=moderated", "failed", json!("moderated"))]
    {
        let gateway = gateway(&sim, settings);
        let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 6, "resolution": "480p"});
        let answer = submit(&gateway, &body);
        assert_eq!(answer.status(), 202, "{}", answer.json());
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        assert!(id.starts_with("gt_"), "{id}");
        let done = ended(&gateway, &id);
        assert_eq!((&done["status"], &done["error"]["code"]), (&json!(status), &code), "{done}");
        assert_eq!(gateway.settled()["spent"], "0.42", "{settings}: {done}");
    }
}

/// The upstream's bill is charged, whatever was held; without a report, the hold is charged.
#[test]
fn what_was_made_is_charged_also_beyond_the_hold() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let family_s = json!({
        "model": "sf-1-5-pro-251215",
        "content": [{"type": "text", "text": "a lighthouse"}],
        "duration": 5,
        "resolution": "720p",
    });
    for (settings, body, spent) in [
        // $2.40 a million tokens; held are 5 × 24 × 970,000 / 1024.
        ("usage=completion=1000000", &family_s, "2.40"),
        ("fault=usage-missing", &family_s, "0.2728128"),
        // $0.10 a second.
        ("usage=completion=50", &family_v(json!({})), "5.00"),
        ("fault=usage-missing", &family_v(json!({})), "0.50"),
    ] {
        let gateway = gateway(&sim, settings);
        let answer = submit(&gateway, body);
        assert!([200, 202].contains(&answer.status()), "{answer:?}");
        let done = ended(&gateway, answer.json()["id"].as_str().expect("an id"));
        assert_eq!(done["status"], "succeeded", "{done}");
        assert_eq!(gateway.settled()["spent"], spent, "{settings}: {done}");
    }
}

/// A field of which nobody knows what it costs does not reach the upstream.
#[test]
fn fields_without_a_price_are_refused() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let family_g = |more: Value| {
        let mut body = json!({"model": "gif-video", "prompt": "a lighthouse"});
        let members = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(members);
        body
    };
    let parameters = json!({"resolution": "720P", "duration": 5, "n": 4});
    for (body, param) in [
        (
            family_g(json!({"reference_images": [{"url": "https://a.example/1.png"}]})),
            "reference_images",
        ),
        (family_g(json!({"video": {"url": "https://a.example/1.mp4"}})), "video"),
        (family_g(json!({"output": {"upload_url": "https://a.example/"}})), "output"),
        (family_v(json!({"service_tier": "fast"})), "service_tier"),
        (family_v(json!({"parameters": parameters})), "parameters.n"),
    ] {
        let answer = submit(&gateway, &body);
        let error = &answer.json()["error"];
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert_eq!((&error["code"], &error["param"]), (&json!("InvalidParameter"), &json!(param)));
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("`pass_fields` in models.yaml"), "{message}");
    }
    assert_eq!((sim.tasks_total(), gateway.settled()["available"].clone()), (0, json!("10.00")));
}

/// kill -9 with tasks in every state: none is submitted twice, none is lost, each is settled once.
#[test]
fn tasks_outlive_the_process() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    for (round, after) in [0, 15, 30, 45, 60, 90].into_iter().enumerate() {
        let mut gateway = gateway(&sim, "");
        let before = sim.tasks_total();
        let ids: Vec<String> = (0..5)
            .map(|_| {
                submit(&gateway, &family_v(json!({}))).json()["id"]
                    .as_str()
                    .expect("an id")
                    .to_owned()
            })
            .collect();
        let_pass(Duration::from_millis(after), "a crash in one state of the tasks after another");
        gateway.kill_and_restart();
        for id in &ids {
            let done = ended(&gateway, id);
            assert_eq!(done["status"], "succeeded", "round {round}: {done}");
        }
        let balance = gateway.settled();
        assert_eq!(balance["spent"], "2.50", "round {round}: five times five seconds");
        assert_eq!(sim.tasks_total() - before, 5, "round {round}: submitted once");
    }
}

/// kill -9 at a random moment of many submits: what was answered is kept, nothing is sent twice, what
/// nobody knows stays held, and every cent is somewhere. `TOLLGATE_PROOF_PERCENT` and
/// `TOLLGATE_CRASH_SEED` make it longer, or repeat it.
#[test]
fn a_crash_at_any_step_of_a_submit_loses_nothing_and_repeats_nothing() {
    #[expect(clippy::disallowed_methods, reason = "a test has no other settings")]
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = rounds(5);
    let seed = number("TOLLGATE_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("TOLLGATE_CRASH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    for round in 0..count {
        let mut gateway = gateway(&sim, "delay-ms=3");
        gateway.grant("10.00", "more");
        let before = sim.tasks().len();
        let wait = Duration::from_micros(random.u64(2_000..60_000));
        let address = gateway.address;
        let requests: Vec<Vec<u8>> = (0..40)
            .map(|number| {
                let prompt = format!("round {round}, number {number}");
                let body = family_v(json!({"input": {"prompt": prompt}})).to_string();
                gateway.post(PATH, &format!("Content-Length: {}\r\n", body.len()), body)
            })
            .collect();
        let answered = std::thread::scope(|scope| {
            let submits: Vec<_> = requests
                .chunks(10)
                .map(|some| {
                    scope.spawn(move || -> Vec<String> {
                        let answers = some.iter().map(|request| try_ask(address, request));
                        answers.flatten().collect()
                    })
                })
                .collect();
            let_pass(wait, "a crash at a random moment");
            gateway.kill();
            submits
                .into_iter()
                .flat_map(|submit| submit.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        gateway.kill_and_restart();
        for id in &answered {
            assert_eq!(ended(&gateway, id)["status"], "succeeded", "round {round}: {id}");
        }
        let taken = sim.tasks();
        let taken = &taken[before..];
        let mut bodies: Vec<_> = taken.iter().map(|task| &task.body_sha256).collect();
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies.len(), taken.len(), "round {round}: a body was sent twice");
        poll("what the crash left is held in doubt", Duration::from_secs(10), || {
            // A process that starts serves while it puts what the last one left in doubt.
            let doubt = gateway.admin("GET", "/admin/v1/tasks/in-doubt", &Value::Null);
            let doubt = doubt["data"].as_array().expect("a list").len();
            let balance = gateway.balance();
            let part = |name: &str| in_cents(&balance[name]);
            if part("held") != doubt * 50 {
                return Err(format!("round {round}: {balance}, {doubt} in doubt"));
            }
            assert_eq!(part("held") + part("spent") + part("available"), 2000, "round {round}");
            let settled = part("spent") / 50;
            assert!(answered.len() <= settled && settled <= taken.len(), "round {round}");
            assert!(taken.len() <= settled + doubt, "round {round}: a task is lost");
            Ok(())
        });
    }
}

/// An amount with two decimals, in cents.
fn in_cents(amount: &Value) -> usize {
    let text = amount.as_str().expect("text").replace('.', "");
    text.parse().expect("an amount")
}

/// The id in the answer, if there is one: the gateway may be gone.
fn try_ask(address: std::net::SocketAddr, request: &[u8]) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = vec![0; 4096];
    let mut length = 0;
    while !String::from_utf8_lossy(&answer[..length]).contains("\"status\":\"processing\"}") {
        let read = stream.read(&mut answer[length..]).ok().filter(|read| *read > 0)?;
        length += read;
    }
    let text = String::from_utf8_lossy(&answer[..length]).into_owned();
    let at = text.find("gt_")?;
    text.get(at..at + 35).map(str::to_owned)
}

#[test]
fn a_thousand_tasks_outlive_one_restart() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let mut gateway = gateway(&sim, "task-running-ms=1500");
    gateway.grant("600.00", "more");
    let address = gateway.address;
    let body = json!({"model": "gif-video", "prompt": "a", "duration": 5, "resolution": "720p"});
    let body = body.to_string();
    let request = gateway.post(PATH, &format!("Content-Length: {}\r\n", body.len()), body);
    let ids: Vec<String> = std::thread::scope(|scope| {
        let request = &request;
        let submits: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(move || {
                    (0..100).filter_map(|_| try_ask(address, request)).collect::<Vec<_>>()
                })
            })
            .collect();
        submits.into_iter().flat_map(|submit| submit.join().expect("no panic")).collect()
    });
    assert_eq!(ids.len(), 1000, "all were answered");
    gateway.kill_and_restart();
    crate::harness::within(
        Duration::from_secs(120),
        || gateway.balance()["held"] == "0.00",
        || format!("{}", gateway.balance()),
    );
    assert_eq!(gateway.balance()["spent"], "350.00");
    assert_eq!(sim.tasks_total(), 1000);
}

#[test]
fn a_task_that_comes_to_nothing_costs_nothing() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    for (end, status) in [("failed", "failed"), ("cancelled", "cancelled")] {
        let gateway = gateway(&sim, &format!("task-end={end}"));
        let id = submit(&gateway, &family_v(json!({}))).json()["id"].clone();
        let done = ended(&gateway, id.as_str().expect("an id"));
        assert_eq!(done["status"], status, "{done}");
        assert!(done["error"]["code"].is_string(), "{done}");
        let balance = gateway.settled();
        assert_eq!((&balance["spent"], &balance["available"]), (&json!("0.00"), &json!("10.00")));
    }
}

#[test]
fn a_refused_submit_costs_nothing_and_is_reported() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    for (fault, status) in [
        ("fault=status=400", 400),
        ("fault=status=401", 502),
        ("fault=status=429", 429),
        ("fault=status=500", 502),
        ("fault=error-in-200;error-code=Arrearage", 502),
    ] {
        let gateway = gateway(&sim, fault);
        let answer = submit(&gateway, &family_v(json!({})));
        assert_eq!(answer.status(), status, "{fault}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.bytes).contains("Arrearage"), "{fault}");
        assert_eq!(gateway.settled()["available"], "10.00", "{fault}");
    }
    assert_eq!(sim.tasks_total(), 0, "none was taken");
}

/// Spec section 7: the codes of what is missing, and a text that says what to send.
#[test]
fn what_is_missing_is_named() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let family_s = json!({"model": "sf-1-5-pro-251215"});
    let gif = json!({"model": "gif-video"});
    for (body, param, words) in [
        (family_v(json!({"model": null})), "model", "`model` must be a non-empty string"),
        (json!({"prompt": "a"}), "model", "`model` must be a non-empty string"),
        (family_v(json!({"input": null})), "input", "`input` is required"),
        (
            family_v(json!({"parameters": null})),
            "parameters",
            r#"as in `{"resolution": "720P", "duration": 5}`"#,
        ),
        (family_s, "content", "`content` is required"),
        (gif, "prompt", "`prompt` is required"),
    ] {
        let answer = submit(&gateway, &body);
        let error = &answer.json()["error"];
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert_eq!(error["code"], "InvalidParameter.MissingRequired", "{error}");
        assert_eq!(error["param"], param, "{error}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(sim.tasks_total(), 0, "none was sent");
}

/// A submit that the upstream may have accepted is not sent again, and its hold stays.
#[test]
fn a_submit_whose_outcome_is_unknown_is_in_doubt_and_never_repeated() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "fault=submit-reset");
    let answer = submit(&gateway, &family_v(json!({})));
    assert_eq!(answer.status(), 504, "{answer:?}");
    assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"));
    let_pass(Duration::from_millis(300), "a second submit must not come");
    assert_eq!(sim.tasks_total(), 1, "sent once");
    assert_eq!(gateway.balance()["held"], "0.50", "until it is given up");
}

#[test]
fn a_customer_can_wait_for_the_end() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let answer = submit(&gateway, &family_v(json!({"wait": true})));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.json()["status"], "succeeded", "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.50");
}

/// Places to wait are bounded, and who leaves gives the place up.
#[test]
fn places_to_wait_are_bounded_and_given_up() {
    use std::io::Write as _;
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway =
        gateway_with(&sim, "task-running-ms=60000", ", waiting_max: 1, repeat_window: none");
    let body = family_v(json!({"wait": true})).to_string();
    let request = gateway.post(PATH, &format!("Content-Length: {}\r\n", body.len()), body);
    let mut waiting = crate::harness::connect(gateway.address);
    waiting.write_all(&request).expect("sent");
    eventually("the first is submitted", || {
        let answer = submit(&gateway, &family_v(json!({"wait": true, "duration": 99})));
        assert_eq!(answer.status(), 400, "no video of that length, so nothing is submitted");
        sim.tasks_total() == 1
    });
    let refused = submit(&gateway, &family_v(json!({"wait": true})));
    assert_eq!(refused.status(), 429, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "ConcurrencyExceeded");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(sim.tasks_total(), 1, "the second was not submitted");
    drop(waiting);
    submit_in_free_place(&gateway, &request, &sim);
}

/// Sends a submit that waits for its end until it is the upstream's second task: a place becomes free when
/// the gateway notices that a client has disconnected.
fn submit_in_free_place(gateway: &Gateway, request: &[u8], sim: &Sim) {
    use std::io::{Read as _, Write as _};
    poll("the place is given up", Duration::from_secs(5), || {
        let mut next = connect(gateway.address);
        next.write_all(request).expect("sent");
        // A refusal comes at once; a submit that waits has no answer for a minute.
        next.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let answer = next.read(&mut [0; 1024]);
        if sim.tasks_total() == 2 { Ok(()) } else { Err(answer) }
    });
}

/// One account cannot have all of the places to wait in.
#[test]
fn an_account_has_a_share_of_the_places_to_wait() {
    use std::io::Write as _;
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway_with(&sim, "task-running-ms=60000", ", waiting_max: 4");
    let body = family_v(json!({"wait": true})).to_string();
    let request = gateway.post(PATH, &format!("Content-Length: {}\r\n", body.len()), &body);
    let mut waiting = crate::harness::connect(gateway.address);
    waiting.write_all(&request).expect("sent");
    crate::harness::eventually("the first is submitted", || sim.tasks_total() == 1);
    let refused = submit(&gateway, &family_v(json!({"wait": true})));
    assert_eq!(refused.status(), 429, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "ConcurrencyExceeded", "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(sim.tasks_total(), 1, "the second was not submitted");
    let shed = r#"tollgate_requests_shed_total{reason="account_waiting"}"#;
    assert_eq!(gateway.metric(shed), 1.0);
    let text = String::from_utf8(request).expect("text");
    let other = text.replace(&gateway.key, &gateway.stranger());
    let other = crate::harness::ask(gateway.address, other.as_bytes());
    assert_eq!(other.status(), 402, "another account lacks the money alone: {other:?}");
    drop(waiting);
    submit_in_free_place(&gateway, text.as_bytes(), &sim);
}

#[test]
fn the_same_key_submits_once() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let keyed = |body: &Value| submit_with(&gateway, "Idempotency-Key: order-7\r\n", body);
    let first = keyed(&family_v(json!({})));
    assert_eq!(first.status(), 202, "{first:?}");
    let again = keyed(&family_v(json!({})));
    assert_eq!((again.status(), again.json()), (202, first.json()), "the first answer again");
    let other = keyed(&family_v(json!({"input": {"prompt": "another"}})));
    assert_eq!(other.status(), 409, "{other:?}");
    assert_eq!(other.json()["error"]["code"], "idempotency_conflict");
    assert_eq!(sim.tasks_total(), 1);
    ended(&gateway, first.json()["id"].as_str().expect("an id"));
    assert_eq!(gateway.settled()["spent"], "0.50");
}

#[test]
fn a_submit_that_nobody_took_can_be_repeated_under_its_key() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    let keyed = |body: &Value| submit_with(&gateway, "Idempotency-Key: order-8\r\n", body);
    let refusing = Faults { refusal: Some(SimulatedRefusal::Status(503)), ..Faults::default() };
    sim.set_behaviour(Behaviour { faults: refusing, ..Behaviour::default() });
    let refused = keyed(&family_v(json!({})));
    sim.set_behaviour(Behaviour::default());
    assert_eq!(refused.status(), 502, "{refused:?}");
    let again = keyed(&family_v(json!({})));
    assert_eq!(again.status(), 202, "{again:?}");
    ended(&gateway, again.json()["id"].as_str().expect("an id"));
    assert_eq!(gateway.settled()["spent"], "0.50");
}

/// For callers that send no key.
#[test]
fn the_same_body_submits_once_within_the_window() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway_with(&sim, "", ", repeat_window: 1s");
    let first = submit(&gateway, &family_v(json!({})));
    let again = submit(&gateway, &family_v(json!({})));
    let error = &again.json()["error"];
    assert_eq!((again.status(), &error["code"]), (409, &json!("idempotency_conflict")), "{error}");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(first.json()["id"].as_str().expect("an id")), "{message}");
    assert_eq!(again.header("x-should-retry").as_deref(), Some("false"));
    let other = submit(&gateway, &family_v(json!({"input": {"prompt": "another"}})));
    assert_eq!(other.status(), 202, "{other:?}");
    assert_eq!(sim.tasks_total(), 2);
    eventually("the window is over", || submit(&gateway, &family_v(json!({}))).status() == 202);
    assert_eq!(sim.tasks_total(), 3, "later it is another");
}

/// Many who ask are few questions to the upstream, and one settlement.
#[test]
fn a_thousand_questions_are_a_few_upstream() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "task-running-ms=1500");
    let id = submit(&gateway, &family_v(json!({}))).json()["id"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let (gateway, id) = (&gateway, &id);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(move || {
                for _ in 0..20 {
                    let answer = record(gateway, id);
                    assert_eq!(answer.status(), 200, "{answer:?}");
                }
            });
        }
    });
    ended(gateway, id);
    let [task] = sim.tasks().try_into().expect("one submit");
    assert!(task.queries < 60, "{} questions for 200", task.queries);
    assert_eq!(gateway.settled()["spent"], "0.50");
}

#[test]
fn webhooks_that_lead_inside_are_refused() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim, "");
    for url in [
        "http://example.com/hook",
        "https://localhost/hook",
        "https://10.0.0.1/hook",
        "https://[::ffff:127.0.0.1]/hook",
        "https://167772161/hook",
        "https://169.254.169.254/latest",
        "https://user:pass@example.com/",
        "ftp://example.com/",
        "not a url",
    ] {
        let answer = submit(&gateway, &family_v(json!({"webhook_url": url})));
        assert_eq!(answer.status(), 400, "{url}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], "InvalidParameter.UrlInvalid", "{url}");
    }
    assert_eq!((sim.tasks_total(), gateway.settled()["available"].clone()), (0, json!("10.00")));
}
