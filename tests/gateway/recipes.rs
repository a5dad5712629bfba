//! Each file of `deploy/recipes/` against a simulated upstream with the peculiarities of its provider.
//!
//! A model of one's own has a price here: $1 for a million tokens of input, $0.10 where a cache has read
//! them, and $10 for a million of output.

use serde_json::{Value, json};

use crate::harness::{Answer, Gateway, ask, eventually, simulator};
use tollgate::sim::Sim;

mod content;

use content::{AnswerContent, Customer, body, events};

/// Every recipe, by the names of its file and of its first model.
const RECIPES: [(&str, &str); 14] = [
    ("deepseek", "deepseek-flash"),
    ("moonshot", "kimi-k3.1-pro"),
    ("zhipu", "glm-5.3"),
    ("minimax", "MiniMax-M3"),
    ("mistral", "mistral-medium-3-5"),
    ("groq", "openai/gpt-oss-120b"),
    ("together", "zai-org/GLM-5.3"),
    ("fireworks", "accounts/fireworks/models/kimi-k2p7-code"),
    ("openrouter", "anthropic/claude-sonnet-4.6"),
    ("siliconflow", "zai-org/GLM-5.3"),
    ("vllm", "Qwen/Qwen3-32B"),
    ("sglang", "Qwen/Qwen3-32B"),
    ("ollama", "qwen3-8b"),
    ("llamacpp", "gpt-oss-20b"),
];
const CUSTOMERS: [Customer; 3] = [Customer::Chat, Customer::Messages, Customer::Responses];
/// The simulator's reported usage unless a test sets another.
const USAGE: &str = "usage=prompt=1000,cached=400,completion=20,reasoning=7";
/// The same as input that no cache has read, input that one has, and output.
const USED: [u64; 3] = [600, 400, 20];
const OWN_PRICES: &str = "    prices: { input_per_1m_tokens: 1, cached_input_per_1m_tokens: 0.1, \
                          output_per_1m_tokens: 10 }\n";

/// The text of a recipe. What costs nothing has prices.
fn recipe(name: &str) -> String {
    let path = format!("{}/deploy/recipes/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.replace("    free: true\n", OWN_PRICES)
}

fn provider(name: &str, settings: &[&str]) -> Sim {
    let provider = format!("provider={name}");
    simulator(&[&[provider.as_str(), "key=sk-of-a-recipe"], settings].concat())
}

/// A gateway with this recipe at the simulated upstream, whose paths begin with `prefix`.
fn gateway(recipe: &str, sim: &Sim, prefix: &str) -> Gateway {
    let mut text = String::new();
    for line in recipe.lines() {
        let line = match line.trim().split_once(": ") {
            Some(("base_url", url)) => {
                let (_, rest) = url.split_once("://").expect("a URL");
                let (_, path) = rest.split_once('/').expect("a path");
                let key = "    credential: sk-of-a-recipe";
                let url = format!("    base_url: 'http://{}{prefix}/{path}'", sim.addr());
                if recipe.contains("credential:") { url } else { format!("{url}\n{key}") }
            }
            Some(("credential", _)) => "    credential: sk-of-a-recipe".to_owned(),
            _ => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    let (_, sections) = text.split_once("\nupstreams:\n").expect("upstreams");
    let (upstreams, models) = sections.split_once("\nmodels:\n").expect("models");
    Gateway::serving(&format!("{upstreams}\n"), &format!("models:\n{models}"))
}

fn call(gateway: &Gateway, customer: Customer, request: &Value) -> Answer {
    let text = request.to_string();
    let lines = format!("Content-Length: {}\r\n", text.len());
    ask(gateway.address, &gateway.post(customer.path(), &lines, &text))
}

/// Spent amount in nano-dollars.
fn spent(gateway: &Gateway) -> u64 {
    let text = gateway.settled()["spent"].as_str().expect("an amount").to_owned();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{decimals:0<9}").parse().expect("nano-dollars")
}

/// The prices of a recipe's first model, in billionths of a dollar for a million tokens.
fn prices(recipe: &str) -> [u64; 3] {
    let document: serde_yaml::Value = serde_yaml::from_str(recipe).expect("YAML");
    let (_, first) = document["models"].as_mapping().expect("models").iter().next().expect("one");
    let price = |key: &str| {
        let typed = serde_json::to_value(&first["prices"][key]).expect("a price").to_string();
        let (whole, decimals) = typed.split_once('.').unwrap_or((&typed, ""));
        format!("{whole}{decimals:0<9}").parse().expect("a price")
    };
    ["input_per_1m_tokens", "cached_input_per_1m_tokens", "output_per_1m_tokens"].map(price)
}

/// True if this is what so many tokens cost: rounded up once, and twice as much in DeepSeek's peak hours.
fn is_price(name: &str, charged: u64, used: [u64; 3], prices: [u64; 3]) -> bool {
    let exact: u64 = used.into_iter().zip(prices).map(|(tokens, price)| tokens * price).sum();
    let price = exact.div_ceil(1_000_000);
    charged == price || name == "deepseek" && charged == 2 * price
}

/// True if what was charged rests on what the upstream has reported.
fn is_reported(gateway: &Gateway) -> bool {
    let path = format!("/admin/v1/accounts/{}/entries", gateway.account);
    let entries = gateway.admin("GET", &path, &Value::Null).to_string();
    assert!(entries.contains("\"usage_source\""), "{entries}");
    !entries.contains("\"estimated\"")
}

#[test]
fn every_dialect_delivers_all_content_and_charges_for_it() {
    for (name, model) in RECIPES {
        let (recipe, sim) = (recipe(name), provider(name, &[USAGE]));
        for customer in CUSTOMERS {
            for stream in [false, true] {
                let gateway = gateway(&recipe, &sim, "");
                let answer = call(&gateway, customer, &customer.ask(model, stream, false));
                let what = format!("{name} {customer:?} {stream}: {answer:?}");
                assert_eq!(answer.status(), 200, "{what}");
                assert_eq!(answer.header("x-tollgate-left-out"), None, "{what}");
                let message = customer.read(&answer, stream);
                let charged = spent(&gateway);
                assert!(is_price(name, charged, USED, prices(&recipe)), "{charged} {what}");
                assert!(is_reported(&gateway), "{what}");
                assert!(message.text.contains("Simulated upstreams answer"), "{what}");
                if customer != Customer::Chat {
                    assert_eq!(message.usage, USED, "{what}");
                    assert_eq!(message.thoughts.trim(), "I am thinking.", "{what}");
                    assert!(message.text.starts_with("Simulated"), "no tags, no blanks: {what}");
                }
            }
        }
    }
}

#[test]
fn agents_finish_their_tool_loops_and_models_get_their_thoughts_back() {
    for (name, model) in RECIPES {
        let (recipe, sim) = (recipe(name), provider(name, &[]));
        let gateway = gateway(&recipe, &sim, "");
        for customer in CUSTOMERS {
            for stream in [false, true] {
                let mut query = customer.ask(model, stream, true);
                for turn in 0..2 {
                    let answer = call(&gateway, customer, &query);
                    let what = format!("{name} {customer:?} {stream} {turn}: {answer:?} {query}");
                    assert_eq!(answer.status(), 200, "{what}");
                    let message = customer.read(&answer, stream);
                    if turn == 1 {
                        assert!(message.calls.is_empty() && !message.text.is_empty(), "{what}");
                        break;
                    }
                    let [(called, input, id)] = &message.calls[..] else {
                        panic!("a call: {what}")
                    };
                    let input: Value = serde_json::from_str(input).expect("JSON");
                    assert_eq!((called.as_str(), input), ("weather", json!({"city": "sample"})));
                    assert!(!id.is_empty() || customer == Customer::Chat, "{what}");
                    customer.go_on(&mut query, &message);
                }
                let sent = sim.requests().pop().expect("a request").body.expect("kept");
                let sent: Value = serde_json::from_slice(&sent).expect("JSON");
                let turn = sent["messages"][1].to_string();
                let thoughts = turn.matches("thinking.").count();
                // Who speaks chat completions sends back all that OpenRouter has said, which is both.
                let is_doubled = name == "openrouter" && customer == Customer::Chat && !stream;
                let expected = if is_doubled { 2 } else { 1 };
                assert_eq!(thoughts, expected, "{name} {customer:?} {stream}: {turn}");
            }
        }
    }
}

/// A conversation that another model began has ids and thoughts of that.
#[test]
fn a_conversation_that_another_model_began_goes_on() {
    for (name, model) in RECIPES {
        // These two want thoughts beside every call, and those of another model are not theirs.
        if matches!(name, "deepseek" | "moonshot") {
            continue;
        }
        let sim = provider(name, &[]);
        let gateway = gateway(&recipe(name), &sim, "");
        let customer = Customer::Messages;
        let mut query = customer.ask(model, false, true);
        let turns = query["messages"].as_array_mut().expect("turns");
        turns.push(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Elsewhere.", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_01AbCdEf", "name": "weather", "input": {}}]}));
        turns.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_01AbCdEf", "content": "rain"}]}));
        let answer = call(&gateway, customer, &query);
        assert_eq!(answer.status(), 200, "{name}: {answer:?}");
        let sent = sim.requests().pop().expect("a request").body.expect("kept");
        let sent: Value = serde_json::from_slice(&sent).expect("JSON");
        let (call, result) = (&sent["messages"][1]["tool_calls"][0], &sent["messages"][2]);
        assert_eq!(call["id"], result["tool_call_id"], "{name}: found again: {sent}");
        assert!(!sent.to_string().contains("Elsewhere"), "{name}: {sent}");
    }
}

#[test]
fn refusals_are_of_the_right_kind_in_everybodys_words_and_cost_nothing() {
    for (name, model) in RECIPES {
        let (recipe, sim) = (recipe(name), provider(name, &[USAGE]));
        for (fault, status) in [("status=400", 400), ("status=429", 429), ("status=500", 502)] {
            let gateway = gateway(&recipe, &sim, &format!("/sim:fault={fault}"));
            for customer in CUSTOMERS {
                for stream in [false, true] {
                    let answer = call(&gateway, customer, &customer.ask(model, stream, false));
                    let what = format!("{name} {customer:?} {fault} {stream}: {answer:?}");
                    assert_eq!(answer.status(), status, "{what}");
                    let text_found = String::from_utf8(body(&answer)).expect("text");
                    if status == 400 {
                        assert!(text_found.contains("was told to answer"), "{what}");
                    }
                    if customer != Customer::Chat || status != 400 {
                        assert!(answer.json()["error"]["message"].is_string(), "{what}");
                    }
                }
            }
            assert_eq!(spent(&gateway), 0, "{name} {fault}");
        }
    }
}

#[test]
fn a_failure_with_a_status_of_success_is_no_answer() {
    for (name, fault) in [("openrouter", "error-in-200"), ("minimax", "status=402")] {
        let (recipe, sim) = (recipe(name), provider(name, &[]));
        let model = RECIPES.iter().find(|(recipe, _)| *recipe == name).expect("a recipe").1;
        let gateway = gateway(&recipe, &sim, &format!("/sim:fault={fault}"));
        for customer in CUSTOMERS {
            for stream in [false, true] {
                let answer = call(&gateway, customer, &customer.ask(model, stream, false));
                let what = format!("{name} {customer:?} {stream}: {answer:?}");
                assert_eq!(answer.status(), 502, "{what}");
                // An empty account is the operator's matter.
                assert!(!answer.json().to_string().contains("told to answer"), "{what}");
            }
        }
        assert_eq!(spent(&gateway), 0, "{name}");
    }
}

#[test]
fn a_stream_that_fails_in_its_provider_s_words_ends_in_the_customers() {
    for (name, model) in RECIPES {
        let (recipe, sim) = (recipe(name), provider(name, &[USAGE]));
        for customer in [Customer::Messages, Customer::Responses] {
            let gateway = gateway(&recipe, &sim, "/sim:fault=error-after=3");
            let answer = call(&gateway, customer, &customer.ask(model, true, false));
            let what = format!("{name} {customer:?}: {answer:?}");
            assert_eq!(answer.status(), 200, "{what}");
            let last = events(&answer).pop().expect("events");
            let kinds = ["error", "response.failed"];
            assert!(kinds.contains(&last["type"].as_str().unwrap_or_default()), "{what}");
            gateway.settled();
        }
    }
}

#[test]
fn what_is_not_reported_is_estimated_and_marked() {
    for (name, model) in RECIPES {
        let (recipe, sim) = (recipe(name), provider(name, &["fault=usage-missing"]));
        for customer in CUSTOMERS {
            let gateway = gateway(&recipe, &sim, "");
            let answer = call(&gateway, customer, &customer.ask(model, true, false));
            assert_eq!(answer.status(), 200, "{name} {customer:?}: {answer:?}");
            assert!(spent(&gateway) > 0, "{name} {customer:?}");
            assert!(!is_reported(&gateway), "{name} {customer:?}");
        }
    }
}

#[test]
fn groq_reports_usage_without_stream_options() {
    let (recipe, sim) = (recipe("groq"), provider("groq", &[USAGE]));
    let recipe = recipe.replace("[logit_bias]", "[logit_bias, stream_options]");
    let gateway = gateway(&recipe, &sim, "");
    let answer = call(&gateway, Customer::Chat, &Customer::Chat.ask(RECIPES[5].1, true, false));
    assert!(!events(&answer).iter().any(|chunk| chunk["usage"].is_object()), "{answer:?}");
    assert!(is_price("groq", spent(&gateway), USED, prices(&recipe)), "{answer:?}");
    assert!(is_reported(&gateway), "{answer:?}");
}

#[test]
fn fields_that_a_provider_refuses_are_left_out_and_named() {
    for (name, fields, kept) in [
        ("mistral", json!({"seed": 7, "user": "u", "top_k": 5}), json!({"random_seed": 7, "n": 1})),
        (
            "moonshot",
            json!({"temperature": 0.2, "top_p": 0.5}),
            json!({"thinking": {"type": "enabled"}}),
        ),
        ("groq", json!({"logit_bias": {"1": 2}}), json!({"user": "u", "seed": 7})),
    ] {
        let sim = provider(name, &[USAGE]);
        let gateway = gateway(&recipe(name), &sim, "");
        let model = RECIPES.iter().find(|(recipe, _)| *recipe == name).expect("a recipe").1;
        for stream in [false, true] {
            let mut query = Customer::Chat.ask(model, stream, false);
            for (key, value) in
                [&fields, &kept].into_iter().flat_map(|it| it.as_object().expect("fields"))
            {
                query[key] = value.clone();
            }
            let answer = call(&gateway, Customer::Chat, &query);
            let what = format!("{name} {stream}: {answer:?}");
            assert_eq!(answer.status(), 200, "{what}");
            let mut named = answer.header("x-tollgate-left-out").unwrap_or_default();
            let sent = sim.requests().pop().expect("a request").body.expect("kept");
            let sent: Value = serde_json::from_slice(&sent).expect("JSON");
            for key in fields.as_object().expect("fields").keys() {
                assert!(named.contains(key.as_str()), "{key} {what}");
                named = named.replace(key.as_str(), "");
                assert_eq!(sent.get(key), None, "{what}: {sent}");
            }
            assert_eq!(named.trim_matches([',', ' ']), "", "nothing else: {what}");
            for (key, value) in kept.as_object().expect("fields") {
                assert_eq!(sent[key], *value, "{what}: {sent}");
            }
            let asks = !sent["stream_options"].is_null();
            assert_eq!(asks, stream && name != "mistral", "{what}: {sent}");
        }
        // What has a meaning is never left out: the provider's own refusal says so.
        let mut query = Customer::Chat.ask(model, false, false);
        query["logprobs"] = json!(true);
        let expected = match name {
            "mistral" => 422,
            "groq" => 400,
            _ => 200,
        };
        assert_eq!(call(&gateway, Customer::Chat, &query).status(), expected, "{name}");
    }
}

#[test]
fn what_openrouter_says_that_a_call_cost_is_in_the_books() {
    let sim = provider("openrouter", &[USAGE]);
    let gateway = gateway(&recipe("openrouter"), &sim, "");
    for customer in CUSTOMERS {
        for stream in [false, true] {
            let answer = call(&gateway, customer, &customer.ask(RECIPES[8].1, stream, false));
            assert_eq!(answer.status(), 200, "{customer:?} {stream}: {answer:?}");
        }
    }
    gateway.settled();
    let margins =
        || gateway.admin("GET", "/admin/v1/margins?by=model", &json!(null))["data"].clone();
    eventually("six calls of $0.000123", || {
        let margins = margins();
        margins[0]["calls"] == 6 && margins[0]["cost"] == "0.000738"
    });
}

#[test]
fn a_tier_of_fireworks_has_its_price_and_others_are_refused() {
    let (recipe, sim) = (recipe("fireworks"), provider("fireworks", &[USAGE]));
    let request = |tier: &str| {
        let mut request = Customer::Chat.ask(RECIPES[7].1, false, false);
        request["service_tier"] = json!(tier);
        request["perf_metrics_in_response"] = json!(true);
        request
    };
    let gateway = gateway(&recipe, &sim, "");
    let answer = call(&gateway, Customer::Chat, &request("turbo"));
    assert_eq!(answer.status(), 400, "{answer:?}");
    let answer = call(&gateway, Customer::Chat, &request("priority"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(answer.json()["perf_metrics"].is_object(), "{answer:?}");
    let [input, cached, output] = prices(&recipe).map(|price| price * 3 / 2);
    let charged = spent(&gateway);
    assert!(is_price("fireworks", charged, USED, [input, cached, output]), "{charged}");
}

#[test]
fn growing_reports_of_usage_count_once() {
    for name in ["vllm", "sglang"] {
        let (recipe, sim) = (recipe(name), provider(name, &[USAGE]));
        let gateway = gateway(&recipe, &sim, "");
        let mut request = Customer::Chat.ask("Qwen/Qwen3-32B", true, false);
        request["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
        let answer = call(&gateway, Customer::Chat, &request);
        let reports = events(&answer).iter().filter(|chunk| chunk["usage"].is_object()).count();
        assert!(reports > 5, "{name}: {answer:?}");
        assert!(is_price(name, spent(&gateway), USED, prices(&recipe)), "{name}: {answer:?}");
    }
}

/// Provider-specific fields that careful customers send back are accepted.
#[test]
fn signed_thoughts_go_back_to_openrouter_by_customers_of_chat() {
    let sim = provider("openrouter", &[]);
    let gateway = gateway(&recipe("openrouter"), &sim, "");
    let mut query = Customer::Chat.ask(RECIPES[8].1, false, true);
    let message: AnswerContent =
        Customer::Chat.read(&call(&gateway, Customer::Chat, &query), false);
    Customer::Chat.go_on(&mut query, &message);
    assert!(query["messages"][1]["reasoning_details"].is_array(), "{query}");
    let answer = call(&gateway, Customer::Chat, &query);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let sent = sim.requests().pop().expect("a request").body.expect("kept");
    let sent: Value = serde_json::from_slice(&sent).expect("JSON");
    assert_eq!(sent["messages"], query["messages"], "byte for byte");
}
