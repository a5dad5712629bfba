//! Shared parts of OpenAI's two image endpoints: request options, and the usage of an answer. OpenAI's API
//! reference, "Images"; spec section 2.3.
//!
//! What an answer reports is charged as it says. One that does not tell, or not of all its images, is
//! charged as the hold covers it: how many tokens an image has is known to nobody but who made it.

use serde::Deserialize;

use super::disjoint::count;
use super::json_cursor::Cursor;
use super::json_scan::UsageScan;
use super::limits::{ImageFormat, ImageLimits, PricedFeatures, ResponseFormat, choose};
use super::metering::{self, StreamMeter, StreamTotals, Tally};
use super::sse::EventAction;
use super::{Framing, Meter, RequestBounds};
use crate::metering::relays_scanned_document;
use tollgate_money::price::{ImageSize, Quality, Traits, Unit, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// Maximum number of partial images, OpenAI's own limit.
pub(super) const PARTIAL_IMAGES_MAX: u64 = 3;
/// Output tokens of a partial image (OpenAI's guide "Image generation", "Cost and latency").
const PARTIAL_IMAGE_TOKENS: u64 = 100;

/// Options of an image request, unchecked.
#[derive(Debug, Default)]
pub(super) struct ImageRequest {
    pub(super) n: u32,
    pub(super) size: Option<String>,
    pub(super) quality: Option<String>,
    pub(super) output_format: Option<String>,
    pub(super) response_format: Option<String>,
    pub(super) background: Option<String>,
    pub(super) stream: bool,
    pub(super) partial_images: u64,
}

/// Options of an image request, checked against the model's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageOptions {
    pub(super) traits: Traits,
    pub(super) response_format: Option<ResponseFormat>,
    images: u32,
    stream: bool,
    partial_images: u64,
    /// True if image tokens have a price of their own beside other output.
    is_output_apart: bool,
}

impl ImageRequest {
    /// Checks the requested options against the model's.
    pub(super) fn check(&self, limits: &ImageLimits) -> Result<ImageOptions, GatewayError> {
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
        Ok(ImageOptions {
            traits: Traits { size, quality, ..Traits::default() },
            response_format,
            images: self.n,
            stream: self.stream,
            partial_images: if self.stream { self.partial_images } else { 0 },
            is_output_apart: false,
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

impl ImageOptions {
    /// The options for a model with these prices.
    pub(super) fn with_prices(self, with_prices: &PricedFeatures) -> Self {
        Self { is_output_apart: with_prices.has_unit(Unit::ImageOutputTokens), ..self }
    }

    /// True if image tokens are counted apart from other output.
    pub(super) fn is_output_apart(&self) -> bool {
        self.is_output_apart
    }

    /// True if the answer is a stream.
    pub(super) fn streams(&self) -> bool {
        self.stream
    }

    /// Maximum usage in addition to the given input.
    pub(super) fn max_usage(&self, input_tokens: u64, output_tokens_max: u64) -> Usage {
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

    /// Estimated usage: beside the input the maximum where size or quality is the model's choice. An upstream
    /// that has begun makes all images, even if nobody waits for them, so the estimate is also the minimum.
    pub(super) fn estimate(&self, input_tokens: u64, max_usage: &Usage) -> Usage {
        let each = self.tokens_per_image().unwrap_or(u64::MAX);
        let partial = self.partial_images.saturating_mul(PARTIAL_IMAGE_TOKENS);
        let output_tokens = each.saturating_add(partial).saturating_mul(max_usage.images);
        Usage {
            input_tokens,
            output_tokens: output_tokens.min(max_usage.output_tokens),
            ..*max_usage
        }
    }

    /// A meter for an answer to a request with these terms.
    pub(super) fn meter(&self, framing: Framing, bounds: &RequestBounds) -> Box<dyn Meter> {
        // Of what nobody reports, all is pictures.
        let max_usage =
            Usage { image_output_tokens: bounds.max_usage.output_tokens, ..bounds.max_usage };
        let is_output_apart = self.is_output_apart;
        match framing {
            Framing::Sse => {
                Box::new(StreamMeter::for_images(ImageStream::new(max_usage, is_output_apart)))
            }
            Framing::Json | Framing::EventStream | Framing::Binary => {
                Box::new(ImagesMeter { scan: UsageScan::default(), max_usage, is_output_apart })
            }
        }
    }

    /// About how many tokens an image has (OpenAI's guide "Image generation", the table of output
    /// tokens by quality, which grows with the area), where the request says what decides it.
    fn tokens_per_image(&self) -> Option<u64> {
        const SQUARE_MEGAPIXEL: u64 = 1024 * 1024;
        let per_square = match self.traits.quality? {
            Quality::Low => 272,
            Quality::High | Quality::Hd => 4160,
            Quality::Medium | Quality::Standard => 1056,
        };
        let ImageSize { width, height } = self.traits.size?;
        let area = u64::from(width) * u64::from(height);
        Some((area * per_square).div_ceil(SQUARE_MEGAPIXEL))
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
struct WireImagesUsage {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<WireImagesInput>,
    #[serde(default)]
    output_tokens_details: Option<WireImagesOutput>,
    #[serde(default, deserialize_with = "count")]
    generated_images: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct WireImagesOutput {
    #[serde(default, deserialize_with = "count")]
    text_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct WireImagesInput {
    #[serde(default, deserialize_with = "count")]
    image_tokens: Option<u64>,
}

/// A reported usage.
#[derive(Clone, Copy, Debug)]
struct ImageReport {
    /// Its `output_tokens` are all output, of which `image_output_tokens` are pictures: see [`disjoint`].
    usage: Usage,
    /// The event contains all images of the answer and their usage.
    is_total: bool,
}

/// Reads a `usage`; `None` for one that is empty or leaves out the output.
fn read_usage(usage: &[u8], max_usage: &Usage) -> Option<ImageReport> {
    let wire: WireImagesUsage = metering::read_wire(usage)?;
    let input_tokens = wire.input_tokens.unwrap_or(0);
    let total = wire.total_tokens.unwrap_or(0);
    let seen = wire.input_tokens_details.unwrap_or_default().image_tokens.unwrap_or(0);
    // More pictures than input are beside it.
    let beside = if seen > input_tokens { seen } else { 0 };
    // What is in the total and in neither part was put out.
    let beyond = total.saturating_sub(input_tokens).saturating_sub(beside);
    let output_tokens = wire.output_tokens.unwrap_or(0).max(beyond);
    // Where a model has no limit of tokens, tokens have no price.
    let has_tokens = output_tokens > 0 || max_usage.output_tokens == 0;
    let says_something =
        wire.generated_images.is_some() || wire.output_tokens.is_some() || total > 0;
    let images = wire.generated_images.unwrap_or(0);
    let input_tokens = if beside > 0 { input_tokens } else { input_tokens - seen };
    let text = wire.output_tokens_details.unwrap_or_default().text_tokens.unwrap_or(0);
    // More text than output is beside the pictures.
    let pictures = output_tokens.checked_sub(text).unwrap_or(output_tokens);
    let output_tokens = output_tokens.max(pictures.saturating_add(text));
    let usage = Usage {
        input_tokens,
        image_input_tokens: seen,
        output_tokens,
        image_output_tokens: pictures,
        images,
        ..Usage::ZERO
    };
    let is_total = wire.generated_images.is_some();
    (says_something && (has_tokens || is_total && images == 0))
        .then_some(ImageReport { usage, is_total })
}

/// The usage in kinds that have nothing in common: pictures are counted apart where they are priced so,
/// and are output like any other where they are not.
fn disjoint(usage: Usage, is_output_apart: bool) -> Usage {
    let image_output_tokens = if is_output_apart { usage.image_output_tokens } else { 0 };
    let output_tokens = usage.output_tokens.saturating_sub(image_output_tokens);
    Usage { output_tokens, image_output_tokens, ..usage }
}

/// Meter for an unstreamed answer.
struct ImagesMeter {
    scan: UsageScan,
    /// Usage to charge if the answer reports none.
    max_usage: Usage,
    is_output_apart: bool,
}

impl ImagesMeter {
    fn reported(&self) -> Option<ImageReport> {
        self.scan.usage().and_then(|usage| read_usage(usage, &self.max_usage))
    }

    fn used(&self) -> (Usage, UsageSource) {
        let images = self.scan.data_items();
        if !self.scan.is_complete() {
            // All images are made before the first byte comes.
            return (self.max_usage, UsageSource::Estimated);
        }
        let by_image = self.max_usage.output_tokens == 0;
        match self.reported() {
            // Ark counts what it has made and bills; in the list are those too that have failed.
            Some(ImageReport { usage, is_total: true }) => (usage, UsageSource::Upstream),
            Some(ImageReport { usage, .. }) if images > 0 || !by_image => {
                (Usage { images, ..usage }, UsageSource::Upstream)
            }
            // Billed by the image, the images themselves are the report.
            None if by_image && images > 0 => {
                (Usage { images, ..self.max_usage }, UsageSource::Upstream)
            }
            _ => (self.max_usage, UsageSource::Estimated),
        }
    }
}

impl Meter for ImagesMeter {
    relays_scanned_document!();

    fn has_failed(&self) -> bool {
        self.scan.has_only_error() && self.reported().is_none()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let (usage, source) = self.used();
        (disjoint(usage, self.is_output_apart), source)
    }
}

/// The images of a stream whose usages are kept apart: more than any request can ask for.
const KEPT_APART_MAX: usize = 256;

/// The image of a stream to which an event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageIndex {
    /// The image with this index.
    Index(u64),
    /// The image after so many without an index.
    Nth(u64),
}

/// One image of a stream.
#[derive(Clone, Copy, Debug)]
struct StreamedImage {
    index: ImageIndex,
    /// The whole answer was sent.
    is_complete: bool,
    usage: Option<Usage>,
}

/// Meters a stream of images.
///
/// OpenAI ends each image with an event that has the image's usage. Ark sends each image in an event
/// `partial_succeeded`, and ends all of them with one that has the usage of all and no image.
struct ImageStream {
    images: Vec<StreamedImage>,
    /// Events that ended an image without saying which.
    unnumbered: u64,
    /// Usage reported for all images together.
    total: Option<Usage>,
    /// Images beyond those that are kept apart, and their usages.
    rest: Usage,
    /// Images come in events of their own, before that which ends the stream.
    has_parts: bool,
    /// The last event has come.
    ended: bool,
    /// The upstream has ended the stream.
    finished: bool,
    failed: bool,
    /// Usage to charge if the stream reports none.
    max_usage: Usage,
    is_output_apart: bool,
}

/// An event as far as it counts.
#[derive(Default)]
struct ImageEvent {
    kind: Vec<u8>,
    index: Option<u64>,
    usage: Option<Vec<u8>>,
    failed: bool,
}

impl ImageEvent {
    fn read(data: &[u8]) -> Self {
        let mut event = Self::default();
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let mut member = |key: &[u8], cursor: &mut Cursor<'_>| {
            match key {
                b"type" => event.kind = cursor.raw()?.to_vec(),
                b"usage" => event.usage = cursor.non_null()?.map(<[u8]>::to_vec),
                b"error" => event.failed |= cursor.non_null()?.is_some(),
                b"image_index" | b"index" => event.index = number(cursor.raw()?),
                _ => cursor.skip()?,
            }
            Some(())
        };
        // An event that is no JSON tells nothing, and is relayed like any other.
        let _read = Cursor::new(data).object(|key, cursor| member(key, cursor));
        event
    }

    fn is(&self, end: &[u8]) -> bool {
        self.kind.strip_suffix(b"\"").is_some_and(|kind| kind.ends_with(end))
    }
}

impl ImageStream {
    fn new(max_usage: Usage, is_output_apart: bool) -> Self {
        Self {
            images: Vec::new(),
            unnumbered: 0,
            total: None,
            rest: Usage::ZERO,
            has_parts: false,
            ended: false,
            finished: false,
            failed: false,
            max_usage,
            is_output_apart,
        }
    }

    /// Notes an event about one image.
    fn note(&mut self, index: ImageIndex, is_complete: bool, usage: Option<Usage>) {
        let existing = self.images.iter_mut().find(|image| image.index == index);
        if let Some(image) = existing {
            image.is_complete |= is_complete;
            // The same image's usage again: the dearest counts.
            image.usage = match (image.usage, usage) {
                (Some(one), Some(other)) => Some(one.dearer(&other)),
                (one, other) => one.or(other),
            };
        } else if self.images.len() < KEPT_APART_MAX {
            self.images.push(StreamedImage { index, is_complete, usage });
        } else {
            let images = u64::from(is_complete);
            self.rest = self.rest.plus(&Usage { images, ..usage.unwrap_or(Usage::ZERO) });
        }
    }

    /// Number of complete images.
    fn complete(&self) -> u64 {
        let complete = self.images.iter().filter(|image| image.is_complete).count();
        self.rest.images.saturating_add(complete as u64)
    }

    /// The usage of single images, added up, and of how many of them it is.
    fn images_reported(&self) -> (Usage, u64) {
        let reported = self.images.iter().filter_map(|image| image.usage);
        let count = reported.clone().count() as u64;
        (
            reported.fold(self.rest, |sum, one| sum.plus(&one)),
            count.saturating_add(self.rest.images),
        )
    }

    /// The larger of the total report and the sum of the reports per image. Images without a report are
    /// charged their share of the hold, even if they were not received: an upstream that has begun makes all
    /// images.
    fn used(&self) -> (Usage, UsageSource) {
        let (reported, count) = self.images_reported();
        let complete = self.complete();
        let has_tokens = self.max_usage.output_tokens > 0;
        let total = self.total.filter(|total| {
            // No tokens beside an image are no report.
            !has_tokens || total.output_tokens > 0 || complete == 0
        });
        if let Some(total) = total {
            let images = total.images.max(complete);
            return (Usage { images, ..total.dearer(&reported) }, UsageSource::Upstream);
        }
        let is_over = (self.ended || self.finished || self.failed) && complete.max(count) > 0;
        let images = if is_over { complete } else { complete.max(self.max_usage.images) };
        let unreported = images.saturating_sub(if has_tokens { count } else { complete });
        if unreported == 0 {
            return (Usage { images, ..reported }, UsageSource::Upstream);
        }
        let each = self.max_usage.output_tokens.div_ceil(self.max_usage.images.max(1));
        let of_unreported = each.saturating_mul(unreported);
        let usage = Usage {
            input_tokens: reported.input_tokens.max(self.max_usage.input_tokens),
            output_tokens: reported.output_tokens.saturating_add(of_unreported),
            image_output_tokens: reported.image_output_tokens.saturating_add(of_unreported),
            images,
            ..Usage::ZERO
        };
        (usage, UsageSource::Estimated)
    }
}

impl Tally for ImageStream {
    type Totals = Self;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        let event = ImageEvent::read(data);
        let is_part = event.is(b".partial_succeeded");
        let is_end = event.is(b".completed");
        self.failed |= event.failed && !event.is(b".partial_failed") || event.kind == b"\"error\"";
        self.has_parts |= is_part;
        let reported = event.usage.and_then(|usage| read_usage(&usage, &self.max_usage));
        let (total, usage) = match reported {
            Some(ImageReport { usage, is_total }) if is_total || is_end && self.has_parts => {
                (Some(usage), None)
            }
            Some(ImageReport { usage, .. }) => (None, Some(usage)),
            None => (None, None),
        };
        if let Some(total) = total {
            self.total = Some(self.total.map_or(total, |before| before.dearer(&total)));
        }
        // With images in events of their own, the end has none.
        let is_complete = is_part || is_end && !self.has_parts;
        if is_complete || usage.is_some() {
            let index = event.index.map_or(ImageIndex::Nth(self.unnumbered), ImageIndex::Index);
            self.note(index, is_complete, usage);
            self.unnumbered += u64::from(is_complete && event.index.is_none());
        }
        self.ended |= is_end && (self.has_parts || self.complete() >= self.max_usage.images);
        EventAction::Keep
    }

    /// True once at least one image was delivered.
    fn is_complete(&self) -> bool {
        self.complete() > 0 || self.ended || self.failed
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn totals(&self) -> &Self {
        self
    }
}

impl StreamTotals for ImageStream {
    fn has_failed(&self) -> bool {
        let has_reported_usage = self.total.is_some() || self.images_reported().1 > 0;
        self.failed && self.complete() == 0 && !has_reported_usage
    }

    /// Nothing that could outgrow the hold: it covers all of the images.
    fn relayed(&self) -> Usage {
        Usage::ZERO
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let (usage, source) = self.used();
        (disjoint(usage, self.is_output_apart), source)
    }
}
