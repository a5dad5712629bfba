use proptest::prelude::*;
use serde::Deserialize;

use super::report::has_no_count;
use super::*;
use crate::disjoint::{Contradictions, count};
use crate::estimate::TextSize;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Traits, Usage, UsageSource};

fn frame(limits: u64) -> MeterContext {
    MeterContext {
        min_usage: Usage { input_tokens: 3, ..Usage::ZERO },
        output_tokens_max: 100,
        limits: Usage { input_tokens: limits, output_tokens: limits, ..Usage::ZERO },
    }
}

fn report(input_tokens: u64, cache_read_tokens: u64, output_tokens: u64) -> UsageReport {
    let usage = Usage { input_tokens, cache_read_tokens, output_tokens, ..Usage::ZERO };
    let (served, contradictions) = (Traits::default(), Contradictions::default());
    UsageReport { usage, has_details: true, rounds: 1, served, cost: None, contradictions }
}

fn shown(deltas: &[&str]) -> VisibleOutput {
    let mut shown = VisibleOutput::default();
    for delta in deltas {
        shown.add(TextSize::measure(delta.as_bytes()));
    }
    shown
}

#[test]
fn what_cannot_be_read_of_a_usage_takes_nothing_of_the_rest() {
    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Wire {
        #[serde(deserialize_with = "count")]
        a: Option<u64>,
        b: Option<Vec<u64>>,
    }
    let read = |text: &str| read_wire::<Wire>(text.as_bytes());
    for text in
        [r#"{"a":12,"b":[3]}"#, r#"{"a":12.0,"b":[3]}"#, r#"{"a":1,"a":"12","b":[3],"c":-1}"#]
    {
        assert_eq!(read(text), Some(Wire { a: Some(12), b: Some(vec![3]) }), "{text}");
    }
    for text in [r#"{"a":12,"b":[-3]}"#, r#"{"a":12,"b":{}}"#, r#"{"a":12,"b":7}"#] {
        assert_eq!(read(text), Some(Wire { a: Some(12), b: None }), "{text}");
    }
    assert_eq!(read(r#"{"a":-12}"#), Some(Wire::default()));
    for text in ["7", "{", "null"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn counts_that_are_none_are_noted() {
    for (usage, expected) in [
        (r#"{"prompt_tokens":12,"cost":0.5}"#, false),
        (r#"{"prompt_tokens":12.0,"x":"a-b"}"#, false),
        (r#"{"prompt_tokens":-12}"#, true),
        (r#"{"promptTokenCount":1.5}"#, true),
        (r#"{"details":{"cached_tokens":-1}}"#, true),
    ] {
        assert_eq!(has_no_count(usage.as_bytes()), expected, "{usage}");
    }
}

#[test]
fn a_report_is_believed_unless_it_is_of_zeros() {
    let frame = frame(50);
    let (upstream, estimated) = (UsageSource::Upstream, UsageSource::Estimated);
    for (reported, seen, expected, source) in [
        (Some(report(10, 5, 20)), 7, (10, 5, 20), upstream),
        (Some(report(900, 0, 2000)), 7, (900, 0, 2000), upstream),
        (Some(report(10, 5, 0)), 0, (10, 5, 0), upstream),
        (Some(report(10, 5, 0)), 7, (10, 5, 7), estimated),
        (Some(report(0, 5, 0)), 7, (0, 5, 7), estimated),
        (Some(report(0, 0, 4)), 7, (3, 0, 4), estimated),
        (Some(report(0, 0, 0)), 7, (3, 0, 7), estimated),
        (Some(report(0, 0, 0)), 0, (3, 0, 0), estimated),
        (None, 7, (3, 0, 7), estimated),
    ] {
        let (input_tokens, cache_read_tokens, output_tokens) = expected;
        let usage = report(input_tokens, cache_read_tokens, output_tokens).usage;
        assert_eq!(frame.measure(reported, seen), (usage, source), "{reported:?} beside {seen}");
    }
    let is_above = |reported| frame.is_exceeded_by(Some(reported));
    assert!(
        is_above(report(51, 0, 0)) && is_above(report(20, 31, 0)) && is_above(report(1, 0, 51))
    );
    assert!(
        !is_above(report(20, 30, 50)) && !is_above(UsageReport { rounds: 2, ..report(99, 0, 99) })
    );
}

#[test]
fn of_two_reports_the_dearer_counts() {
    let plain = UsageReport { has_details: false, ..report(100, 0, 1) };
    for (first, second, expected) in [
        (report(10, 0, 20), report(12, 0, 30), report(12, 0, 30)),
        (report(12, 0, 30), report(10, 0, 20), report(12, 0, 30)),
        (report(10, 0, 30), report(12, 0, 20), report(12, 0, 30)),
        (report(2, 8, 1), report(6, 4, 1), report(6, 4, 1)),
        (plain, report(20, 80, 5), report(20, 80, 5)),
        (report(20, 80, 5), plain, report(20, 80, 5)),
    ] {
        assert_eq!(first.dearer(second), expected, "{first:?} {second:?}");
    }
}

#[test]
fn visible_output_is_a_token_a_delta_at_least_and_the_requested_limit_at_most() {
    let word = "internationalization";
    let whole = shown(&[word]).tokens(100);
    assert!(whole > 1, "{whole}");
    assert_eq!(
        shown(&["intern", "", "ation", "alization"]).tokens(100),
        whole,
        "however it is cut"
    );
    assert_eq!(shown(&[word; 90]).tokens(100), 100, "nobody asked for more");
    assert_eq!(shown(&["a"; 200]).tokens(100), 200, "and it came all the same");
}

#[test]
fn a_report_is_about_what_was_shown_before_it() {
    let mut stream = StreamState::new(frame(50));
    stream.report(report(10, 0, 1));
    assert_eq!(stream.measure(), (report(10, 0, 1).usage, UsageSource::Upstream));
    stream.show(shown(&["a word", " and another", " and more"]));
    let (usage, source) = stream.measure();
    assert_eq!((source, usage), (UsageSource::Estimated, stream.relayed()));
    assert!(usage.output_tokens > 3 && usage.input_tokens == 10, "{usage:?}");
    stream.failed = true;
    assert!(stream.has_failed());
    stream.report(report(10, 0, 4));
    assert_eq!(stream.measure(), (report(10, 0, 4).usage, UsageSource::Upstream));
    assert!(!stream.has_failed(), "what failed and was reported was used");
}

fn any_report() -> impl Strategy<Value = UsageReport> {
    (0..5_u64, 0..5_u64, 0..5_u64, any::<bool>()).prop_map(|(input, read, output, has_details)| {
        UsageReport { has_details, ..report(input, if has_details { read } else { 0 }, output) }
    })
}

proptest! {
    #[test]
    fn no_report_makes_an_answer_cheaper(reports in prop::collection::vec(any_report(), 1..6)) {
        let mut total = None;
        for report in &reports {
            let before: Option<UsageReport> = total;
            report.add_to(&mut total);
            let Some(after) = total else { panic!("something was reported") };
            let least = before.unwrap_or(*report).usage;
            prop_assert!(after.usage.output_tokens >= least.output_tokens.max(report.usage.output_tokens));
            prop_assert!(after.usage.input_tokens_total() >= least.input_tokens_total());
            prop_assert!(after.usage.input_tokens_total() >= report.usage.input_tokens_total());
        }
    }
}

#[test]
fn dollars_are_read_as_they_are_written_and_rounded_up() {
    for (text, nano) in [
        ("0", 0),
        ("1", 1_000_000_000),
        ("0.00014", 140_000),
        ("1.4e-4", 140_000),
        ("0.0000000001", 1),
        ("1e-30", 1),
        ("12.5", 12_500_000_000),
    ] {
        let number = serde_json::from_str(text).expect("a number");
        assert_eq!(dollars(&number), Some(Nanousd::new(nano)), "{text}");
    }
    for text in ["-1", "-0.5", "1e300"] {
        let number = serde_json::from_str(text).expect("a number");
        assert_eq!(dollars(&number), None, "{text}");
    }
}
