//! Customers: accounts with credit, and their keys.

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The operators' token.
pub(crate) const ADMIN_TOKEN: &str = "admin-token-of-the-benchmark";
/// Accounts that are made at one time, so that their records share flushes.
const CONCURRENCY: usize = 16;
/// Grant of each account: more than a benchmark spends.
const CREDIT: &str = "100000.00";

/// Makes `accounts` accounts with credit, and gives each account's keys, `keys_each` of them.
pub(crate) async fn keys(
    admin_url: &str,
    accounts: usize,
    keys_each: usize,
) -> anyhow::Result<Vec<String>> {
    let admin = Admin::new(admin_url);
    let mut makers = JoinSet::new();
    for first in 0..CONCURRENCY {
        let admin = admin.clone();
        makers.spawn(async move {
            let mut keys = Vec::new();
            for number in (first..accounts).step_by(CONCURRENCY) {
                keys.extend(admin.account(number, keys_each).await?);
            }
            anyhow::Ok(keys)
        });
    }
    let mut keys = Vec::with_capacity(accounts * keys_each);
    while let Some(made) = makers.join_next().await {
        keys.extend(made??);
    }
    Ok(keys)
}

#[derive(Clone)]
struct Admin {
    client: reqwest::Client,
    url: String,
}

impl Admin {
    fn new(url: &str) -> Self {
        // The client asks for TLS to be ready, though nothing here uses it.
        drop(rustls::crypto::ring::default_provider().install_default());
        Self { client: reqwest::Client::new(), url: url.to_owned() }
    }

    async fn account(&self, number: usize, keys: usize) -> anyhow::Result<Vec<String>> {
        let name = format!("bench-{number}");
        let account = self.post("/accounts", json!({"name": name})).await?;
        let account = account["id"].as_str().context("no id in an account")?;
        let grant = json!({"amount": CREDIT, "id": name});
        self.post(&format!("/accounts/{account}/grants"), grant).await?;
        let mut made = Vec::with_capacity(keys);
        for _ in 0..keys {
            let key =
                self.post(&format!("/accounts/{account}/keys"), json!({"name": name})).await?;
            made.push(key["key"].as_str().context("no key in a key")?.to_owned());
        }
        Ok(made)
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}/admin/v1{path}", self.url));
        let response = request.bearer_auth(ADMIN_TOKEN).json(&body).send().await?;
        Ok(response.error_for_status()?.json::<Value>().await?)
    }
}
