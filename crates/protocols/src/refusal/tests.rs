//! Bodies as providers send them, each with whose fault it is; and bodies that repeat a customer's words,
//! which are never the account's.

use proptest::prelude::*;

use super::*;

/// The files of recorded bodies, and how many of their rows are refusals at least, and how many of them
/// the customer's.
const FILES: [(&str, Dialect, &str, usize, usize); 9] = [
    ("openai", Dialect::Openai, include_str!("../../fixtures/refusal/openai.txt"), 30, 10),
    ("anthropic", Dialect::Anthropic, include_str!("../../fixtures/refusal/anthropic.txt"), 30, 10),
    ("gemini", Dialect::Gemini, include_str!("../../fixtures/refusal/gemini.txt"), 30, 10),
    ("xai", Dialect::Xai, include_str!("../../fixtures/refusal/xai.txt"), 30, 10),
    ("dashscope", Dialect::Dashscope, include_str!("../../fixtures/refusal/dashscope.txt"), 30, 10),
    ("azure", Dialect::Openai, include_str!("../../fixtures/refusal/azure.txt"), 30, 10),
    ("bedrock", Dialect::Bedrock, include_str!("../../fixtures/refusal/bedrock.txt"), 30, 10),
    ("openrouter", Dialect::Openai, include_str!("../../fixtures/refusal/openrouter.txt"), 30, 10),
    ("others", Dialect::Openai, include_str!("../../fixtures/refusal/others.txt"), 80, 18),
];

/// A row: the status, whose fault it is, the name in a header, and the body.
fn rows(text: &str) -> impl Iterator<Item = (u16, &str, Option<&str>, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| {
        let mut columns = line.splitn(4, ' ');
        let mut next = || columns.next().expect("four columns");
        let (status, fault, name, body) = (next(), next(), next(), next());
        (status.parse().expect("a status"), fault, Some(name).filter(|name| *name != "-"), body)
    })
}

/// True if a status by itself blames the customer's request.
fn is_customers(status: u16) -> bool {
    matches!(status, 400 | 409 | 411..=418 | 422)
}

fn verdict(dialect: Dialect, status: u16, name: Option<&str>, body: &str) -> &'static str {
    let refusal = read(dialect, status, name, body.as_bytes());
    match refusal.fault {
        Some(fault) => fault.as_str(),
        None if is_customers(refusal.status) => "request",
        None => "status",
    }
}

#[test]
fn a_recorded_body_is_the_fault_of_whom_its_row_says() {
    let mut wrong = Vec::new();
    for (file, dialect, text, all_min, customers_min) in FILES {
        let (mut all, mut customers) = (0, 0);
        for (status, fault, name, body) in rows(text) {
            all += 1;
            customers += usize::from(fault == "request");
            // A reseller relays anybody's words, whatever it speaks itself.
            for dialect in [dialect, Dialect::Openai, Dialect::Anthropic, Dialect::Gemini] {
                let found = verdict(dialect, status, name, body);
                if found != fault {
                    wrong.push(format!(
                        "{file} over {dialect}: {found}, not {fault}: {status} {body}"
                    ));
                }
            }
        }
        assert!(all >= all_min && customers >= customers_min, "{file}: {all} rows, {customers}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_body_says_when_to_come_again() {
    let body = br#"{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"@type":"x"},{"retryDelay":"34.5s"}]}}"#;
    let refusal = read(Dialect::Gemini, 429, None, body);
    assert_eq!(refusal.delay, Some(Duration::from_millis(34_500)));
    assert_eq!(read(Dialect::Gemini, 429, None, b"<html>").delay, None);
}

/// Texts that providers write around a quotation of the customer's.
const QUOTING: [&str; 20] = [
    r#"{"error":{"message":"Invalid value: '@'. Supported values are: 'a'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}"#,
    r#"{"error":{"message":"Unrecognized request argument supplied: @","type":"invalid_request_error","param":null,"code":null}}"#,
    r#"{"error":{"message":"@ is too long","type":"invalid_request_error","param":"@","code":null}}"#,
    r#"{"error":{"message":"'@' is not of type 'integer' - 'seed'","type":"invalid_request_error","param":null,"code":null}}"#,
    r#"{"error":{"message":"Invalid schema for function '@': no","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}"#,
    r#"{"error":{"message":"Function name was @ but must be a-z","type":"invalid_request_error"}}"#,
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.0.text: @"}}"#,
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"@: Extra inputs are not permitted"}}"#,
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools.0.custom.name: @"}}"#,
    r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"@\": Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
    r#"{"error":{"code":400,"message":"Invalid value at 'contents[0].role', \"@\"","status":"INVALID_ARGUMENT"}}"#,
    r#"{"code":"InvalidParameter","message":"The parameter is wrong: @","request_id":"r"}"#,
    r#"{"code":"Client specified an invalid argument","error":"Invalid request content: @"}"#,
    r#"{"message":"The model returned the following errors: @"}"#,
    r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","@"],"msg":"@"}]},"type":"invalid_request_error"}"#,
    r#"{"detail":[{"type":"missing","loc":["body","@"],"msg":"@"}]}"#,
    r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"Invalid value: '@'\"}}","provider_name":"x"}}}"#,
    r#"{"error":{"message":"litellm.BadRequestError: OpenAIException - Invalid value: '@'","type":"invalid_request_error"}}"#,
    r#"{"error":{"message":"Unknown parameter: '@'.","type":"invalid_request_error","param":"@","code":"unknown_parameter"}}"#,
    r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"@"}}"#,
];

/// Everything that makes a refusal the operator's.
fn telling() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (_, _, text, _, _) in FILES {
        for (_, fault, _, body) in rows(text).filter(|row| row.1 != "request") {
            let refusal = read(Dialect::Openai, 400, None, body.as_bytes());
            if fault != "status" {
                all.extend([refusal.message, refusal.code, body.to_owned()]);
            }
        }
    }
    all.extend(phrases::all().map(str::to_owned));
    all
}

static TELLING: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Customers can write what they like: quoted, it never shuts the operator's credential out.
    #[test]
    fn a_body_that_quotes_a_customer_is_never_the_accounts_fault(
        shape in 0..QUOTING.len(),
        pick in any::<prop::sample::Index>(),
        before in "[ a-z\"'{}:.]{0,12}",
        behind in "[ a-z\"'{}:.]{0,12}",
        dialect in 0..Dialect::ALL.len(),
        status in prop::sample::select(vec![400_u16, 413, 422]),
    ) {
        let all = TELLING.get_or_init(telling);
        let text = format!("{before}{}{behind}", pick.get(all));
        let quoted = serde_json::to_string(&text).expect("a string");
        let mut quoted = quoted[1..quoted.len() - 1].to_owned();
        if QUOTING[shape].contains("raw") {
            // A document within a string.
            quoted = serde_json::to_string(&quoted).expect("a string");
            quoted = quoted[1..quoted.len() - 1].to_owned();
        }
        let body = QUOTING[shape].replace('@', &quoted);
        let found = read(Dialect::ALL[dialect], status, None, body.as_bytes()).fault;
        let is_operators = matches!(
            found,
            Some(RefusalFault::Credential | RefusalFault::Account | RefusalFault::Model)
        );
        prop_assert!(!is_operators, "{found:?}: {body}");
    }
}
