//! Up to where prompts are marked for the cache, within what Anthropic and Bedrock take.

use super::{AlternatingTurns, TurnBlock};
use crate::dialect::{Losses, TranslationTarget, Untranslatable};
use crate::part::{Cache, Speaker};

/// The most marks of a request: "A maximum of 4 blocks with cache_control may be provided." Bedrock takes
/// as many.
const MARKS_MAX: usize = 4;

/// The marks of a request.
pub(crate) struct CacheMarks {
    /// Cache marks behind tools, by the index of each. Marks in the conversation stand in its blocks.
    pub(crate) tools: Vec<Option<Cache>>,
}

impl CacheMarks {
    /// The marks that the target's cache needs, or those of the request, as far as they are taken: four, and
    /// "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block".
    ///
    /// # Errors
    /// Marks that are not taken, where nothing may be dropped.
    pub(crate) fn place(
        tools: Vec<Option<Cache>>,
        conversation: &mut AlternatingTurns<'_>,
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Self, Untranslatable> {
        let mut marks = Self { tools };
        if marks.all(conversation).is_empty() {
            if target.caches {
                // Only a prompt without a mark: a customer that marks knows better what comes again.
                marks.suggest(conversation);
            }
            return Ok(marks);
        }
        let mut all = marks.all(conversation);
        let kept = kept(&all.iter().map(|mark| mark.section).collect::<Vec<_>>());
        let mut is_whole = kept.len() == all.len();
        let mut has_short = false;
        for (place, mark) in all.iter_mut().enumerate() {
            if !kept.contains(&place) {
                *mark.cache = None;
                continue;
            }
            if has_short && *mark.cache == Some(Cache::Long) {
                // The cheaper of the two: what is kept for five minutes is not kept for an hour.
                *mark.cache = Some(Cache::Short);
                is_whole = false;
            }
            has_short |= *mark.cache == Some(Cache::Short);
        }
        if !is_whole {
            losses.drop_hint(target.mode, "cache_control")?;
        }
        Ok(marks)
    }

    /// Takes all marks away, as models without a cache refuse them.
    ///
    /// # Errors
    /// There are some, and nothing may be dropped.
    pub(crate) fn remove(
        tools: Vec<Option<Cache>>,
        conversation: &mut AlternatingTurns<'_>,
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Self, Untranslatable> {
        let mut marks = Self { tools };
        let mut all = marks.all(conversation);
        if !all.is_empty() {
            all.iter_mut().for_each(|mark| *mark.cache = None);
            losses.drop_hint(target.mode, "cache_control")?;
        }
        Ok(marks)
    }

    /// All marks in the order in which the upstream reads the prompt.
    fn all<'m>(&'m mut self, conversation: &'m mut AlternatingTurns<'_>) -> Vec<CacheMark<'m>> {
        let tools = self.tools.iter_mut().map(|cache| (Section::Tools, cache));
        let system = conversation.system.iter_mut();
        let system = system.map(|text| (Section::System, &mut text.cache));
        let blocks = conversation.turns.iter_mut().flat_map(|turn| &mut turn.blocks);
        let blocks = blocks.map(|block: &mut TurnBlock<'_>| (Section::Turns, &mut block.cache));
        let all = tools.chain(system).chain(blocks).filter(|(_, cache)| cache.is_some());
        all.map(|(section, cache)| CacheMark { section, cache }).collect()
    }

    /// Marks the tools, the instructions and the last two turns of the user.
    fn suggest(&mut self, conversation: &mut AlternatingTurns<'_>) {
        if let Some(last) = self.tools.last_mut() {
            *last = Some(Cache::Short);
        }
        if let Some(last) = conversation.system.last_mut() {
            last.cache = Some(Cache::Short);
        }
        // Two of them: the next request reads the cache at the second and writes it at the first.
        let users = conversation.turns.iter_mut().rev().filter(|turn| turn.role == Speaker::User);
        for last in users.take(2).filter_map(|turn| turn.blocks.last_mut()) {
            last.cache = Some(Cache::Short);
        }
    }
}

struct CacheMark<'m> {
    section: Section,
    cache: &'m mut Option<Cache>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Tools,
    System,
    Turns,
}

/// The places of the marks that stay: the last of what is said, of the instructions and of the tools, and
/// then the latest.
fn kept(marks: &[Section]) -> Vec<usize> {
    let last = |section| marks.iter().rposition(|mark| *mark == section);
    let lasts = [Section::Turns, Section::System, Section::Tools].into_iter().filter_map(last);
    let mut kept: Vec<usize> = lasts.collect();
    // From the end: later marks cover a longer beginning of the prompt.
    for place in (0..marks.len()).rev() {
        if kept.len() == MARKS_MAX {
            break;
        }
        if !kept.contains(&place) {
            kept.push(place);
        }
    }
    kept
}
