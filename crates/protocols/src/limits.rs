//! Limits of one request to a model, and of its options: `limits` in `models.yaml`.

use super::media::PictureFamily;
use tollgate_money::price::{ImageSize, Quality, Resolution, Unit};
pub use tollgate_translation::dialect::{
    ChatStyle, Efforts, Mode, ThinkingField, ThinkingStyle, TranslationTarget,
};
pub use tollgate_translation::names::CallIds;
use tollgate_types::error::GatewayError;
use tollgate_types::words::{Word, words};

/// Images in one request where `models.yaml` does not say: OpenAI's own limit.
const IMAGES_MAX: u32 = 10;
/// Images that a request refers to where `models.yaml` does not say: OpenAI's own limit.
const REFERENCES_MAX: u32 = 16;
/// Documents to rank in one request where `models.yaml` does not say: Voyage's own limit, and what Cohere
/// advises.
pub const DOCUMENTS_MAX: u32 = 1000;
/// Tokens of a second of audio where `models.yaml` does not say: OpenAI's models hear one each 100 ms.
const AUDIO_TOKENS_PER_SECOND: u32 = 10;
/// Searches in the web for one request where neither `models.yaml` nor the customer says: agents run one to
/// four in a turn, and the next turn may run as many again.
pub const SEARCHES_MAX: u32 = 5;
/// Characters to speak where `models.yaml` does not say: OpenAI's own limit.
const CHARACTERS_MAX: u32 = 4096;

/// The limits of a model. `0` stands for "does not apply".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of input that the model takes (its context window).
    pub input_tokens_max: u64,
    /// Formula for the tokens of pictures; with `None`, a prompt with pictures holds the whole context.
    pub pictures: Option<PictureFamily>,
    /// Tokens that it can put out in one answer, reasoning included; of one image where it makes
    /// images.
    pub output_tokens_max: u64,
    /// Vector sizes that an embedding model can give; empty when any is passed through.
    pub dimensions: Vec<u32>,
    /// Inputs that an embedding model takes in one call; longer arrays are split.
    pub batch_inputs_max: Option<u32>,
    /// True if an embedding model accepts token ids instead of text.
    pub token_ids: bool,
    /// Documents that one request can have ranked.
    pub documents_max: u32,
    /// Options of a model that generates images.
    pub images: ImageLimits,
    /// Options of a model that generates speech.
    pub speech: SpeechLimits,
    /// Options of a model that transcribes audio.
    pub transcription: TranscriptionLimits,
    /// Options of a model that generates videos.
    pub video: VideoLimits,
    /// True if the model may reason without showing all of it; the default.
    pub reasoning: bool,
    /// Charge for an answer whose upstream reports no usage.
    pub missing_usage: MissingUsage,
    /// Searches in the web that an upstream may run for one request where the customer sets no limit; zero
    /// leaves such requests as they are.
    pub searches_max: u32,
    /// Fields, tools and contents that the operator permits beyond the allowlist.
    pub pass: PassList,
    /// Features that may be requested because they have prices.
    pub priced: PricedFeatures,
    /// Settings for translating requests of other dialects; `None` where they are not translated.
    pub translation: Option<TranslationTarget>,
    /// API through which the model accepts tools.
    pub chat_tools: ChatTools,
}

/// API through which a model accepts tools in OpenAI's chat completions. Otherwise only the Responses API
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatTools {
    /// All requests, at any reasoning effort.
    #[default]
    Always,
    /// Requests without `reasoning_effort`, or with `none`.
    WithoutEffort,
    /// Requests with `reasoning_effort: none`.
    EffortNone,
    /// In none: requests with tools go to the Responses API.
    Never,
}

/// Charge for a complete answer whose upstream reports no usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingUsage {
    /// The visible part, unless the request asks for hidden output. The rest up to the maximum cost is
    /// recorded as the operator's loss.
    #[default]
    Estimate,
    /// The maximum possible cost, unless the whole output is visible.
    Bound,
}

/// Features with prices of their own: a request for one without a price is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PricedFeatures {
    /// Top-level fields, each with a word that it may have.
    pub words: Vec<(&'static str, &'static str)>,
    /// True if a model that thinks has other prices than one that does not.
    pub thinking: bool,
    /// The units that have a price, such as searches in the web.
    pub units: Vec<Unit>,
}

impl PricedFeatures {
    /// True if a top-level field may have this value.
    #[must_use]
    pub fn has_word(&self, field: &str, word: &str) -> bool {
        self.words.contains(&(field, word))
    }

    /// True if a unit has a price.
    #[must_use]
    pub fn has_unit(&self, unit: Unit) -> bool {
        self.units.contains(&unit)
    }
}

/// Names that an operator has reviewed and permits; a trailing `*` matches a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassList {
    /// Additional top-level fields that are forwarded.
    pub fields: Vec<String>,
    /// Types of tools, which the upstream is taken to run.
    pub tools: Vec<String>,
    /// Types of messages, items and parts of a content.
    pub content: Vec<String>,
}

impl PassList {
    /// True if a top-level field of this name is permitted.
    #[must_use]
    pub fn has_field(&self, name: &str) -> bool {
        has(&self.fields, name)
    }

    /// True if tools of this type are permitted.
    #[must_use]
    pub fn has_tool(&self, kind: &str) -> bool {
        has(&self.tools, kind)
    }

    /// True if content of this type is permitted.
    #[must_use]
    pub fn has_content(&self, kind: &str) -> bool {
        has(&self.content, kind)
    }
}

/// True if a list matches the name.
#[must_use]
pub fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => entry == name,
    })
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            input_tokens_max: 0,
            pictures: None,
            output_tokens_max: 0,
            dimensions: Vec::new(),
            batch_inputs_max: None,
            token_ids: true,
            documents_max: DOCUMENTS_MAX,
            images: ImageLimits::default(),
            speech: SpeechLimits::default(),
            transcription: TranscriptionLimits::default(),
            video: VideoLimits::default(),
            reasoning: true,
            missing_usage: MissingUsage::default(),
            searches_max: SEARCHES_MAX,
            pass: PassList::default(),
            priced: PricedFeatures::default(),
            translation: Some(TranslationTarget::default()),
            chat_tools: ChatTools::default(),
        }
    }
}

/// Options of a model that generates images. `None` permits any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Images made by one request.
    pub count_max: u32,
    /// Images that a request must refer to.
    pub references_min: u32,
    /// Images that a request can refer to.
    pub references_max: u32,
    /// Sizes with a name.
    pub sizes: Vec<ImageSize>,
    /// The rules for sizes that are not among them; none of them, and `sizes` is all there is.
    pub side_max: Option<u16>,
    /// Divisor of both sides.
    pub side_multiple: Option<u16>,
    /// The long side over the short one.
    pub aspect_ratio_max: Option<u16>,
    /// Available qualities, apart from `auto`.
    pub qualities: Option<Vec<Quality>>,
    /// The formats of image files that are offered.
    pub output_formats: Option<Vec<ImageFormat>>,
    /// The ways in which an answer may hold its images.
    pub response_formats: Option<Vec<ResponseFormat>>,
    /// True if a mask is accepted.
    pub mask: bool,
    /// True if images can be streamed.
    pub stream: bool,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            count_max: IMAGES_MAX,
            references_min: 0,
            references_max: REFERENCES_MAX,
            sizes: Vec::new(),
            side_max: None,
            side_multiple: None,
            aspect_ratio_max: None,
            qualities: None,
            output_formats: None,
            response_formats: None,
            mask: true,
            stream: false,
        }
    }
}

impl ImageLimits {
    /// True if images of this size can be generated.
    #[must_use]
    pub fn has_size(&self, size: ImageSize) -> bool {
        let ImageSize { width, height } = size;
        let (short, long) = (width.min(height), width.max(height));
        let has_rules = self.side_max.is_some()
            || self.side_multiple.is_some()
            || self.aspect_ratio_max.is_some();
        let is_ruled_out = self.side_max.is_some_and(|max| long > max)
            || self.side_multiple.is_some_and(|of| width % of != 0 || height % of != 0)
            || self
                .aspect_ratio_max
                .is_some_and(|max| u32::from(long) > u32::from(short) * u32::from(max));
        let is_free = if has_rules { !is_ruled_out } else { self.sizes.is_empty() };
        is_free || self.sizes.contains(&size)
    }

    /// The sizes in words, joined by `by`: `1024x1024, any size with sides that are multiples of 16, no side above 3840`.
    #[must_use]
    pub fn sizes_in_words(&self, by: char) -> String {
        let named = |size: &ImageSize| format!("{}{by}{}", size.width, size.height);
        let mut words: Vec<String> = self.sizes.iter().map(named).collect();
        let mut rules = Vec::new();
        if let Some(of) = self.side_multiple {
            rules.push(format!("sides that are multiples of {of}"));
        }
        if let Some(max) = self.side_max {
            rules.push(format!("no side above {max}"));
        }
        if let Some(max) = self.aspect_ratio_max {
            rules.push(format!("a ratio of at most {max}:1"));
        }
        if !rules.is_empty() {
            words.push(format!("any size with {}", rules.join(", ")));
        }
        words.join(", ")
    }
}

/// Options of a model that generates videos.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VideoLimits {
    /// Resolutions; empty for any.
    pub resolutions: Vec<Resolution>,
    /// Minimum duration of a video, in seconds.
    pub seconds_min: u32,
    /// The longest video, in seconds.
    pub seconds_max: u32,
    /// Seconds and seeds can be -1: the upstream chooses them then.
    pub minus_one: bool,
}

/// Options of a model that generates speech. `None` permits any value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechLimits {
    /// Characters of one request.
    pub characters_max: u32,
    /// Formats of audio, of upstreams that make `wav` alone.
    pub formats: Option<Vec<AudioFormat>>,
    /// True if the model accepts instructions on how to speak.
    pub instructions: bool,
}

impl Default for SpeechLimits {
    fn default() -> Self {
        Self { characters_max: CHARACTERS_MAX, formats: None, instructions: true }
    }
}

/// Options of a model that transcribes audio, and its upstream's counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptionLimits {
    /// The longest audio, in seconds; `None` where only the upstream has a limit.
    pub seconds_max: Option<u32>,
    /// The seconds that are billed of shorter audio.
    pub billed_seconds_min: u32,
    /// Input tokens that the model makes of a second of audio.
    pub audio_tokens_per_second: u32,
}

impl Default for TranscriptionLimits {
    fn default() -> Self {
        Self {
            seconds_max: None,
            billed_seconds_min: 0,
            audio_tokens_per_second: AUDIO_TOKENS_PER_SECOND,
        }
    }
}

/// Reads a field's word out of those that the model has; `None` stands for "anything".
pub(super) fn choose<T: Word>(
    field: &'static str,
    text: &str,
    allowed: Option<&[T]>,
) -> Result<T, GatewayError> {
    let allowed = allowed.unwrap_or(T::all());
    let chosen = allowed.iter().copied().find(|candidate| candidate.word() == text);
    chosen.ok_or_else(|| {
        if allowed.is_empty() {
            return GatewayError::invalid(field, format!("this model does not take `{field}`"));
        }
        let words: Vec<&str> = allowed.iter().map(|candidate| candidate.word()).collect();
        let message = format!("`{field}` must be {} for this model", words.join(" or "));
        GatewayError::invalid(field, message)
    })
}

words! {
    /// The format of an image's file.
    ImageFormat {
        /// The format Portable Network Graphics.
        Png = "png",
        /// The format of the Joint Photographic Experts Group.
        Jpeg = "jpeg",
        /// Google's format for pictures, WebP.
        Webp = "webp",
    }
}

words! {
    /// Delivery of images: by URL or inline.
    ResponseFormat {
        /// Embedded in the answer.
        B64Json = "b64_json",
        /// By an address to fetch them from.
        Url = "url",
    }
}

words! {
    /// The format of audio.
    AudioFormat {
        /// MPEG audio layer III.
        Mp3 = "mp3",
        /// PCM samples with a header.
        Wav = "wav",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> ImageSize {
        ImageSize::parse(text).expect("a size")
    }

    #[test]
    fn sizes_are_listed_or_follow_rules() {
        let any = ImageLimits::default();
        assert!(any.has_size(size("7x9")), "nothing is said");
        let listed = ImageLimits { sizes: vec![size("256x256")], ..ImageLimits::default() };
        assert!(listed.has_size(size("256*256")) && !listed.has_size(size("256x512")));
        let free = ImageLimits {
            side_max: Some(3840),
            side_multiple: Some(16),
            aspect_ratio_max: Some(3),
            ..listed
        };
        for (text, allowed) in [
            ("256x256", true),
            ("3840x1280", true),
            ("3840x1264", false),
            ("3856x1600", false),
            ("1024x1000", false),
            ("2160x3840", true),
        ] {
            assert_eq!(free.has_size(size(text)), allowed, "{text}");
        }
        let words = free.sizes_in_words('x');
        assert!(
            words.starts_with("256x256, any size with sides that are multiples of 16"),
            "{words}"
        );
    }
}
