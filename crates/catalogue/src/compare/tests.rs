use super::*;
use crate::condition::in_tier;
use crate::listing::ListFormat;
use crate::own::OwnTarget;
use crate::render::{as_json, as_text};
use crate::source::read;
use tollgate_money::price::ServiceTier;

/// The three saved lists.
fn lists() -> Vec<NamedCatalogue> {
    let fixtures = [
        ("api.json", &include_bytes!("../../fixtures/models_dev.json")[..]),
        ("prices.json", &include_bytes!("../../fixtures/litellm.json")[..]),
        ("models.json", &include_bytes!("../../fixtures/openrouter.json")[..]),
    ];
    let named = fixtures.map(|(name, bytes)| NamedCatalogue {
        name: name.to_owned(),
        catalogue: read(bytes).expect("a list"),
    });
    named.to_vec()
}

/// A list of LiteLLM's with these entries.
fn list(entries: &str) -> NamedCatalogue {
    let catalogue = read(format!("{{{entries}}}").as_bytes()).expect("a list");
    NamedCatalogue { name: "list".to_owned(), catalogue }
}

/// A list of models.dev's with these models of OpenAI's.
fn other_list(models: &str) -> NamedCatalogue {
    let text = format!(r#"{{"openai": {{"models": {{{models}}}}}}}"#);
    NamedCatalogue { name: "other".to_owned(), catalogue: read(text.as_bytes()).expect("a list") }
}

/// A rate in thousandths of a dollar for a million tokens.
const fn milli(count: i64) -> Rate {
    Rate::from_femtousd(count * 1_000_000)
}

/// A chat model with these prices for input, cached input and output.
fn chat(upstream: &str, id: &str, prices: [i64; 3]) -> OwnModel {
    let [input, cached, output] = prices.map(milli);
    OwnModel {
        id: id.to_owned(),
        operations: vec!["chat".to_owned()],
        targets: vec![OwnTarget { upstream: upstream.to_owned(), model: None }],
        base: vec![
            (Unit::InputTokens, input),
            (Unit::CacheReadTokens, cached),
            (Unit::OutputTokens, output),
        ],
        ..OwnModel::default()
    }
}

fn above(tokens: u64) -> Condition {
    Condition { input_tokens_above: Some(tokens), ..Condition::default() }
}

/// Differences as a person reads them.
fn lines_of(differences: &[Difference]) -> Vec<(String, &'static str, String, String)> {
    let each = differences.iter().map(|one| {
        let dollars = |rate: Rate| rate.dollars(one.unit.info().per);
        let change = format!("{} → {}", dollars(one.ours), dollars(one.theirs));
        (one.model.clone(), one.unit.info().price, change, one.sources.join(", "))
    });
    each.collect()
}

#[test]
fn a_model_that_agrees_is_in_no_group() {
    let mut own = chat("voyage", "voyage-4", [60, 60, 0]);
    own.operations = vec!["embeddings".to_owned()];
    own.base.truncate(1);
    let report = compare(&[own], &lists());
    assert!(!report.is_different(), "{report:?}");
    let empty = PriceReport { sources: report.sources.clone(), ..PriceReport::default() };
    assert_eq!(report, empty, "not even a price of zero for output");
    assert!(as_text(&report).ends_with("models.yaml says what the lists say\n"));
}

#[test]
fn cheaper_and_dearer_prices_are_apart_and_name_their_lists() {
    // Ours: input too dear, output too cheap.
    let own = chat("grok", "grok-4", [4_000, 750, 14_000]);
    let report = compare(&[own], &lists());
    let named = |price, change: &str| {
        let sources = "models.dev, openrouter".to_owned();
        ("grok-4".to_owned(), price, change.to_owned(), sources)
    };
    assert_eq!(lines_of(&report.cheaper), [named("input_per_1m_tokens", "4.00 → 3.00")]);
    assert_eq!(lines_of(&report.dearer), [named("output_per_1m_tokens", "14.00 → 15.00")]);
    let missing: Vec<_> = report.missing.iter().map(|missing| missing.unit).collect();
    assert_eq!(missing, [Unit::WebSearches], "which one list has a price for");
    let [proposal] = report.proposed.as_slice() else { panic!("{report:?}") };
    let expected = "  grok-4:
    prices:
      input_per_1m_tokens: 3.00
      cached_input_per_1m_tokens: 0.75
      output_per_1m_tokens: 15.00
      per_1k_web_searches: 5.00";
    assert_eq!(proposal.yaml, expected);
}

#[test]
fn lists_that_contradict_each_other_propose_nothing() {
    let own = chat("openai", "gpt-4o", [2_500, 1_250, 10_000]);
    let report = compare(&[own], &lists());
    let [input, ..] = report.disagree.as_slice() else { panic!("{report:?}") };
    let each: Vec<_> = input.figures.iter().map(|figure| figure.source.as_str()).collect();
    assert_eq!((input.unit, each), (Unit::InputTokens, vec!["models.dev", "litellm"]));
    assert!(input.has_ours(), "LiteLLM's");
    let disputed: Vec<_> = report.disagree.iter().map(|one| one.unit).collect();
    assert_eq!(disputed, [Unit::InputTokens, Unit::CacheReadTokens, Unit::OutputTokens]);
    assert_eq!((report.cheaper.as_slice(), report.dearer.as_slice()), (&[][..], &[][..]));
    // What they do not contradict each other in is proposed, and the rest stays as it is.
    let yaml = &report.proposed.first().expect("a proposal").yaml;
    assert!(yaml.contains("      input_per_1m_tokens: 2.50\n"), "{yaml}");
    assert!(yaml.contains("- when: { service_tier: priority }"), "{yaml}");
}

#[test]
fn tiers_that_are_missing_are_proposed_in_their_order() {
    let own = chat("openai", "gpt-5.4", [2_500, 250, 15_000]);
    let litellm = lists().remove(1);
    let report = compare(std::slice::from_ref(&own), &[litellm]);
    assert!(report.cheaper.is_empty() && report.dearer.is_empty());
    let yaml = &report.proposed.first().expect("a proposal").yaml;
    let expected = "  gpt-5.4:
    prices:
      input_per_1m_tokens: 2.50
      cached_input_per_1m_tokens: 0.25
      output_per_1m_tokens: 15.00
    prices_when:
      - when: { input_tokens_above: 272000, service_tier: flex }
        prices: { output_per_1m_tokens: 11.25 }
      - when: { service_tier: flex }
        prices: { input_per_1m_tokens: 1.25, cached_input_per_1m_tokens: 0.13, output_per_1m_tokens: 7.50 }
      - when: { service_tier: priority }
        prices: { input_per_1m_tokens: 5.00, cached_input_per_1m_tokens: 0.50, output_per_1m_tokens: 30.00 }
      - when: { input_tokens_above: 272000 }
        prices: { input_per_1m_tokens: 5.00, cached_input_per_1m_tokens: 0.50, output_per_1m_tokens: 22.50 }";
    assert_eq!(yaml, expected);
    assert!(!yaml.contains("batch"), "nobody asks for a batch here");
}

#[test]
fn lengths_that_lists_do_not_agree_on_are_disputed() {
    let own = chat("openai", "gpt-5.4", [2_500, 250, 15_000]);
    let report = compare(&[own], &lists());
    let disputed: Vec<_> =
        report.disagree.iter().filter_map(|one| one.when.input_tokens_above).collect();
    assert_eq!(disputed, [200_000, 200_000, 200_000, 272_000, 272_000, 272_000]);
    let missing = report.missing.iter().map(|missing| missing.when);
    let missing: Vec<_> = missing.filter(|when| *when == above(272_000)).collect();
    assert_eq!(missing, [], "only of all lengths together");
}

#[test]
fn an_unknown_word_silences_its_own_entry_and_no_other() {
    let own = chat("gemini", "gemini-2.5-pro", [1_250, 125, 9_000]);
    let all = lists();
    let is_litellm = |list: &&NamedCatalogue| list.catalogue.format == ListFormat::LiteLlm;
    let litellm: Vec<_> = all.iter().filter(is_litellm).cloned().collect();
    let report = compare(std::slice::from_ref(&own), &litellm);
    assert_eq!(lines_of(&report.dearer).len(), 1, "still said");
    let [maps] = report.unknown.as_slice() else { panic!("{report:?}") };
    assert_eq!(maps.key, "google_maps_grounding_cost_per_query");
    assert_eq!((maps.source.as_str(), maps.figure.as_str()), ("litellm", "0.025"));
    assert_eq!(report.proposed, [], "nobody else has it");
    let report = compare(&[own], &all);
    assert_eq!(report.unknown.len(), 1, "{report:?}");
    let [proposal] = report.proposed.as_slice() else { panic!("{report:?}") };
    assert!(proposal.yaml.contains("output_per_1m_tokens: 10.00"), "{}", proposal.yaml);
}

/// grok-4.5 and its tier of 200,000 tokens, of which one list has a word more.
#[test]
fn two_lists_that_agree_propose_a_tier_beside_an_unknown_word() {
    let tier = r#""input_cost_per_token": 2e-6, "output_cost_per_token": 6e-6,
        "cache_read_input_token_cost": 5e-7, "input_cost_per_token_above_200k_tokens": 4e-6,
        "output_cost_per_token_above_200k_tokens": 1.2e-5"#;
    let listed = format!(r#""xai/grok-4.5": {{"litellm_provider": "xai", {tier}}}"#);
    let odd = format!(
        r#""xai/grok-4.5": {{"litellm_provider": "xai", "input_cost_per_smell": 1e-6, {tier}}}"#
    );
    let own = chat("grok", "grok-4.5", [2_000, 500, 6_000]);
    let report = compare(&[own], &[list(&listed), list(&listed), list(&odd)]);
    assert_eq!((report.unknown.len(), report.missing.len()), (1, 2), "{report:?}");
    let [proposal] = report.proposed.as_slice() else { panic!("{report:?}") };
    let expected = "{ input_per_1m_tokens: 4.00, output_per_1m_tokens: 12.00 }";
    assert!(proposal.yaml.contains(expected), "{}", proposal.yaml);
}

#[test]
fn a_name_is_matched_with_its_provider() {
    for (upstream, id, model, listed_as) in [
        (
            "gemini",
            "gemini-2.5-flash",
            None,
            vec!["gemini-2.5-flash", "gemini/gemini-2.5-flash", "google/gemini-2.5-flash"],
        ),
        (
            "deepseek",
            "deepseek-chat",
            None,
            vec!["deepseek-chat", "deepseek/deepseek-chat", "deepseek-chat"],
        ),
        (
            "anthropic",
            "sonnet",
            Some("claude-sonnet-4-5-20250929"),
            vec!["claude-sonnet-4-5", "claude-sonnet-4-5-20250929"],
        ),
        ("anthropic", "claude-sonnet-4-6", None, vec!["anthropic/claude-sonnet-4.6"]),
        (
            "anthropic",
            "claude-haiku-4-5-20*",
            None,
            vec!["claude-haiku-4-5-20251001", "claude-haiku-4-5-20251001"],
        ),
        ("openrouter", "fast", Some("x-ai/grok-3-mini"), vec!["x-ai/grok-3-mini"]),
        ("azure", "gpt-4o", None, vec![]),
        ("openai", "gpt-4", None, vec![]),
        ("openai", "gpt-4o-20240513", None, vec![]),
    ] {
        let mut own = chat(upstream, id, [1, 1, 1]);
        own.targets =
            vec![OwnTarget { upstream: upstream.to_owned(), model: model.map(str::to_owned) }];
        let lists = lists();
        let index = ListingIndex::new(&lists);
        let witnesses = index.witnesses(&own, std::slice::from_ref(&own));
        let names: Vec<_> =
            witnesses.iter().map(|witness| witness.listing.listed_as.as_str()).collect();
        assert_eq!(names, listed_as, "{upstream} {id}");
    }
}

#[test]
fn a_pattern_leaves_names_to_the_models_that_have_them() {
    let release = chat("anthropic", "claude-haiku-4-5-20251001", [1_000, 100, 5_000]);
    let pattern = chat("anthropic", "claude-*", [1, 1, 1]);
    let longer = chat("anthropic", "claude-sonnet-*", [1, 1, 1]);
    let all = [release, pattern, longer];
    let lists = lists();
    let index = ListingIndex::new(&lists);
    let [_, pattern, _] = &all;
    let names: BTreeSet<_> = index
        .witnesses(pattern, &all)
        .iter()
        .map(|witness| witness.listing.model.as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["claude-opus-4-6"]));
}

#[test]
fn unlisted_and_unreadable_prices_are_reported() {
    let models = [
        chat("dashscope", "wan2.7-t2v", [1, 1, 1]),
        chat("openai", "gpt-4.1", [2_000, 500, 8_000]),
        OwnModel { free: true, ..chat("openai", "gpt-4o", [0, 0, 0]) },
    ];
    let report = compare(&models, &lists());
    assert_eq!(report.not_found, ["wan2.7-t2v"]);
    let [malformed] = report.malformed.as_slice() else { panic!("{report:?}") };
    assert_eq!((malformed.model.as_str(), malformed.source.as_str()), ("gpt-4.1", "litellm"));
    assert!(!report.is_different(), "and what is free is left alone: {report:?}");
}

#[test]
fn a_limit_that_some_list_has_is_right() {
    let own = |context, output| OwnModel {
        context_tokens_max: Some(context),
        output_tokens_max: Some(output),
        ..chat("openai", "gpt-5", [1_250, 125, 10_000])
    };
    let limits = |own| compare(&[own], &lists()).limits;
    assert_eq!(limits(own(400_000, 128_000)), [], "of models.dev, though LiteLLM counts the input");
    let found = limits(own(500_000, 128_000));
    let [context] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((context.field, context.ours), ("context_tokens_max", 500_000));
    let expected = [("models.dev".to_owned(), 400_000), ("litellm".to_owned(), 272_000)];
    assert_eq!(context.figures, expected);
}

#[test]
fn a_price_by_default_that_is_right_is_not_missing() {
    let entry = r#""m": {"litellm_provider": "openai", "input_cost_per_token": 2e-6,
        "input_cost_per_token_flex": 2e-6, "cache_read_input_token_cost": 2e-6,
        "cache_creation_input_token_cost": 0.0, "output_cost_per_token": 8e-6}"#;
    let own = OwnModel {
        base: vec![(Unit::InputTokens, milli(2_000)), (Unit::OutputTokens, milli(8_000))],
        ..chat("openai", "m", [0, 0, 0])
    };
    assert!(!compare(std::slice::from_ref(&own), &[list(entry)]).is_different());
    // But once the input price changes, what was right by default is typed.
    let dear = OwnModel {
        base: vec![(Unit::InputTokens, milli(2_000)), (Unit::OutputTokens, milli(8_000))],
        ..own
    };
    let entry = entry.replace("\"input_cost_per_token\": 2e-6", "\"input_cost_per_token\": 3e-6");
    let report = compare(&[dear], &[list(&entry)]);
    let expected = "  m:
    prices:
      input_per_1m_tokens: 3.00
      cached_input_per_1m_tokens: 2.00
      output_per_1m_tokens: 8.00
    prices_when:
      - when: { service_tier: flex }
        prices: { input_per_1m_tokens: 2.00 }";
    assert_eq!(report.proposed.first().expect("a proposal").yaml, expected);
}

#[test]
fn entries_of_ours_stay_where_they_are() {
    let mut own = chat("openai", "m", [2_000, 2_000, 8_000]);
    own.when = vec![
        (in_tier(ServiceTier::Scale), vec![(Unit::InputTokens, milli(7_000))]),
        (in_tier(ServiceTier::Flex), vec![(Unit::InputTokens, milli(1_500))]),
    ];
    let entry = r#""m": {"litellm_provider": "openai", "input_cost_per_token": 2e-6,
        "input_cost_per_token_flex": 1e-6, "output_cost_per_token_flex": 4e-6,
        "output_cost_per_token": 8e-6}"#;
    let report = compare(&[own], &[list(entry)]);
    assert_eq!(report.cheaper.len(), 1, "the flex price that we have: {report:?}");
    assert_eq!(report.missing.len(), 1, "the flex price that we have not");
    let yaml = &report.proposed.first().expect("a proposal").yaml;
    let expected = "    prices_when:
      - when: { service_tier: scale }
        prices: { input_per_1m_tokens: 7.00 }
      - when: { service_tier: flex }
        prices: { input_per_1m_tokens: 1.00, output_per_1m_tokens: 4.00 }";
    assert!(yaml.ends_with(expected), "{yaml}");
}

#[test]
fn a_report_is_shown_in_groups_and_as_json() {
    let own = chat("openai", "m", [2_000, 500, 8_000]);
    let dev = other_list(r#""m": {"cost": {"input": 1.5, "output": 9, "cache_read": 0.4}}"#);
    let litellm = list(
        r#""m": {"litellm_provider": "openai", "input_cost_per_token": 1.5e-06,
        "output_cost_per_token": 9e-06, "cache_read_input_token_cost": 3e-07,
        "input_cost_per_token_priority": 2.5e-06}"#,
    );
    let nowhere = chat("openai", "nowhere", [1, 1, 1]);
    let report = compare(&[own, nowhere], &[dev, litellm.clone(), litellm]);
    let expected = "\
models.dev: 1 models in other
litellm 1: 1 models in list
litellm 2: 1 models in list

cheaper
  m  input_per_1m_tokens  2.00 → 1.50  models.dev, litellm 1, litellm 2

dearer
  m  output_per_1m_tokens  8.00 → 9.00  models.dev, litellm 1, litellm 2

missing
  m  input_per_1m_tokens { service_tier: priority }  2.50  litellm 1, litellm 2

disagree
  m  cached_input_per_1m_tokens  ours 0.50: models.dev 0.40, litellm 1 0.30, litellm 2 0.30

not found
  nowhere

# Proposed for models.yaml. Nothing was changed.
models:
  m:
    prices:
      input_per_1m_tokens: 1.50
      cached_input_per_1m_tokens: 0.50
      output_per_1m_tokens: 9.00
    prices_when:
      - when: { service_tier: priority }
        prices: { input_per_1m_tokens: 2.50 }

models.yaml differs from the lists
";
    assert_eq!(as_text(&report), expected);
    let json = as_json(&report);
    assert_eq!(json["different"], true);
    assert_eq!(json["cheaper"][0]["theirs"], "1.50", "a string, no float");
    assert_eq!(json["missing"][0]["when"]["service_tier"], "priority");
    assert_eq!(json["disagree"][0]["theirs"][0]["source"], "models.dev");
    assert_eq!(json["not_found"][0], "nowhere");
    let yaml = json["proposed"][0]["yaml"].as_str().expect("text");
    assert!(expected.contains(yaml), "{yaml}");
}
