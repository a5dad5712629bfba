//! The table of billing units: one row for each, which everything that counts, prices, shows or keeps
//! units is made of.
//!
//! [`each_unit`](crate::each_unit) is the table. What a row says is in [`UnitInfo`]; the types with a
//! field for each unit ([`Usage`](super::Usage), [`Prices`](super::Prices), and the prices of
//! `models.yaml`) are made by macros that it calls.

/// Calls the macro `$make` with the rows of the table. A row has, one after the other:
/// the unit and the name of its count, the name of its rate, its field below `prices` in `models.yaml`
/// with the type of that, and what else [`UnitInfo`] says of it.
///
/// Rows are only ever appended: a unit's number is its place here, and stands in records.
#[macro_export]
#[doc(hidden)]
macro_rules! each_unit {
    ($make:ident) => {
        $make! {
            /// Input tokens that were neither read from nor written to a prompt cache.
            InputTokens: input_tokens,
            /// Per plain input token.
            input,
            /// Price of a million input tokens.
            input_per_1m_tokens: PerMillion,
            { side: Input, priced_as: None, shown_as: InputTokens, label: "Input tokens",
              words: ["input token", "input tokens"], metric: Some("input"), column: Some("in") };

            /// Input tokens read from a prompt cache.
            CacheReadTokens: cache_read_tokens,
            /// Per input token read from a cache.
            cache_read,
            /// Price of a million input tokens read from a prompt cache. Default: the input price.
            cached_input_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::InputTokens), shown_as: CacheReadTokens,
              label: "Cached input tokens read", words: ["cached token", "cached tokens"],
              metric: Some("cache_read"), column: None };

            /// Input tokens written to a prompt cache for five minutes (or for the upstream's only period).
            CacheWriteTokens: cache_write_tokens,
            /// Per input token written to a five-minute cache.
            cache_write,
            /// Price of a million input tokens written to a prompt cache. Default: the input price.
            cache_write_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::InputTokens), shown_as: CacheWriteTokens,
              label: "Cached input tokens written", words: ["written token", "written tokens"],
              metric: Some("cache_write"), column: None };

            /// Input tokens written to a prompt cache for one hour.
            CacheWrite1hTokens: cache_write_1h_tokens,
            /// Per input token written to a one-hour cache.
            cache_write_1h,
            /// Price of a million input tokens written to a prompt cache for an hour. Default: the price of a
            /// cache write.
            cache_write_1h_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::CacheWriteTokens), shown_as: CacheWriteTokens,
              label: "Cached input tokens written for an hour",
              words: ["written token", "written tokens"], metric: Some("cache_write"), column: None };

            /// Output tokens, including reasoning if the upstream counts it there.
            OutputTokens: output_tokens,
            /// Per output token.
            output,
            /// Price of a million output tokens, including reasoning.
            output_per_1m_tokens: PerMillion,
            { side: Output, priced_as: None, shown_as: OutputTokens, label: "Output tokens",
              words: ["output token", "output tokens"], metric: Some("output"), column: Some("out") };

            /// Images made.
            Images: images,
            /// Per image.
            image,
            /// Price of one image.
            per_image: PerUnit,
            { side: Made, priced_as: None, shown_as: Images, label: "Images",
              words: ["image", "images"], metric: None, column: Some("images") };

            /// Seconds of video made.
            Seconds: seconds,
            /// Per second of video.
            second,
            /// Price of one second of video.
            per_second: PerUnit,
            { side: Made, priced_as: None, shown_as: Seconds, label: "Seconds of video",
              words: ["s", "s"], metric: None, column: Some("seconds") };

            /// Characters spoken.
            Characters: characters,
            /// Per character of speech.
            character,
            /// Price of a million characters of speech.
            per_1m_characters: PerMillion,
            { side: Made, priced_as: None, shown_as: Characters, label: "Characters",
              words: ["character", "characters"], metric: None, column: Some("characters") };

            /// Input tokens of audio.
            AudioInputTokens: audio_input_tokens,
            /// Per input token of sound.
            audio_input,
            /// Price of a million audio input tokens. Default: the input price.
            audio_input_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::InputTokens), shown_as: AudioInputTokens,
              label: "Audio input tokens", words: ["audio token heard", "audio tokens heard"],
              metric: Some("audio_input"), column: None };

            /// Image input tokens, for models that count them separately.
            ImageInputTokens: image_input_tokens,
            /// Per input token of a picture.
            image_input,
            /// Price of a million image input tokens. Default: the input price.
            image_input_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::InputTokens), shown_as: ImageInputTokens,
              label: "Image input tokens", words: ["image token seen", "image tokens seen"],
              metric: Some("image_input"), column: None };

            /// Output tokens of audio.
            AudioOutputTokens: audio_output_tokens,
            /// Per output token of sound.
            audio_output,
            /// Price of a million audio output tokens. Default: the output price.
            audio_output_per_1m_tokens: PerMillion,
            { side: Output, priced_as: Some(Unit::OutputTokens), shown_as: AudioOutputTokens,
              label: "Audio output tokens", words: ["audio token spoken", "audio tokens spoken"],
              metric: Some("audio_output"), column: None };

            /// Web searches that the upstream ran; for xAI the number of sources used.
            WebSearches: web_searches,
            /// Per search in the web.
            web_search,
            /// Price of a thousand web searches that the upstream runs. Without it, requests for them are
            /// refused.
            per_1k_web_searches: PerThousand,
            { side: Made, priced_as: None, shown_as: WebSearches, label: "Web searches",
              words: ["web search", "web searches"], metric: None, column: Some("searches") };

            /// File searches that the upstream ran.
            FileSearches: file_searches,
            /// Per search in files.
            file_search,
            /// Price of a thousand file searches that the upstream runs. Without it, requests for them are
            /// refused.
            per_1k_file_searches: PerThousand,
            { side: Made, priced_as: None, shown_as: FileSearches, label: "File searches",
              words: ["file search", "file searches"], metric: None, column: None };

            /// Containers in which the upstream ran code.
            ContainerSessions: container_sessions,
            /// Per container in which code ran.
            container_session,
            /// Price of one container in which the upstream runs code. Without it, requests for containers
            /// are refused.
            per_container_session: PerUnit,
            { side: Made, priced_as: None, shown_as: ContainerSessions, label: "Containers",
              words: ["container", "containers"], metric: None, column: None };

            /// Calls of other tools that the upstream ran.
            ToolCalls: tool_calls,
            /// Per call of another tool.
            tool_call,
            /// Price of a thousand calls of other tools that the upstream runs, such as those of MCP servers.
            /// Without it, requests for them are refused.
            per_1k_tool_calls: PerThousand,
            { side: Made, priced_as: None, shown_as: ToolCalls, label: "Tool calls",
              words: ["tool call", "tool calls"], metric: None, column: None };

            /// Requests with a price per request.
            Requests: requests,
            /// Per request that is charged for.
            request,
            /// Price of one charged request, in addition to its usage.
            per_request: PerUnit,
            { side: Made, priced_as: None, shown_as: Requests, label: "Requests",
              words: ["request", "requests"], metric: None, column: None };

            /// Rerank units: Cohere's search units, each a query with up to a hundred documents.
            RerankUnits: rerank_units,
            /// Per rerank unit.
            rerank_unit,
            /// Price of a thousand rerank units (Cohere's search units): one query with up to a hundred
            /// documents, where long documents count several times.
            per_1k_rerank_units: PerThousand,
            { side: Made, priced_as: None, shown_as: RerankUnits, label: "Rerank units",
              words: ["rerank unit", "rerank units"], metric: None, column: None };

            /// Image output tokens, for models that also produce text.
            ImageOutputTokens: image_output_tokens,
            /// Per output token of a picture.
            image_output,
            /// Price of a million image output tokens. Default: the output price.
            image_output_per_1m_tokens: PerMillion,
            { side: Output, priced_as: Some(Unit::OutputTokens), shown_as: ImageOutputTokens,
              label: "Image output tokens", words: ["image token made", "image tokens made"],
              metric: Some("image_output"), column: None };

            /// Seconds of audio heard.
            AudioSeconds: audio_seconds,
            /// Per second of audio heard.
            audio_second,
            /// Price of a second of transcribed or translated audio: a sixtieth of the price of a minute.
            per_audio_second: PerUnit,
            { side: Made, priced_as: None, shown_as: AudioSeconds, label: "Seconds of audio",
              words: ["s of audio", "s of audio"], metric: None, column: None };

            /// Video input tokens, for models that count them separately.
            VideoInputTokens: video_input_tokens,
            /// Per input token of a video.
            video_input,
            /// Price of a million video input tokens. Default: the input price. Without it, chat completions
            /// accept no `video_url` and no `video`.
            video_input_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::InputTokens), shown_as: VideoInputTokens,
              label: "Video input tokens", words: ["video token seen", "video tokens seen"],
              metric: Some("video_input"), column: None };

            /// Input tokens written to a prompt cache for twelve hours.
            CacheWrite12hTokens: cache_write_12h_tokens,
            /// Per input token written to a twelve-hour cache.
            cache_write_12h,
            /// Price of a million input tokens written to a prompt cache for twelve hours. Without it,
            /// requests for such writes are refused; writes that are reported anyway cost as much as writes
            /// for an hour.
            cache_write_12h_per_1m_tokens: PerMillion,
            { side: Input, priced_as: Some(Unit::CacheWrite1hTokens), shown_as: CacheWriteTokens,
              label: "Cached input tokens written for twelve hours",
              words: ["written token", "written tokens"], metric: Some("cache_write"), column: None };
        }
    };
}

/// Number of units encoded by place, the first of the table: the encoding before units had numbers.
/// Records and a fleet's database identify later ones by number.
pub const PLACED: usize = 8;

/// Total that a unit counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Tokens that went in, from a cache or not.
    Input,
    /// Tokens that came out.
    Output,
    /// Anything else that was produced or done, reported separately.
    Made,
}

/// Properties of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitInfo {
    /// The unit that the row is of.
    pub unit: Unit,
    /// Its count in JSON, logs, CSV and a fleet's database.
    pub name: &'static str,
    /// JSON pointer to its count in a document with a `usage`.
    pub pointer: &'static str,
    /// Its price in `models.yaml` and the admin API.
    pub price: &'static str,
    /// Number of units in the quoted price.
    pub per: u64,
    /// Total to which the unit belongs.
    pub side: Side,
    /// The unit whose price it has where none is typed for it; `None` for a price of nothing.
    pub priced_as: Option<Unit>,
    /// The unit in which customers see it: itself, or one that they know no difference to.
    pub shown_as: Unit,
    /// Its name at the beginning of a line, for people.
    pub label: &'static str,
    /// The words behind a count of one, and of more.
    pub words: [&'static str; 2],
    /// Its `kind` in `tollgate_tokens_total`; `None` for what is no token.
    pub metric: Option<&'static str>,
    /// The title of its column in the operators' command for usage; `None` for no column.
    pub column: Option<&'static str>,
}

macro_rules! per {
    (PerMillion) => {
        1_000_000
    };
    (PerThousand) => {
        1_000
    };
    (PerUnit) => {
        1
    };
}

macro_rules! units {
    ($(
        $(#[$doc:meta])* $unit:ident: $name:ident,
        $(#[$rate_doc:meta])* $rate:ident,
        $(#[$price_doc:meta])* $price:ident: $typed:ident,
        { side: $side:ident, priced_as: $priced_as:expr, shown_as: $shown_as:ident,
          label: $label:literal, words: $words:expr, metric: $metric:expr, column: $column:expr };
    )+) => {
        /// Billing unit. Its number identifies it in records.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Unit {
            $($(#[$doc])* $unit),+
        }

        impl Unit {
            /// Every unit, in the order of their numbers, which is that of documents.
            pub const ALL: &[Self] = &[$(Self::$unit),+];
        }

        /// Properties of every unit, in the order of their numbers.
        pub const UNITS: &[UnitInfo; Unit::ALL.len()] = &[
            $(UnitInfo {
                unit: Unit::$unit,
                name: stringify!($name),
                pointer: concat!("/usage/", stringify!($name)),
                price: stringify!($price),
                per: per!($typed),
                side: Side::$side,
                priced_as: $priced_as,
                shown_as: Unit::$shown_as,
                label: $label,
                words: $words,
                metric: $metric,
                column: $column,
            }),+
        ];
    };
}

each_unit!(units);

impl Unit {
    /// Number of units.
    pub const COUNT: usize = Self::ALL.len();

    /// Properties of the unit.
    #[must_use]
    pub const fn info(self) -> &'static UnitInfo {
        &UNITS[self as usize]
    }

    /// Its number in records.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The unit of this number; `None` for one of a later version.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// True if it is encoded by place, as before units had numbers.
    #[must_use]
    pub const fn is_placed(self) -> bool {
        (self as usize) < PLACED
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The numbers, names and prices of units that were ever written.
    #[test]
    fn rows_are_only_appended() {
        let placed = [
            ("input_tokens", "input_per_1m_tokens"),
            ("cache_read_tokens", "cached_input_per_1m_tokens"),
            ("cache_write_tokens", "cache_write_per_1m_tokens"),
            ("cache_write_1h_tokens", "cache_write_1h_per_1m_tokens"),
            ("output_tokens", "output_per_1m_tokens"),
            ("images", "per_image"),
            ("seconds", "per_second"),
            ("characters", "per_1m_characters"),
        ];
        assert_eq!(placed.len(), PLACED);
        let found: Vec<_> = UNITS.iter().map(|info| (info.name, info.price)).collect();
        assert_eq!(found[..PLACED], placed);
        let numbered = [
            ("audio_input_tokens", "audio_input_per_1m_tokens"),
            ("image_input_tokens", "image_input_per_1m_tokens"),
            ("audio_output_tokens", "audio_output_per_1m_tokens"),
            ("web_searches", "per_1k_web_searches"),
            ("file_searches", "per_1k_file_searches"),
            ("container_sessions", "per_container_session"),
            ("tool_calls", "per_1k_tool_calls"),
            ("requests", "per_request"),
            ("rerank_units", "per_1k_rerank_units"),
            ("image_output_tokens", "image_output_per_1m_tokens"),
            ("audio_seconds", "per_audio_second"),
            ("video_input_tokens", "video_input_per_1m_tokens"),
            ("cache_write_12h_tokens", "cache_write_12h_per_1m_tokens"),
        ];
        assert_eq!(found[PLACED..], numbered);
    }

    #[test]
    fn every_unit_is_itself() {
        let mut names = HashSet::new();
        for (info, number) in UNITS.iter().zip(0_u8..) {
            assert_eq!((info.unit.number(), Unit::from_number(number)), (number, Some(info.unit)));
            assert_eq!(info.unit.info(), info);
            assert!(names.insert(info.name) && names.insert(info.price), "{info:?} is there twice");
            let shown = info.shown_as.info();
            assert_eq!((shown.shown_as, shown.side), (info.shown_as, info.side), "{info:?}");
            assert_eq!(info.metric.is_some(), info.side != Side::Made, "{info:?}");
        }
        assert_eq!(Unit::from_number(u8::MAX), None);
    }
}
