//! Members of a customer's `usage` that several dialects write alike.

use crate::json::Members;
use crate::part::Counts;

/// Writes a count unless it is zero.
pub(crate) fn counted(members: &mut Members, key: &str, count: u64, out: &mut Vec<u8>) {
    if count > 0 {
        members.integer(out, key, count);
    }
}

/// Writes Anthropic's `cache_creation`: written tokens by lifetime.
pub(crate) fn cache_creation(counts: &Counts, out: &mut Vec<u8>) {
    let mut creation = Members::object(out);
    creation.integer(out, "ephemeral_5m_input_tokens", counts.cache_write);
    creation.integer(out, "ephemeral_1h_input_tokens", counts.cache_write_1h);
    creation.end(out);
}

/// Writes cache writes for dialects with one lifetime. Tokens kept for an hour have a price of their own, so
/// Anthropic's object follows if there are any.
pub(crate) fn cache_writes(
    details: &mut Members,
    counts: &Counts,
    is_always_shown: bool,
    out: &mut Vec<u8>,
) {
    let written = counts.cache_write.saturating_add(counts.cache_write_1h);
    if written > 0 || is_always_shown {
        details.integer(out, "cache_write_tokens", written);
    }
    if counts.cache_write_1h > 0 {
        details.key(out, "cache_creation");
        cache_creation(counts, out);
    }
}

/// Writes the audio, image and video tokens of the input, if counted apart.
pub(crate) fn media_input(details: &mut Members, counts: &Counts, out: &mut Vec<u8>) {
    counted(details, "audio_tokens", counts.audio_input, out);
    counted(details, "image_tokens", counts.image_input, out);
    counted(details, "video_tokens", counts.video_input, out);
}

/// Searches in the web that the upstream ran, in Anthropic's words, as OpenAI has none in `usage`.
pub(crate) fn searches(usage: &mut Members, counts: &Counts, out: &mut Vec<u8>) {
    if counts.web_searches > 0 {
        usage.key(out, "server_tool_use");
        let mut tools = Members::object(out);
        tools.integer(out, "web_search_requests", counts.web_searches);
        tools.integer(out, "web_fetch_requests", 0);
        tools.end(out);
    }
}
