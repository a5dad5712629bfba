//! Answers of a blind simulator to language models' requests: constants, so that neither their making nor
//! the reading of a request takes time from what is measured.

/// An answer of the chat completions API.
pub(super) const CHAT: &str = r#"{"id":"chatcmpl-sim","object":"chat.completion","created":1700000000,"model":"sim-chat","choices":[{"index":0,"message":{"role":"assistant","content":"Simulated upstreams answer without looking.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":6,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#;
/// A message of Anthropic's API.
pub(super) const MESSAGE: &str = r#"{"id":"msg_sim","type":"message","role":"assistant","model":"sim-messages","content":[{"type":"text","text":"Simulated upstreams answer without looking."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":6}}"#;
/// A response of OpenAI's Responses API.
pub(super) const RESPONSE: &str = r#"{"id":"resp_sim","object":"response","created_at":1700000000,"status":"completed","model":"sim-responses","output":[{"id":"msg_sim","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Simulated upstreams answer without looking.","annotations":[]}]}],"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"parallel_tool_calls":true,"temperature":1.0,"tool_choice":"auto","tools":[],"top_p":1.0,"usage":{"input_tokens":12,"input_tokens_details":{"cached_tokens":0},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":18}}"#;
/// Content of Google's Gemini API.
pub(super) const CONTENT: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Simulated upstreams answer without looking."}],"role":"model"},"index":0,"finishReason":"STOP"}],"modelVersion":"sim-gemini","responseId":"sim","usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":6,"totalTokenCount":18,"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}]}}"#;
/// An answer of Amazon Bedrock's Converse API.
pub(super) const CONVERSE: &str = r#"{"metrics":{"latencyMs":1},"output":{"message":{"role":"assistant","content":[{"text":"Simulated upstreams answer without looking."}]}},"stopReason":"end_turn","usage":{"inputTokens":12,"outputTokens":6,"totalTokens":18,"cacheReadInputTokens":0,"cacheWriteInputTokens":0}}"#;
