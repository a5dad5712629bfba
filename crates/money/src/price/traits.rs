//! Traits of requests and responses that prices depend on: tiers, speeds, regions, sizes, qualities.

use tollgate_types::words::words;

/// Traits that a price can depend on. Of a request: its parameters, `None` if open or not
/// applicable. Of a response: its actual values. Of a condition: the required values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The resolution of a video.
    pub resolution: Option<Resolution>,
    /// The size of an image.
    pub size: Option<ImageSize>,
    /// The quality of an image.
    pub quality: Option<Quality>,
    /// True for a video with sound.
    pub audio: Option<bool>,
    /// True for a draft of a video.
    pub draft: Option<bool>,
    /// True if a video is among the inputs.
    pub video_input: Option<bool>,
    /// The tier in which the request is served. An upstream may serve it in another than was asked for.
    pub service_tier: Option<ServiceTier>,
    /// Inference speed of the request.
    pub speed: Option<Speed>,
    /// Region in which inference ran.
    pub inference_geo: Option<InferenceGeo>,
    /// True if the model thinks before it answers.
    pub thinking: Option<bool>,
}

impl Traits {
    /// True if a request with these traits meets the part of `self` that is decided on arrival.
    pub(super) fn are_early_met_by(&self, has: &Self) -> bool {
        met(has.resolution, self.resolution)
            && met(has.size, self.size)
            && met(has.quality, self.quality)
            && met(has.audio, self.audio)
            && met(has.draft, self.draft)
            && met(has.video_input, self.video_input)
    }

    /// True if a response with these traits meets the part of `self` that the response decides.
    pub(super) fn are_late_met_by(&self, has: &Self) -> bool {
        met(has.service_tier, self.service_tier)
            && met(has.speed, self.speed)
            && met(has.inference_geo, self.inference_geo)
            && met(has.thinking, self.thinking)
    }

    /// True if the response to a request with these traits can still meet them.
    pub(super) fn can_be_late_met_by(&self, request: &Self) -> bool {
        // Who does not ask for a tier is served in the default one.
        let tier = match (self.service_tier, request.service_tier) {
            (None | Some(ServiceTier::Default), _) => true,
            // Accounts are set to another tier than this one, which is asked for by its name alone.
            (Some(ServiceTier::Ultrafast), Some(ServiceTier::Auto)) => false,
            (_, Some(ServiceTier::Auto)) => true,
            (demanded, request) => demanded == request,
        };
        // The answer alone shows whether a model has thought that nobody told to, or not to.
        let thinking = request.thinking.is_none() || met(request.thinking, self.thinking);
        tier && thinking
            && met(request.speed, self.speed)
            && met(request.inference_geo, self.inference_geo)
    }

    /// These, as far as an answer does not show otherwise.
    #[must_use]
    pub fn as_served(&self, served: &Self) -> Self {
        Self {
            service_tier: served.service_tier.or(self.service_tier),
            speed: served.speed.or(self.speed),
            inference_geo: served.inference_geo.or(self.inference_geo),
            thinking: served.thinking.or(self.thinking),
            ..*self
        }
    }
}

fn met<T: PartialEq>(has: Option<T>, demanded: Option<T>) -> bool {
    demanded.is_none() || has == demanded
}

words! {
    /// The tier in which a request is served.
    ServiceTier {
        /// The usual one, which is meant where nothing is said.
        Default = "default",
        /// Whichever the upstream's account is set to; asked for alone.
        Auto = "auto",
        /// A slower, cheaper tier.
        Flex = "flex",
        /// A faster, more expensive tier.
        Priority = "priority",
        /// Reserved capacity.
        Scale = "scale",
        /// A tier that answers within a day.
        Batch = "batch",
        /// The fastest one, which accounts are admitted to.
        Ultrafast = "ultrafast",
    }
}

impl ServiceTier {
    /// The tier that a provider means by this word: Anthropic calls the usual one `standard`, and OpenAI
    /// calls `priority` `fast` as well.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "standard" => Some(Self::Default),
            "fast" => Some(Self::Priority),
            word => Self::of(word),
        }
    }
}

words! {
    /// Inference speed of the request.
    Speed {
        /// The usual speed of inference.
        Standard = "standard",
        /// Faster, at a higher price.
        Fast = "fast",
    }
}

words! {
    /// Region in which inference ran.
    InferenceGeo {
        /// Any region with free capacity.
        Global = "global",
        /// The United States.
        Us = "us",
        /// The European Union.
        Eu = "eu",
    }
}

words! {
    /// The resolution of a video.
    Resolution {
        /// 480 lines.
        P480 = "480p",
        /// 720 lines.
        P720 = "720p",
        /// 1080 lines.
        P1080 = "1080p",
    }
}

words! {
    /// The quality of an image.
    Quality {
        /// A quality of GPT-style models.
        Low = "low",
        /// A quality of GPT-style models.
        Medium = "medium",
        /// A quality of GPT-style models.
        High = "high",
        /// A quality of DALL-E-style models.
        Standard = "standard",
        /// A quality of DALL-E-style models.
        Hd = "hd",
    }
}

/// The size of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageSize {
    /// Width in pixels.
    pub width: u16,
    /// Height in pixels.
    pub height: u16,
}

impl ImageSize {
    /// Reads `1024x1024`, or `1024*1024` as one provider writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let length = |part: &str| {
            // `parse` takes a sign and leading zeros, which providers refuse or read in their own way.
            let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && !part.starts_with('0');
            part.parse().ok().filter(|_| plain)
        };
        let (width, height) = text.split_once(['x', '*'])?;
        Some(Self { width: length(width)?, height: length(height)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_plain_numbers() {
        let size = Some(ImageSize { width: 1664, height: 928 });
        assert_eq!(ImageSize::parse("1664x928"), size);
        assert_eq!(ImageSize::parse("1664*928"), size);
        for text in ["", "auto", "x", "1x", "0x1", "+1x1", "01x1", "1x1x1", "1X1", "70000x1"] {
            assert_eq!(ImageSize::parse(text), None, "{text:?}");
        }
    }
}
