//! What LiteLLM says once for all models: fallbacks, aliases, times, retries and the master key.

use super::Migration;
use super::deployment::Deployment;
use super::figure;
use super::plan::PlannedModel;
use super::tree::{Node, Value};

/// The last place that a target can have.
const PRIORITY_MAX: u64 = 1000;

impl Migration<'_> {
    /// Reads `model_list`, and then what refers to its names.
    pub(super) fn models(&mut self, root: &Node) {
        let entries = root.get("model_list").map(Node::items).unwrap_or_default();
        let mut groups: Vec<Vec<Deployment>> = Vec::new();
        for entry in entries {
            let Some(deployment) = self.deployment(entry, root) else { continue };
            let group = groups.iter_mut().find(|group| group[0].name == deployment.name);
            match group {
                Some(group) => group.push(deployment),
                None => groups.push(vec![deployment]),
            }
        }
        for group in groups {
            let model = self.model(&group);
            self.plan.models.push(model);
        }
        for section in ["router_settings", "litellm_settings"] {
            if let Some(fallbacks) = root.get(section).and_then(|found| found.get("fallbacks")) {
                self.fallbacks(fallbacks);
            }
        }
        let router = root.get("router_settings");
        if let Some(aliases) = router.and_then(|router| router.get("model_group_alias")) {
            self.aliases(aliases);
        }
    }

    /// `fallbacks: [{model: [other]}]`: the other's targets come behind the model's own.
    fn fallbacks(&mut self, fallbacks: &Node) {
        for field in fallbacks.items().iter().flat_map(Node::fields) {
            let others = field.node.items().iter().filter_map(Node::text).map(str::to_owned);
            let others: Vec<String> = others.collect();
            for other in others {
                self.fallback(&field.key, &other, field.mark);
            }
        }
    }

    fn fallback(&mut self, name: &str, other: &str, mark: crate::spans::Mark) {
        let known = |wanted: &str| self.plan.models.iter().position(|model| model.id == wanted);
        let (Some(at), Some(from)) = (known(name), known(other)) else {
            let message = format!("the fallback from `{name}` to `{other}` is left out");
            self.left_out(mark, &message, "one of the two is not among the models");
            return;
        };
        let more = self.plan.models[from].targets.clone();
        let (model, source) = (&self.plan.models[at], &self.plan.models[from]);
        if !model.operations.iter().any(|operation| source.operations.contains(operation)) {
            let message = format!("the fallback from `{name}` to `{other}` is left out");
            self.left_out(mark, &message, "the two do not do the same");
            return;
        }
        let Some(model) = self.plan.models.get_mut(at) else { return };
        let last = model.targets.iter().map(|target| target.priority).max().unwrap_or(0);
        for mut target in more {
            target.priority = (last + 1 + target.priority).min(PRIORITY_MAX);
            let is_new = |known: &super::plan::PlannedTarget| {
                (&known.upstream, &known.model) != (&target.upstream, &target.model)
            };
            if model.targets.iter().all(is_new) {
                model.targets.push(target);
            }
        }
        let message = format!("`{name}` costs the same when `{other}` answers in its place");
        self.note(mark, message, "a model has one price, whichever of its targets is used");
    }

    /// `model_group_alias: {name: model}`: the same model by another name.
    fn aliases(&mut self, aliases: &Node) {
        for field in aliases.fields() {
            let wanted = field.node.text().or_else(|| field.node.text_of("model"));
            let known = self.plan.models.iter().find(|model| Some(model.id.as_str()) == wanted);
            let (known, is_new) = (known.cloned(), self.is_new(&field.key));
            match known.filter(|_| is_new) {
                Some(model) => {
                    self.plan.models.push(PlannedModel { id: field.key.clone(), ..model })
                }
                None => {
                    let message = format!("the alias `{}` is left out", field.key);
                    let help = "it names no model of this file, or has the name of one";
                    self.left_out(field.mark, &message, help);
                }
            }
        }
    }

    fn is_new(&self, id: &str) -> bool {
        self.plan.models.iter().all(|model| model.id != id)
    }

    /// Times, retries, circuits and the master key.
    pub(super) fn settings(&mut self, root: &Node) {
        let empty = Node { mark: root.mark, value: Value::Nothing };
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
            let count = retries.text().and_then(|text| figure::whole(text, 0..=TRIES_MAX - 1));
            self.plan.tries_max = count.map(|count| count + 1);
            if count.is_none() {
                self.left_out(retries.mark, "`num_retries` is left out", "0 to 15 can be said");
            }
        }
        let failures = either("allowed_fails").and_then(Node::text);
        self.plan.failures = failures.and_then(|text| figure::whole(text, 1..=1000));
        let open = router.text_of("cooldown_time");
        // The longest is two minutes, unless that is said as well.
        self.plan.open = open.and_then(figure::duration);
        if let Some(key) = section("general_settings").get("master_key") {
            self.plan.admin_token = self.secret(key);
            let message = "`master_key` becomes the token of the admin API".to_owned();
            let help = "it is no API key here: make accounts and keys with `tollgate accounts \
                        create` and `tollgate keys create`";
            self.note(key.mark, message, help);
        }
    }
}
