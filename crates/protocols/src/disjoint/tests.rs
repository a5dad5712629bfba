use proptest::prelude::*;

use super::*;

const SHORT: Unit = Unit::CacheWriteTokens;
const HOUR: Unit = Unit::CacheWrite1hTokens;

fn named(count: u64) -> NamedCount {
    NamedCount::from_values(&[Some(count)])
}

/// A report of a prompt, what a cache has read and written of it, an output and a total.
fn totals(prompt: u64, read: u64, written: u64, output: u64, total: u64) -> InclusiveCounts {
    InclusiveCounts {
        prompt: Some(prompt),
        read: named(read),
        written: CacheWritten::new(named(written), &[]),
        output,
        total: Some(total).filter(|total| *total > 0),
        ..InclusiveCounts::new(SHORT)
    }
}

/// Plain, read and written input, and the output.
fn kinds(totals: &InclusiveCounts) -> ([u64; 4], Vec<&'static str>) {
    let (usage, found) = totals.disjoint();
    let kinds = [
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    ];
    (kinds, found.iter().map(Contradiction::as_str).collect())
}

#[test]
fn cached_tokens_are_within_the_prompt_where_they_fit_and_beside_it_where_they_do_not() {
    const ABOVE: &str = "cache_above_prompt";
    for (report, expected, contradictions) in [
        (totals(100, 40, 30, 10, 110), [30, 40, 30, 10], vec![]),
        (totals(100, 4000, 0, 10, 110), [100, 4000, 0, 10], vec![ABOVE]),
        (totals(100, 4000, 0, 10, 4110), [100, 4000, 0, 10], vec![]),
        (totals(100, 4000, 0, 10, 4610), [100, 4000, 0, 510], vec![ABOVE]),
        (totals(100, 0, 4000, 10, 0), [100, 0, 4000, 10], vec![ABOVE]),
        (totals(100, 80, 70, 10, 110), [100, 80, 70, 10], vec![ABOVE]),
        (totals(100, 80, 70, 10, 260), [100, 80, 70, 10], vec![]),
        // The total has the written ones beside the prompt, and those that were read within.
        (totals(100, 80, 70, 10, 180), [20, 80, 70, 10], vec![]),
        (totals(5000, 4000, 0, 10, 9010), [5000, 4000, 0, 10], vec![]),
        // What else the total has is thought, as Gemini counts.
        (totals(5000, 4000, 0, 10, 9500), [1000, 4000, 0, 4500], vec![]),
        (totals(0, 400, 0, 10, 0), [0, 400, 0, 10], vec![ABOVE]),
        // Without an output nobody knows whether the total has the cached ones: it is dearer if not.
        (totals(989, 4618, 4705, 0, 17628), [989, 4618, 4705, 16639], vec![ABOVE]),
        (totals(989, 4618, 4705, 0, 10312), [989, 4618, 4705, 0], vec![]),
        (totals(100, 0, 0, 50, 120), [100, 0, 0, 50], vec!["total_below_parts"]),
    ] {
        assert_eq!(kinds(&report), (expected, contradictions), "{report:?}");
    }
}

#[test]
fn a_total_tells_what_a_missing_side_is() {
    let of = |prompt: Option<u64>, output: u64, total: u64| {
        let report = InclusiveCounts { prompt, ..totals(0, 0, 0, output, total) };
        kinds(&report).0
    };
    assert_eq!(of(None, 25, 125), [100, 0, 0, 25]);
    assert_eq!(of(Some(0), 25, 125), [100, 0, 0, 25], "no prompt is empty");
    assert_eq!(of(Some(24), 0, 124), [24, 0, 0, 100]);
    assert_eq!(of(None, 0, 125), [1, 0, 0, 124], "all but a token can be output");
    assert_eq!(of(None, 25, 0), [0, 0, 0, 25], "and nobody knows the prompt");
}

#[test]
fn reasoning_is_beside_an_output_that_is_less() {
    let of = |output: u64, reasoning: u64, total: u64| {
        kinds(&InclusiveCounts { reasoning, ..totals(50, 0, 0, output, total) })
    };
    assert_eq!(of(700, 600, 750), ([50, 0, 0, 700], vec![]));
    assert_eq!(of(100, 600, 750), ([50, 0, 0, 700], vec![]));
    assert_eq!(of(100, 600, 0), ([50, 0, 0, 700], vec![]));
    assert_eq!(of(100, 600, 150), ([50, 0, 0, 700], vec!["reasoning_above_output"]));
    let cached = InclusiveCounts { reasoning: 300, ..totals(500, 300, 0, 100, 900) };
    assert_eq!(kinds(&cached).0, [200, 300, 0, 400], "the total has the reasoning, not the cached");
}

#[test]
fn of_two_values_the_dearer_counts() {
    let read = NamedCount::from_values(&[Some(40), None, Some(90)]);
    let report = InclusiveCounts { read, ..totals(100, 0, 0, 10, 110) };
    assert_eq!(kinds(&report), ([60, 40, 0, 10], vec!["two_values"]));
    let read = NamedCount::from_values(&[Some(40), Some(900)]);
    let report = InclusiveCounts { read, ..totals(100, 0, 0, 10, 110) };
    assert_eq!(kinds(&report), ([100, 900, 0, 10], vec!["cache_above_prompt", "two_values"]));
    let written = CacheWritten::new(NamedCount::from_values(&[Some(10), Some(30)]), &[]);
    let report = InclusiveCounts { written, ..totals(100, 0, 0, 10, 110) };
    assert_eq!(kinds(&report), ([70, 0, 30, 10], vec!["two_values"]));
}

#[test]
fn more_sound_or_pictures_than_tokens_are_beside_them() {
    let of = |audio_input: u64, image_input: u64, audio_output: u64, total: u64| {
        let report = InclusiveCounts {
            audio_input,
            image_input,
            audio_output,
            ..totals(100, 40, 0, 50, total)
        };
        let (usage, found) = report.disjoint();
        let input = [usage.input_tokens, usage.audio_input_tokens, usage.image_input_tokens];
        (input, [usage.output_tokens, usage.audio_output_tokens], found.is_empty())
    };
    assert_eq!(of(10, 20, 30, 150), ([30, 10, 20], [20, 30], true));
    assert_eq!(of(90, 0, 0, 150), ([0, 60, 0], [50, 0], true), "some of the sound was cached");
    assert_eq!(of(500, 0, 0, 0), ([60, 500, 0], [50, 0], false));
    assert_eq!(of(500, 0, 0, 650), ([60, 500, 0], [50, 0], false), "and is no output");
    assert_eq!(of(0, 0, 80, 0), ([60, 0, 0], [50, 80], false));
}

#[test]
fn writes_without_a_lifetime_have_the_requested_one() {
    let split = |short: u64, hour: u64| WireLifetimes {
        ephemeral_5m_input_tokens: Some(short),
        ephemeral_1h_input_tokens: Some(hour),
    };
    for (total, lifetimes, unsplit, expected, is_contradiction) in [
        (Some(400), None, SHORT, (400, 0), false),
        (Some(400), None, HOUR, (0, 400), false),
        (Some(400), Some(split(0, 0)), HOUR, (0, 400), false),
        (Some(400), Some(split(100, 300)), HOUR, (100, 300), false),
        (Some(400), Some(split(100, 0)), HOUR, (100, 300), false),
        (Some(400), Some(split(0, 100)), SHORT, (300, 100), false),
        (Some(100), Some(split(0, 5000)), SHORT, (0, 5000), true),
        (Some(0), Some(split(7, 5)), SHORT, (7, 5), true),
        (None, Some(split(7, 5)), SHORT, (7, 5), false),
    ] {
        let (mut usage, mut found) = (Usage::ZERO, Contradictions::default());
        let total = NamedCount::from_values(&[total]);
        CacheWritten::new(total, &[lifetimes]).add_to(&mut usage, unsplit, &mut found);
        let writes = (usage.cache_write_tokens, usage.cache_write_1h_tokens);
        assert_eq!((writes, !found.is_empty()), (expected, is_contradiction), "{total:?}");
    }
}

#[test]
fn what_is_no_count_is_not_there() {
    #[derive(Deserialize)]
    struct WireCount {
        #[serde(default, deserialize_with = "count")]
        a: Option<u64>,
    }
    for (text, expected) in [
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("\"12\"", Some(12)),
        ("3e0", Some(3)),
        ("-1", None),
        ("-0.5", None),
        ("1.5", None),
        ("1e30", None),
        ("1180591620717411303424", None),
        ("\"many\"", None),
        ("null", None),
        ("true", None),
        ("[1,{}]", None),
        ("{\"b\":[2]}", None),
    ] {
        let wire: WireCount = serde_json::from_str(&format!("{{\"a\":{text}}}")).expect(text);
        assert_eq!(wire.a, expected, "{text}");
    }
}

#[test]
fn a_lifetime_is_looked_at_by_its_value_wherever_it_stands() {
    let requested_writes = |body: &str| {
        let body = Object::parse(body.as_bytes()).expect(body);
        RequestedLifetime::in_body(&body, &CACHE_CONTROL)
    };
    use RequestedLifetime::{Long, None, Short};
    for (body, expected) in [
        (r#"{"messages":[]}"#, None),
        (r#"{"a":"say \"cache_control\": {\"ttl\":\"1h\"}"}"#, None),
        (r#"{"a":["cache_control"],"cache_control":null}"#, None),
        (r#"{"cache_control":{"type":"ephemeral"}}"#, Short),
        (r#"{"cache_control":{"type":"ephemeral","ttl":"5m"}}"#, Short),
        (r#"{"cache_control":{"ttl":null},"tools":[{"schema":{"ttl":{"type":"x"}}}]}"#, Short),
        (r#"{"cache_control":{"ttl":"5m"},"input":{"ttl":"1h"}}"#, Short),
        (r#"{"cache_control":{},"system":[{"cache_control" : { "ttl" : "1h" }}]}"#, Long),
        (r#"{"messages":[{"content":[{"content":[{"cache_control":{"ttl":"1h"}}]}]}]}"#, Long),
        (r#"{"tools":[{"function":{},"cache_control":{"ttl":"1h"}}]}"#, Long),
        (r#"{"cache_control":{"ttl":"\u0031h"}}"#, Long),
        (r#"{"cache_control":{"ttl":"2d"}}"#, Long),
        (r#"{"cache_contro\u006c":{"ttl":"5m"}}"#, Long),
        // Keys of other scripts are often written as escapes.
        (r#"{"\u540d":{"cache_control":{}}}"#, Short),
    ] {
        assert_eq!(requested_writes(body), expected, "{body}");
    }
}

fn any_totals() -> impl Strategy<Value = InclusiveCounts> {
    let count = || prop_oneof![Just(0_u64), 1..6_u64, 90..110_u64, Just(4000_u64)];
    let two = || (prop::option::of(count()), prop::option::of(count()));
    let sides = (prop::option::of(count()), count(), count(), prop::option::of(0..9000_u64));
    let cache = (two(), two(), count(), count());
    let media = (count(), count(), count(), count(), count());
    (sides, cache, media).prop_map(|((prompt, output, reasoning, total), cache, media)| {
        let ((read, read_again), (written, written_again), short, hour) = cache;
        let (beside_prompt, audio_input, image_input, audio_output, image_output) = media;
        let video_input = image_input;
        InclusiveCounts {
            prompt,
            beside_prompt,
            read: NamedCount::from_values(&[read, read_again]),
            written: CacheWritten {
                total: NamedCount::from_values(&[written, written_again]),
                short,
                hour,
                twelve_hours: 0,
            },
            audio_input,
            image_input,
            video_input,
            output,
            reasoning,
            audio_output,
            image_output,
            total,
            unsplit: HOUR,
        }
    })
}

proptest! {
    /// No count is lost, and none is made up: each that is there is a part of what is billed, and all of
    /// it together is no more than what is there.
    #[test]
    fn every_count_that_is_there_bounds_what_is_billed(report in any_totals()) {
        use tollgate_money::price::Side;
        let (usage, _) = report.disjoint();
        let (input, output) = (usage.total(Side::Input), usage.total(Side::Output));
        let written = report.written.sum();
        prop_assert!(input >= report.prompt.unwrap_or(0) + report.beside_prompt);
        prop_assert!(input >= report.audio_input + report.image_input + report.video_input);
        prop_assert!(input >= report.read.least.unwrap_or(0) + written);
        prop_assert_eq!(usage.cache_write_tokens + usage.cache_write_1h_tokens, written);
        prop_assert!(usage.cache_read_tokens <= report.read.most);
        prop_assert!(output >= report.output.max(report.reasoning));
        prop_assert!(output >= report.audio_output + report.image_output);
        let total = report.total.unwrap_or(0);
        prop_assert!(input + output >= total, "{input} and {output} of {total}");
        let parts = report.prompt.unwrap_or(0) + report.beside_prompt + report.read.most + written
            + report.audio_input + report.image_input + report.video_input + report.output + report.reasoning + report.audio_output
            + report.image_output;
        prop_assert!(input + output <= parts.max(total) + report.read.most + written
            + report.audio_input + report.image_input + report.video_input + report.reasoning + report.audio_output
            + report.image_output);
    }
}
