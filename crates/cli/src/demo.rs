//! `tollgate demo`: a complete gateway on one machine, without setup.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::Program;
use super::serve::{self, Ready, RunningGateway, ServeOverrides, ServeRole, Start};
use super::terminal::outln;
use tollgate_config::{Overrides, Sources};
use tollgate_ledger::{AccountId, Ledger, NewKey};
use tollgate_money::money::Nanousd;
use tollgate_simulator::{Sim, SimOptions};
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::KeyHash;

/// One-time credit of the demo account.
const CREDIT: Nanousd = Nanousd::new(10_000_000_000);
/// Name of the demo account, by which later starts find it.
const ACCOUNT_NAME: &str = "demo";
/// Idempotency id of the demo grant, constant, so that it is granted once.
const GRANT_ID: &str = "demo-credit";
/// Default addresses of the demo.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// Run a gateway with simulated upstreams, an account, credit and a key.
#[derive(Debug, Args)]
pub(super) struct Demo {
    #[command(flatten)]
    places: ServeOverrides,
    /// Print only one JSON line with addresses, admin token and key when ready.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(super) fn run(mut self, program: &Program) -> anyhow::Result<ExitCode> {
        tollgate_process_memory::keep_little();
        // Before the configuration is loaded: every upstream gets this address.
        let sim =
            Sim::start(SimOptions::default()).context("cannot start the simulated upstreams")?;
        let places = &mut self.places;
        places.listen = places.listen.or(Some(LISTEN));
        places.admin = places.admin.or(Some(ADMIN));
        // Before the first file is made: the directory will hold a key in plain text.
        super::private::only_for_owner();
        let data = places.data.get_or_insert_with(|| PathBuf::from("data/demo"));
        std::fs::create_dir_all(&*data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        if places.log == log::LevelFilter::Info {
            // The demo's standard error is for people; `--log debug` brings the lines back.
            places.log = log::LevelFilter::Warn;
        }
        let sources = Sources::Embedded;
        let overrides = Overrides { every_upstream_at: Some(sim.addr()), ..places.overrides() };
        let Some(config) = serve::load(&sources, &overrides) else { return Ok(ExitCode::FAILURE) };
        let model = config.models.first().map(|model| model.id.to_string()).unwrap_or_default();
        let console = config.console.path.clone();
        let (json, log) = (self.json, places.log);
        let key_file = config.store.data_dir.join("demo-key");
        let start = Start { sources, overrides, config, log, role: ServeRole::Demonstrates };
        let ready: Ready = Box::new(move |running| {
            let (key, balance) = prepare(&running.ledger, &key_file)?;
            if json {
                print_json(running, &key);
            } else {
                print_welcome(running, &key, balance, &model, &console);
            }
            Ok(())
        });
        (program.serve)(start, ready)
    }
}

/// Create or find the account with credit; returns its key and balance.
fn prepare(ledger: &Ledger, key_file: &Path) -> anyhow::Result<(String, Nanousd)> {
    // `Ready` is a plain function that the running server calls; blocking in place keeps its runtime going.
    tokio::task::block_in_place(|| {
        tokio::runtime::Handle::current().block_on(async {
            let account = demo_account(ledger).await?;
            // With a constant id: later starts add nothing.
            ledger.grant(account, GRANT_ID, CREDIT).await?;
            let key = match kept_key(ledger, account, key_file) {
                Some(key) => key,
                None => new_key(ledger, account, key_file).await?,
            };
            let account = ledger.account(account).context("the demo account is gone")?;
            Ok((key, account.balance.available))
        })
    })
}

/// Key of an earlier start, if it still belongs to this account. Only the demo stores a key in plain
/// text.
fn kept_key(ledger: &Ledger, account: AccountId, file: &Path) -> Option<String> {
    let secret = std::fs::read_to_string(file).ok()?.trim().to_owned();
    let key = ledger.key(&KeyHash::of(secret.as_bytes()))?;
    // The data directory may have been replaced, or the key revoked in the console.
    let is_good = key.account == account && !key.disabled && !key.is_expired(UnixMs::now());
    is_good.then_some(secret)
}

async fn new_key(ledger: &Ledger, account: AccountId, file: &Path) -> anyhow::Result<String> {
    let new = NewKey { name: "demo".to_owned(), ..NewKey::default() };
    let (secret, _) = ledger.create_key(account, new).await?;
    tollgate_ledger::write_private(file, secret.expose())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(secret.expose().to_owned())
}

async fn demo_account(ledger: &Ledger) -> anyhow::Result<AccountId> {
    let found = ledger.accounts().into_iter().find(|account| account.name == ACCOUNT_NAME);
    match found {
        Some(account) => Ok(account.id),
        None => Ok(ledger.create_account(ACCOUNT_NAME).await?.id),
    }
}

fn print_json(running: &RunningGateway, key: &str) {
    let line = serde_json::json!({
        "base_url": running.base_url(),
        // What SDKs want: OpenAI's know the paths behind the version, Anthropic's those from the root.
        "openai_base_url": format!("{}/v1", running.base_url()),
        "anthropic_base_url": running.base_url(),
        "admin_url": running.admin_url,
        "admin_token": running.admin_token.expose(),
        "api_key": key,
    });
    outln!("{line}");
}

fn print_welcome(
    running: &RunningGateway,
    key: &str,
    balance: Nanousd,
    model: &str,
    console: &str,
) {
    let (base, admin) = (running.base_url(), &running.admin_url);
    let token = running.admin_token.expose();
    outln!(
        r#"Tollgate is running on simulated upstreams: no provider is called, no money is spent.

  base URL     {base}/v1 for OpenAI's SDKs, {base} for Anthropic's
  API key      {key}
  balance      ${balance}, prepaid
  console      {base}{console}   (sign up there: it costs nothing)
  admin API    {admin}   (token {token})
  operators    {admin}/operator   (the same token)

Paste into another terminal:

  # A chat call, streamed
  curl -N {base}/v1/chat/completions \
    -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
    -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'

  # What it cost
  curl {base}/v1/balance -H 'Authorization: Bearer {key}'

  # The same with OpenAI's SDK: pip install openai
  python3 - <<'PY'
from openai import OpenAI
client = OpenAI(base_url="{base}/v1", api_key="{key}")
stream = client.chat.completions.create(
    model="{model}", stream=True, messages=[{{"role": "user", "content": "Hello!"}}])
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
PY

  # What the operator sees
  curl {admin}/admin/v1/accounts -H 'Authorization: Bearer {token}'
  curl {admin}/metrics

Stop with Ctrl-C. The ledger stays: a second start finds the account, its key and its balance again."#
    );
}
