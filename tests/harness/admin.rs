//! The admin API, for tests that need accounts of their own.

use serde_json::{Value, json};

use super::Demo;
use super::wait::{TIMEOUT, poll_async};

/// A client of the admin API.
pub(crate) struct Admin {
    url: String,
    token: String,
    http: reqwest::Client,
}

/// An account and one key of it.
pub(crate) struct Customer {
    pub(crate) account: String,
    pub(crate) key: String,
}

impl Admin {
    pub(crate) fn of(demo: &Demo) -> Self {
        Self {
            url: format!("{}/admin/v1", demo.admin_url),
            token: demo.admin_token.clone(),
            http: super::http(),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.change(reqwest::Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Value {
        self.change(reqwest::Method::PATCH, path, body).await
    }

    async fn change(&self, method: reqwest::Method, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.url);
        let request = self.http.request(method.clone(), url).bearer_auth(&self.token);
        let answer = request.json(&body).send().await.expect("the admin API answers");
        let status = answer.status();
        let value: Value = answer.json().await.expect("JSON");
        assert!(status.is_success(), "{method} {path} {body}: {status} {value}");
        value
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        request.send().await.expect("the admin API answers").json().await.expect("JSON")
    }

    /// A new account with this much credit in dollars, and a key.
    pub(crate) async fn customer(&self, credit: &str) -> Customer {
        let account = self.post("/accounts", json!({"name": "test"})).await;
        let account = account["id"].as_str().expect("an id").to_owned();
        let grant = json!({"amount": credit, "id": "first"});
        self.post(&format!("/accounts/{account}/grants"), grant).await;
        let key = self.post(&format!("/accounts/{account}/keys"), json!({"name": "test"})).await;
        Customer { account, key: key["key"].as_str().expect("a key").to_owned() }
    }

    /// The account's balance in nano-dollars, once nothing is in flight: granted, available, spent.
    pub(crate) async fn settled(&self, account: &str) -> Balance {
        poll_async("no hold is open", TIMEOUT, async || {
            let balance = self.balance(account).await;
            if balance.held == 0 { Ok(balance) } else { Err(balance) }
        })
        .await
    }

    /// The account's balance as it is.
    pub(crate) async fn balance(&self, account: &str) -> Balance {
        let value = self.get(&format!("/accounts/{account}")).await;
        let amount = |name: &str| {
            let text = value["balance"][name].as_str().unwrap_or_else(|| panic!("{name}: {value}"));
            text.parse::<tollgate::money::Nanousd>().expect("dollars").get()
        };
        let balance = Balance {
            granted: amount("granted"),
            available: amount("available"),
            held: amount("held"),
            spent: amount("spent"),
        };
        let sum = balance.available + balance.held + balance.spent;
        assert_eq!(balance.granted, sum, "granted = available + held + spent: {balance:?}");
        balance
    }

    /// All entries of the account, newest first.
    pub(crate) async fn entries(&self, account: &str) -> Vec<Value> {
        let (mut entries, mut before) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/accounts/{account}/entries?limit=500{before}")).await;
            entries.extend(page["data"].as_array().unwrap_or_else(|| panic!("{page}")).clone());
            if page["has_more"] != true {
                return entries;
            }
            before = format!("&before={}", page["next_before"]);
        }
    }

    /// The settlements among them.
    pub(crate) async fn settlements(&self, account: &str) -> Vec<Value> {
        settlements(self.entries(account).await)
    }

    /// The settlements on the newest page.
    pub(crate) async fn newest_settlements(&self, account: &str) -> Vec<Value> {
        let page = self.get(&format!("/accounts/{account}/entries?limit=500")).await;
        settlements(page["data"].as_array().unwrap_or_else(|| panic!("{page}")).clone())
    }
}

fn settlements(mut entries: Vec<Value>) -> Vec<Value> {
    entries.retain(|entry| entry["kind"] == "settlement");
    entries
}

/// An account's money in nano-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) granted: i64,
    pub(crate) available: i64,
    pub(crate) held: i64,
    pub(crate) spent: i64,
}
