//! The journal over the admin API of a gateway that serves: exported, and checked.

use std::collections::BTreeSet;

use crate::harness::{Answer, Gateway, UPSTREAM_KEY, chat_model, simulator};
use serde_json::{Value, json};

const EXPORT: &str = "/admin/v1/ledger/export";
const VERIFY: &str = "/admin/v1/ledger/verify";
const TRIAL_BALANCE: &str = "/admin/v1/ledger/trial-balance";

/// The records of an export in lines of JSON.
fn records(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status(), 200, "{answer:?}");
    let text = String::from_utf8(answer.content()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

fn export(gateway: &Gateway, query: &str) -> Answer {
    gateway.admin_answer("GET", &format!("{EXPORT}{query}"), &Value::Null)
}

#[test]
fn a_serving_gateway_exports_what_happened() {
    let sim = simulator(&[]);
    let upstream = format!(
        "  local: {{ protocol: openai, base_url: 'http://{}/v1', credential: {UPSTREAM_KEY} }}\n",
        sim.addr()
    );
    let gateway = Gateway::serving(&upstream, &format!("models:\n{}", chat_model("m", "local")));
    let request = gateway.chat_json(
        json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string(),
    );
    let answer = crate::harness::ask(gateway.address, &request);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let balance = gateway.settled();
    let stranger = gateway.stranger();

    let whole = export(&gateway, "");
    assert_eq!(whole.header("content-type").as_deref(), Some("application/jsonl"));
    let found = records(&whole);
    let places: Vec<_> = found.iter().map(|record| record["seq"].as_u64().expect("seq")).collect();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>(), "all of them, in order");
    let kinds: BTreeSet<_> = found.iter().filter_map(|record| record["kind"].as_str()).collect();
    for kind in ["account_created", "grant", "key_created", "hold", "settlement"] {
        assert!(kinds.contains(kind), "{kind} is missing in {kinds:?}");
    }
    let settlement = found.iter().find(|record| record["kind"] == "settlement").expect("one");
    assert_eq!(settlement["charged"], balance["spent"]);
    let hold = found.iter().find(|record| record["kind"] == "hold").expect("one");
    assert_eq!((&hold["hold"], &hold["model"]), (&settlement["hold"], &json!("m")));

    let rest = records(&export(&gateway, "?from_seq=3&format=jsonl"));
    assert_eq!(rest, found[2..], "from the third on");
    let own = records(&export(&gateway, &format!("?account={}", gateway.account)));
    assert!(own.len() < found.len() && !own.is_empty());
    assert!(own.iter().all(|record| record["account_id"] == json!(gateway.account)));
    let text = String::from_utf8(whole.content()).expect("text");
    assert!(!text.contains(&gateway.key) && !text.contains(&stranger), "no key is told");

    let csv = export(&gateway, "?format=csv");
    assert_eq!(csv.header("content-type").as_deref(), Some("text/csv; charset=utf-8"));
    let content = csv.content();
    let mut reader = csv::Reader::from_reader(content.as_slice());
    let column = |headers: &csv::StringRecord, name: &str| {
        headers.iter().position(|header| header == name).expect("a column")
    };
    let headers = reader.headers().expect("names").clone();
    let rows: Vec<_> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), found.len());
    let charged: Vec<_> = rows
        .iter()
        .filter(|row| &row[column(&headers, "kind")] == "settlement")
        .map(|row| row[column(&headers, "charged")].to_owned())
        .collect();
    assert_eq!(json!(charged), json!([settlement["charged"]]));

    let focus = export(&gateway, "?format=focus").content();
    let mut reader = csv::Reader::from_reader(focus.as_slice());
    let rows: Vec<std::collections::BTreeMap<String, String>> =
        reader.deserialize().map(|row| row.expect("a row")).collect();
    let row = rows.first().filter(|_| rows.len() == 1).unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(json!(row["BilledCost"]), settlement["charged"]);
    assert_eq!((json!(row["SubAccountId"]), &*row["SkuId"]), (json!(gateway.account), "m"));
    let tags: Value = serde_json::from_str(&row["Tags"]).expect("JSON");
    assert_eq!(
        (&tags["hold"], &tags["request_id"]),
        (&hold["hold"], &hold["request_id"]),
        "a charge leads to its request"
    );
}

#[test]
fn a_journal_is_checked_while_it_grows_and_a_flipped_bit_is_found() {
    let gateway = Gateway::serving(
        "  local: { protocol: openai, base_url: 'http://127.0.0.1:9/v1', credential: sk-x }\n",
        &format!("models:\n{}", chat_model("m", "local")),
    );
    std::thread::scope(|threads| {
        threads.spawn(|| (0..100).for_each(|grant| gateway.grant("0.01", &format!("g{grant}"))));
        let mut records = 0;
        for _ in 0..5 {
            let report = gateway.admin("POST", VERIFY, &Value::Null);
            assert_eq!(report["ok"], true, "{report}");
            assert_eq!(report["violations"], json!([]));
            let checked = report["records"].as_u64().expect("a count");
            assert!(checked >= records, "{checked} records after {records}");
            records = checked;
        }
    });
    let report = gateway.admin("POST", VERIFY, &Value::Null);
    assert_eq!(report["total"], gateway.balance(), "the only account's balance");
    let books = gateway.admin("POST", TRIAL_BALANCE, &Value::Null);
    assert_eq!((&books["ok"], &books["adds_up"]), (&json!(true), &json!(true)), "{books}");
    assert_eq!((&books["records"], &books["debit"]), (&report["records"], &books["credit"]));

    let journal = gateway.path("data/journal");
    let segment = std::fs::read_dir(journal).expect("a directory").next().expect("a segment");
    let segment = segment.expect("an entry").path();
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("the segment is changed");
    let report = gateway.admin("POST", VERIFY, &Value::Null);
    assert_eq!(report["ok"], false, "{report}");
    assert_ne!(report["violations"], json!([]));
    let books = gateway.admin("POST", TRIAL_BALANCE, &Value::Null);
    assert_eq!(books["ok"], false, "not all of the journal is in the books: {books}");
}

#[test]
fn odd_wishes_are_refused_and_places_are_given_back() {
    let gateway = Gateway::serving(
        "  local: { protocol: openai, base_url: 'http://127.0.0.1:9/v1', credential: sk-x }\n",
        &format!("models:\n{}", chat_model("m", "local")),
    );
    for expected in ["?format=xml", "?from_seq=-1", "?account=me", "?since=1"] {
        assert_eq!(export(&gateway, expected).status(), 400, "{expected}");
    }
    // Places are given back: many more exports one after the other than there are at one time.
    for _ in 0..10 {
        assert!(!records(&export(&gateway, "")).is_empty());
        assert_eq!(gateway.admin("POST", VERIFY, &Value::Null)["ok"], true);
    }
}
