//! Properties of a prompt that bound what it can cost, found while its request is read.

use super::search_limit::SearchLimit;
use crate::server_tools::ToolContextCost;
use crate::stored::Reference;
use tollgate_money::price::{CacheWrites, InputWays, Unit, Usage};

/// Properties of a prompt that bound its usage.
#[derive(Debug)]
pub(in super::super) struct Prompt {
    /// The most tokens that an upstream adds to those of the body; `None` when the body does not bound
    /// the prompt.
    pub(in super::super) added_tokens_max: Option<u64>,
    /// Bytes of the body that are inline media, whose tokens are among those that are added.
    pub(in super::super) media_bytes: u64,
    /// True where some of it can be a picture, sound or video.
    pub(in super::super) has_media: bool,
    /// True if all of it is text for the model.
    pub(in super::super) is_text: bool,
    /// Maximum number of times that the upstream reads its context and answers.
    pub(in super::super) rounds: u64,
    /// Addition of each round but the last to the prompt, where searches are all that the upstream runs and
    /// the prompt is bounded but for them.
    pub(in super::super) search: Option<ToolContextCost>,
    /// The limit of searches that goes upstream, since the customer has set none.
    pub(in super::super) search_limit: Option<SearchLimit>,
    /// True if the upstream may summarize the prompt first, which is one more answer.
    pub(in super::super) is_compacted: bool,
    /// True if it has something that only the operator permits.
    pub(in super::super) has_passed: bool,
    /// Maximum usage of tools that the upstream runs beside the model.
    pub(in super::super) server_calls_max: Usage,
    /// Lifetimes of prompt cache writes that it may cause.
    pub(in super::super) cache_writes: CacheWrites,
    /// The most expensive cache unit that the request uses, other than the default one. A report without
    /// lifetimes is charged at it.
    pub(in super::super) written_as: Option<Unit>,
    /// Top-level fields that do not go upstream.
    pub(in super::super) left_out_fields: Vec<&'static str>,
    /// Upstream objects that it refers to, but for responses and their items.
    pub(in super::super) references: Vec<Reference>,
}

impl Prompt {
    /// A prompt of text alone, or of that and media.
    pub(in super::super) fn of_text(is_text: bool) -> Self {
        Self {
            added_tokens_max: is_text.then_some(0),
            media_bytes: 0,
            has_media: !is_text,
            is_text: false,
            rounds: 1,
            search: None,
            search_limit: None,
            is_compacted: false,
            has_passed: false,
            server_calls_max: Usage::ZERO,
            cache_writes: CacheWrites::Hour,
            written_as: None,
            left_out_fields: Vec::new(),
            references: Vec::new(),
        }
    }

    /// The possible kinds of input. Cache writes longer than an hour occur only on request.
    pub(in super::super) fn input_ways(&self) -> InputWays {
        let has_media = self.has_media;
        let cache_writes = if self.has_passed { CacheWrites::Any } else { self.cache_writes };
        InputWays { cache_writes, has_media }
    }

    /// True if the upstream may run a tool.
    pub(in super::super) fn has_server_tools(&self) -> bool {
        self.server_calls_max != Usage::ZERO
    }

    /// True if nothing is hidden: text in, one round, nothing else.
    pub(in super::super) fn is_plain(&self) -> bool {
        self.added_tokens_max.is_some()
            && !self.has_media
            && self.rounds == 1
            && !self.is_compacted
            && !self.has_passed
    }
}
