//! `POST /v1/images/generations` over upstreams that speak OpenAI's protocol, and over Ark's copy of
//! it. OpenAI's API reference, "Create image"; Ark's "Image generation API" (Seedream), which adds
//! images to refer to and series of images. Spec section 4, the variants whose shape is not shown.

use super::allowed_keys::AllowedKey;
use super::fields;
use super::images::{ImageOptions, ImageRequest, PARTIAL_IMAGES_MAX};
use super::json::Object;
use super::limits::ModelLimits;
use super::request_policy::Prompt;
use super::splice::Splice;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds};
use crate::codec::bounds_in_field;
use tollgate_money::price::Traits;
use tollgate_types::error::GatewayError;

/// Request fields of OpenAI's own (its API reference, "Create image"): those that decide the price are read
/// below, and the rest has none.
pub(super) const OPENAI_FIELDS: [&str; 15] = [
    "model",
    "prompt",
    "n",
    "size",
    "quality",
    "style",
    "background",
    "moderation",
    "output_format",
    "output_compression",
    "response_format",
    "stream",
    "partial_images",
    "user",
    "safety_identifier",
];
/// The fields of a request for images to Ark (its "Image generation API"). Its `tools` search the
/// web, at a price.
const ARK_FIELDS: [&str; 15] = [
    "model",
    "prompt",
    "image",
    "n",
    "size",
    "seed",
    "guidance_scale",
    "watermark",
    "optimize_prompt_options",
    "output_format",
    "response_format",
    "stream",
    "user",
    SERIES,
    SERIES_OPTIONS,
];
/// Ark's word for several images in one answer, and how many there can be.
const SERIES: &str = "sequential_image_generation";
const SERIES_OPTIONS: &str = "sequential_image_generation_options";
/// Images of a series that does not say how many, the images referred to included: Ark's own limit.
const SERIES_MAX: u64 = 15;

/// Codec of OpenAI's image generations.
#[derive(Debug)]
pub struct OpenaiImages;

impl Codec for OpenaiImages {
    fn operation(&self) -> Operation {
        Operation::ImageGeneration
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/images/generations"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_names(&OPENAI_FIELDS)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        check_fields(body, &OPENAI_FIELDS, limits)?;
        let n = fields::integer(body, "n", 1..=u64::from(limits.images.count_max))?.unwrap_or(1);
        read(body, limits, n)
    }
}

/// The codec for Ark, which knows no `n`.
#[derive(Debug)]
pub struct ArkImages;

impl Codec for ArkImages {
    fn operation(&self) -> Operation {
        Operation::ImageGeneration
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Ark]
    }

    fn path(&self) -> &'static str {
        "/api/v3/images/generations"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        check_fields(body, &ARK_FIELDS, limits)?;
        let images_max = u64::from(limits.images.count_max);
        fields::integer(body, "n", 1..=1)?;
        let n = match fields::text(body, SERIES)?.as_deref() {
            None | Some("disabled") => 1,
            Some("auto") => series(body, images_max, limits)?,
            Some(_) => {
                let message = format!("`{SERIES}` must be `auto` or `disabled`");
                return Err(GatewayError::invalid(SERIES, message));
            }
        };
        check_references(body, limits.images.references_max)?;
        read(body, limits, n)
    }
}

/// Refuses fields whose price is unknown.
fn check_fields(
    body: &Object<'_>,
    fields: &[&str],
    limits: &ModelLimits,
) -> Result<(), GatewayError> {
    fields::refuse_case_variants(body, fields)?;
    fields::refuse_unknown_fields(body, fields, &limits.pass.fields)
}

/// The most images that a series can have. One that does not say can have as many as Ark makes,
/// whatever the model's limit.
fn series(body: &Object<'_>, images_max: u64, limits: &ModelLimits) -> Result<u64, GatewayError> {
    let invalid = || {
        let message = format!("`max_images` must be an integer from 1 to {images_max}");
        GatewayError::invalid(SERIES_OPTIONS, message)
    };
    let Some(options) = body.get_non_null(SERIES_OPTIONS) else {
        return Ok(SERIES_MAX);
    };
    let options = options.as_object().map_err(|_| invalid())?;
    fields::refuse_case_variants(&options, &["max_images"])?;
    let pass = &limits.pass.fields;
    fields::refuse_unknown_members(&options, SERIES_OPTIONS, &["max_images"], pass)?;
    match options.get_non_null("max_images") {
        None => Ok(SERIES_MAX),
        Some(max) => max.as_u64().filter(|max| (1..=images_max).contains(max)).ok_or_else(invalid),
    }
}

/// `image` is one image or a list of them.
fn check_references(body: &Object<'_>, references_max: u32) -> Result<(), GatewayError> {
    let Some(image) = body.get_non_null("image") else { return Ok(()) };
    let count = image.elements().map_or(1, Iterator::count);
    if count as u64 > u64::from(references_max) {
        let message = format!("`image` has {count} images; at most {references_max} are allowed");
        return Err(GatewayError::invalid("image", message));
    }
    Ok(())
}

fn read(
    body: &Object<'_>,
    limits: &ModelLimits,
    images: u64,
) -> Result<Box<dyn Call>, GatewayError> {
    if fields::text(body, "prompt")?.is_none_or(|prompt| prompt.is_empty()) {
        return Err(GatewayError::invalid("prompt", "`prompt` must be a non-empty string"));
    }
    let partial_images = fields::integer(body, "partial_images", 0..=PARTIAL_IMAGES_MAX)?;
    let image_options = ImageRequest {
        n: u32::try_from(images).unwrap_or(u32::MAX),
        size: fields::text(body, "size")?,
        quality: fields::text(body, "quality")?,
        output_format: fields::text(body, "output_format")?,
        response_format: fields::text(body, "response_format")?,
        background: fields::text(body, "background")?,
        stream: fields::boolean(body, "stream")?.unwrap_or(false),
        partial_images: partial_images.unwrap_or(0),
    }
    .check(&limits.images)?
    .with_prices(&limits.priced);
    let bounds = RequestBounds::from_options(body, &image_options, limits)?;
    // An upstream that answers in one way alone takes no word about it.
    let is_only_way = limits.images.response_formats.as_ref().is_some_and(|ways| ways.len() == 1);
    let omitted = body.member_range("response_format").filter(|_| is_only_way);
    Ok(Box::new(ImagesCall { image_options, bounds, omitted }))
}

impl RequestBounds {
    /// The terms of a request for images whose input is the text of its body.
    fn from_options(
        body: &Object<'_>,
        image_options: &ImageOptions,
        limits: &ModelLimits,
    ) -> Result<Self, GatewayError> {
        let is_text = body.get_non_null("image").is_none() && !body.has_escaped_keys();
        let prompt = Prompt::of_text(is_text);
        let text = Self::from_prompt(body, &prompt, limits, 0)?;
        let max_usage =
            image_options.max_usage(text.max_usage.input_tokens, limits.output_tokens_max);
        let min_usage = image_options.estimate(text.min_usage.input_tokens, &max_usage);
        Ok(Self { max_usage, min_usage, countable: None, ..text })
    }
}

#[derive(Debug)]
struct ImagesCall {
    image_options: ImageOptions,
    bounds: RequestBounds,
    /// Byte range of `response_format` in the body, which is removed for an upstream with only one format.
    omitted: Option<std::ops::Range<usize>>,
}

impl Call for ImagesCall {
    bounds_in_field!();

    fn makes_pictures(&self) -> bool {
        self.image_options.is_output_apart()
    }

    fn traits(&self) -> Traits {
        self.image_options.traits
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        if let Some(member) = self.omitted.clone() {
            splice.replace(member, "");
        }
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        self.image_options.meter(framing, &self.bounds)
    }
}

#[cfg(test)]
mod tests;
