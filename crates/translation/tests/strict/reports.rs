//! Public bug reports of other gateways, one case each: the smallest request that shows the fault, sent
//! through every pair of dialects whose upstream accepts it.

use serde_json::{Value, json};
use tollgate_simulator::strict::StrictDialect;

use crate::cells::{CellOutcome, GOES_ELSEWHERE, cells, models, pass, without_places};
use crate::talk::{Customer, PNG};

/// A request of a report: its name, whose customer sends it, the reports, the body.
struct Case {
    name: &'static str,
    customer: Customer,
    reports: &'static str,
    body: Value,
    /// Upstreams that cannot express the request of the report, so that it is refused by name.
    refused_over: &'static [&'static str],
}

fn case(name: &'static str, customer: Customer, reports: &'static str, body: Value) -> Case {
    Case { name, customer, reports, body, refused_over: &[] }
}

/// A call of the tool `f` in each dialect's history, without any tools.
fn histories_without_tools() -> Vec<Case> {
    let reports = "opencode 10259; bedrock-access-gateway PR 239; dify 17545; zot PR 18";
    vec![
        case(
            "tools_gone_chat",
            Customer::Chat,
            reports,
            json!({"messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "b"}, {"role": "user", "content": "Sum up."}]}),
        ),
        case(
            "tools_gone_messages",
            Customer::Messages,
            reports,
            json!({"max_tokens": 100, "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "b"}, {"type": "text", "text": "Sum up."}]}]}),
        ),
        case(
            "tools_gone_responses",
            Customer::Responses,
            reports,
            json!({"input": [
            {"role": "user", "content": "a"},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "b"}, {"role": "user", "content": "Sum up."}]}),
        ),
        case(
            "tools_gone_gemini",
            Customer::Gemini,
            reports,
            json!({"contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "b"}}}]}]}),
        ),
    ]
}

/// A schema of Pydantic's and Zod's for an answer.
fn answer_schemas() -> Vec<Case> {
    let reports = "laravel/ai 715; vercel/ai PR 14372; litellm PR 20813, 35808; GoModel PR 963";
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9}, "s": {"type": "string", "maxLength": 9},
        "l": {"type": "array", "items": {"type": "string"}, "maxItems": 3}}, "required": ["n"]});
    vec![
        case(
            "answer_schema_chat",
            Customer::Chat,
            reports,
            json!({"messages": [{"role": "user", "content": "a"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}),
        ),
        case(
            "answer_schema_responses",
            Customer::Responses,
            reports,
            json!({"input": "a",
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": false}}}),
        ),
        case(
            "answer_schema_gemini",
            Customer::Gemini,
            reports,
            json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}}),
        ),
    ]
}

/// Fields of agents and SDKs that another provider cannot express and does not need.
fn closed_readers() -> Vec<Case> {
    let user = json!({"role": "user", "content": "a"});
    vec![
        case(
            "additional_tools",
            Customer::Responses,
            "token_proxy 307; CLIProxyAPI 4798; codex 39532; envoy ai-gateway 2586",
            json!({"input": [{"type": "additional_tools", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false}]}, user]}),
        ),
        case(
            "tool_search",
            Customer::Responses,
            "command-code 893, 885",
            json!({"input": [user], "tools": [{"type": "tool_search", "execution": "client", "description": "Finds tools.",
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}]}),
        ),
        case(
            "history_of_searches",
            Customer::Responses,
            "codex 24612, 45401; cc-switch 7560; CLIProxyAPI PR 5857",
            json!({"input": [user, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}, user]}),
        ),
        case(
            "cache_control_on_messages",
            Customer::Chat,
            "experiential PR 612; agentgateway 2628; Kilo cloud PR 176; strands PR 4201",
            json!({"messages": [{"role": "system", "content": "x", "cache_control": {"type": "ephemeral"}}, user,
                {"role": "assistant", "content": "b", "cache_control": {"type": "ephemeral"}}, user]}),
        ),
        case(
            "echoed_annotations",
            Customer::Chat,
            "statgpt-backend 676; hermes-agent 48523; freellmapi 165",
            json!({"messages": [user, {"role": "assistant", "content": "b", "annotations": [{"type": "url_citation",
                "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}}]}, user]}),
        ),
        case(
            "echoed_searches",
            Customer::Messages,
            "statgpt-backend 676; hermes-agent PR 48604",
            json!({"max_tokens": 100, "messages": [user, {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result",
                    "url": "https://a.example", "title": "A", "encrypted_content": "x", "page_age": null}]},
                {"type": "text", "text": "b", "citations": [{"type": "web_search_result_location", "url": "https://a.example",
                    "title": "A", "encrypted_index": "x", "cited_text": "b"}]}]}, user]}),
        ),
        case(
            "deferred_tools",
            Customer::Messages,
            "claude-code 89211; CLIProxyAPI 1725; kiro-gateway PR 109; quotio 529",
            json!({"max_tokens": 100, "messages": [user], "tools": [
                {"name": "f", "input_schema": {"type": "object"}}, {"name": "g", "input_schema": {"type": "object"}, "defer_loading": true}]}),
        ),
    ]
}

/// Orders, lengths, letters and least values.
#[expect(clippy::too_many_lines, reason = "a table: a row for each report")]
fn open_writers() -> Vec<Case> {
    let user = json!({"role": "user", "content": "a"});
    let long = "mcp__a_server_with_a_long_name_indeed__and_a_tool_whose_name_goes_on_for_longer_than_64_letters";
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    vec![
        case(
            "system_in_the_middle",
            Customer::Messages,
            "ollama 17774; wally PR 77; OmniRoute PR 12908; vllm 41114",
            json!({"max_tokens": 100, "system": "x", "messages": [user, {"role": "system", "content": "y"},
                {"role": "assistant", "content": "b"}, user]}),
        ),
        case(
            "long_name_of_a_tool",
            Customer::Messages,
            "codex 46188, 46358; opencodex 4679",
            json!({"max_tokens": 100, "messages": [user], "tools": [{"name": long, "input_schema": {"type": "object"}}]}),
        ),
        case(
            "long_name_in_a_namespace",
            Customer::Responses,
            "codex 46188, 46358",
            json!({"input": [user], "tools": [{"type": "namespace", "name": &long[..40], "description": "x", "tools": [
                {"type": "function", "name": &long[40..], "parameters": {"type": "object", "properties": {}}, "strict": false}]}]}),
        ),
        case(
            "least_limit",
            Customer::Messages,
            "litellm 31451; cc-switch 7103; new-api PR 2866",
            json!({"max_tokens": 1, "messages": [user]}),
        ),
        case(
            "blank_texts",
            Customer::Chat,
            "claude-code 23440, 59812; opencode 31259; LibreChat agents PR 501",
            json!({"messages": [{"role": "system", "content": " "}, user, {"role": "assistant", "content": "\n\n"}, user]}),
        ),
        case(
            "blank_results",
            Customer::Messages,
            "pi PR 3443; OpenHands 5339",
            json!({"max_tokens": 100, "messages": [user,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": ""}]}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
        ),
        Case {
            refused_over: &["OpenaiResponses"],
            ..case(
                "blank_stops",
                Customer::Chat,
                "litellm 3286; lm-evaluation-harness PR 3822",
                json!({"messages": [user], "stop": ["\n"]}),
            )
        },
        Case {
            refused_over: &["OpenaiResponses"],
            ..case(
                "empty_stops",
                Customer::Gemini,
                "litellm PR 7484",
                json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"stopSequences": ["", "END"]}}),
            )
        },
        case(
            "results_out_of_order",
            Customer::Chat,
            "gemini-cli 7410; openai-agents-python 1797",
            json!({"messages": [user, {"role": "assistant", "content": null, "tool_calls": [call("call_1"), call("call_2")]},
                {"role": "tool", "tool_call_id": "call_2", "content": "2"}, {"role": "tool", "tool_call_id": "call_1", "content": "1"}]}),
        ),
        case(
            "user_behind_results",
            Customer::Messages,
            "litellm 17761; zed 37021; onyx 6458; hermes-agent 20154",
            json!({"max_tokens": 100, "messages": [user,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "b"}, {"type": "text", "text": "c"}]}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
        ),
        case(
            "interrupted_call",
            Customer::Messages,
            "claude-code 2697; crush 279; continue PR 11785",
            json!({"max_tokens": 100, "messages": [user,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}, user],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
        ),
        case(
            "interrupted_thought",
            Customer::Responses,
            "forgecode 2107; continue PR 11785; opencode 36517",
            json!({"input": [user, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}, user]}),
        ),
        case(
            "prefill",
            Customer::Chat,
            "CLIProxyAPI 5319; kilocode 8260; opencode 13768; agno PR 7304",
            json!({"messages": [user, {"role": "assistant", "content": "b"}]}),
        ),
        case(
            "long_ids",
            Customer::Chat,
            "agno 5382; Portkey 1062; vercel/ai 8132; openclaw PR 875",
            json!({"messages": [user, {"role": "assistant", "content": null, "tool_calls": [call("ws_689e2d4880a0819d98acca37694989b00b15d90494fc6b87|functions.f:0")]},
                {"role": "tool", "tool_call_id": "ws_689e2d4880a0819d98acca37694989b00b15d90494fc6b87|functions.f:0", "content": "1"}]}),
        ),
        case(
            "ids_that_repeat",
            Customer::Chat,
            "cua 524; litellm PR 20049; llmman PR 432",
            json!({"messages": [user, {"role": "assistant", "content": null, "tool_calls": [call("call_0")]}, {"role": "tool", "tool_call_id": "call_0", "content": "1"},
                {"role": "assistant", "content": null, "tool_calls": [call("call_0")]}, {"role": "tool", "tool_call_id": "call_0", "content": "2"}]}),
        ),
        case(
            "schema_without_type",
            Customer::Chat,
            "bnbchain-mcp 68; token-optimizer-mcp PR 154; cline 7339",
            json!({"messages": [user], "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}},
                {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}]}),
        ),
        case(
            "strict_without_strict_schema",
            Customer::Messages,
            "openai structured outputs guide",
            json!({"max_tokens": 100, "messages": [user], "tools": [{"name": "f", "strict": true,
                "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]}),
        ),
        case(
            "effort_none",
            Customer::Chat,
            "letta-code PR 3877; pr-agent PR 3259; claudish PR 84; spacebot PR 409",
            json!({"messages": [user], "reasoning_effort": "none"}),
        ),
        case(
            "least_effort",
            Customer::Messages,
            "opencode 4451; openai-agents-python 2089",
            json!({"max_tokens": 4000, "messages": [user], "thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ),
        case(
            "sampling_of_clients",
            Customer::Gemini,
            "chatbox 2627; software-agent-sdk 1837; CopilotKit PR 7191",
            json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"temperature": 1, "topP": 0.95}}),
        ),
        case(
            "document_alone",
            Customer::Messages,
            "archestra PR 4220; bifrost PR 6732",
            json!({"max_tokens": 100, "messages": [{"role": "user", "content": [{"type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoK"}}]}]}),
        ),
        case(
            "picture_of_another_type",
            Customer::Chat,
            "Anthropic vision; openai images guide",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": format!("data:image/jpeg;base64,{PNG}")}}]}]}),
        ),
        Case {
            refused_over: &["Anthropic", "Bedrock"],
            ..case(
                "json_mode_without_the_word",
                Customer::Gemini,
                "openai structured outputs guide; deepseek JSON mode",
                json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"responseMimeType": "application/json"}}),
            )
        },
        case(
            "long_cache_key",
            Customer::Chat,
            "openai reference, prompt_cache_key",
            json!({"messages": [user], "prompt_cache_key": "0123456789abcdef".repeat(5)}),
        ),
    ]
}

#[test]
fn every_report_is_right_in_every_cell() {
    let groups = [histories_without_tools(), answer_schemas(), closed_readers(), open_writers()];
    let (mut faults, mut count) = (Vec::new(), 0);
    for case in groups.into_iter().flatten() {
        assert!(!case.reports.is_empty(), "{}", case.name);
        let mut body = case.body.clone();
        if case.customer != Customer::Gemini {
            body["model"] = json!("m");
        }
        for (customer, dialect) in cells().into_iter().filter(|(it, _)| *it == case.customer) {
            let may_refuse = case.refused_over.contains(&format!("{dialect:?}").as_str());
            for model in models(dialect) {
                count += 1;
                match pass(customer, body.to_string().as_bytes(), &model) {
                    CellOutcome::Taken => {}
                    CellOutcome::Refused { .. } if may_refuse => {}
                    CellOutcome::Refused { field }
                        if without_places(&field) == GOES_ELSEWHERE
                            && dialect == StrictDialect::OpenaiResponses => {}
                    other => faults.push(format!("{} over {}: {other:?}", case.name, model.name)),
                }
            }
        }
    }
    println!("{count} checks");
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
