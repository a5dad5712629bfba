//! Parsing and validation of image requests.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::openai::multipart::FormPart;

/// The most images of one request.
const COUNT_MAX: u32 = 10;
/// The most images of one request to Ark.
const ARK_COUNT_MAX: u32 = 15;
/// The most partial images of a stream.
const PARTIAL_IMAGES_MAX: u32 = 3;
/// Pixels per token at Ark.
const ARK_PIXELS_PER_TOKEN: usize = 256;

/// The parts of a request that shape the answer.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ImagesRequest {
    pub(super) model: String,
    pub(super) prompt: String,
    pub(super) partial_images: Option<u32>,
    n: Option<u32>,
    size: Option<String>,
    quality: Option<String>,
    background: Option<String>,
    output_format: Option<String>,
    response_format: Option<String>,
    stream: Option<bool>,
    sequential_image_generation: Option<String>,
    sequential_image_generation_options: Option<Sequence>,
}

/// Ark's option for several images.
#[derive(Deserialize)]
struct Sequence {
    max_images: u32,
}

impl ImagesRequest {
    /// The request of a form, in which numbers and booleans are texts. Files are left out.
    pub(super) fn from_form(parts: &[FormPart]) -> serde_json::Result<Self> {
        let typed = |name: &str, text: &str| match name {
            "n" | "partial_images" | "stream" => serde_json::from_str(text).ok(),
            _ => None,
        };
        let is_text = |part: &&FormPart| !part.name.starts_with("image") && part.name != "mask";
        let fields = parts.iter().filter(is_text).map(|part| {
            let text = String::from_utf8_lossy(&part.data);
            let value = typed(&part.name, &text).unwrap_or_else(|| Value::from(text.as_ref()));
            (part.name.clone(), value)
        });
        serde_json::from_value(Value::Object(fields.collect::<Map<_, _>>()))
    }

    /// Number of images, if the family can make that many.
    fn count(&self, family: Family) -> Option<u32> {
        let is_sequence = self.sequential_image_generation.as_deref() == Some("auto");
        let (count, max) = match (&self.sequential_image_generation_options, family) {
            (Some(sequence), Family::Ark) if is_sequence => (sequence.max_images, ARK_COUNT_MAX),
            // Ark knows no `n`.
            (_, Family::Ark) => (1, ARK_COUNT_MAX),
            _ => (self.n.unwrap_or(1), COUNT_MAX),
        };
        (1..=max).contains(&count).then_some(count)
    }
}

/// Model family of an image request. All share the path, and differ in fields and usage reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// OpenAI's gpt-image, and all models without a family of their own: base64 and usage in tokens.
    Gpt,
    /// OpenAI's dall-e: URLs and no usage.
    DallE,
    /// xAI's (API reference, "Image generations"): URLs, revised prompts and no usage.
    Grok,
    /// Ark's (Volcengine's API reference, "Image generation API"): URLs, sizes, usage in images.
    Ark,
}

impl Family {
    fn detect(path: &str, model: &str) -> Self {
        if path.contains("/api/v3/") {
            Self::Ark
        } else if model.starts_with("grok") {
            Self::Grok
        } else if model.starts_with("dall-e") {
            Self::DallE
        } else {
            Self::Gpt
        }
    }
}

/// A request that passed validation.
pub(super) struct ImageJob {
    pub(super) request: ImagesRequest,
    pub(super) family: Family,
    /// Number of images to generate.
    pub(super) count: u32,
    pub(super) in_base64: bool,
    pub(super) is_stream: bool,
}

/// Error of a request: an optional code, and a message.
pub(super) struct BadRequest(Option<&'static str>, &'static str);

impl BadRequest {
    pub(super) fn answer(&self, behaviour: &Behaviour) -> Answer {
        match self {
            Self(Some(code), message) => Answer::invalid_as(code, message, behaviour),
            Self(None, message) => Answer::invalid(message, behaviour),
        }
    }
}

impl ImageJob {
    pub(super) fn new(request: ImagesRequest, path: &str) -> Result<Self, BadRequest> {
        let bad = |message| Err(BadRequest(None, message));
        if request.model.is_empty() || request.prompt.is_empty() {
            return bad("`model` and `prompt` are required.");
        }
        let family = Family::detect(path, &request.model);
        let in_base64 = match request.response_format.as_deref() {
            Some(_) if family == Family::Gpt && request.model.starts_with("gpt-image") => {
                let message = "Unknown parameter: 'response_format'.";
                return Err(BadRequest(Some("unknown_parameter"), message));
            }
            None => family == Family::Gpt,
            Some("b64_json") => true,
            Some("url") => false,
            Some(_) => return bad("`response_format` must be url or b64_json."),
        };
        let Some(count) = request.count(family) else {
            return bad("The number of images is out of range.");
        };
        let is_stream = family == Family::Gpt && request.stream == Some(true);
        if is_stream && count != 1 {
            return bad("`n` must be 1 for a stream.");
        }
        if request.partial_images.is_some_and(|count| count > PARTIAL_IMAGES_MAX) {
            return bad("`partial_images` must be 0 to 3.");
        }
        Ok(Self { request, family, count, in_base64, is_stream })
    }

    pub(super) fn background(&self) -> &'static str {
        match self.request.background.as_deref() {
            Some("transparent") => "transparent",
            _ => "opaque",
        }
    }

    pub(super) fn output_format(&self) -> &str {
        self.request.output_format.as_deref().unwrap_or("png")
    }

    pub(super) fn quality(&self) -> &'static str {
        match self.request.quality.as_deref() {
            Some("low") => "low",
            Some("high") => "high",
            _ => "medium",
        }
    }

    /// Width and height with an `x` between.
    pub(super) fn size(&self) -> String {
        let (width, height) = self.dimensions();
        format!("{width}x{height}")
    }

    fn dimensions(&self) -> (usize, usize) {
        let size = self.request.size.as_deref().unwrap_or_default();
        let exact = size
            .split_once('x')
            .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        match (exact, size, self.family) {
            (Some(dimensions), _, _) => dimensions,
            (None, "4K", Family::Ark) => (4096, 4096),
            (None, "1K", Family::Ark) => (1024, 1024),
            (None, _, Family::Ark) => (2048, 2048),
            (None, _, _) => (1024, 1024),
        }
    }

    /// Tokens of all images: OpenAI's figures for square ones, and Ark's rule.
    pub(super) fn output_tokens(&self) -> usize {
        let (width, height) = self.dimensions();
        let each = match (self.family, self.quality()) {
            (Family::Ark, _) => width.saturating_mul(height) / ARK_PIXELS_PER_TOKEN,
            (_, "low") => 272,
            (_, "high") => 4160,
            _ => 1056,
        };
        each.saturating_mul(usize::try_from(self.count).unwrap_or(usize::MAX))
    }
}
