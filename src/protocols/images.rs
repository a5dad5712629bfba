//! What OpenAI's two image endpoints have in common: what can be asked for, and what an answer tells
//! of its use. OpenAI's API reference, "Images"; spec section 2.3.

use bytes::Bytes;
use serde::Deserialize;

use super::json_cursor::Cursor;
use super::json_scan::UsageScan;
use super::limits::{ImageFormat, ImageLimits, ResponseFormat, choose};
use super::metering::{StreamMeter, Tally};
use super::sse::Verdict;
use super::{Framing, Meter, Terms};
use crate::error::GatewayError;
use crate::price::{ImageSize, Quality, Traits, Usage, UsageSource};

/// Partial images at most: OpenAI's own limit.
pub(super) const PARTIAL_IMAGES_MAX: u64 = 3;
/// Output tokens of a partial image (OpenAI's guide "Image generation", "Cost and latency").
const PARTIAL_IMAGE_TOKENS: u64 = 100;

/// What a request for images asks for, as it says it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) n: u32,
    pub(super) size: Option<String>,
    pub(super) quality: Option<String>,
    pub(super) output_format: Option<String>,
    pub(super) response_format: Option<String>,
    pub(super) background: Option<String>,
    pub(super) stream: bool,
    pub(super) partial_images: u64,
}

/// What was asked for, once it was found to be on offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) traits: Traits,
    pub(super) response_format: Option<ResponseFormat>,
    images: u32,
    stream: bool,
    partial_images: u64,
}

impl Asked {
    /// Checks what is asked for against what the model has.
    pub(super) fn check(&self, limits: &ImageLimits) -> Result<Order, GatewayError> {
        let size = self.size.as_deref().filter(|size| *size != "auto");
        let size = size.map(|size| check_size(size, limits)).transpose()?.flatten();
        let quality = check_quality(self.quality.as_deref(), limits)?;
        self.check_file(limits)?;
        if self.stream && !limits.stream {
            return Err(GatewayError::invalid("stream", "this model's images are not streamed"));
        }
        let ways = limits.response_formats.as_deref();
        let response_format = self.response_format.as_deref();
        let response_format =
            response_format.map(|way| choose("response_format", way, ways)).transpose()?;
        Ok(Order {
            traits: Traits { size, quality, ..Traits::default() },
            response_format,
            images: self.n,
            stream: self.stream,
            partial_images: if self.stream { self.partial_images } else { 0 },
        })
    }

    fn check_file(&self, limits: &ImageLimits) -> Result<(), GatewayError> {
        let allowed = limits.output_formats.as_deref();
        let format = self.output_format.as_deref();
        let format = format.map(|format| choose("output_format", format, allowed)).transpose()?;
        match self.background.as_deref() {
            None | Some("auto" | "opaque") => Ok(()),
            Some("transparent") if format != Some(ImageFormat::Jpeg) => Ok(()),
            Some("transparent") => Err(GatewayError::invalid(
                "background",
                "`background: transparent` needs the `output_format` `png` or `webp`",
            )),
            Some(_) => Err(GatewayError::invalid(
                "background",
                "`background` must be `auto`, `opaque` or `transparent`",
            )),
        }
    }
}

impl Order {
    /// Whether it is answered by a stream.
    pub(super) fn streams(&self) -> bool {
        self.stream
    }

    /// The most that it can use, beside its input.
    pub(super) fn bound(&self, input_tokens: u64, output_tokens_max: u64) -> Usage {
        let images = u64::from(self.images);
        let partial = self.partial_images.saturating_mul(PARTIAL_IMAGE_TOKENS);
        let each = output_tokens_max.saturating_add(partial);
        Usage {
            input_tokens,
            output_tokens: if output_tokens_max == 0 { 0 } else { each.saturating_mul(images) },
            images,
            ..Usage::ZERO
        }
    }

    /// What it uses about. An upstream that has begun makes all of the images, whoever waits for
    /// them, so this is the least as well.
    pub(super) fn estimate(&self, input_tokens: u64, bound: &Usage) -> Usage {
        let output_tokens = self.tokens_per_image().saturating_mul(bound.images);
        Usage { input_tokens, output_tokens: output_tokens.min(bound.output_tokens), ..*bound }
    }

    /// A meter for an answer to a request with these terms.
    pub(super) fn meter(framing: Framing, terms: &Terms) -> Box<dyn Meter> {
        let Terms { floor, bound, .. } = *terms;
        match framing {
            Framing::Sse => {
                let tally = ImageStream { usage: None, images: 0, failed: false, floor, bound };
                Box::new(StreamMeter::of_images(tally))
            }
            Framing::Json | Framing::Binary => {
                Box::new(ImagesMeter { scan: UsageScan::default(), floor, bound })
            }
        }
    }

    /// About how many tokens an image has (OpenAI's guide "Image generation", the table of output
    /// tokens by quality, which grows with the area).
    fn tokens_per_image(&self) -> u64 {
        const SQUARE_MEGAPIXEL: u64 = 1024 * 1024;
        let per_square = match self.traits.quality {
            Some(Quality::Low) => 272,
            Some(Quality::High | Quality::Hd) => 4160,
            Some(Quality::Medium | Quality::Standard) | None => 1056,
        };
        let area = self.traits.size.map_or(SQUARE_MEGAPIXEL, |ImageSize { width, height }| {
            u64::from(width) * u64::from(height)
        });
        (area * per_square).div_ceil(SQUARE_MEGAPIXEL)
    }
}

/// Reads a size; `None` for a word such as `2K`, which a model without listed sizes may know.
fn check_size(text: &str, limits: &ImageLimits) -> Result<Option<ImageSize>, GatewayError> {
    let size = ImageSize::parse(text).filter(|_| !text.contains('*'));
    let is_free = limits.sizes_in_words('x').is_empty();
    match size {
        Some(size) if limits.has_size(size) => Ok(Some(size)),
        None if is_free => Ok(None),
        _ => {
            let sizes = limits.sizes_in_words('x');
            let message = format!("`size` must be one of `auto`, {sizes} for this model");
            Err(GatewayError::invalid("size", message))
        }
    }
}

fn check_quality(
    text: Option<&str>,
    limits: &ImageLimits,
) -> Result<Option<Quality>, GatewayError> {
    let Some(text) = text.filter(|text| *text != "auto") else { return Ok(None) };
    let quality = Quality::of(text);
    let allowed = limits.qualities.as_deref().unwrap_or(Quality::ALL);
    if quality.is_none_or(|quality| !allowed.contains(&quality)) {
        let words: Vec<&str> = allowed.iter().map(|quality| quality.as_str()).collect();
        let message = format!("`quality` must be `auto` or one of {}", words.join(", "));
        return Err(GatewayError::invalid("quality", message));
    }
    Ok(quality)
}

/// `usage` as OpenAI writes it, and as Ark does.
#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    generated_images: Option<u64>,
}

/// What a `usage` says, if that can be true.
fn read_usage(usage: &[u8], images: u64, bound: &Usage) -> Option<Usage> {
    let wire: WireUsage = serde_json::from_slice(usage).ok()?;
    let images = wire.generated_images.unwrap_or(images);
    // Where a model has no limit of tokens, tokens have no price.
    let fits = |tokens: u64, max: u64| max == 0 || tokens <= max;
    let is_possible = fits(wire.input_tokens, bound.input_tokens)
        && fits(wire.output_tokens, bound.output_tokens)
        && images <= bound.images;
    is_possible.then_some(Usage {
        input_tokens: wire.input_tokens,
        output_tokens: wire.output_tokens,
        images,
        ..Usage::ZERO
    })
}

/// Meters an answer that comes whole.
struct ImagesMeter {
    scan: UsageScan,
    /// What to charge if the answer does not tell.
    floor: Usage,
    bound: Usage,
}

impl Meter for ImagesMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.scan.feed(&chunk);
        chunk
    }

    fn finish(&mut self) -> Bytes {
        Bytes::new()
    }

    fn is_complete(&self) -> bool {
        self.scan.is_whole()
    }

    fn has_failed(&self) -> bool {
        self.scan.has_error() && self.scan.data_items() == 0
    }

    fn relayed(&self) -> Usage {
        Usage::ZERO
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let images = self.scan.data_items();
        if !self.scan.is_whole() {
            // All images are made before the first byte comes.
            return (self.floor, UsageSource::Estimated);
        }
        let reported = self.scan.usage().and_then(|usage| read_usage(usage, images, &self.bound));
        match reported {
            Some(usage) => (usage, UsageSource::Upstream),
            // Billed by the image, the images themselves are the report.
            None if self.bound.output_tokens == 0 && images <= self.bound.images => {
                (Usage { images, ..self.floor }, UsageSource::Upstream)
            }
            None => (self.floor, UsageSource::Estimated),
        }
    }

    fn changes_length(&self) -> bool {
        false
    }
}

/// What a stream of images has shown.
struct ImageStream {
    usage: Option<Usage>,
    /// Images that are complete.
    images: u64,
    failed: bool,
    /// What to charge if the stream does not tell.
    floor: Usage,
    bound: Usage,
}

impl Tally for ImageStream {
    fn judge(&mut self, data: &[u8]) -> Verdict {
        let (mut kind, mut usage, mut failed) = (None, None, false);
        let mut member = |key: &[u8], cursor: &mut Cursor<'_>| {
            match key {
                b"type" => kind = Some(cursor.raw()?.to_vec()),
                b"usage" => usage = cursor.non_null()?.map(<[u8]>::to_vec),
                b"error" => failed |= cursor.non_null()?.is_some(),
                _ => cursor.skip()?,
            }
            Some(())
        };
        // An event that is no JSON tells nothing, and is relayed like any other.
        let _read = Cursor::new(data).object(|key, cursor| member(key, cursor));
        let kind = kind.unwrap_or_default();
        self.failed |= failed || kind == b"\"error\"";
        self.images += u64::from(kind.ends_with(b".completed\""));
        let found = usage.and_then(|usage| read_usage(&usage, self.images, &self.bound));
        // Of several reports the largest counts: nobody says whether they add up.
        if found.is_some_and(|found| {
            self.usage.is_none_or(|known| known.output_tokens <= found.output_tokens)
        }) {
            self.usage = found;
        }
        Verdict::Keep
    }

    fn is_complete(&self) -> bool {
        self.images > 0 || self.failed
    }

    fn has_failed(&self) -> bool {
        self.failed && self.images == 0
    }

    /// Nothing that could outgrow the hold: it covers all of the images.
    fn relayed(&self) -> Usage {
        Usage::ZERO
    }

    fn measure(&self) -> (Usage, UsageSource) {
        match self.usage {
            Some(usage) => (Usage { images: self.images, ..usage }, UsageSource::Upstream),
            None => (self.floor, UsageSource::Estimated),
        }
    }
}
