//! The conditions of `prices_when`, in the words of `models.yaml`.

use std::cmp::Reverse;

use tollgate_money::price::Condition;
#[cfg(test)]
use tollgate_money::price::{ServiceTier, Traits};

/// The condition of a request that is served in this tier.
#[cfg(test)]
pub(crate) fn in_tier(tier: ServiceTier) -> Condition {
    let traits = Traits { service_tier: Some(tier), ..Traits::default() };
    Condition { traits, ..Condition::default() }
}

/// Fields of a condition and their values, in documented order; empty for base prices.
pub(crate) fn fields(condition: &Condition) -> Vec<(&'static str, String)> {
    let Condition { traits, input_tokens_above, time_utc } = condition;
    let word = |is_so: bool| is_so.to_string();
    let fields = [
        ("input_tokens_above", input_tokens_above.map(|above| above.to_string())),
        ("service_tier", traits.service_tier.map(|tier| tier.to_string())),
        ("speed", traits.speed.map(|speed| speed.to_string())),
        ("inference_geo", traits.inference_geo.map(|geo| geo.to_string())),
        ("thinking", traits.thinking.map(word)),
        ("time_utc", time_utc.map(|window| window.to_string())),
        ("resolution", traits.resolution.map(|resolution| resolution.to_string())),
        ("size", traits.size.map(|size| format!("{}x{}", size.width, size.height))),
        ("quality", traits.quality.map(|quality| quality.to_string())),
        ("audio", traits.audio.map(word)),
        ("draft", traits.draft.map(word)),
        ("video_input", traits.video_input.map(word)),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A condition as a flow mapping of YAML: `{ service_tier: priority }`.
pub(crate) fn as_flow(condition: &Condition) -> String {
    let fields = fields(condition);
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

/// Sort key that puts special conditions before general ones: more fields, then other fields than the
/// prompt length, then longer prompts. A condition comes before every condition that it implies.
pub(crate) fn rank(condition: &Condition) -> impl Ord + use<> {
    let any_length = fields(&of_any_length(condition)).len();
    let above = condition.input_tokens_above;
    (Reverse(fields(condition).len()), Reverse(any_length), Reverse(above))
}

/// The condition without its length of prompts.
pub(crate) fn of_any_length(condition: &Condition) -> Condition {
    Condition { input_tokens_above: None, ..*condition }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_money::price::{DayWindow, ImageSize};

    #[test]
    fn a_condition_is_written_as_it_is_typed() {
        let traits = Traits {
            service_tier: Some(ServiceTier::Priority),
            size: ImageSize::parse("1024x768"),
            audio: Some(false),
            ..Traits::default()
        };
        let condition = Condition {
            traits,
            input_tokens_above: Some(272_000),
            time_utc: DayWindow::parse("16:30-00:30"),
        };
        let expected = "{ input_tokens_above: 272000, service_tier: priority, \
                        time_utc: 16:30-00:30, size: 1024x768, audio: false }";
        assert_eq!(as_flow(&condition), expected);
        assert!(fields(&Condition::default()).is_empty());
    }

    #[test]
    fn special_conditions_rank_before_general_ones() {
        let tier = in_tier(ServiceTier::Priority);
        let long = Condition { input_tokens_above: Some(200_000), ..Condition::default() };
        let longer = Condition { input_tokens_above: Some(272_000), ..Condition::default() };
        let both = Condition { input_tokens_above: Some(200_000), ..tier };
        let mut conditions = [Condition::default(), long, tier, longer, both];
        conditions.sort_by_key(rank);
        assert_eq!(conditions, [both, tier, longer, long, Condition::default()]);
    }
}
