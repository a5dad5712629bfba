//! `tollgate keys`: manage customers' API keys.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::accounts;
use super::admin_call::{AdminRequest, encoded};
use super::exit::CODES;
use super::limit::{self, KeyLimitOptions};
use super::output::{IdempotencyOptions, OutputOptions, PageOptions};
use super::sheets::{KEY, KEYS, NEW_KEY};

/// Manage customers' API keys.
#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// List the keys of an account, oldest first.
    #[command(after_help = format!("\
Examples:
  tollgate keys list acct_3f1c0a5b7d9e2468

{CODES}"))]
    List {
        /// Id of the account.
        account: String,
        #[command(flatten)]
        pages: PageOptions,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Create a key. It is shown only once.
    #[command(after_help = format!("\
Examples:
  tollgate keys create acct_3f1c0a5b7d9e2468 --name production
  tollgate keys create acct_3f1c0a5b7d9e2468 --name trial --model gpt-4o-mini --spend-per-day 1.00
  tollgate keys create acct_3f1c0a5b7d9e2468 --name ci --quiet > key

{CODES}"))]
    Create(CreateKey),
    /// Show a key, without its secret.
    #[command(after_help = format!("\
Examples:
  tollgate keys show key_9b1de0c2f4a68035

{CODES}"))]
    Show {
        /// Key id, such as `key_9b1de0c2f4a68035`; not the key itself.
        key: String,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Change a key. Omitted settings stay unchanged.
    #[command(after_help = format!("\
Examples:
  tollgate keys update key_9b1de0c2f4a68035 --name staging --spend-per-month 100.00
  tollgate keys update key_9b1de0c2f4a68035 --all-models --expires-at never

{CODES}"))]
    Update(Update),
    /// Disable a key, whose calls are then refused.
    #[command(after_help = format!("\
Examples:
  tollgate keys disable key_9b1de0c2f4a68035

{CODES}"))]
    Disable(ChangeKey),
    /// Enable a disabled key.
    #[command(after_help = format!("\
Examples:
  tollgate keys enable key_9b1de0c2f4a68035

{CODES}"))]
    Enable(ChangeKey),
}

#[derive(Args, Debug)]
pub(super) struct CreateKey {
    /// Id of the account.
    account: String,
    /// Key name: 1 to 256 bytes.
    #[arg(long)]
    name: String,
    /// Model that the key may call; may be repeated. Default: all.
    #[arg(long = "model", value_name = "MODEL")]
    allowed: Vec<String>,
    /// Expiry, such as `2027-01-31T12:00:00Z`. Default: never.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: KeyLimitOptions,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
pub(super) struct ChangeKey {
    /// Key id, such as `key_9b1de0c2f4a68035`; not the key itself.
    key: String,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Args, Debug)]
pub(super) struct Update {
    /// Key id, such as `key_9b1de0c2f4a68035`; not the key itself.
    key: String,
    /// New name of the key.
    #[arg(long)]
    name: Option<String>,
    /// Model that the key may call; may be repeated.
    #[arg(long = "model", value_name = "MODEL", conflicts_with = "all_models")]
    allowed: Vec<String>,
    /// Allow the key every model.
    #[arg(long)]
    all_models: bool,
    /// Expiry, or `never`.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    #[command(flatten)]
    limits: KeyLimitOptions,
    #[command(flatten)]
    once: IdempotencyOptions,
    #[command(flatten)]
    output: OutputOptions,
}

fn path(key: &str) -> String {
    format!("/admin/v1/keys/{}", encoded(key))
}

impl KeysCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { account, pages, output } => {
                let path = format!("{}/keys", accounts::path(&account));
                output.list(&path, &[], &pages, &KEYS)
            }
            Self::Create(create) => create.run(),
            Self::Show { key, output } => output.show(&AdminRequest::get(path(&key)), &KEY),
            Self::Update(update) => update.run(),
            Self::Disable(change) => change.disabled(true),
            Self::Enable(change) => change.disabled(false),
        }
    }
}

impl CreateKey {
    fn run(self) -> anyhow::Result<ExitCode> {
        // No `--model` means all models, which the API writes as `null`; an empty list would allow none.
        let models = (!self.allowed.is_empty()).then_some(self.allowed);
        let limits = limit::typed(self.limits.fields());
        let body = json!({
            "name": self.name,
            "models": models,
            "expires_at": self.expires_at,
            "limits": limits,
        });
        let ask = AdminRequest::post(format!("{}/keys", accounts::path(&self.account))).with(body);
        self.output.show_secret(&ask.once(&self.once.id()), &NEW_KEY)
    }
}

impl Update {
    fn run(self) -> anyhow::Result<ExitCode> {
        let models = (!self.allowed.is_empty()).then(|| json!(self.allowed));
        let never = |time: String| if time == "never" { Value::Null } else { Value::from(time) };
        let limits = limit::typed(self.limits.fields());
        let body = limit::given(vec![
            ("name", self.name.map(Value::from)),
            ("models", models.or(self.all_models.then_some(Value::Null))),
            ("expires_at", self.expires_at.map(never)),
            ("limits", (!limits.is_empty()).then_some(Value::Object(limits))),
        ])?;
        let ask = AdminRequest::patch(path(&self.key)).with(Value::Object(body));
        self.output.show(&ask.once(&self.once.id()), &KEY)
    }
}

impl ChangeKey {
    fn disabled(&self, disabled: bool) -> anyhow::Result<ExitCode> {
        let ask = AdminRequest::patch(path(&self.key)).with(json!({"disabled": disabled}));
        self.output.show(&ask.once(&self.once.id()), &KEY)
    }
}
