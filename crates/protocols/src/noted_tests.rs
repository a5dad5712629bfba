//! What a request is judged as does not depend on the notes that its check has made of where values end.

use proptest::prelude::*;

use crate::json::Object;
use crate::json_cursor::Cursor;
use crate::limits::{ModelLimits, PassList, PricedFeatures};
use crate::media::PictureFamily;
use crate::{Dialect, ModelInPath, Operation, Request, codec};
use tollgate_money::price::Unit;

#[path = "../benches/agent/mod.rs"]
mod agent;

use agent::{AgentDialect, AgentRequest};

/// Members that change what a request costs, may have or refers to, wherever they stand, and such that only
/// look so.
const MEMBERS: [&str; 28] = [
    r#""id":"msg_1","#,
    r#""id":null,"#,
    r#""ID":"msg_1","#,
    r#""\u0069d":"msg_1","#,
    r#""type":"item_reference","#,
    r#""type":"\u0069tem_reference","#,
    r#""type":"web_search","#,
    r#""type":"image_generation","size":"1024x1024","quality":"high","#,
    r#""type":"image_generation","type":"function","#,
    r#""Type":"reasoning","#,
    r#""type":"reasoning","#,
    r#""content":[],"#,
    r#""content":"text","#,
    r#""encrypted_content":"x","#,
    r#""file_id":"file_1","#,
    r#""container":"container_1","#,
    r#""vector_store_ids":["vs_1","vs_2"],"#,
    r#""source":{"type":"file","file_id":"file_2"},"#,
    r#""image_url":{"url":"data:image/png;base64,iVBORw0KGgo="},"#,
    r#""cache_control":{"type":"ephemeral","ttl":"1h"},"#,
    r#""fileData":{"fileUri":"gs://bucket/a"},"#,
    r#""input_audio":{"data":"AAAA","format":"wav"},"#,
    r#""googleSearch":{},"#,
    r#""parameters":{"a":[1,{"b":"]}"}]},"#,
    r#""arguments":"{\"a\":\"]}\"}","#,
    "\"data\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",",
    r#""max_uses":3,"#,
    r#""unknown":{"prompt_id":"p_1"},"#,
];

const DIALECTS: [(AgentDialect, Operation, Dialect); 4] = [
    (AgentDialect::Chat, Operation::Chat, Dialect::Openai),
    (AgentDialect::Messages, Operation::Messages, Dialect::Anthropic),
    (AgentDialect::Responses, Operation::Responses, Dialect::Openai),
    (AgentDialect::Gemini, Operation::GenerateContent, Dialect::Gemini),
];

fn limits() -> impl Strategy<Value = ModelLimits> {
    (any::<bool>(), any::<bool>()).prop_map(|(passes, prices)| ModelLimits {
        input_tokens_max: 1_000_000,
        output_tokens_max: 32_000,
        pictures: prices.then_some(PictureFamily::Anthropic),
        searches_max: 2,
        pass: if passes {
            let all = || vec!["*".to_owned()];
            PassList { fields: all(), tools: all(), content: all() }
        } else {
            PassList::default()
        },
        priced: PricedFeatures {
            units: if prices { vec![Unit::WebSearches, Unit::FileSearches] } else { Vec::new() },
            ..PricedFeatures::default()
        },
        ..ModelLimits::default()
    })
}

/// Positions behind the opening brackets of objects in arrays: messages, contents and tools.
fn openings(body: &str) -> Vec<usize> {
    let after = |start: &'static str| body.match_indices(start).map(|(at, _)| at + 2);
    after("[{\"").chain(after(",{\"")).collect()
}

/// Everything that a request is judged as, or why it is refused.
fn judged(
    body: Object<'_>,
    operation: Operation,
    dialect: Dialect,
    limits: &ModelLimits,
) -> String {
    let request = match operation {
        Operation::GenerateContent => {
            Request::JsonAt(body, ModelInPath { model: "gemini-2.5-pro", streams: false })
        }
        _ => Request::Json(body),
    };
    let codec = codec(operation, dialect).expect("a codec");
    match codec.read(&request, limits) {
        Ok(call) => format!("{call:?}"),
        Err(refusal) => format!("{refusal:?}"),
    }
}

/// Every value of a document that is passed over as a whole, by a walk that goes into some of them.
fn passed<'a>(cursor: &mut Cursor<'a>, choices: &mut u64, found: &mut Vec<&'a [u8]>) -> Option<()> {
    *choices = choices.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let goes_in = *choices >> 62 != 0;
    match cursor.next_byte()? {
        b'{' if goes_in => cursor.object(|_, value| passed(value, choices, found)),
        b'[' if goes_in => cursor.array(|value| passed(value, choices, found)),
        _ => {
            found.push(cursor.raw()?);
            Some(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Seeds of a failure are printed: the agent's, and the places and members that were put in.
    #[test]
    fn a_request_is_judged_alike_with_notes_and_without(
        seed in any::<u64>(),
        dialect in 0..DIALECTS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..MEMBERS.len()), 0..4),
        choices in any::<u64>(),
        limits in limits(),
    ) {
        let (agent, operation, dialect) = DIALECTS[dialect];
        let request = AgentRequest {
            dialect: agent, model: "m", is_streamed: false, has_picture: false, seed,
        };
        let mut body = request.body();
        for (place, member) in edits {
            let openings = openings(&body);
            body.insert_str(openings[place.index(openings.len())], MEMBERS[member]);
        }
        let Ok(object) = Object::parse(body.as_bytes()) else { return Ok(()) };
        prop_assert!(object.has_skips());
        for (_, value) in object.members() {
            let (mut by_notes, mut by_bytes) = (Vec::new(), Vec::new());
            let noted = &mut Cursor::of_member(&object, &value);
            let is_whole = passed(noted, &mut choices.clone(), &mut by_notes).is_some();
            let text = &mut Cursor::new(value.text());
            prop_assert!(is_whole && passed(text, &mut choices.clone(), &mut by_bytes).is_some());
            prop_assert_eq!(by_notes, by_bytes);
        }
        let plain = Object::parse(body.as_bytes()).expect("valid").without_skips();
        let by_notes = judged(object, operation, dialect, &limits);
        prop_assert_eq!(by_notes, judged(plain, operation, dialect, &limits));
    }
}

#[test]
fn notes_take_less_than_a_fifth_of_any_body() {
    let nested = format!("{{\"a\":{}}}", ["[[[[[[\"", &"x".repeat(64), "\"]]]]]]"].concat());
    let many = format!("{{\"a\":[{}0]}}", format!("{},", nested).repeat(1000));
    for body in [many, format!("{{\"a\":[{}0]}}", "[[[[[]]]]],".repeat(10_000))] {
        let object = Object::parse(body.as_bytes()).expect("valid");
        assert!(object.skip_bytes() * 5 <= body.len(), "{} of {}", object.skip_bytes(), body.len());
    }
}
