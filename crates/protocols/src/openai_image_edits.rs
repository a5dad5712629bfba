//! `POST /v1/images/edits` over upstreams that speak OpenAI's protocol. Spec section 2.3; OpenAI's
//! API reference, "Create image edit".

use imagesize::ImageType;

use super::allowed_keys::AllowedKey;
use super::fields;
use super::form::{Form, Part};
use super::images::{ImageOptions, ImageRequest, PARTIAL_IMAGES_MAX};
use super::limits::{ImageLimits, ModelLimits, ResponseFormat};
use super::request_bounds::ModelField;
use super::splice::Splice;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds};
use crate::codec::bounds_in_field;
use crate::estimate::TextSize;
use tollgate_money::price::Traits;
use tollgate_types::error::GatewayError;

/// Fields that a form can have once, and that decide what a call costs or how it is answered.
pub(super) const FIELDS: [&str; 11] = [
    "model",
    "prompt",
    "n",
    "size",
    "quality",
    "response_format",
    "output_format",
    "background",
    "stream",
    "partial_images",
    "mask",
];
/// The names of image files: SDKs send the second for lists.
pub(super) const IMAGES: [&str; 2] = ["image", "image[]"];
/// Further fields of OpenAI's (its API reference, "Create image edit"), without a price of their own.
pub(super) const OTHERS: [&str; 5] =
    ["user", "safety_identifier", "input_fidelity", "output_compression", "moderation"];

/// Codec of OpenAI's image edits.
#[derive(Debug)]
pub struct OpenaiImageEdits;

impl Codec for OpenaiImageEdits {
    fn operation(&self) -> Operation {
        Operation::ImageEdit
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/images/edits"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_names(&[&FIELDS[..], &IMAGES, &OTHERS].concat())
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let (form, body) = request.form()?;
        let fields = EditFields { form, body };
        check_names(form, &limits.pass.fields)?;
        let prompt = fields.text("prompt")?.filter(|prompt| !prompt.is_empty());
        let missing = || GatewayError::invalid("prompt", "`prompt` must be a non-empty text");
        let input_tokens = TextSize::measure(prompt.ok_or_else(missing)?.as_bytes()).tokens();
        check_images(&fields, &limits.images)?;
        // What is not listed is for generations.
        let listed = ImageLimits {
            side_max: None,
            side_multiple: None,
            aspect_ratio_max: None,
            ..limits.images.clone()
        };
        let image_options =
            fields.image_request(&listed)?.check(&listed)?.with_prices(&limits.priced);
        let max_usage = image_options.max_usage(limits.input_tokens_max, limits.output_tokens_max);
        let min_usage =
            image_options.estimate(input_tokens.min(limits.input_tokens_max), &max_usage);
        let stream = image_options.streams();
        let missing = || GatewayError::invalid("model", "`model` must be a non-empty text");
        let model = form.field("model")?.zip(fields.text("model")?).ok_or_else(missing)?;
        let model = ModelField::from_part(form, model.0, model.1);
        Ok(Box::new(EditCall {
            image_options,
            bounds: RequestBounds::from_parts(stream, model, max_usage, min_usage),
            response_format: ResponseFormatEdit::new(form, &image_options, &limits.images)?,
        }))
    }
}

/// Refuses ambiguous names, which only some parsers take for a field, and fields of unknown cost.
fn check_names(form: &Form, pass: &[String]) -> Result<(), GatewayError> {
    let field_names = [&FIELDS[..], &IMAGES, &OTHERS].concat();
    let variant = form.case_variant_of(&field_names);
    let bracketed = || {
        let names = form.parts.iter().map(|part| part.name.as_str());
        let stem = |name: &str| name.split('[').next().unwrap_or_default().to_owned();
        names.into_iter().find(|name| name.contains('[') && FIELDS.contains(&stem(name).as_str()))
    };
    if let Some(name) = variant.or_else(bracketed) {
        let name: String = name.chars().take(64).collect();
        let message = format!("`{name}` is not a field; field names are lower-case and plain");
        return Err(GatewayError::invalid(name, message));
    }
    let mut names = form.parts.iter().map(|part| part.name.as_str());
    names.try_for_each(|name| fields::check_listed("", name, &field_names, pass))
}

/// The fields of a form.
struct EditFields<'a> {
    form: &'a Form,
    body: &'a [u8],
}

impl<'a> EditFields<'a> {
    fn text(&self, name: &str) -> Result<Option<&'a str>, GatewayError> {
        Ok(self.form.text(self.body, name)?)
    }

    fn content(&self, part: &Part) -> &'a [u8] {
        self.body.get(part.content.clone()).unwrap_or_default()
    }

    fn integer(&self, name: &'static str, min: u64, max: u64) -> Result<Option<u64>, GatewayError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // `010` is eight to some and ten to others.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        let number = text.parse().ok().filter(|number| is_plain && (min..=max).contains(number));
        let message = || format!("`{name}` must be an integer from {min} to {max}");
        number.map(Some).ok_or_else(|| GatewayError::invalid(name, message()))
    }

    fn image_request(&self, limits: &ImageLimits) -> Result<ImageRequest, GatewayError> {
        let owned = |name| Ok::<_, GatewayError>(self.text(name)?.map(str::to_owned));
        let n = self.integer("n", 1, u64::from(limits.count_max))?.unwrap_or(1);
        let stream = match self.text("stream")? {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                let message = "`stream` must be `true` or `false`";
                return Err(GatewayError::invalid("stream", message));
            }
        };
        Ok(ImageRequest {
            n: u32::try_from(n).unwrap_or(u32::MAX),
            size: owned("size")?,
            quality: owned("quality")?,
            output_format: owned("output_format")?,
            response_format: owned("response_format")?,
            background: owned("background")?,
            stream,
            partial_images: self.integer("partial_images", 0, PARTIAL_IMAGES_MAX)?.unwrap_or(0),
        })
    }
}

/// The images are there, of formats that are taken, and the mask fits the first of them.
fn check_images(fields: &EditFields<'_>, limits: &ImageLimits) -> Result<(), GatewayError> {
    let images: Vec<&Part> = fields.form.files(&IMAGES).collect();
    let (min, max) = (limits.references_min.max(1) as usize, limits.references_max as usize);
    if !(min..=max).contains(&images.len()) {
        let message = match (images.len(), max) {
            (0, _) => "`image` is required: a PNG, JPEG or WebP file".to_owned(),
            (count, 1) => format!("`image` is there {count} times; this model takes one"),
            (count, _) => format!("the form has {count} images; this model takes {min} to {max}"),
        };
        return Err(GatewayError::invalid("image", message));
    }
    for image in &images {
        let content = fields.content(image);
        let kind = imagesize::image_type(content).ok();
        if !matches!(kind, Some(ImageType::Png | ImageType::Jpeg | ImageType::Webp)) {
            return Err(GatewayError::invalid("image", "`image` must be a PNG, JPEG or WebP file"));
        }
    }
    let Some(mask) = fields.form.field("mask")? else { return Ok(()) };
    let invalid = |message: String| GatewayError::invalid("mask", message).code("invalid_mask");
    if !limits.mask {
        return Err(invalid("this model takes no `mask`".to_owned()));
    }
    let mask = fields.content(mask);
    if !matches!(imagesize::image_type(mask), Ok(ImageType::Png)) {
        return Err(invalid("`mask` must be a PNG file".to_owned()));
    }
    let size_of = |file| imagesize::blob_size(file).ok();
    let image = images.first().and_then(|image| size_of(fields.content(image)));
    match (image, size_of(mask)) {
        (Some(image), Some(mask)) if image == mask => Ok(()),
        (Some(image), Some(mask)) => Err(invalid(format!(
            "`mask` is {}x{} and `image` is {}x{}: they must have the same size",
            mask.width, mask.height, image.width, image.height
        ))),
        (None, _) => Err(GatewayError::invalid("image", "the size of `image` cannot be read")),
        (_, None) => Err(invalid("the size of `mask` cannot be read".to_owned())),
    }
}

/// Edit of `response_format` on the way to the upstream.
#[derive(Debug)]
enum ResponseFormatEdit {
    /// The field is unchanged.
    Keep,
    /// The upstream answers in one way alone and takes no word about it: cut out.
    Remove(std::ops::Range<usize>),
    /// The contract has another default than the upstream: put in, at this offset.
    Insert(usize, String),
}

impl ResponseFormatEdit {
    fn new(
        form: &Form,
        image_options: &ImageOptions,
        limits: &ImageLimits,
    ) -> Result<Self, GatewayError> {
        const FIELD: &str = "response_format";
        let Some(ways) = limits.response_formats.as_deref() else { return Ok(Self::Keep) };
        Ok(match (ways.len(), form.field(FIELD)?) {
            (0 | 1, Some(part)) => Self::Remove(part.whole.clone()),
            (2.., None) if image_options.response_format.is_none() => {
                let text = form.part_text(FIELD, ResponseFormat::B64Json.as_str());
                Self::Insert(form.insertion_point(), text)
            }
            _ => Self::Keep,
        })
    }
}

#[derive(Debug)]
struct EditCall {
    image_options: ImageOptions,
    bounds: RequestBounds,
    response_format: ResponseFormatEdit,
}

impl Call for EditCall {
    bounds_in_field!();

    fn makes_pictures(&self) -> bool {
        self.image_options.is_output_apart()
    }

    fn traits(&self) -> Traits {
        self.image_options.traits
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        match &self.response_format {
            ResponseFormatEdit::Keep => {}
            ResponseFormatEdit::Remove(part) => splice.replace(part.clone(), ""),
            ResponseFormatEdit::Insert(at, part) => splice.replace(*at..*at, part.clone()),
        }
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        self.image_options.meter(framing, &self.bounds)
    }
}

#[cfg(test)]
mod tests;
