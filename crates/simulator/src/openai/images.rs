//! Images: made from a prompt, and made from other images.
//!
//! The shapes are those of OpenAI's API reference, "Create image", "Create image edit" and "Image
//! Streaming". xAI and Ark have the same path and differ in what they answer: see [`Family`].

mod request;

use serde_json::Value;

use self::request::{Family, ImageJob, ImagesRequest};
use super::multipart::{self, FormPart};
use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::received_request::ReceivedRequest;
use crate::script::{EventStream, StreamFormat};
use crate::usage::{ReportedUsage, tokens_of};
use crate::{image, results};
use tollgate_types::clock::UnixMs;

/// The most images that an edit takes.
const INPUT_IMAGES_MAX: usize = 16;
/// Tokens of an input image; the figure of one of 512 by 512 at low fidelity.
const TOKENS_PER_INPUT_IMAGE: usize = 194;
/// The end of the answer to every request of a blind simulator, after its image.
const BLIND_END: &str = r#""}],"background":"opaque","output_format":"png","quality":"medium","size":"1024x1024","usage":{"input_tokens":12,"input_tokens_details":{"text_tokens":12,"image_tokens":0},"output_tokens":1056,"total_tokens":1068}}"#;

/// Answers a request to make images: `…/images/generations`.
pub(crate) fn generation(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    if behaviour.blind {
        return blind(behaviour);
    }
    match serde_json::from_slice::<ImagesRequest>(http_request.body) {
        Ok(request) => answer(http_request, request, "image_generation", 0, behaviour),
        Err(error) => Answer::invalid(&format!("The body: {error}."), behaviour),
    }
}

/// Answers a request to edit images: `…/images/edits`.
pub(crate) fn edit(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    if behaviour.blind {
        return blind(behaviour);
    }
    let Some(parts) = multipart::parts(http_request.headers, http_request.body) else {
        return Answer::invalid("The body is not a whole multipart/form-data.", behaviour);
    };
    // SDKs write `image[]` for a list.
    let images = || parts.iter().filter(|it| it.name == "image" || it.name.starts_with("image["));
    let count = images().count();
    if !(1..=INPUT_IMAGES_MAX).contains(&count) {
        return Answer::invalid("There must be 1 to 16 images.", behaviour);
    }
    let mask = parts.iter().find(|part| part.name == "mask");
    if let (Some(mask), Some(image)) = (mask, images().next())
        && have_other_dimensions(mask, image)
    {
        let message = "The mask must have the same dimensions as the image.";
        return Answer::invalid_as("invalid_mask", message, behaviour);
    }
    match ImagesRequest::from_form(&parts) {
        Ok(request) => answer(http_request, request, "image_edit", count, behaviour),
        Err(error) => Answer::invalid(&format!("The form: {error}."), behaviour),
    }
}

/// Only PNGs can be compared: other images pass.
fn have_other_dimensions(mask: &FormPart, image: &FormPart) -> bool {
    let mask = image::png_dimensions(&mask.data);
    let image = image::png_dimensions(&image.data);
    mask.is_some() && image.is_some() && mask != image
}

fn blind(behaviour: &Behaviour) -> Answer {
    let image = image::in_base64(behaviour);
    let start = r#"{"created":1700000000,"data":[{"b64_json":""#;
    Answer::json([start, &image, BLIND_END].concat(), behaviour)
}

/// `kind` is how the names of a stream's events begin.
fn answer(
    http_request: &ReceivedRequest<'_>,
    request: ImagesRequest,
    kind: &'static str,
    input_images: usize,
    behaviour: &Behaviour,
) -> Answer {
    let order = match ImageJob::new(request, http_request.path) {
        Ok(order) => order,
        Err(bad) => return bad.answer(behaviour),
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(order.is_stream);
    }
    let made = GeneratedImages { order, kind, input_images, created: UnixMs::now().seconds() };
    if made.order.is_stream {
        made.streamed(behaviour)
    } else {
        Answer::json(made.whole(http_request, behaviour), behaviour)
    }
}

/// Images that were ordered and are there.
struct GeneratedImages {
    order: ImageJob,
    kind: &'static str,
    input_images: usize,
    created: u64,
}

impl GeneratedImages {
    fn whole(&self, http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> String {
        let image = self.order.in_base64.then(|| image::in_base64(behaviour));
        let items = (0..self.order.count).map(|index| {
            let image = match &image {
                Some(image) => format!(r#""b64_json":"{image}""#),
                None => format!(r#""url":{}"#, quoted(&results::image_url(http_request, index))),
            };
            match self.order.family {
                Family::Gpt | Family::DallE => format!("{{{image}}}"),
                Family::Grok => format!(r#"{{{image},"revised_prompt":""}}"#),
                Family::Ark => format!(r#"{{{image},"size":"{}"}}"#, self.order.size()),
            }
        });
        let data = items.collect::<Vec<_>>().join(",");
        let (created, usage) = (self.created, self.usage(behaviour));
        match self.order.family {
            Family::Gpt => {
                let details = self.details();
                format!(r#"{{"created":{created},"data":[{data}],{details}{usage}}}"#)
            }
            Family::DallE => format!(r#"{{"created":{created},"data":[{data}]}}"#),
            Family::Grok => format!(r#"{{"data":[{data}]}}"#),
            Family::Ark => {
                let model = quoted(&self.order.request.model);
                format!(r#"{{"model":{model},"created":{created},"data":[{data}]{usage}}}"#)
            }
        }
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let image = image::in_base64(behaviour);
        let event = |stream: &EventStream<'_>, name: &str, more: &str| {
            let (created, details) = (self.created, self.details());
            let name = format!("{}.{name}", self.kind);
            let data = format!(
                r#"{{"type":"{name}","b64_json":"{image}","created_at":{created},{details}{more}}}"#
            );
            stream.named_event(&name, &data)
        };
        let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
        for index in 0..self.order.request.partial_images.unwrap_or(0) {
            let index = format!(r#","partial_image_index":{index}"#);
            stream.send_chunk(&event(&stream, "partial_image", &index));
        }
        stream.send(&event(&stream, "completed", &self.usage(behaviour)));
        Answer::events(stream)
    }

    /// Fields that describe how the images were generated.
    fn details(&self) -> String {
        let order = &self.order;
        let (background, format) = (quoted(order.background()), quoted(order.output_format()));
        let (quality, size) = (quoted(order.quality()), quoted(&order.size()));
        format!(
            r#""background":{background},"output_format":{format},"quality":{quality},"size":{size}"#
        )
    }

    /// The whole field, or nothing.
    fn usage(&self, behaviour: &Behaviour) -> String {
        let text = tokens_of(&self.order.request.prompt);
        let images = self.input_images * TOKENS_PER_INPUT_IMAGE;
        let reported =
            ReportedUsage::reported(text + images, self.order.output_tokens(), behaviour);
        let Some(usage) = reported else { return String::new() };
        let (input, output, total) = (usage.input, usage.output, usage.total());
        if self.order.family == Family::Ark {
            // What went in is free and not counted.
            let count = self.order.count;
            return format!(
                r#","usage":{{"generated_images":{count},"output_tokens":{output},"total_tokens":{output}}}"#
            );
        }
        // The parts make the whole, where figures were told as well.
        let images = i64::try_from(images).unwrap_or(i64::MAX).min(input.max(0));
        let text = input.saturating_sub(images);
        format!(
            r#","usage":{{"input_tokens":{input},"input_tokens_details":{{"text_tokens":{text},"image_tokens":{images}}},"output_tokens":{output},"total_tokens":{total}}}"#
        )
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
