//! How upstreams are reached: names with several addresses, forward proxies, private authorities and client
//! certificates, and what operators read when one cannot be reached.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate::sim::{Behaviour, Sim, SimOptions};

use crate::harness::tls::{TestCertificate, serve_chat_over_tls};
use crate::harness::{
    Answer, ForwardProxy, Gateway, ProxyRule, Responder, ask, chat_model, eventually, names,
    simulator, videos,
};

fn models(names: &[&str]) -> String {
    let each = names.iter().map(|name| chat_model(name, name));
    format!("models:\n{}", each.collect::<String>())
}

fn chat(gateway: &Gateway, model: &str) -> Answer {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    ask(gateway.address, &gateway.chat_json(body.to_string()))
}

fn upstream(gateway: &Gateway, name: &str) -> Value {
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    let all = all["upstreams"].as_array().expect("upstreams").clone();
    all.into_iter().find(|one| one["name"] == name).expect("the upstream")
}

fn log(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("log")).expect("the log")
}

fn sim_at(listen: &str) -> Sim {
    let listen = listen.parse().expect("an address");
    Sim::start(SimOptions { listen, behaviour: Behaviour::default() }).expect("a simulator")
}

/// A gateway in this environment, in which `listed` names have addresses of the test's own.
fn gateway(
    listed: &[&str],
    environment: &[(&str, &str)],
    upstreams: &str,
    models: &str,
) -> Gateway {
    let names = names(listed);
    let mut all: Vec<(&str, &str)> =
        names.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend(environment);
    Gateway::in_environment(&all, upstreams, models)
}

/// The first address of each name is dead: refused, without a route, or silent.
#[test]
fn a_dead_address_of_a_name_costs_no_call() {
    let sim = simulator(&[]);
    let port = sim.addr().port();
    let upstreams = format!(
        "  a:
    protocol: openai
    base_url: http://many.test:{port}/v1
    health_check: {{ path: /, interval: 200ms, timeout: 200ms, unhealthy_after: 1 }}
"
    );
    let listed = "many.test=::1,127.0.0.9,192.0.2.1,127.0.0.1";
    let gateway = gateway(&[listed], &[], &upstreams, &models(&["a"]));
    for call in 0..20 {
        let answer = chat(&gateway, "a");
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    crate::harness::let_pass(
        std::time::Duration::from_secs(1),
        "none of five health checks may fail",
    );
    assert_eq!(upstream(&gateway, "a")["healthy"], true, "{}", log(&gateway));
}

#[test]
fn the_gateways_own_calls_try_every_address_as_well() {
    let sim = simulator(&[]);
    let (upstreams, models) = videos(&sim, "task-pending-ms=5;task-running-ms=5");
    let named = upstreams.replace("http://127.0.0.1:", "http://many.test:");
    assert_ne!(named, upstreams);
    let gateway = gateway(&["many.test=127.0.0.9,127.0.0.1"], &[], &named, models);
    let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 2}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
    assert_eq!(answer.status(), 202, "{answer:?}");
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    eventually("the task ends", || {
        let path = format!("/v1/videos/generations/{id}");
        let task = ask(gateway.address, &gateway.get(&path)).json();
        task["status"] == "succeeded" || task["status"] == "completed"
    });
}

#[test]
fn calls_are_spread_over_the_pods_of_a_name() {
    let one = sim_at("127.0.0.2:0");
    let port = one.addr().port();
    let pods = [one, sim_at(&format!("127.0.0.3:{port}")), sim_at(&format!("127.0.0.4:{port}"))];
    let upstreams =
        format!("  a: {{ protocol: openai, base_url: 'http://pods.test:{port}/v1' }}\n");
    let listed = "pods.test=127.0.0.2,127.0.0.3,127.0.0.4";
    let gateway = gateway(&[listed], &[], &upstreams, &models(&["a"]));
    for _ in 0..60 {
        assert_eq!(chat(&gateway, "a").status(), 200);
    }
    let counts = pods.each_ref().map(Sim::requests_total);
    assert_eq!(counts.iter().sum::<u64>(), 60);
    assert!(counts.iter().all(|count| *count >= 10), "one call after the other: {counts:?}");
}

#[test]
fn a_failure_to_connect_is_logged_with_address_and_reason() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unused.local_addr().expect("an address").port();
    drop(unused);
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://down.test:{port}/v1' }}
  b: {{ protocol: openai, base_url: 'http://nowhere.test:{port}/v1' }}
"
    );
    let listed = ["down.test=127.0.0.1", "nowhere.test="];
    let gateway = gateway(&listed, &[], &upstreams, &models(&["a", "b"]));
    for (name, reason, text) in [
        ("a", "refused", format!("down.test:{port}: connection refused at 127.0.0.1")),
        ("b", "name_not_found", format!("nowhere.test:{port}: its name was not found")),
    ] {
        assert_eq!(chat(&gateway, name).status(), 502);
        let failure = &upstream(&gateway, name)["last_connect_failure"];
        assert_eq!(failure["reason"], reason, "{failure}");
        let message = failure["text"].as_str().expect("a text");
        assert!(message.contains(&text), "{message}");
        assert!(log(&gateway).contains(&format!("{name} cannot be reached ({reason}): {message}")));
        let series = format!(
            "tollgate_upstream_connect_failures_total{{reason=\"{reason}\",upstream=\"{name}\"}}"
        );
        assert!(gateway.metric(&series) >= 1.0, "{series}");
    }
}

/// The environment's proxy is for what is elsewhere; this machine is reached directly, unless an upstream
/// names a proxy itself.
#[test]
fn proxies_come_from_the_environment_and_from_upstreams() {
    let sim = simulator(&[]);
    let general = ForwardProxy::start(ProxyRule::LeadsTo(sim.addr()));
    let own = ForwardProxy::start(ProxyRule::Wants("Basic bWU6cy9jcmV0"));
    let (here, own_at) = (sim.addr(), own.address);
    let upstreams = format!(
        "  local: {{ protocol: openai, base_url: 'http://{here}/v1' }}
  remote: {{ protocol: openai, base_url: 'http://api.test:8080/v1' }}
  direct: {{ protocol: openai, base_url: 'http://a.inside.test:{port}/v1' }}
  none: {{ protocol: openai, base_url: 'http://b.test:{port}/v1', proxy: none }}
  own:
    protocol: openai
    base_url: http://{here}/v1
    proxy: http://me:${{PROXY_PASSWORD}}@{own_at}
    health_check: {{ path: /, interval: 100ms, timeout: 100ms }}
",
        port = here.port()
    );
    let proxy = format!("http://{}", general.address);
    let environment = [
        ("HTTP_PROXY", proxy.as_str()),
        ("HTTPS_PROXY", "http://127.0.0.1:9"),
        ("no_proxy", "x.example,.inside.test"),
        ("PROXY_PASSWORD", "s%2Fcret"),
    ];
    let all = ["local", "remote", "direct", "none", "own"];
    let listed = ["a.inside.test=127.0.0.1", "b.test=127.0.0.1"];
    let gateway = gateway(&listed, &environment, &upstreams, &models(&all));
    for name in all {
        let answer = chat(&gateway, name);
        assert_eq!(answer.status(), 200, "{name}: {answer:?} {}", log(&gateway));
    }
    assert_eq!(general.targets(), ["api.test:8080"]);
    eventually("the health check goes through the proxy", || own.targets().len() >= 3);
    assert!(own.targets().iter().all(|target| *target == here.to_string()), "{:?}", own.targets());
    let shown = gateway.admin("GET", "/admin/v1/config", &Value::Null).to_string();
    assert!(!shown.contains("%2Fcret") && !shown.contains("s/cret"), "{shown}");
}

#[test]
fn tokens_and_the_gateways_own_calls_go_through_an_upstreams_proxy() {
    let sim = simulator(&[]);
    let proxy = ForwardProxy::start(ProxyRule::Open);
    let issuer = Responder::start(|_, _| {
        let token = json!({"access_token": "a-token-of-a-test", "expires_in": 3600}).to_string();
        (200, String::new(), token)
    });
    let upstreams = format!(
        "  a:
    protocol: openai
    base_url: http://{sim}/v1
    proxy: http://{proxy}
    auth:
      entra:
        tenant_id: example.onmicrosoft.com
        client_id: client
        client_secret: secret-of-a-test
        token_url: http://{issuer}/token
  xai:
    protocol: xai
    base_url: http://{sim}/sim:task-pending-ms=5;task-running-ms=5
    proxy: http://{proxy}
tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms }}
",
        sim = sim.addr(),
        proxy = proxy.address,
        issuer = issuer.address,
    );
    let video = videos(&sim, "").1.replace("models:\n", "");
    let gateway = Gateway::logging(&upstreams, &format!("{}{video}", models(&["a"])));
    assert_eq!(chat(&gateway, "a").status(), 200, "{}", log(&gateway));
    assert_eq!(proxy.targets(), [issuer.address.to_string(), sim.addr().to_string()]);
    let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 2}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
    assert_eq!(answer.status(), 202, "{answer:?}");
    assert_eq!(proxy.targets().len(), 3, "{:?}", proxy.targets());
}

#[test]
fn a_proxy_that_fails_is_named_and_the_next_target_serves() {
    for (rule, reason) in [
        (ProxyRule::Refuses(502), "proxy_refused"),
        (ProxyRule::Wants("Basic bm8="), "proxy_credentials"),
        (ProxyRule::Silent, "proxy_unreachable"),
    ] {
        let sim = simulator(&[]);
        let proxy = ForwardProxy::start(rule);
        let upstreams = format!(
            "  a:
    protocol: openai
    base_url: http://api.test/v1
    proxy: http://me:canary@{}
    timeouts: {{ connect: 500ms }}
  b: {{ protocol: openai, base_url: 'http://{}/v1' }}
",
            proxy.address,
            sim.addr()
        );
        let targets = "{ upstream: a }, { upstream: b, priority: 1 }";
        let model = chat_model("m", "a").replace("{ upstream: a }", targets);
        let gateway = Gateway::logging(&upstreams, &format!("models:\n{model}"));
        let answer = chat(&gateway, "m");
        assert_eq!(answer.status(), 200, "{rule:?}: {answer:?}");
        let seen = upstream(&gateway, "a");
        assert_eq!(seen["targets"][0]["last_failure"]["outcome"], "proxy", "{rule:?}: {seen}");
        let failure = &seen["last_connect_failure"];
        assert_eq!(failure["reason"], reason, "{rule:?}: {failure}");
        let text = failure["text"].as_str().expect("a text");
        assert!(text.contains(&format!("the proxy http://{}", proxy.address)), "{text}");
        let log = log(&gateway);
        assert!(log.contains(text) && !log.contains("canary"), "{log}");
    }
}

/// A name that a customer has given is looked up and checked here, and the proxy is asked for the address.
#[test]
fn a_proxy_never_resolves_a_customers_host() {
    let sim = simulator(&[]);
    let proxy = ForwardProxy::start(ProxyRule::Refuses(502));
    let (upstreams, models) = videos(&sim, "task-pending-ms=5;task-running-ms=5");
    let listed = ["public.example=9.9.9.9", "inside.example=10.0.0.1,127.0.0.1"];
    let at = format!("http://{}", proxy.address);
    let gateway = gateway(&listed, &[("HTTPS_PROXY", at.as_str())], &upstreams, models);
    for host in ["inside.example", "public.example"] {
        let body = json!({
            "model": "gif-video",
            "prompt": "a lighthouse",
            "duration": 2,
            "webhook_url": format!("https://{host}/hook"),
        })
        .to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
        assert_eq!(answer.status(), 202, "{answer:?}");
    }
    eventually("the public receiver is asked for", || !proxy.targets().is_empty());
    eventually("the other one is refused", || log(&gateway).contains("no public address"));
    assert!(proxy.targets().iter().all(|target| target == "9.9.9.9:443"), "{:?}", proxy.targets());
}

fn over_tls(name: &str, at: SocketAddr, host: &str, tls: &str) -> String {
    format!(
        "  {name}:
    protocol: openai
    base_url: https://{host}:{}/v1
    tls: {tls}
",
        at.port()
    )
}

#[test]
fn private_authorities_and_client_certificates_are_each_upstreams_own() {
    let (server, client) = (TestCertificate::new(), TestCertificate::new());
    let plain = simulator(&[]);
    let (open, closed) =
        (serve_chat_over_tls(&server, None), serve_chat_over_tls(&server, Some(&client)));
    let ca = server.certificate.display();
    let (certificate, key) = (client.certificate.display(), client.key.display());
    let shown = format!("{{ ca_file: {ca}, certificate: {certificate}, key: {key} }}");
    let named = format!("{{ ca_file: {ca}, server_name: localhost }}");
    let upstreams = [
        over_tls("trusted", open, "localhost", &format!("{{ ca_file: {ca} }}")),
        over_tls("shown", closed, "localhost", &shown),
        over_tls("named", open, "other.test", &named),
        over_tls("misnamed", open, "other.test", &format!("{{ ca_file: {ca} }}")),
        over_tls("unknown", open, "localhost", "{}"),
        over_tls("bare", closed, "localhost", &format!("{{ ca_file: {ca} }}")),
        over_tls("plain", plain.addr(), "127.0.0.1", &format!("{{ ca_file: {ca} }}")),
    ]
    .concat();
    let all = ["trusted", "shown", "named", "misnamed", "unknown", "bare", "plain"];
    let gateway = gateway(&["other.test=127.0.0.1"], &[], &upstreams, &models(&all));
    for name in ["trusted", "shown", "named", "trusted"] {
        let answer = chat(&gateway, name);
        assert_eq!(answer.status(), 200, "{name}: {answer:?} {}", log(&gateway));
    }
    for (name, reason, words) in [
        ("misnamed", "tls_name", "is for localhost, 127.0.0.1, not for other.test at 127.0.0.1"),
        ("unknown", "tls_untrusted", "authority"),
        ("bare", "tls_client_certificate", "client certificate"),
        ("plain", "tls_plain_port", "not TLS"),
    ] {
        let answer = chat(&gateway, name);
        assert_eq!(answer.status(), 502, "{name}: {answer:?}");
        let failure = &upstream(&gateway, name)["last_connect_failure"];
        assert_eq!(failure["reason"], reason, "{name}: {failure} {}", log(&gateway));
        let text = failure["text"].as_str().expect("a text");
        assert!(text.contains(words), "{name}: {text}");
        assert!(log(&gateway).contains(&format!("{name} cannot be reached ({reason})")), "{name}");
    }
    assert_eq!(gateway.settled()["held"], "0.00");
}
