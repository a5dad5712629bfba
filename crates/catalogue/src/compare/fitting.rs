//! Selection of a list's prices that apply to one of our models, by its operations and billing.

use tollgate_money::price::{Condition, ServiceTier, Unit};

use crate::own::OwnModel;

/// Operations that answer prompts.
const PROMPTS: [&str; 3] = ["chat", "messages", "responses"];
/// Operations that make images.
const IMAGES: [&str; 2] = ["image_generation", "image_edit"];

/// Operations with audio input.
const HEARING: [&str; 2] = ["transcription", "audio_translation"];

/// True if the model has token limits that lists contain: of prompts and answers.
pub(super) fn has_listed_limits(own: &OwnModel) -> bool {
    own.does(&PROMPTS)
}

/// True if a price of the unit under this condition can affect a request to the model.
pub(super) fn fits(own: &OwnModel, unit: Unit, when: &Condition) -> bool {
    is_billed(own, unit) && can_be_met(own, unit, when)
}

/// True if the model is billed in this unit. Images and videos are billed in one of several units; proposing
/// another would charge a request twice.
fn is_billed(own: &OwnModel, unit: Unit) -> bool {
    let has = |unit| own.base.iter().any(|(typed, _)| *typed == unit);
    let beside = match unit {
        Unit::WebSearches | Unit::Requests => own.does(&PROMPTS),
        Unit::ContainerSessions => own.does(&["messages", "responses"]),
        Unit::FileSearches | Unit::ToolCalls => own.does(&["responses"]),
        _ => false,
    };
    let mut like = std::iter::successors(Some(unit), |unit| unit.info().priced_as);
    beside
        || like.any(|unit| match unit {
            Unit::InputTokens => {
                own.does(&PROMPTS)
                    || own.does(&["embeddings"])
                    || (own.does(&["rerank", "moderations"]) && has(Unit::InputTokens))
                    || (own.does(&IMAGES) && has(Unit::InputTokens))
                    || (own.does(&HEARING) && has(Unit::InputTokens))
            }
            Unit::OutputTokens => {
                own.does(&PROMPTS)
                    || (own.does(&IMAGES) || own.does(&["video"]) || own.does(&HEARING))
                        && has(Unit::OutputTokens)
            }
            Unit::Images => own.does(&IMAGES) && has(Unit::Images),
            Unit::AudioSeconds => own.does(&HEARING) && has(Unit::AudioSeconds),
            Unit::Seconds => own.does(&["video"]) && has(Unit::Seconds),
            Unit::Characters => own.does(&["speech"]),
            Unit::RerankUnits => own.does(&["rerank"]) && has(Unit::RerankUnits),
            _ => false,
        })
}

/// True if requests to the model can meet the condition. The gateway has no batch requests, so a batch
/// price counts only if our model has one.
fn can_be_met(own: &OwnModel, unit: Unit, when: &Condition) -> bool {
    let traits = &when.traits;
    let is_batch = traits.service_tier == Some(ServiceTier::Batch);
    let length = when.input_tokens_above.is_none()
        || own.does(&PROMPTS)
        || own.does(&["embeddings", "rerank", "moderations"]);
    let tier = traits.service_tier.is_none() || own.does(&PROMPTS);
    let speed = traits.speed.is_none() || own.does(&["messages"]);
    let resolution = traits.resolution.is_none() || unit == Unit::Seconds;
    let batch = !is_batch || own.when.iter().any(|(own, _)| own == when);
    length && tier && speed && resolution && batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::in_tier;
    use tollgate_money::money::Rate;

    fn own(operation: &str, units: &[Unit]) -> OwnModel {
        let base = units.iter().map(|unit| (*unit, Rate::default())).collect();
        OwnModel { operations: vec![operation.to_owned()], base, ..OwnModel::default() }
    }

    #[test]
    fn a_way_of_billing_stays_as_it_is() {
        let base = Condition::default();
        let by_image = own("image_generation", &[Unit::Images]);
        assert!(fits(&by_image, Unit::Images, &base));
        assert!(!fits(&by_image, Unit::InputTokens, &base), "tokens beside images");
        let by_token = own("image_edit", &[Unit::InputTokens, Unit::OutputTokens]);
        assert!(fits(&by_token, Unit::ImageInputTokens, &base));
        assert!(!fits(&by_token, Unit::Images, &base), "images beside tokens");
        let video = own("video", &[Unit::Seconds]);
        assert!(fits(&video, Unit::Seconds, &base) && !fits(&video, Unit::OutputTokens, &base));
    }

    #[test]
    fn conditions_are_those_that_requests_can_meet() {
        let chat = own("chat", &[Unit::InputTokens]);
        let embeddings = own("embeddings", &[Unit::InputTokens]);
        let priority = in_tier(ServiceTier::Priority);
        let long = Condition { input_tokens_above: Some(1), ..Condition::default() };
        assert!(fits(&chat, Unit::InputTokens, &priority));
        assert!(!fits(&embeddings, Unit::InputTokens, &priority));
        assert!(fits(&embeddings, Unit::InputTokens, &long));
        assert!(!fits(&chat, Unit::InputTokens, &in_tier(ServiceTier::Batch)));
        let when = vec![(in_tier(ServiceTier::Batch), Vec::new())];
        let batched = OwnModel { when, ..chat };
        assert!(fits(&batched, Unit::InputTokens, &in_tier(ServiceTier::Batch)));
    }
}
