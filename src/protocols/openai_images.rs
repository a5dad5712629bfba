//! `POST /v1/images/generations` over upstreams that speak OpenAI's protocol, and over Ark's copy of
//! it. OpenAI's API reference, "Create image"; Ark's "Image generation API" (Seedream), which adds
//! images to refer to and series of images. Spec section 4, the variants whose shape is not shown.

use super::images::{Asked, Order, PARTIAL_IMAGES_MAX};
use super::json::Object;
use super::limits::ModelLimits;
use super::splice::Splice;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Request, Terms};
use crate::error::GatewayError;
use crate::price::Traits;

/// Fields that decide what a call costs.
const BILLING_FIELDS: [&str; 10] = [
    "model",
    "prompt",
    "n",
    "size",
    "quality",
    "response_format",
    "stream",
    "partial_images",
    SERIES,
    SERIES_OPTIONS,
];
/// Ark's word for several images in one answer, and how many there can be.
const SERIES: &str = "sequential_image_generation";
const SERIES_OPTIONS: &str = "sequential_image_generation_options";
/// Images of a series that does not say how many, the images referred to included: Ark's own limit.
const SERIES_MAX: u64 = 15;

/// The codec.
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

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let n = super::integer(body, "n", 1..=u64::from(limits.images.count_max))?.unwrap_or(1);
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
        let images_max = u64::from(limits.images.count_max);
        super::integer(body, "n", 1..=1)?;
        let n = match super::text(body, SERIES)?.as_deref() {
            None | Some("disabled") => 1,
            Some("auto") => series(body, images_max)?,
            Some(_) => {
                let message = format!("`{SERIES}` must be `auto` or `disabled`");
                return Err(GatewayError::invalid(SERIES, message));
            }
        };
        check_references(body, limits.images.references_max)?;
        read(body, limits, n)
    }
}

/// The most images that a series can have.
fn series(body: &Object<'_>, images_max: u64) -> Result<u64, GatewayError> {
    let invalid = || {
        let message = format!("`max_images` must be an integer from 1 to {images_max}");
        GatewayError::invalid(SERIES_OPTIONS, message)
    };
    let Some(options) = body.get_non_null(SERIES_OPTIONS) else {
        return Ok(SERIES_MAX.min(images_max));
    };
    let options = options.as_object().map_err(|_| invalid())?;
    super::refuse_case_variants(&options, &["max_images"])?;
    match options.get_non_null("max_images") {
        None => Ok(SERIES_MAX.min(images_max)),
        Some(max) => max.as_u64().filter(|max| (1..=images_max).contains(max)).ok_or_else(invalid),
    }
}

/// `image` is one image or a list of them.
fn check_references(body: &Object<'_>, references_max: u32) -> Result<(), GatewayError> {
    let Some(image) = body.get_non_null("image") else { return Ok(()) };
    let count = image.as_array().map_or(1, |images| images.len());
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
    super::refuse_case_variants(body, &BILLING_FIELDS)?;
    if super::text(body, "prompt")?.is_none_or(|prompt| prompt.is_empty()) {
        return Err(GatewayError::invalid("prompt", "`prompt` must be a non-empty string"));
    }
    let partial_images = super::integer(body, "partial_images", 0..=PARTIAL_IMAGES_MAX)?;
    let order = Asked {
        n: u32::try_from(images).unwrap_or(u32::MAX),
        size: super::text(body, "size")?,
        quality: super::text(body, "quality")?,
        output_format: super::text(body, "output_format")?,
        response_format: super::text(body, "response_format")?,
        background: super::text(body, "background")?,
        stream: super::boolean(body, "stream")?.unwrap_or(false),
        partial_images: partial_images.unwrap_or(0),
    }
    .check(&limits.images)?;
    let terms = Terms::of_order(body, &order, limits)?;
    // An upstream that answers in one way alone takes no word about it.
    let is_only_way = limits.images.response_formats.as_ref().is_some_and(|ways| ways.len() == 1);
    let untold = body.member_range("response_format").filter(|_| is_only_way);
    Ok(Box::new(ImagesCall { order, terms, untold }))
}

impl Terms {
    /// The terms of a request for images whose input is the text of its body.
    fn of_order(
        body: &Object<'_>,
        order: &Order,
        limits: &ModelLimits,
    ) -> Result<Self, GatewayError> {
        let has_images = body.get_non_null("image").is_some();
        let prompt = super::Prompt { has_media: has_images, added_tokens_max: Some(0) };
        let text = Self::of_prompt(body, &prompt, limits, 0)?;
        let bound = order.bound(text.bound.input_tokens, limits.output_tokens_max);
        let floor = order.estimate(text.floor.input_tokens, &bound);
        Ok(Self { bound, floor, ..text })
    }
}

#[derive(Debug)]
struct ImagesCall {
    order: Order,
    terms: Terms,
    /// The member of the body that the upstream does not know.
    untold: Option<std::ops::Range<usize>>,
}

impl Call for ImagesCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn traits(&self) -> Traits {
        self.order.traits
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.terms.model.rename(upstream_model);
        if let Some(member) = self.untold.clone() {
            splice.replace(member, "");
        }
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        Order::meter(framing, &self.terms)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::price::{ImageSize, Quality, Usage, UsageSource};
    use crate::protocols::limits::{ImageLimits, ResponseFormat};

    const REQUEST: &[u8] = include_bytes!("../../tests/fixtures/openai_images/request.json");
    const RESPONSE: &str = include_str!("../../tests/fixtures/openai_images/response.json");
    const STREAM: &str = include_str!("../../tests/fixtures/openai_images/stream.sse");
    const ERROR: &str = include_str!("../../tests/fixtures/openai_images/error.json");

    fn limits() -> ModelLimits {
        let sizes = ["1024x1024", "1536x1024"].map(|size| ImageSize::parse(size).expect("a size"));
        let images = ImageLimits {
            sizes: sizes.to_vec(),
            side_max: Some(3840),
            side_multiple: Some(16),
            aspect_ratio_max: Some(3),
            qualities: Some(vec![Quality::Low, Quality::High]),
            response_formats: Some(vec![ResponseFormat::B64Json]),
            stream: true,
            ..ImageLimits::default()
        };
        let (input_tokens_max, output_tokens_max) = (1000, 5000);
        ModelLimits { input_tokens_max, output_tokens_max, images, ..ModelLimits::default() }
    }

    fn read(codec: &dyn Codec, body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
        codec.read(&Request::Json(Object::parse(body).expect("JSON")), &limits())
    }

    fn measure(framing: Framing, response: &str) -> (Usage, UsageSource, bool) {
        let mut meter = read(&OpenaiImages, REQUEST).expect("valid").meter(framing);
        let mut out = Vec::new();
        for piece in response.as_bytes().chunks(7) {
            out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&meter.finish());
        assert_eq!(out, response.as_bytes(), "byte for byte");
        let (usage, source) = meter.measure();
        (usage, source, meter.is_complete())
    }

    #[test]
    fn an_answer_is_billed_by_what_it_reports() {
        let expected = Usage { input_tokens: 13, output_tokens: 544, images: 2, ..Usage::ZERO };
        assert_eq!(measure(Framing::Json, RESPONSE), (expected, UsageSource::Upstream, true));
        let one = Usage { output_tokens: 372, images: 1, ..expected };
        assert_eq!(measure(Framing::Sse, STREAM), (one, UsageSource::Upstream, true));
        let mut failed = read(&OpenaiImages, REQUEST).expect("valid").meter(Framing::Json);
        failed.relay(Bytes::from(ERROR));
        assert!(failed.has_failed(), "an error in a 200 is charged to nobody");
    }

    #[test]
    fn what_is_not_reported_or_cannot_be_true_is_estimated() {
        for usage in ["null", r#"{"output_tokens":-1}"#, r#"{"output_tokens":99999999}"#] {
            let response = format!(r#"{{"data":[{{}},{{}}],"usage":{usage}}}"#);
            let (used, source, _) = measure(Framing::Json, &response);
            assert_eq!(source, UsageSource::Estimated, "{usage}");
            // Two of low quality, half as large again as a square of 1024.
            assert_eq!((used.output_tokens, used.images), (2 * 408, 2), "{usage}");
        }
        let (cut, source, complete) = measure(Framing::Json, r#"{"data":[{"b64_json":"abc"#);
        assert_eq!((cut.images, source, complete), (2, UsageSource::Estimated, false));
    }

    #[test]
    fn the_hold_covers_every_image_and_the_price_can_depend_on_them() {
        let call = read(&OpenaiImages, REQUEST).expect("valid");
        let bound = call.bound();
        assert_eq!((bound.images, bound.output_tokens), (2, 10_000));
        assert_eq!(bound.input_tokens, REQUEST.len() as u64, "bytes bound the prompt's tokens");
        assert_eq!(call.traits().quality, Some(Quality::Low));
        assert_eq!(call.traits().size, ImageSize::parse("1536x1024"));
        let partial =
            br#"{"model":"m","prompt":"p","stream":true,"partial_images":3,"size":"auto"}"#;
        let call = read(&OpenaiImages, partial).expect("valid");
        assert!(call.streams());
        assert_eq!(call.bound().output_tokens, 5300, "partial images cost tokens of their own");
    }

    #[test]
    fn the_upstream_is_not_told_what_it_cannot_choose() {
        for (body, sent) in [
            (
                r#"{"model":"m", "response_format":"b64_json", "prompt":"p"}"#,
                r#"{"model":"m", "prompt":"p"}"#,
            ),
            (
                r#"{"model":"m","prompt":"p" , "response_format":"b64_json" }"#,
                r#"{"model":"m","prompt":"p" }"#,
            ),
        ] {
            let splice = read(&OpenaiImages, body.as_bytes()).expect("valid").splice("m");
            let edited = splice.apply(&Bytes::from_static(body.as_bytes()));
            assert_eq!(std::str::from_utf8(&edited), Ok(sent));
        }
    }

    #[test]
    fn arks_series_are_bounded() {
        for (fields, images) in [
            ("", 1),
            (r#","sequential_image_generation":"disabled""#, 1),
            (r#","sequential_image_generation":"auto""#, 10),
            (
                r#","sequential_image_generation":"auto","sequential_image_generation_options":{"max_images":3}"#,
                3,
            ),
        ] {
            let body = format!(r#"{{"model":"m","prompt":"p"{fields}}}"#);
            let call = read(&ArkImages, body.as_bytes()).expect(fields);
            assert_eq!(call.bound().images, images, "{fields}");
        }
        let call = read(&ArkImages, br#"{"model":"m","prompt":"p"}"#).expect("valid");
        let mut meter = call.meter(Framing::Json);
        meter.relay(Bytes::from(
            r#"{"data":[{"url":"u"}],"usage":{"generated_images":1,"output_tokens":4000}}"#,
        ));
        let usage = Usage { output_tokens: 4000, images: 1, ..Usage::ZERO };
        assert_eq!(meter.measure(), (usage, UsageSource::Upstream));
    }

    #[test]
    fn invalid_requests_name_the_field() {
        for (codec, fields, param) in [
            (&OpenaiImages as &dyn Codec, r#""prompt":"""#, "prompt"),
            (&OpenaiImages, r#""x":1"#, "prompt"),
            (&OpenaiImages, r#""prompt":"p","n":0"#, "n"),
            (&OpenaiImages, r#""prompt":"p","n":11"#, "n"),
            (&OpenaiImages, r#""prompt":"p","n":1.5"#, "n"),
            (&OpenaiImages, r#""prompt":"p","N":1"#, "N"),
            (&OpenaiImages, r#""prompt":"p","size":"1000x1000""#, "size"),
            (&OpenaiImages, r#""prompt":"p","size":"3856x1600""#, "size"),
            (&OpenaiImages, r#""prompt":"p","size":"3840x1264""#, "size"),
            (&OpenaiImages, r#""prompt":"p","size":"1024*1024""#, "size"),
            (&OpenaiImages, r#""prompt":"p","size":7"#, "size"),
            (&OpenaiImages, r#""prompt":"p","quality":"medium""#, "quality"),
            (&OpenaiImages, r#""prompt":"p","response_format":"url""#, "response_format"),
            (&OpenaiImages, r#""prompt":"p","output_format":"gif""#, "output_format"),
            (
                &OpenaiImages,
                r#""prompt":"p","background":"transparent","output_format":"jpeg""#,
                "background",
            ),
            (&OpenaiImages, r#""prompt":"p","background":"red""#, "background"),
            (&OpenaiImages, r#""prompt":"p","stream":"yes""#, "stream"),
            (&OpenaiImages, r#""prompt":"p","partial_images":4"#, "partial_images"),
            (&ArkImages, r#""prompt":"p","n":2"#, "n"),
            (&ArkImages, r#""prompt":"p","sequential_image_generation":"on""#, SERIES),
            (
                &ArkImages,
                r#""prompt":"p","sequential_image_generation":"auto","sequential_image_generation_options":{"max_images":99}"#,
                SERIES_OPTIONS,
            ),
            (
                &ArkImages,
                r#""prompt":"p","image":["","","","","","","","","","","","","","","","",""]"#,
                "image",
            ),
        ] {
            let body = format!(r#"{{"model":"m",{fields}}}"#);
            let error = read(codec, body.as_bytes()).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}: {error}");
        }
    }
}
