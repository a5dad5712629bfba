//! Prices and margins on the operators' pages, compared with the admin API.

use crate::harness::{Admin, Demo, Gateway, Pages, ask, chat_model, eventually, simulator};
use crate::operator::{call, logged_in, operator};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn customers_prices_are_set_on_their_pages() {
    let demo = Demo::start();
    let (admin, pages) = (Admin::of(&demo), operator(&demo).await);
    let customer = admin.customer("10.00").await;
    let group = group_made(&admin, &pages).await;

    let at = format!("/operator/customers/{}/prices", customer.account);
    let page = pages.get(&at).await;
    assert!(page.body.contains("<option>resellers"), "{}", page.body);
    let stale = pages.get(&at).await;
    let typed = "gpt-4o* factor=0.5\n* input_per_1m_tokens=2 from=2020-01-01";
    let set = pages.fill(&page, &at, &[("group", "resellers"), ("rules", typed)]).await;
    let shown = pages.follow(&set).await;
    assert!(shown.body.contains("The prices were set."), "{}", shown.body);
    assert!(shown.body.contains("gpt-4o* factor=0.5"), "{}", shown.body);
    assert!(shown.body.contains("<option selected>resellers"), "{}", shown.body);
    let prices = admin.get(&format!("/accounts/{}/prices", customer.account)).await;
    let rules = json!([
        {"models": "gpt-4o*", "factor": "0.5"},
        {"models": "*", "prices": {"input_per_1m_tokens": "2.00"}, "from": "2020-01-01T00:00:00Z"},
    ]);
    assert_eq!(prices, json!({"group": "resellers", "rules": rules}));

    // What can be no rule is said beside it, and nothing is set or forgotten.
    let wrong = [("group", ""), ("rules", "gpt-4o 0.5")];
    let refused = pages.fill(&shown, &at, &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("Line 1: `0.5` is no name and value"), "{}", refused.body);
    assert!(refused.body.contains("gpt-4o 0.5</textarea>"), "what was typed is kept");
    let twice = [("group", ""), ("rules", "* factor=1\n* factor=2")];
    let refused = pages.fill(&shown, &at, &twice).await;
    assert!(refused.body.contains("two rules are for the same models"), "{}", refused.body);

    // A page from before somebody else's change does not undo it.
    let late = pages.fill(&stale, &at, &[("group", ""), ("rules", "")]).await;
    assert_eq!(late.status, 422);
    assert!(late.body.contains("They were changed meanwhile"), "{}", late.body);
    // Nor when it was refused for something else before, and is sent again.
    let wrong = pages.fill(&stale, &at, &[("group", ""), ("rules", "gpt-4o 0.5")]).await;
    let again = pages.fill(&wrong, &at, &[("group", ""), ("rules", "gpt-4o factor=0.5")]).await;
    assert!(again.body.contains("They were changed meanwhile"), "{}", again.body);
    assert_eq!(admin.get(&format!("/accounts/{}/prices", customer.account)).await, prices);

    // The entry names the price, and the price its source.
    assert_eq!(call(&demo, &customer.key).await, 200);
    admin.settled(&customer.account).await;
    let entries = pages.get(&format!("/operator/customers/{}/entries", customer.account)).await;
    let (_, link) = entries.body.split_once("href=\"/operator/prices/").expect("a price");
    let version = link.split('"').next().expect("a version");
    let price = pages.get(&format!("/operator/prices/{version}")).await;
    assert!(price.body.contains("account: gpt-4o*"), "{}", price.body);
    assert!(price.body.contains("per 1M tokens"), "{}", price.body);
    let all = pages.get("/operator/prices").await;
    assert!(all.body.contains(version) && all.body.contains("gpt-4o-mini"), "{}", all.body);

    group_changed(&admin, &pages, &group).await;
}

/// Makes a price group; gives the address of its page.
async fn group_made(admin: &Admin, pages: &Pages) -> String {
    let page = pages.get("/operator/prices").await;
    assert!(page.body.contains("There are no price groups yet."), "{}", page.body);
    let to = "/operator/prices/groups";
    let refused = pages.fill(&page, to, &[("name", "a b"), ("rules", "* factor=0.9")]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("a price group&#39;s name has"), "{}", refused.body);
    let form = page.form(to, &[("name", "resellers"), ("rules", "* factor=0.9")]);
    let made = pages.post(to, &form).await;
    assert_eq!((made.status, pages.post(to, &form).await.status), (303, 303), "sent twice");
    let shown = pages.follow(&made).await;
    assert!(shown.body.contains("The price group was made."), "{}", shown.body);
    let there = pages.fill(&shown, to, &[("name", "resellers"), ("rules", "* factor=9")]).await;
    assert!(there.body.contains("There is a group of this name"), "{}", there.body);
    let groups = admin.get("/price-groups").await;
    assert_eq!(groups["data"].as_array().map(Vec::len), Some(1), "{groups}");
    assert_eq!(groups["data"][0]["rules"], json!([{"models": "*", "factor": "0.9"}]));
    format!("{to}/resellers")
}

async fn group_changed(admin: &Admin, pages: &Pages, at: &str) {
    let (page, stale) = (pages.get(at).await, pages.get(at).await);
    assert!(page.body.contains("* factor=0.9</textarea>"), "{}", page.body);
    let set = pages.fill(&page, at, &[("rules", "* factor=0.8")]).await;
    assert_eq!(set.status, 303, "{}", set.body);
    let late = pages.fill(&stale, at, &[("rules", "* factor=0.7")]).await;
    assert!(late.body.contains("They were changed meanwhile"), "{}", late.body);
    let groups = admin.get("/price-groups").await;
    assert_eq!(groups["data"][0]["rules"], json!([{"models": "*", "factor": "0.8"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn margins_are_shown_as_the_admin_api_tells_them() {
    let sim = simulator(&[]);
    let upstreams = format!("  up: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", sim.addr());
    let cost = "{ upstream: up, cost: { of: list, times: 1.25 } }";
    let dear = chat_model("dear", "up").replace("{ upstream: up }", cost);
    assert!(dear.contains("times"), "{dear}");
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{dear}"));
    let address = format!("http://{}", gateway.admin);
    let pages = logged_in(&address, "admin-token-of-a-test").await;
    let none = pages.get("/operator/margins").await;
    assert!(none.body.contains("No call of these days has a known cost."), "{}", none.body);
    let body = json!({"model": "dear", "messages": [{"role": "user", "content": "hi"}]});
    for _ in 0..3 {
        let answer = ask(gateway.address, &gateway.chat_json(body.to_string()));
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    gateway.settled();
    let margins = || gateway.admin("GET", "/admin/v1/margins?by=model", &Value::Null);
    eventually("the calls", || margins()["data"][0]["calls"] == 3);
    let message = margins();
    let row = &message["data"][0];
    assert_eq!(
        (row["model"].as_str(), row["calls"].as_u64()),
        (Some("dear"), Some(3)),
        "{message}"
    );
    let account = gateway.account.clone();
    for (by, name) in [("model", "dear"), ("upstream", "up"), ("account", &account), ("day", "20")]
    {
        let page = pages.get(&format!("/operator/margins?by={by}&days=1")).await;
        let text = page.body.replace('−', "-");
        assert!(text.contains(name), "{by}: {text}");
        for amount in ["charged", "cost"] {
            let amount = format!("${}", row[amount].as_str().expect("an amount"));
            assert!(text.contains(&amount), "{by}: {amount} in {text}");
        }
        let lost = row["margin"].as_str().expect("an amount").replace('-', "-$");
        assert!(lost.starts_with("-$") && text.contains(&lost), "{by}: {lost} in {text}");
        assert!(text.contains("-25.0 %"), "{by}: {text}");
    }
}
