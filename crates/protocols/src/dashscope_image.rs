//! `POST /v1/images/generations` for family Q, over DashScope's native protocol: the customer's body
//! is the upstream's. Spec sections 2.2 and 7; Alibaba Cloud Model Studio, "Qwen-Image API".

use bytes::Bytes;
use serde::Deserialize;

use super::dashscope::{self, GENERATION_PATH, object_in};
use super::fields;
use super::json::{self, Object, Value};
use super::limits::{ImageLimits, ModelLimits};
use super::{
    Call, Codec, Collect, CollectedAnswer, CollectedContent, Dialect, Operation, Request,
    RequestBounds, UpstreamFault,
};
use crate::codec::bounds_in_field;
use crate::public_url;
use tollgate_money::price::{ImageSize, Traits, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// Top-level fields of the contract (spec section 2.2).
const FIELDS: [&str; 3] = ["model", "input", "parameters"];
const INPUT_FIELDS: [&str; 1] = ["messages"];
const MESSAGE_FIELDS: [&str; 2] = ["role", "content"];
const BLOCK_FIELDS: [&str; 2] = ["text", "image"];
const PARAMETERS_FIELDS: [&str; 6] =
    ["size", "n", "seed", "watermark", "negative_prompt", "prompt_extend"];

/// The codec of images over DashScope's native API.
#[derive(Debug)]
pub struct DashscopeImage;

impl Codec for DashscopeImage {
    fn operation(&self) -> Operation {
        Operation::ImageGeneration
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Dashscope]
    }

    fn path(&self) -> &'static str {
        GENERATION_PATH
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        read(body, limits).map_err(|error| error.code("InvalidParameter"))
    }
}

fn read(body: &Object<'_>, limits: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
    fields::refuse_case_variants(body, &FIELDS)?;
    let pass = &limits.pass.fields;
    fields::refuse_unknown_fields(body, &FIELDS, pass)?;
    let message = message_of(body, pass)?;
    check_content(&message, &limits.images, pass)?;
    let (size, images) = read_parameters(body, &limits.images, pass)?;
    // An upstream that has begun makes all of them, whoever waits for them.
    let used = Usage { images, ..Usage::ZERO };
    Ok(Box::new(ImageCall {
        bounds: RequestBounds::from_body(body, used, used),
        traits: Traits { size, ..Traits::default() },
    }))
}

/// The only message of a request; an error if there are none or several.
fn message_of<'a>(body: &Object<'a>, pass: &[String]) -> Result<Object<'a>, GatewayError> {
    let invalid = |field, message| GatewayError::invalid(field, message);
    let input = object_in(body, "input")?
        .ok_or_else(|| invalid("input", "`input` must be an object with `messages`"))?;
    fields::refuse_unknown_members(&input, "input", &INPUT_FIELDS, pass)?;
    let one = || invalid("input.messages", "`input.messages` must have exactly one message");
    let messages = input.get_non_null("messages").and_then(|value| value.elements());
    let mut messages = messages.ok_or_else(one)?;
    let (Some(message), None) = (messages.next(), messages.next()) else { return Err(one()) };
    let message = message.as_object().map_err(|_| one())?;
    fields::refuse_unknown_members(&message, "input.messages[0]", &MESSAGE_FIELDS, pass)?;
    let role = message.get_non_null("role");
    if role.is_none_or(|role| role.as_str().as_deref() != Some("user")) {
        return Err(invalid("input.messages[0].role", "the message's `role` must be `user`"));
    }
    Ok(message)
}

/// Blocks of text or image, as many of each as the model takes.
fn check_content(
    message: &Object<'_>,
    limits: &ImageLimits,
    pass: &[String],
) -> Result<(), GatewayError> {
    const FIELD: &str = "input.messages[0].content";
    let invalid = |message: String| GatewayError::invalid(FIELD, message);
    let blocks = message.get_non_null("content").and_then(|value| value.elements());
    let blocks = blocks.ok_or_else(|| {
        invalid("`content` must be an array of `{\"text\"}` and `{\"image\"}` blocks".to_owned())
    })?;
    let (mut texts, mut images) = (0_u32, 0_u32);
    for (index, block) in blocks.enumerate() {
        let members = block.as_object().ok();
        if let Some(block) = &members {
            let at = format!("{FIELD}[{index}]");
            fields::refuse_unknown_members(block, &at, &BLOCK_FIELDS, pass)?;
        }
        let text_and_image = members.map(|block| (block.get("text"), block.get("image")));
        match text_and_image {
            Some((Some(text), None)) if text.as_str().is_some_and(|text| !text.is_empty()) => {
                texts += 1;
            }
            Some((None, Some(image))) => {
                check_image(&image).map_err(invalid)?;
                images += 1;
            }
            _ => {
                let message =
                    "each block of `content` must have either a non-empty `text` or an `image`";
                return Err(invalid(message.to_owned()));
            }
        }
    }
    if texts == 0 {
        return Err(invalid("`content` needs a `{\"text\"}` block".to_owned()));
    }
    let (min, max) = (limits.references_min, limits.references_max);
    if !(min..=max).contains(&images) {
        return Err(invalid(match (min, max) {
            (_, 0) => "this model makes images from text and takes no `image` block".to_owned(),
            _ => format!("this model needs {min} to {max} `image` blocks; there are {images}"),
        }));
    }
    Ok(())
}

fn check_image(image: &Value<'_>) -> Result<(), String> {
    let url = image.as_str().ok_or("an `image` must be an https URL")?;
    match public_url::parse(&url) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("an `image` must be a public https URL: {error}")),
    }
}

/// The size and the number of images.
fn read_parameters(
    body: &Object<'_>,
    limits: &ImageLimits,
    pass: &[String],
) -> Result<(Option<ImageSize>, u64), GatewayError> {
    match object_in(body, "parameters")? {
        None => Ok((default_size(limits), 1)),
        Some(parameters) => {
            let checked = check_parameters(&parameters, limits).map_err(inside_parameters)?;
            fields::refuse_unknown_members(&parameters, "parameters", &PARAMETERS_FIELDS, pass)?;
            Ok(checked)
        }
    }
}

/// The field at fault by its whole path, as everywhere in this family.
fn inside_parameters(error: GatewayError) -> GatewayError {
    let param = error.param.map(|field| format!("parameters.{field}").into());
    GatewayError { param, ..error }
}

fn check_parameters(
    parameters: &Object<'_>,
    limits: &ImageLimits,
) -> Result<(Option<ImageSize>, u64), GatewayError> {
    fields::refuse_case_variants(parameters, &PARAMETERS_FIELDS)?;
    let n = fields::integer(parameters, "n", 1..=u64::from(limits.count_max))?.unwrap_or(1);
    fields::integer(parameters, "seed", 0..=u64::from(u32::MAX))?;
    fields::boolean(parameters, "watermark")?;
    fields::boolean(parameters, "prompt_extend")?;
    fields::text(parameters, "negative_prompt")?;
    let Some(text) = fields::text(parameters, "size")? else {
        return Ok((default_size(limits), n));
    };
    let size = ImageSize::parse(&text).filter(|_| text.contains('*'));
    match size.filter(|size| limits.has_size(*size)) {
        Some(size) => Ok((Some(size), n)),
        None => {
            let sizes = limits.sizes_in_words('*');
            let message = format!("`size` must be one of {sizes}");
            Err(GatewayError::invalid("size", message))
        }
    }
}

/// Default size of the contract, if the model has it.
fn default_size(limits: &ImageLimits) -> Option<ImageSize> {
    let size = ImageSize { width: 1024, height: 1024 };
    limits.has_size(size).then_some(size)
}

#[derive(Debug)]
struct ImageCall {
    bounds: RequestBounds,
    traits: Traits,
}

impl Call for ImageCall {
    bounds_in_field!();

    fn traits(&self) -> Traits {
        self.traits
    }

    /// Its answers are collected: nothing is relayed as it comes.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        Some(self)
    }
}

/// Both ways in which usage is reported, and the images themselves.
#[derive(Debug, Default, Deserialize)]
struct WireImageAnswer {
    #[serde(default)]
    output: WireImageOutput,
    #[serde(default)]
    usage: WireImageUsage,
}

#[derive(Debug, Default, Deserialize)]
struct WireImageUsage {
    #[serde(default)]
    image_count: Option<u64>,
    #[serde(default)]
    output_image_count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct WireImageOutput {
    #[serde(default)]
    choices: Vec<WireImageChoice>,
}

#[derive(Debug, Deserialize)]
struct WireImageChoice {
    message: WireImageMessage,
}

#[derive(Debug, Deserialize)]
struct WireImageMessage {
    #[serde(default)]
    content: Vec<WireImageBlock>,
}

#[derive(Debug, Deserialize)]
struct WireImageBlock {
    #[serde(default)]
    image: Option<String>,
}

impl Collect for ImageCall {
    fn bodies(&self, upstream_model: &str, body: &Bytes) -> Vec<Bytes> {
        vec![self.splice(upstream_model).apply(body)]
    }

    fn read(&self, answers: &[Bytes]) -> Result<CollectedAnswer, UpstreamFault> {
        let answer = answers.first().cloned().unwrap_or_default();
        // DashScope reports failures of its models with status 200 as well.
        if dashscope::error_in(&answer).is_some() {
            return Err(dashscope::fault(200, &answer));
        }
        let Some(wire) = json::from_upstream::<WireImageAnswer>(&answer) else {
            return Err(UpstreamFault::Upstreams("the upstream's answer is none".to_owned()));
        };
        let blocks = wire.output.choices.iter().flat_map(|choice| &choice.message.content);
        let made = blocks.filter(|block| block.image.is_some()).count() as u64;
        let reported = wire.usage.image_count.max(wire.usage.output_image_count);
        // Neither a figure nor an image, as of a task that is under way: what was asked for is made.
        let count = reported.or(Some(made).filter(|made| *made > 0));
        let source = count.map_or(UsageSource::Estimated, |_| UsageSource::Upstream);
        // A report of fewer images than were sent is not believed: those are there.
        let images = count.map_or(self.bounds.max_usage.images, |count| count.max(made));
        Ok(CollectedAnswer {
            usage: Usage { images, ..Usage::ZERO },
            source,
            content: CollectedContent::Json(answer),
        })
    }

    fn refusal(&self, status: u16, body: &Bytes) -> Option<UpstreamFault> {
        Some(dashscope::fault(status, body))
    }
}

#[cfg(test)]
mod tests;
