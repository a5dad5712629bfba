//! A plan as two files for people.

use super::plan::{MigrationPlan, PlannedModel, PlannedTarget, PlannedUpstream, quoted};
use tollgate_money::price::UNITS;

/// Writes `routes.yaml` and `models.yaml`; `file` is the source of the conversion.
pub(super) fn files(file: &str, plan: &MigrationPlan) -> (String, String) {
    (routes(file, plan), models(file, plan))
}

fn routes(file: &str, plan: &MigrationPlan) -> String {
    let mut out = String::new();
    let file = file.replace(char::is_control, " ");
    line(
        &mut out,
        &format!("# Where the gateway listens, and which upstreams there are. Made of {file}."),
    );
    line(&mut out, "# Every field: docs/configuration.md. After a change: `tollgate check`.\n");
    line(&mut out, "listeners:");
    line(&mut out, "  - address: 0.0.0.0:4000 # LiteLLM's port; customers' base URL ends in /v1\n");
    if let Some(token) = &plan.admin_token {
        line(&mut out, "admin:");
        line(&mut out, "  address: 127.0.0.1:9090");
        line(&mut out, &format!("  token: {}\n", quoted(token)));
    }
    if let Some(count) = plan.in_flight_max {
        line(&mut out, &format!("limits: {{ requests_in_flight_max: {count} }}\n"));
    }
    balancing(&mut out, plan);
    if plan.upstreams.is_empty() {
        line(&mut out, "upstreams: {} # none of the targets can be reached");
        return out;
    }
    line(&mut out, "upstreams:");
    let blocks: Vec<String> = plan.upstreams.iter().map(upstream).collect();
    out.push_str(&blocks.join("\n"));
    out
}

fn balancing(out: &mut String, plan: &MigrationPlan) {
    let MigrationPlan { tries_max, failures, open, .. } = plan;
    if tries_max.is_none() && failures.is_none() && open.is_none() {
        return;
    }
    line(out, "balancing:");
    if let Some(tries) = tries_max {
        line(out, &format!("  retries: {{ tries_max: {tries} }} # the first included"));
    }
    if failures.is_some() || open.is_some() {
        line(out, "  circuit:");
    }
    if let Some(failures) = failures {
        line(out, &format!("    failures: {failures}"));
    }
    if let Some(open) = open {
        line(out, &format!("    open: {open}"));
        line(out, &format!("    open_max: {open} # LiteLLM always waits the same time"));
    }
    out.push('\n');
}

fn upstream(upstream: &PlannedUpstream) -> String {
    let mut out = String::new();
    line(&mut out, &format!("  {}:", quoted(&upstream.name)));
    line(&mut out, &format!("    protocol: {}", upstream.protocol));
    line(&mut out, &format!("    base_url: {}", quoted(&upstream.base_url)));
    if let Some(credential) = &upstream.credential {
        line(&mut out, &format!("    credential: {}", quoted(credential)));
    }
    if let Some(auth) = &upstream.auth {
        line(&mut out, "    auth:");
        line(&mut out, &format!("      {}:", auth.kind));
        for (field, value) in &auth.fields {
            line(&mut out, &format!("        {field}: {value}"));
        }
    }
    if !upstream.headers.is_empty() {
        line(&mut out, "    headers:");
        for (name, value) in &upstream.headers {
            line(&mut out, &format!("      {}: {}", quoted(name), quoted(value)));
        }
    }
    if let Some(read) = &upstream.read_timeout {
        line(&mut out, &format!("    timeouts: {{ read: {read} }}"));
    }
    out
}

fn models(file: &str, plan: &MigrationPlan) -> String {
    let mut out = String::new();
    let file = file.replace(char::is_control, " ");
    line(
        &mut out,
        "# What customers can name, where it is served and what it costs, in US dollars.",
    );
    line(&mut out, &format!("# Made of {file}. Every field: docs/configuration.md.\n"));
    if !plan.models.iter().any(|model| model.missing.is_empty()) {
        line(
            &mut out,
            "models: {} # none is complete: take the comment signs away below, and `{}` here\n",
        );
    } else {
        line(&mut out, "models:");
    }
    let blocks: Vec<String> = plan.models.iter().map(model).collect();
    out.push_str(&blocks.join("\n"));
    out
}

fn model(model: &PlannedModel) -> String {
    let mut out = String::new();
    for comment in &model.comments {
        line(&mut out, &format!("  # {comment}"));
    }
    if model.missing.is_empty() {
        out.push_str(&fields(model));
        return out;
    }
    line(&mut out, &format!("  # Not complete: fill in {}.", model.missing.join(", ")));
    for text in fields(model).lines() {
        line(&mut out, &format!("  # {}", text.strip_prefix("  ").unwrap_or(text)));
    }
    out
}

fn fields(model: &PlannedModel) -> String {
    let mut out = String::new();
    line(&mut out, &format!("  {}:", quoted(&model.id)));
    let operations: Vec<&str> = model.operations.iter().map(|one| one.as_str()).collect();
    line(&mut out, &format!("    operations: [{}]", operations.join(", ")));
    line(&mut out, "    targets:");
    for target in &model.targets {
        line(&mut out, &format!("      - {}", self::target(target, &model.id)));
    }
    if !model.fallbacks.is_empty() {
        let fallbacks: Vec<String> = model.fallbacks.iter().map(|one| quoted(one)).collect();
        line(&mut out, &format!("    fallbacks: [{}]", fallbacks.join(", ")));
    }
    let is_price = |field: &&&str| UNITS.iter().any(|unit| unit.price == **field);
    let missing_prices = model.missing.iter().filter(is_price);
    let mut prices: Vec<String> = model
        .prices
        .iter()
        .map(|(unit, price)| format!("{}: {price}", unit.info().price))
        .collect();
    prices.extend(missing_prices.map(|field| format!("{field}: ?")));
    if model.free {
        line(&mut out, "    free: true");
    } else if !prices.is_empty() {
        line(&mut out, "    prices:");
        for price in prices {
            line(&mut out, &format!("      {price}"));
        }
    }
    if !model.prices_when.is_empty() {
        line(&mut out, "    prices_when:");
        for entry in &model.prices_when {
            line(&mut out, &format!("      - {entry}"));
        }
    }
    let missing_limits = model.missing.iter().filter(|field| !is_price(field));
    let limits = model.limits.iter().map(|(field, value)| format!("{field}: {value}"));
    let limits: Vec<_> = limits.chain(missing_limits.map(|field| format!("{field}: ?"))).collect();
    if !limits.is_empty() {
        line(&mut out, &format!("    limits: {{ {} }}", limits.join(", ")));
    }
    if !model.rates.is_empty() {
        let rates: Vec<_> =
            model.rates.iter().map(|(field, count)| format!("{field}: {count}")).collect();
        line(&mut out, &format!("    rate_limits: {{ {} }}", rates.join(", ")));
    }
    out
}

fn target(target: &PlannedTarget, id: &str) -> String {
    let mut fields = vec![format!("upstream: {}", quoted(&target.upstream))];
    if target.model != id {
        fields.push(format!("model: {}", quoted(&target.model.replace('$', "$$"))));
    }
    if target.priority > 0 {
        fields.push(format!("priority: {}", target.priority));
    }
    if target.weight != 1 {
        fields.push(format!("weight: {}", target.weight));
    }
    format!("{{ {} }}", fields.join(", "))
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
