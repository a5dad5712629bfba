//! `tollgate models`: compare models with public price lists.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, Method};
use tollgate_options::network::ClientTls;
use tollgate_outbound::{
    AllowedAddresses, AnswerTimes, CONNECT_TIMEOUT, Clients, OutboundBody, ProxyChoice, Reach,
};

use super::exit;
use super::files::Files;
use super::terminal::{self, errln, outln};
use tollgate_catalogue::{self as catalogue, LIST_BYTES_MAX, NamedCatalogue, OwnModel, OwnTarget};
use tollgate_config::{self as config, TypedModel, environment_proxies};

/// Exit code for differences, as of `diff`.
const DIFFERENT: u8 = 1;
/// Exit code for errors, as of `diff`.
const TROUBLE: u8 = 2;

/// Timeout for the start of a list, and for each further chunk of it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Compare models with public price lists.
#[derive(Debug, Subcommand)]
pub(super) enum ModelsCommand {
    /// Compare models.yaml with public price lists, and propose changes; no file is changed. Exits with
    /// 0 if equal, 1 if different, 2 on errors.
    #[command(after_help = "\
Examples:
  tollgate models sync --from https://models.dev/api.json
  tollgate models sync --from prices.json --from api.json --models models.yaml
  curl -s https://openrouter.ai/api/v1/models | tollgate models sync --from - --json")]
    Sync(SyncModels),
}

#[derive(Debug, Args)]
pub(super) struct SyncModels {
    /// Price list of models.dev, LiteLLM or OpenRouter: a file, `-` for standard input, or an https://
    /// URL. May be repeated.
    #[arg(long, required = true, value_name = "FILE_OR_URL")]
    from: Vec<String>,
    /// Print the report as one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: Files,
}

impl ModelsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Sync(sync) = self;
        Ok(sync.run().unwrap_or_else(|error| {
            // With the code that `diff` has for trouble: 1 means differences.
            exit::say(&error);
            ExitCode::from(TROUBLE)
        }))
    }
}

impl SyncModels {
    fn run(self) -> anyhow::Result<ExitCode> {
        let own: Vec<OwnModel> = match config::typed_models(&self.files.listing()) {
            Ok((models, left_out)) => {
                left_out.iter().for_each(|one| errln!("{one}"));
                models.into_iter().map(own_model).collect()
            }
            Err(errors) => {
                terminal::diagnostics(&errors);
                bail!("the models are not in order");
            }
        };
        let lists: Vec<NamedCatalogue> =
            self.from.iter().map(|from| named_list(from)).collect::<anyhow::Result<_>>()?;
        let report = catalogue::compare(&own, &lists);
        if self.json {
            outln!("{}", catalogue::as_json(&report));
        } else {
            terminal::out().write_all(catalogue::as_text(&report).as_bytes())?;
        }
        Ok(if report.is_different() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }
}

fn own_model(typed: TypedModel) -> OwnModel {
    let target = |(upstream, model): (String, Option<String>)| OwnTarget { upstream, model };
    OwnModel {
        id: typed.id,
        operations: typed.operations.into_iter().map(str::to_owned).collect(),
        targets: typed.targets.into_iter().map(target).collect(),
        free: typed.free,
        base: typed.prices,
        when: typed.prices_when,
        context_tokens_max: typed.context_tokens_max,
        output_tokens_max: typed.output_tokens_max,
    }
}

fn named_list(from: &str) -> anyhow::Result<NamedCatalogue> {
    let bytes = list_bytes(from)?;
    let catalogue =
        catalogue::read(&bytes).with_context(|| format!("cannot use the list {from}"))?;
    Ok(NamedCatalogue { name: from.to_owned(), catalogue })
}

/// Read a list from a file, standard input or a URL.
fn list_bytes(from: &str) -> anyhow::Result<Vec<u8>> {
    if from == "-" {
        // One byte more than is allowed: who reads it says that it is too long.
        let bytes_max = u64::try_from(LIST_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(bytes_max);
        input.read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(bytes);
    }
    if from.starts_with("https://") {
        return fetched(from).with_context(|| format!("cannot fetch {from}"));
    }
    if from.starts_with("http://") {
        bail!("{from} is not fetched: prices that anybody on the way could change are no prices");
    }
    std::fs::read(from).with_context(|| format!("cannot read {from}"))
}

fn fetched(url: &str) -> anyhow::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let reach = Reach {
            proxy: ProxyChoice::ByRules(Arc::new(environment_proxies())),
            tls: ClientTls::default(),
            allowed: AllowedAddresses::All,
            connect_timeout: CONNECT_TIMEOUT,
        };
        let headers =
            // Uncompressed: the limit of bytes counts what is parsed.
            HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let times = AnswerTimes { head: CONNECT_TIMEOUT + READ_TIMEOUT, piece: READ_TIMEOUT };
        let client = Clients::new(Arc::default()).get(&reach);
        let answer = client.send(Method::GET, url, headers, OutboundBody::EMPTY, times).await?;
        let status = answer.status();
        if status != 200 {
            bail!("it answers with status {status}");
        }
        Ok(answer.whole_within(LIST_BYTES_MAX).await?.to_vec())
    })
}
