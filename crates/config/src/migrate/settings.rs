//! Migrates LiteLLM's settings for all models: fallbacks, aliases, timeouts, retries and the master key.

use std::collections::HashMap;

use super::Migration;
use super::deployment::{Deployment, RATE_MAX};
use super::figure;
use super::plan::PlannedModel;
use super::tree::{YamlNode, YamlValue};
use crate::spans::Mark;
use tollgate_protocols::Operation;

/// LiteLLM's lists of models that serve in the place of others, and what they are for there that they
/// are not for here.
const FALLBACKS: [(&str, Option<&str>); 3] = [
    ("fallbacks", None),
    (
        "context_window_fallbacks",
        Some("a prompt that is too long for its model is refused, and no other model is asked"),
    ),
    (
        "content_policy_fallbacks",
        Some("a refusal of the provider's goes to the customer, and no other model is asked"),
    ),
];
/// Maximum number of models in a list.
const FALLBACKS_MAX: usize = 8;
/// Maximum number of global fallbacks considered: each model uses the first that fit.
const FOR_ALL_MAX: usize = 64;
/// The most targets that aliases repeat: each of thousands of names could have thousands of targets.
const COPIED_TARGETS_MAX: usize = 100_000;

impl Migration<'_> {
    /// Reads `model_list`, and then what refers to its names.
    pub(super) fn models(&mut self, root: &YamlNode) {
        let general = root.get("general_settings");
        self.concurrent = general
            .and_then(|general| general.text_of("max_parallel_requests"))
            .or_else(|| root.get("router_settings")?.text_of("default_max_parallel_requests"))
            .and_then(|text| figure::whole(text, 1..=RATE_MAX));
        let entries = root.get("model_list").map(YamlNode::items).unwrap_or_default();
        let mut groups: Vec<Vec<Deployment>> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for entry in entries {
            let Some(deployment) = self.deployment(entry, root) else { continue };
            let place = *places.entry(deployment.name.clone()).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.push(deployment),
                None => groups.push(vec![deployment]),
            }
        }
        for group in groups {
            let model = self.model(&group);
            self.add_model(model);
        }
        // After all models: a fallback may name one further down.
        self.fallbacks(root);
        let router = root.get("router_settings");
        if let Some(aliases) = router.and_then(|router| router.get("model_group_alias")) {
            self.aliases(aliases);
        }
    }

    /// `fallbacks: [{model: [other]}]`: the other model serves when no target of the first can, at its
    /// own price.
    fn fallbacks(&mut self, root: &YamlNode) {
        let sections = ["router_settings", "litellm_settings"];
        let sections: Vec<&YamlNode> = sections.iter().filter_map(|name| root.get(name)).collect();
        let mut for_all: Vec<(String, Mark)> = Vec::new();
        for (list, lost) in FALLBACKS {
            for typed in sections.iter().filter_map(|section| section.get(list)) {
                for field in typed.items().iter().flat_map(YamlNode::fields) {
                    let others = self.names(&field.node);
                    if field.key == "*" {
                        for_all.extend(others.into_iter().map(|other| (other, field.mark)));
                        continue;
                    }
                    for other in others {
                        self.fallback(&field.key, &other, field.mark);
                    }
                }
                if let Some(lost) = lost.filter(|_| !typed.items().is_empty()) {
                    let message =
                        format!("`{list}` are used when no target can serve, and only then");
                    self.left_out(typed.mark, &message, lost);
                }
            }
        }
        for typed in sections.iter().filter_map(|section| section.get("default_fallbacks")) {
            for_all.extend(self.names(typed).into_iter().map(|other| (other, typed.mark)));
        }
        self.fallbacks_for_all(&for_all);
    }

    /// Fallbacks of every model without a list of its own.
    fn fallbacks_for_all(&mut self, for_all: &[(String, Mark)]) {
        for (other, mark) in for_all {
            if self.position(other).is_none() {
                self.no_fallback("*", other, *mark, "it is not among the models");
            }
        }
        let has_none = |model: &&PlannedModel| model.fallbacks.is_empty();
        let ids: Vec<String> =
            self.plan.models.iter().filter(has_none).map(|model| model.id.clone()).collect();
        for id in ids {
            // Each is looked at for each model, so the list is bounded.
            for (other, _) in for_all.iter().take(FOR_ALL_MAX) {
                // Which pairs do not fit is nobody's wish, but a consequence of one list for all.
                if *other != id && self.why_not(&id, other).is_none() {
                    self.add_fallback(&id, other);
                }
            }
        }
    }

    /// Names in a list of fallbacks; entries with parameters are dropped.
    fn names(&mut self, list: &YamlNode) -> Vec<String> {
        let mut names = Vec::new();
        for item in list.items() {
            match item.text() {
                Some(name) => names.push(name.to_owned()),
                None => {
                    let help = "a fallback is the name of a model: nothing else can be said of it";
                    self.left_out(item.mark, "this fallback is left out", help);
                }
            }
        }
        names
    }

    fn fallback(&mut self, name: &str, other: &str, mark: Mark) {
        if let Some(why) = self.why_not(name, other) {
            return self.no_fallback(name, other, mark, why);
        }
        if !self.add_fallback(name, other) {
            let why = "a model takes at most 8 of them";
            return self.no_fallback(name, other, mark, why);
        }
        let message = format!("`{name}` is served by `{other}` when no target of its own can");
        self.note(mark, message, "what that model costs is charged then, and held before");
    }

    fn no_fallback(&mut self, name: &str, other: &str, mark: Mark, why: &str) {
        let message = format!("the fallback from `{name}` to `{other}` is left out");
        self.left_out(mark, &message, why);
    }

    /// Adds a fallback that fits; `false` where there are too many.
    fn add_fallback(&mut self, name: &str, other: &str) -> bool {
        let Some(at) = self.position(name) else { return false };
        let Some(model) = self.plan.models.get_mut(at) else { return false };
        if model.fallbacks.iter().any(|model| model == other) {
            return true;
        }
        if model.fallbacks.len() >= FALLBACKS_MAX {
            return false;
        }
        model.fallbacks.push(other.to_owned());
        true
    }

    fn add_model(&mut self, model: PlannedModel) {
        self.places.insert(model.id.clone(), self.plan.models.len());
        self.plan.models.push(model);
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// The reason why a model cannot serve requests for another one.
    fn why_not(&self, name: &str, other: &str) -> Option<&'static str> {
        let (at, from) = (self.position(name), self.position(other));
        let (Some(model), Some(source)) = (
            at.and_then(|at| self.plan.models.get(at)),
            from.and_then(|from| self.plan.models.get(from)),
        ) else {
            return Some("one of the two is not among the models");
        };
        let is_shared = |operation: &&Operation| {
            // A task is never submitted to a second model.
            source.operations.contains(operation) && !operation.info().is_task
        };
        if name == other {
            Some("a model is no fallback of its own")
        } else if name.ends_with('*') || other.ends_with('*') {
            Some("a pattern has no fallbacks, and is none")
        } else if !source.missing.is_empty() {
            Some("the other is not complete: fill it in, and add it to `fallbacks`")
        } else if !model.operations.iter().any(|operation| is_shared(&operation)) {
            Some("the two do not do the same")
        } else {
            None
        }
    }

    /// `model_group_alias: {name: model}`: another name of a model.
    fn aliases(&mut self, aliases: &YamlNode) {
        let mut copied = 0_usize;
        for field in aliases.fields() {
            let id = field.node.text().or_else(|| field.node.text_of("model"));
            let model = id.and_then(|id| self.plan.models.get(self.position(id)?));
            let targets = model.map_or(0, |model| model.targets.len());
            // Aliases of a large model would multiply its targets: a short file must not become a huge one.
            copied = copied.saturating_add(targets);
            let may_be_copied = copied <= COPIED_TARGETS_MAX && self.is_new(&field.key);
            match model.filter(|_| may_be_copied).cloned() {
                Some(model) => self.add_model(PlannedModel { id: field.key.clone(), ..model }),
                None => {
                    let message = format!("the alias `{}` is left out", field.key);
                    let help = "it names no model of this file, or has the name of one";
                    self.left_out(field.mark, &message, help);
                }
            }
        }
    }

    fn is_new(&self, id: &str) -> bool {
        !self.places.contains_key(id)
    }

    /// Times, retries, circuits and the master key.
    pub(super) fn settings(&mut self, root: &YamlNode) {
        let empty = YamlNode { mark: root.mark, value: YamlValue::Nothing };
        let section = |name: &str| root.get(name).unwrap_or(&empty);
        let (litellm, router) = (section("litellm_settings"), section("router_settings"));
        let either = |field: &str| router.get(field).or_else(|| litellm.get(field));
        if let Some(timeout) = router.get("timeout").or_else(|| litellm.get("request_timeout")) {
            let read = timeout.text().and_then(figure::duration);
            if read.is_none() {
                self.left_out(timeout.mark, "this time is left out", "1 ms to a day can be waited");
            }
            for upstream in &mut self.plan.upstreams {
                upstream.read_timeout = upstream.read_timeout.take().or_else(|| read.clone());
            }
        }
        /// Tries for one request, the first included.
        const TRIES_MAX: u64 = 16;
        if let Some(retries) = either("num_retries") {
            // LiteLLM counts further tries, we count all.
            let count = retries.text().and_then(|text| figure::whole(text, 0..=TRIES_MAX - 1));
            self.plan.tries_max = count.map(|count| count + 1);
            if count.is_none() {
                self.left_out(retries.mark, "`num_retries` is left out", "0 to 15 can be said");
            }
        }
        let failures = either("allowed_fails").and_then(YamlNode::text);
        self.plan.failures = failures.and_then(|text| figure::whole(text, 1..=1000));
        let open = router.text_of("cooldown_time");
        // The longest is two minutes, unless that is said as well.
        self.plan.open = open.and_then(figure::duration);
        /// Maximum of `limits.requests_in_flight_max`.
        const IN_FLIGHT_MAX: u64 = 1_000_000;
        let in_flight = section("general_settings").text_of("global_max_parallel_requests");
        self.plan.in_flight_max = in_flight.and_then(|text| figure::whole(text, 1..=IN_FLIGHT_MAX));
        if let Some(key) = section("general_settings").get("master_key") {
            self.plan.admin_token = self.secret(key);
            let message = "`master_key` becomes the token of the admin API".to_owned();
            let help = "it is no API key here: make accounts and keys with `tollgate accounts \
                        create` and `tollgate keys create`";
            self.note(key.mark, message, help);
        }
    }
}
