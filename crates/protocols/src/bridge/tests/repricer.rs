//! Recomputes a bill as a customer can: from the usage in their own dialect and the price list, without any
//! of the gateway's code.

use serde_json::Value;

/// The price of one unit each, in femto-dollars: a millionth of a nano-dollar.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriceSheet {
    pub(super) input: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) cache_write_1h: u64,
    pub(super) audio_input: u64,
    pub(super) image_input: u64,
    pub(super) video_input: u64,
    pub(super) output: u64,
    pub(super) audio_output: u64,
    pub(super) web_search: u64,
}

/// The number at a path of a `usage`; 0 where there is none.
fn number(usage: &Value, path: &str) -> u64 {
    usage.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// Nano-dollars, rounded up once, of so many units at so many femto-dollars each.
fn round_up(lines: &[(u64, u64)]) -> u128 {
    let femto: u128 =
        lines.iter().map(|(count, rate)| u128::from(*count) * u128::from(*rate)).sum();
    femto.div_ceil(1_000_000)
}

/// Price of the kinds, given the dialect's names of the input's and the output's details.
fn price(
    usage: &Value,
    prices: &PriceSheet,
    input: u64,
    outputs: [u64; 2],
    writes: [u64; 2],
) -> u128 {
    let details = ["/prompt_tokens_details", "/input_tokens_details"];
    let detail =
        |key: &str| details.iter().map(|at| number(usage, &format!("{at}/{key}"))).sum::<u64>();
    let (audio_input, image_input) = (detail("audio_tokens"), detail("image_tokens"));
    let video_input = detail("video_tokens");
    let cached = detail("cached_tokens") + number(usage, "/cache_read_input_tokens");
    let [output, audio_output] = outputs;
    let [short, long] = writes;
    round_up(&[
        (input - audio_input - image_input - video_input, prices.input),
        (cached, prices.cache_read),
        (short, prices.cache_write),
        (long, prices.cache_write_1h),
        (audio_input, prices.audio_input),
        (image_input, prices.image_input),
        (video_input, prices.video_input),
        (output - audio_output, prices.output),
        (audio_output, prices.audio_output),
        (number(usage, "/server_tool_use/web_search_requests"), prices.web_search),
    ])
}

/// A customer of OpenAI's dialects, where all input and all output are told with what is in them.
fn openai(usage: &Value, prices: &PriceSheet, input: &str, output: &str) -> u128 {
    let of_input = |key: &str| number(usage, &format!("/{input}_details/{key}"));
    let (cached, written) = (of_input("cached_tokens"), of_input("cache_write_tokens"));
    let long = of_input("cache_creation/ephemeral_1h_input_tokens");
    let all = number(usage, &format!("/{input}"));
    let outputs = [
        number(usage, &format!("/{output}")),
        number(usage, &format!("/{output}_details/audio_tokens")),
    ];
    price(usage, prices, all - cached - written, outputs, [written - long, long])
}

pub(super) fn chat(usage: &Value, prices: &PriceSheet) -> u128 {
    openai(usage, prices, "prompt_tokens", "completion_tokens")
}

pub(super) fn responses(usage: &Value, prices: &PriceSheet) -> u128 {
    openai(usage, prices, "input_tokens", "output_tokens")
}

/// A customer of Anthropic's dialect, whose input is told without what a cache had to do with.
pub(super) fn messages(usage: &Value, prices: &PriceSheet) -> u128 {
    let outputs =
        [number(usage, "/output_tokens"), number(usage, "/output_tokens_details/audio_tokens")];
    let writes = [
        number(usage, "/cache_creation/ephemeral_5m_input_tokens"),
        number(usage, "/cache_creation/ephemeral_1h_input_tokens"),
    ];
    assert_eq!(number(usage, "/cache_creation_input_tokens"), writes[0] + writes[1], "{usage}");
    price(usage, prices, number(usage, "/input_tokens"), outputs, writes)
}

/// A customer of Google's dialect, whose thoughts are told beside what was said.
pub(super) fn gemini(usage: &Value, prices: &PriceSheet) -> u128 {
    let count = |key: &str| number(usage, &format!("/{key}"));
    let of_modality = |list: &str, modality: &str| {
        let all = usage[list].as_array().into_iter().flatten();
        let one = all.filter(|one| one["modality"] == modality);
        one.map(|one| number(one, "/tokenCount")).sum::<u64>()
    };
    let audio_input = of_modality("promptTokensDetails", "AUDIO");
    let image_input = of_modality("promptTokensDetails", "IMAGE");
    let video_input = of_modality("promptTokensDetails", "VIDEO");
    let audio_output = of_modality("candidatesTokensDetails", "AUDIO");
    let (cached, written) = (count("cachedContentTokenCount"), count("cacheWriteTokenCount"));
    let long = count("cacheWrite1hTokenCount");
    let output = count("candidatesTokenCount") + count("thoughtsTokenCount");
    assert_eq!(count("totalTokenCount"), count("promptTokenCount") + output, "{usage}");
    round_up(&[
        (
            count("promptTokenCount") - cached - written - audio_input - image_input - video_input,
            prices.input,
        ),
        (cached, prices.cache_read),
        (written - long, prices.cache_write),
        (long, prices.cache_write_1h),
        (audio_input, prices.audio_input),
        (image_input, prices.image_input),
        (video_input, prices.video_input),
        (output - audio_output, prices.output),
        (audio_output, prices.audio_output),
        (count("webSearchCount"), prices.web_search),
    ])
}
