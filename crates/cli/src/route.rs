//! `tollgate route explain`: routing of a hypothetical request.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::operator::AdminOptions;
use super::terminal::{self, one_line};

/// Explain the routing of requests in a running gateway.
#[derive(Debug, Subcommand)]
pub(super) enum RouteCommand {
    /// Explain which targets a request for a model would try, in which order, and why. Exits with 1 if
    /// none is available.
    #[command(after_help = "\
Examples:
  tollgate route explain --model gpt-4o-mini
  tollgate route explain --model gpt-4o-mini --key key_9b1de0c2f4a68035 --json")]
    Explain(Explain),
}

/// Arguments of `tollgate route explain`.
#[derive(Args, Debug)]
pub(super) struct Explain {
    /// Model name in the request.
    #[arg(long)]
    model: String,
    /// Key id, such as `key_9b1de0c2f4a68035`. Default: any key.
    #[arg(long)]
    key: Option<String>,
    /// Print the gateway's response as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operator: AdminOptions,
}

impl RouteCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Explain(output) = self;
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("model", &output.model);
        if let Some(key) = &output.key {
            query.append_pair("key", key);
        }
        let answer = output.operator.get(&format!("/admin/v1/route?{}", query.finish()))?;
        let mut out = terminal::out();
        if output.json {
            serde_json::to_writer(&mut out, &answer)?;
            writeln!(out)?;
        } else {
            print(&mut out, &answer)?;
        }
        let fallbacks = answer["fallbacks"].as_array().map_or(&[][..], Vec::as_slice);
        // A key that may not use the model itself gets no fallback either.
        let may_go_on = answer["refused"].is_null() && fallbacks.iter().any(is_served);
        let is_good = is_served(&answer) || may_go_on;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// True if a request for the model reaches a target.
fn is_served(model: &Value) -> bool {
    let targets = model["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let gets_calls = targets.iter().any(|target| target["percent"].as_f64() > Some(0.0));
    model["refused"].is_null() && gets_calls
}

fn print(out: &mut impl std::io::Write, answer: &Value) -> std::io::Result<()> {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default()).into_owned();
    let words = |value: &Value| {
        let all = value.as_array().map_or(&[][..], Vec::as_slice);
        all.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "{}: {}", text(&answer["model"]), words(&answer["operations"]))?;
    let translated = words(&answer["translated"]);
    if !translated.is_empty() {
        writeln!(out, "translated: {translated}")?;
    }
    if let Some(refused) = answer["refused"].as_str() {
        writeln!(out, "refused: {}", one_line(refused))?;
    }
    print_targets(out, answer)?;
    for fallback in answer["fallbacks"].as_array().map_or(&[][..], Vec::as_slice) {
        writeln!(out, "fallback {}", text(&fallback["model"]))?;
        if let Some(refused) = fallback["refused"].as_str() {
            writeln!(out, "refused: {}", one_line(refused))?;
        }
        print_targets(out, fallback)?;
    }
    Ok(())
}

/// Print the targets of a model, one a line.
fn print_targets(out: &mut impl std::io::Write, model: &Value) -> std::io::Result<()> {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default()).into_owned();
    for target in model["targets"].as_array().map_or(&[][..], Vec::as_slice) {
        let place = match target["credential"].as_str() {
            None | Some("") => text(&target["upstream"]),
            Some(credential) => {
                format!("{}/{}", text(&target["upstream"]), one_line(credential))
            }
        };
        let (percent, priority) = (&target["percent"], &target["priority"]);
        let (percent, priority) = (percent.as_f64().unwrap_or(0.0), priority.as_u64().unwrap_or(0));
        let (name, why) = (text(&target["target"]), text(&target["why"]));
        writeln!(out, "{percent:>4} %  priority {priority}  {place}  {name}  {why}")?;
        let translated = target["translated"].as_array().map_or(&[][..], Vec::as_slice);
        // Said above where it is the same for all.
        if !translated.is_empty() && target["translated"] != model["translated"] {
            let translated: Vec<String> = translated.iter().map(text).collect();
            writeln!(out, "        translated: {}", translated.join(", "))?;
        }
        if let Some(cost) = target["cost"].as_str() {
            writeln!(out, "        costs {}", one_line(cost))?;
        }
    }
    Ok(())
}
