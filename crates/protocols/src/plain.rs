//! Requests for an image or a video in plain parameters, written in each dialect: for callers that do not
//! know the upstream. The codecs check the result like any other request.

mod dashscope;

use serde_json::{Map, Value, json};

use super::Dialect;
use super::limits::ModelLimits;

/// Images in plain words.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainImage<'a> {
    /// The model as customers name it.
    pub model: &'a str,
    /// Description of the image.
    pub prompt: &'a str,
    /// Number of images.
    pub count: Option<u32>,
    /// The size of each image in pixels, such as `1024x1024`.
    pub size: Option<&'a str>,
    /// `low`, `high` and the like.
    pub quality: Option<&'a str>,
    /// `png`, `jpeg` or `webp`.
    pub output_format: Option<&'a str>,
    /// Images to go by.
    pub image_urls: &'a [String],
}

/// A video in plain words.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainVideo<'a> {
    /// The model as customers name it.
    pub model: &'a str,
    /// Description of the video.
    pub prompt: &'a str,
    /// Length in seconds.
    pub seconds: Option<u32>,
    /// The resolution of the video, such as `720p`.
    pub resolution: Option<&'a str>,
    /// The ratio of width to height, such as `16:9`.
    pub aspect_ratio: Option<&'a str>,
    /// Images to begin with, or to go by.
    pub image_urls: &'a [String],
}

/// Members that are not null, so that an upstream's own default holds for what was left out.
fn object(members: Value) -> Value {
    let Value::Object(members) = members else { return members };
    Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}

impl PlainImage<'_> {
    /// The body for models that are served in this dialect.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> Value {
        let Self { model, prompt, count, size, quality, output_format, image_urls } = *self;
        if dialect == Dialect::Dashscope {
            let images = image_urls.iter().map(|url| json!({"image": url}));
            let content: Vec<Value> = images.chain([json!({"text": prompt})]).collect();
            // It has a sign of its own between width and height.
            let size = size.map(|size| size.replace('x', "*"));
            return json!({
                "model": model,
                "input": {"messages": [{"role": "user", "content": content}]},
                "parameters": object(json!({
                    "size": size,
                    "n": count,
                    "quality": quality,
                    "output_format": output_format,
                })),
            });
        }
        object(json!({
            "model": model,
            "prompt": prompt,
            "n": count,
            "size": size,
            "quality": quality,
            "output_format": output_format,
            "image": if image_urls.is_empty() { Value::Null } else { json!(image_urls) },
        }))
    }
}

impl PlainVideo<'_> {
    /// The body for a model with these limits that is served in this dialect.
    #[must_use]
    pub fn body(&self, dialect: Dialect, limits: &ModelLimits) -> Value {
        let Self { model, prompt, seconds, resolution, aspect_ratio, image_urls } = *self;
        match dialect {
            Dialect::Dashscope => dashscope::video(self, &limits.video),
            Dialect::Ark => {
                let role = if image_urls.len() > 1 { "reference_image" } else { "first_frame" };
                let image = |url: &String| json!({"type": "image_url", "image_url": {"url": url}, "role": role});
                let text = json!({"type": "text", "text": prompt});
                let content: Vec<Value> =
                    [text].into_iter().chain(image_urls.iter().map(image)).collect();
                object(json!({
                    "model": model,
                    "content": content,
                    "duration": seconds,
                    "resolution": resolution,
                    "ratio": aspect_ratio,
                }))
            }
            _ => object(json!({
                "model": model,
                "prompt": prompt,
                "image": image_urls.first().map(|url| json!({"url": url})),
                "duration": seconds,
                "resolution": resolution,
                "aspect_ratio": aspect_ratio,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;
    use crate::limits::{ImageLimits, VideoLimits};
    use crate::{Operation, Request, codec};
    use tollgate_money::price::{ImageSize, Resolution};

    fn limits() -> ModelLimits {
        ModelLimits {
            images: ImageLimits {
                sizes: vec![ImageSize { width: 1024, height: 768 }],
                ..ImageLimits::default()
            },
            video: VideoLimits {
                resolutions: vec![Resolution::P480, Resolution::P720],
                seconds_min: 2,
                seconds_max: 15,
                minus_one: false,
            },
            ..ModelLimits::default()
        }
    }

    fn check(operation: Operation, dialect: Dialect, body: &Value) {
        let text = body.to_string();
        let object = Object::parse(text.as_bytes()).expect("JSON");
        let codec = codec(operation, dialect).expect("a codec");
        if let Err(error) = codec.read(&Request::Json(object), &limits()) {
            panic!("{dialect} refuses {text}: {error}");
        }
    }

    #[test]
    fn every_dialect_takes_what_is_written_for_it() {
        let urls = ["https://example.com/a.png".to_owned(), "https://example.com/b.png".to_owned()];
        for dialect in [Dialect::Openai, Dialect::Ark, Dialect::Dashscope] {
            let plain = PlainImage { model: "m", prompt: "a cat", ..PlainImage::default() };
            check(Operation::ImageGeneration, dialect, &plain.body(dialect));
            let plain = PlainImage { size: Some("1024x768"), count: Some(1), ..plain };
            check(Operation::ImageGeneration, dialect, &plain.body(dialect));
        }
        let plain =
            PlainImage { model: "m", prompt: "a cat", image_urls: &urls, ..PlainImage::default() };
        for dialect in [Dialect::Ark, Dialect::Dashscope] {
            check(Operation::ImageGeneration, dialect, &plain.body(dialect));
        }
        let (none, one): (&[String], &[String]) = (&[], &urls[..1]);
        for (dialect, model, image_urls) in [
            (Dialect::Dashscope, "vf2.7-t2v", none),
            (Dialect::Dashscope, "vf2.7-i2v", one),
            (Dialect::Dashscope, "vf2.7-r2v", &urls),
            (Dialect::Dashscope, "vf2.6-t2v", none),
            (Dialect::Dashscope, "vf2.6-i2v-flash", one),
            (Dialect::Dashscope, "vf2.6-r2v", &urls),
            (Dialect::Dashscope, "happyhorse-1.0-r2v", &urls),
            (Dialect::Ark, "df-sf-2-0-260128", none),
            (Dialect::Ark, "df-sf-2-0-260128", one),
            (Dialect::Ark, "df-sf-2-0-260128", &urls),
            (Dialect::Xai, "gif-video", none),
            (Dialect::Xai, "gif-video", one),
        ] {
            let plain = PlainVideo { model, prompt: "a cat", image_urls, ..PlainVideo::default() };
            check(Operation::Video, dialect, &plain.body(dialect, &limits()));
            let plain = PlainVideo {
                seconds: Some(6),
                resolution: Some("480p"),
                aspect_ratio: Some("9:16").filter(|_| image_urls.is_empty()),
                ..plain
            };
            check(Operation::Video, dialect, &plain.body(dialect, &limits()));
        }
    }
}
