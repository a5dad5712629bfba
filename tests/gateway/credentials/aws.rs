//! Requests that are signed for AWS, with a key and with a role's: every signature is made again with
//! AWS's own library.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{CHAT, chat, completion, models, only_ours, refusal};
use crate::harness::{Gateway, Recorded, Reply, Responder, ask, python, simulator};

const ID: &str = "AKIDEXAMPLE0123456789";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A request that was signed for Bedrock and reached the simulator, for the verifier.
fn simulated(request: &tollgate::sim::RecordedRequest, keys: (&str, &str)) -> Value {
    let value = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
    let headers = request.headers.iter().map(|(name, text)| (name.as_str(), value(text)));
    json!({
        "method": request.method.as_str(),
        "url": format!("http://{}{}", request.header("host").unwrap_or_default(), request.path),
        "headers": headers.collect::<Vec<_>>(),
        "body": STANDARD.encode(request.body.as_ref().expect("it is kept")),
        "access_key": keys.0,
        "secret_key": keys.1,
        "region": "us-east-1",
        "service": "bedrock",
    })
}

/// A request that was signed, for the verifier.
fn case(request: &Recorded, keys: (&str, &str), service: &str) -> Value {
    let (method, path) = request.target();
    let headers: Vec<(&str, &str)> =
        request.head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect();
    json!({
        "method": method,
        "url": format!("http://{}{path}", request.header("host")),
        "headers": headers,
        "body": STANDARD.encode(&request.body),
        "access_key": keys.0,
        "secret_key": keys.1,
        "region": "us-east-1",
        "service": service,
    })
}

/// Has AWS's own library sign each request again; all must come out as they were sent.
fn verify(cases: &[Value]) {
    let environment = python::environment_of("sigv4-venv", "tests/sigv4/requirements.txt");
    let mut verifier = Command::new(environment.join("bin/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sigv4/verify.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut input = verifier.stdin.take().expect("stdin");
    for case in cases {
        writeln!(input, "{case}").expect("written");
    }
    drop(input);
    let output = verifier.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.trim(), format!("{} signatures are AWS's", cases.len()));
}

fn upstream(address: std::net::SocketAddr, more: &str) -> String {
    format!(
        "  u:
    protocol: openai
    base_url: http://{address}/openai/v1
    pass_headers: [x-amz-*]
    auth:
      aws:
        access_key_id: {ID}
        secret_access_key: {SECRET}
        region: us-east-1
{more}"
    )
}

#[test]
fn what_is_sent_is_what_is_signed() {
    let sent = Responder::start(|_, _| completion());
    let gateway = Gateway::serving(&upstream(sent.address, ""), &models());
    assert_eq!(chat(&gateway).status(), 200);
    // A body in pieces, and headers with which a customer would sign.
    let long = CHAT.replace("hi", &"long ".repeat(40_000));
    let long = long.replace("\"m\"", " \"m\"");
    let lines = format!(
        "X-Amz-Date: 20200101T000000Z\r\nX-Amz-Security-Token: customers\r\n\
         X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\nContent-Length: {}\r\n",
        long.len()
    );
    let answer = ask(gateway.address, &gateway.chat(&lines, &long));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let requests = sent.requests();
    for request in &requests {
        for name in ["authorization", "x-amz-date", "x-amz-content-sha256"] {
            only_ours(request, name);
        }
        assert!(!request.head.contains(SECRET) && !request.head.contains("customers"));
    }
    let cases: Vec<Value> =
        requests.iter().map(|request| case(request, (ID, SECRET), "bedrock")).collect();
    assert_eq!(cases.len(), 2);
    verify(&cases);
}

/// The session that the call of this number gets.
fn session(call: usize) -> Reply {
    let now = tollgate::clock::UnixMs::now();
    let ends = now.seconds() + 3600;
    let body = json!({ "AssumeRoleResponse": { "AssumeRoleResult": { "Credentials": {
        "AccessKeyId": format!("ASIASESSION{call}"),
        "SecretAccessKey": format!("session-secret-{call}"),
        "SessionToken": format!("session-token-{call}/+="),
        "Expiration": ends as f64,
    } } } });
    (200, "content-type: application/json\r\n".to_owned(), body.to_string())
}

#[test]
fn each_account_has_a_tagged_session_of_the_role() {
    let sts = Responder::start(|call, _| session(call));
    let sent = Responder::start(|_, _| completion());
    let role = format!(
        "        assume_role:
          role_arn: arn:aws:iam::123456789012:role/tollgate
          external_id: external-of-a-test
          account_tag: tollgate-account
          sts_url: http://{}
",
        sts.address
    );
    let gateway = Gateway::serving(&upstream(sent.address, &role), &models());
    let stranger = gateway.stranger();
    assert_eq!([chat(&gateway).status(), chat(&gateway).status()], [200, 200]);
    // The stranger's account has no money: its requests get no session, and cost no call.
    let request = String::from_utf8(gateway.chat_json(CHAT)).expect("text");
    let request = request.replace(&gateway.key, &stranger);
    assert_eq!(ask(gateway.address, request.as_bytes()).status(), 402);
    assert_eq!(sts.requests().len(), 1, "one session for both");
    let second = gateway.admin("POST", "/admin/v1/accounts", &json!({ "name": "second" }));
    let id = second["id"].as_str().expect("an id");
    let path = format!("/admin/v1/accounts/{id}");
    gateway.admin("POST", &format!("{path}/grants"), &json!({ "amount": "1.00", "id": "second" }));
    let key = gateway.admin("POST", &format!("{path}/keys"), &json!({ "name": "second" }));
    let request = String::from_utf8(gateway.chat_json(CHAT)).expect("text");
    let request = request.replace(&gateway.key, key["key"].as_str().expect("a key"));
    assert_eq!(ask(gateway.address, request.as_bytes()).status(), 200);
    let query = sts.requests();
    assert_eq!(query.len(), 2);
    let mut cases = Vec::new();
    for (request, account) in query.iter().zip([gateway.account.as_str(), id]) {
        for (name, value) in [
            ("Action", "AssumeRole"),
            ("Version", "2011-06-15"),
            ("RoleArn", "arn:aws:iam::123456789012:role/tollgate"),
            ("RoleSessionName", "tollgate"),
            ("ExternalId", "external-of-a-test"),
            ("DurationSeconds", "3600"),
            ("Tags.member.1.Key", "tollgate-account"),
            ("Tags.member.1.Value", account),
        ] {
            assert_eq!(request.field(name), value, "{name}");
        }
        cases.push(case(request, (ID, SECRET), "sts"));
    }
    for (request, call) in sent.requests().iter().zip([0, 0, 1]) {
        let token = format!("session-token-{call}/+=");
        assert_eq!(request.header("x-amz-security-token"), token);
        let keys = (format!("ASIASESSION{call}"), format!("session-secret-{call}"));
        cases.push(case(request, (&keys.0, &keys.1), "bedrock"));
    }
    assert_eq!(cases.len(), 5);
    verify(&cases);
}

/// AWS calls a session that has ended, or was revoked, a 403: another one is taken, once.
#[test]
fn a_session_that_was_revoked_is_replaced() {
    let sts = Responder::start(|call, _| session(call));
    let sent = Responder::start(|_, request| {
        match request.header("x-amz-security-token") == "session-token-1/+=" {
            true => completion(),
            false => refusal(403, "The security token included in the request is expired"),
        }
    });
    let role = format!(
        "        assume_role: {{ role_arn: 'arn:aws:iam::123456789012:role/tollgate', sts_url: 'http://{}' }}\n",
        sts.address
    );
    let gateway = Gateway::serving(&upstream(sent.address, &role), &models());
    for _ in 0..3 {
        let answer = chat(&gateway);
        assert!(answer.status() == 200 && answer.took < Duration::from_secs(5), "{answer:?}");
    }
    assert_eq!((sts.requests().len(), sent.requests().len()), (2, 4));
}

/// The Converse API over frames, with names of models that have colons and slashes, under the session of
/// a role: signed as AWS signs it, answered, and charged.
#[test]
fn bedrock_is_called_with_the_session_of_a_role() {
    let sts = Responder::start(|call, _| session(call));
    let sim = simulator(&["usage=prompt=1000,completion=20"]);
    let upstreams = format!(
        "  u:
    protocol: bedrock
    base_url: http://{}
    auth:
      aws:
        access_key_id: {ID}
        secret_access_key: {SECRET}
        region: us-east-1
        assume_role: {{ role_arn: 'arn:aws:iam::123456789012:role/tollgate', sts_url: 'http://{}' }}
",
        sim.addr(),
        sts.address
    );
    let arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-v1:0";
    let models = models().replace("{ upstream: u }", &format!("{{ upstream: u, model: '{arn}' }}"));
    let gateway = Gateway::serving(&upstreams, &models);
    let streamed = CHAT.replace("\"m\"", "\"m\",\"stream\":true");
    for body in [CHAT, &streamed] {
        let answer = ask(gateway.address, &gateway.chat_json(body));
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    // A thousand tokens of input at $1 a million, and twenty of output at $10, twice.
    assert_eq!(gateway.settled()["spent"], "0.0024");
    assert_eq!(sts.requests().len(), 1);
    let sent = sim.requests();
    assert!(sent.iter().all(|request| request.path.contains("%3A")), "{sent:?}");
    let keys = ("ASIASESSION0", "session-secret-0");
    let cases: Vec<Value> = sent.iter().map(|request| simulated(request, keys)).collect();
    assert_eq!(cases.len(), 2);
    verify(&cases);
}
