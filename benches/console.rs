//! The cost of the consoles' pages on a full ledger: a million settled requests of one account, twenty
//! thousand videos, a year's worth of usage rows, ten thousand other accounts.
//!
//! `cargo bench --bench console` fills a ledger and a request log, starts a gateway on them, logs in
//! as customer and as operator, and asks for every page in turn. Each should take at most 50 ms and 100 KB over the wire.
//! `-- --quick` takes a tenth of everything.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE,
};
use serde_json::{Value, json};
use tollgate::clock::UnixMs;
use tollgate::finished::{FinishedRequest, RequestSettlement};
use tollgate::ledger::{
    AccountId, Intent, KeyId, Ledger, Options, RequestId, Reserve, Settlement, Task, TaskId,
    TaskPhase, TaskSettlement, Webhook,
};
use tollgate::money::Nanousd;
use tollgate::price::{Prices, Usage, UsageSource};
use tollgate::protocols::Operation;
use tollgate::protocols::task::TaskFacts;
use tollgate::request_log::{Query, RequestLog, Scope};

#[path = "rig/mod.rs"]
mod rig;

use rig::account::ADMIN_TOKEN;
use rig::gateway;
use rig::process::Process;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EMAIL: &str = "bench@test.example";
const PASSWORD: &str = "four unrelated words here";

const REQUESTS: usize = 1_000_000;
const VIDEOS: usize = 20_000;
/// Every so many videos are announced: a list of announcements passes over all others.
const ANNOUNCED_EVERY: usize = 400;
/// Customers whom nobody has seen since they came.
const OTHERS: usize = 10_000;
/// Other accounts and videos that are created concurrently, so that they share flushes.
const OTHERS_AT_ONCE: usize = 500;
/// A year of ten models and five keys: as many rows of usage, though all on one day.
const MODELS: usize = 365;
const KEYS: u64 = 50;
/// Requests between two looks at whether the log keeps up.
const LOG_BATCH: usize = 5_000;
/// Requests of each page that are measured, after a few that are not.
const TIMES: usize = 60;
const WARM_UP: usize = 5;
/// The bars.
const TOOK_MAX: Duration = Duration::from_millis(50);
const BYTES_MAX: usize = 100_000;

fn main() -> anyhow::Result<ExitCode> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let quick = std::env::args().any(|argument| argument == "--quick");
    let share = if quick { 10 } else { 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(bench(REQUESTS / share, VIDEOS / share))
}

/// Ids of the filled ledger's objects, for the pages of single objects.
struct Filled {
    old: RequestId,
    new: RequestId,
    video: TaskId,
    /// A position of the request log in the middle.
    middle: u64,
}

async fn bench(requests: usize, videos: usize) -> anyhow::Result<ExitCode> {
    let directory = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
    let account = sign_up(directory.path()).await?;
    let began = Instant::now();
    let filled = fill(&directory.path().join("data"), account, requests, videos).await?;
    println!("{}\n", rig::machine::Machine::here("console"));
    println!("{requests} requests, {videos} videos: filled in {:.0?}", began.elapsed());
    let began = Instant::now();
    let gateway = start(directory.path())?;
    println!("started in {:.1?}\n", began.elapsed());
    let customer = Browser::log_in(gateway.ready_field("base_url")?).await?;
    let operator = Browser::operator(gateway.ready_field("admin_url")?).await?;
    println!("{:<44} {:>10} {:>10} {:>10} {:>9}", "page", "median", "p95", "CPU", "bytes");
    let mut is_good = true;
    for path in pages(&filled) {
        is_good &= customer.measure(&gateway, &path).await?;
    }
    println!("\nof operators");
    for path in operators_pages(account, &filled) {
        is_good &= operator.measure(&gateway, &path).await?;
    }
    println!(
        "\nbars: {TOOK_MAX:?} (p95), {BYTES_MAX} bytes: {}",
        if is_good { "kept" } else { "BROKEN" }
    );
    println!("RSS: {:.0} MB", gateway.rss_mb()?);
    gateway.stop()?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn pages(filled: &Filled) -> Vec<String> {
    let Filled { old, new, video, middle } = filled;
    let unknown = RequestId::new();
    [
        "".to_owned(),
        "/keys".to_owned(),
        "/balance".to_owned(),
        "/balance?before=1000000".to_owned(),
        "/usage?days=7".to_owned(),
        "/usage?days=365".to_owned(),
        "/usage.csv?days=365".to_owned(),
        "/requests".to_owned(),
        format!("/requests?before={middle}"),
        "/requests?errors=1".to_owned(),
        "/requests?model=model-17".to_owned(),
        "/requests?status=418".to_owned(),
        format!("/requests/{old}"),
        format!("/requests/{new}"),
        format!("/requests/{unknown}"),
        "/videos".to_owned(),
        "/videos?state=expired".to_owned(),
        format!("/videos/{video}"),
        "/webhooks".to_owned(),
    ]
    .into()
}

fn operators_pages(account: AccountId, filled: &Filled) -> Vec<String> {
    let of_customer = ["", "/keys", "/entries", "/usage", "/tasks", "/audit"];
    let of_customer = of_customer.map(|page| format!("/customers/{account}{page}"));
    let others = [
        "",
        "/requests",
        "/figures",
        "/requests?errors=yes",
        "/customers",
        "/customers?q=bench",
        "/customers?q=nobody",
        "/codes",
        "/in-doubt",
        "/webhooks",
        "/upstreams",
        "/configuration",
        "/configuration/files",
        "/audit",
        "/ledger",
    ];
    let others = others.into_iter().map(str::to_owned);
    others.chain(of_customer).chain([format!("/requests/{}", filled.new)]).collect()
}

fn start(directory: &Path) -> anyhow::Result<Process> {
    let more = "console: { sign_up: open }
upstreams:
  nobody: { protocol: openai, base_url: 'http://127.0.0.1:9/v1', credential: x }
";
    let mut models = "models:\n".to_owned();
    for model in 0..MODELS {
        models.push_str(&format!(
            "  model-{model}: {{ operations: [chat], targets: [{{ upstream: nobody }}], free: true, \
             limits: {{ context_tokens_max: 1000, output_tokens_max: 16 }} }}\n"
        ));
    }
    gateway::write_files(directory, "", more, &models)?;
    gateway::start_quiet(directory)
}

/// Opens the account on the console, and gives it money.
async fn sign_up(directory: &Path) -> anyhow::Result<AccountId> {
    let gateway = start(directory)?;
    let mut browser = Browser::guest(gateway.ready_field("base_url")?)?;
    let fields = [("name", "bench"), ("email", EMAIL), ("password", PASSWORD)];
    browser.send("/signup", &fields).await?;
    let admin = format!("{}/admin/v1/accounts", gateway.ready_field("admin_url")?);
    let http = reqwest::Client::new();
    let list: Value = http.get(&admin).bearer_auth(ADMIN_TOKEN).send().await?.json().await?;
    let accounts = list["data"].as_array().context("a list")?;
    let own = accounts.iter().find(|account| account["name"] == "bench").context("the account")?;
    let id = own["id"].as_str().context("an id")?;
    let grant = json!({"amount": "1000000.00", "id": "bench"});
    let granted = http.post(format!("{admin}/{id}/grants")).bearer_auth(ADMIN_TOKEN).json(&grant);
    granted.send().await?.error_for_status()?;
    let account = id.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    gateway.stop()?;
    Ok(account)
}

/// Fills ledger and request log as a gateway would have, only faster.
async fn fill(
    data: &Path,
    account: AccountId,
    requests: usize,
    videos: usize,
) -> anyhow::Result<Filled> {
    let (ledger, _) =
        Ledger::open(Options::new(data)).map_err(|error| anyhow::anyhow!("{error}"))?;
    let log = RequestLog::open(data.join("requests"), 1 << 30)?;
    let models: Vec<Arc<str>> = (0..MODELS).map(|model| format!("model-{model}").into()).collect();
    let (mut ids, mut middle) = (Vec::with_capacity(requests), 0);
    for number in 0..requests {
        let model = models.get(number % MODELS).context("a model")?;
        let key = KeyId::from_number(1 + (number / MODELS) as u64 % KEYS);
        ids.push(call(&ledger, &log, account, key, model)?);
        if number % LOG_BATCH == 0 {
            let query = Query { limit: 1, ..Query::default() };
            let page = log.list(Scope::Account(account), query).await?;
            if number <= requests / 2 {
                middle = page.next.unwrap_or(0);
            }
        }
    }
    for batch in 0..OTHERS / OTHERS_AT_ONCE {
        let names = (0..OTHERS_AT_ONCE).map(|number| format!("customer {batch}-{number}"));
        let opened = names.map(|name| {
            let ledger = Arc::clone(&ledger);
            async move { ledger.create_account(&name).await }
        });
        futures_util::future::try_join_all(opened).await?;
    }
    let mut video = TaskId::random();
    let model = models.first().context("a model")?;
    for first in (0..videos).step_by(OTHERS_AT_ONCE) {
        let numbers = first..videos.min(first + OTHERS_AT_ONCE);
        let films = numbers.map(|number| film(&ledger, account, model, number));
        let made = futures_util::future::try_join_all(films).await?;
        video = *made.last().context("a video")?;
    }
    ensure!(log.figures().dropped == Default::default(), "records were dropped");
    log.close();
    ledger.close();
    let first = |place: usize| ids.get(place).copied().context("a request");
    Ok(Filled { old: first(requests / 100)?, new: first(requests - 1)?, video, middle })
}

fn call(
    ledger: &Arc<Ledger>,
    log: &RequestLog,
    account: AccountId,
    key: KeyId,
    model: &Arc<str>,
) -> anyhow::Result<RequestId> {
    let request = RequestId::new();
    let reserve = Reserve {
        account,
        key,
        model: Arc::clone(model),
        price: None,
        request,
        amount: Nanousd::new(1_234_567),
        floor: Nanousd::new(1_000),
    };
    let hold = ledger.reserve(reserve).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    let usage = Usage { input_tokens: 1200, output_tokens: 340, ..Usage::default() };
    let source = UsageSource::Upstream;
    let posted = hold.post(Settlement { charge: Nanousd::new(345_678), usage, source });
    log.record(&FinishedRequest {
        request_id: request,
        account_id: Some(account),
        key_id: Some(key),
        client: None,
        method: "POST",
        route: "/v1/chat/completions",
        operation: Some(Operation::Chat),
        model,
        requested_model: None,
        upstream: "openai",
        upstream_request_id: None,
        status: 200,
        error_code: "",
        streamed: true,
        bytes_in: 310,
        bytes_out: 4_821,
        ended_at: UnixMs::now(),
        duration: Duration::from_micros(812_345),
        ttfb: Some(Duration::from_micros(201_007)),
        settled: Some(RequestSettlement { usage, source, cost: posted.charged, owed: posted.owed }),
        held: Nanousd::new(345_678),
        max_tokens_clamped: None,
        task_id: None,
        traceparent: None,
    });
    Ok(request)
}

/// A video that was made, and announced if it is its turn.
async fn film(
    ledger: &Arc<Ledger>,
    account: AccountId,
    model: &Arc<str>,
    number: usize,
) -> anyhow::Result<TaskId> {
    let (key, id, at) = (KeyId::from_number(1), TaskId::random(), UnixMs::now());
    let amount = Nanousd::new(500_000_000);
    let reserve = Reserve {
        account,
        key,
        model: Arc::clone(model),
        price: None,
        request: RequestId::new(),
        amount,
        floor: Nanousd::ZERO,
    };
    let hold = ledger.reserve(reserve).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    let is_announced = number.is_multiple_of(ANNOUNCED_EVERY);
    let intent = Arc::new(Intent {
        id,
        account,
        key,
        hold: hold.id(),
        model: Arc::clone(model),
        protocol: "dashscope".to_owned(),
        prices: Prices::default(),
        facts: TaskFacts { seconds: 5, resolution: "720p".into(), ..TaskFacts::default() }.encode(),
        webhook_url: is_announced.then(|| "https://receiver.example/hook".to_owned()),
        repeat: None,
        at,
        expires_at: UnixMs(at.0 + 172_800_000),
    });
    let task = Task {
        intent,
        upstream: "films".to_owned(),
        upstream_model: "wan2.7-t2v".to_owned(),
        stage: TaskPhase::Submitting,
        webhook: if is_announced { Webhook::Delivered } else { Webhook::None },
    };
    ledger.open_task(hold, Arc::new(task), Duration::ZERO).await?;
    let taken = TaskPhase::Submitted { upstream_id: format!("native-{number}").as_str().into() };
    let change = |task: &Task| Task { stage: taken.clone(), ..task.clone() };
    ledger.change_task((account, id), change).await?;
    let document = json!({"video_url": format!("https://cdn.example/{number}.mp4")}).to_string();
    let usage = Usage { seconds: 5, ..Usage::default() };
    let settlement = Settlement { charge: amount, usage, source: UsageSource::Upstream };
    let settled = TaskSettlement::Post(settlement);
    ledger.end_task((account, id), ("succeeded", document), settled).await?;
    Ok(id)
}

/// A browser without JavaScript.
struct Browser {
    base: String,
    cookie: String,
    http: reqwest::Client,
}

impl Browser {
    fn guest(base_url: &str) -> anyhow::Result<Self> {
        let http =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self { base: format!("{base_url}/console"), cookie: String::new(), http })
    }

    async fn operator(admin_url: &str) -> anyhow::Result<Self> {
        let guest = Self::guest(admin_url)?;
        let mut browser = Self { base: format!("{admin_url}/operator"), ..guest };
        browser.send("/login", &[("token", ADMIN_TOKEN)]).await?;
        Ok(browser)
    }

    async fn log_in(base_url: &str) -> anyhow::Result<Self> {
        let mut browser = Self::guest(base_url)?;
        browser.send("/login", &[("email", EMAIL), ("password", PASSWORD)]).await?;
        Ok(browser)
    }

    /// Fills the form at `path`, and keeps the session that comes of it.
    async fn send(&mut self, path: &str, fields: &[(&str, &str)]) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.base);
        let form = self.http.get(&url).send().await?;
        self.cookie = cookie(&form)?;
        let html = form.text().await?;
        let token = html.split("name=\"csrf\" value=\"").nth(1).context("a form")?;
        let token = token.split('"').next().unwrap_or_default();
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .append_pair("csrf", &token.replace("&#43;", "+"))
            .finish();
        let form = "application/x-www-form-urlencoded";
        let post = self.http.post(&url).header(COOKIE, &self.cookie).header(CONTENT_TYPE, form);
        let sent = post.body(body).send().await?;
        ensure!(sent.headers().contains_key(LOCATION), "{path}: {}", sent.text().await?);
        self.cookie = cookie(&sent)?;
        Ok(())
    }

    /// Prints what a page takes. Whether that is within the bars.
    async fn measure(&self, gateway: &Process, path: &str) -> anyhow::Result<bool> {
        let url = format!("{}{path}", self.base);
        let (mut took, mut bytes, mut status) = (Vec::new(), 0, 0);
        let mut cpu = Duration::ZERO;
        for time in 0..WARM_UP + TIMES {
            if time == WARM_UP {
                cpu = gateway.cpu()?;
            }
            let began = Instant::now();
            let ask = self.http.get(&url).header(COOKIE, &self.cookie);
            let page = ask.header(ACCEPT_ENCODING, "gzip").send().await?;
            status = page.status().as_u16();
            let is_small = page.headers().contains_key(CONTENT_ENCODING);
            bytes = page.bytes().await?.len();
            ensure!(is_small || bytes < 1024, "{path} is not compressed");
            if time >= WARM_UP {
                took.push(began.elapsed());
            }
        }
        // What the gateway itself has worked, however busy the machine is.
        let cpu_ms = (gateway.cpu()? - cpu).as_secs_f64() * 1e3 / TIMES as f64;
        took.sort_unstable();
        let at = |percent: usize| took.get(TIMES * percent / 100).copied().unwrap_or_default();
        let (median, p95) = (at(50), at(95));
        // A file is no page: it has every row.
        let is_good = path.contains(".csv") || (p95 <= TOOK_MAX && bytes <= BYTES_MAX);
        let mark = if is_good { "" } else { "  <-" };
        let shown: String = path.chars().take(38).collect();
        let (median, p95) = (median.as_secs_f64() * 1e3, p95.as_secs_f64() * 1e3);
        println!(
            "{shown:<40}{status:>4} {median:>7.2} ms {p95:>7.2} ms {cpu_ms:>7.2} ms {bytes:>9}{mark}"
        );
        Ok(is_good)
    }
}

fn cookie(answer: &reqwest::Response) -> anyhow::Result<String> {
    let set = answer.headers().get(SET_COOKIE).context("no cookie")?.to_str()?;
    Ok(set.split(';').next().unwrap_or_default().to_owned())
}
