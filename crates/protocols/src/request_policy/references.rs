//! References in prompts to what upstreams keep: files, stores of files, containers, templates of prompts,
//! cached contents.
//!
//! Upstreams know all accounts as one, so whoever names an id reads what is behind it, whether another
//! account or the operator put it there. Fields: OpenAI's, Anthropic's and Google's API references. What
//! is known to be data, such as the input of a tool call, is not searched.

use std::borrow::Cow;

use super::super::stored::Reference;
use super::PolicyReader;
use super::names::{folded, resolved};
use crate::json::Value;
use crate::json_cursor::{Cursor, WrittenValue};
use crate::public_url;

/// Members whose value is an id, a list of them, or an object with one, without underscores and in small
/// letters; and what a reference is called.
const ID_KEYS: [(&str, &str); 29] = [
    ("fileid", "file_id"),
    ("fileids", "file_ids"),
    ("vectorstoreid", "vector_store_ids"),
    ("vectorstoreids", "vector_store_ids"),
    ("container", "container"),
    ("containerid", "container"),
    ("containerids", "container"),
    ("connectorid", "connector_id"),
    ("prompt", "prompt"),
    ("promptid", "prompt"),
    ("skillid", "skill_id"),
    ("assetid", "asset_id"),
    ("voiceid", "voice_id"),
    ("conversation", "conversation"),
    ("conversationid", "conversation"),
    ("threadid", "thread_id"),
    ("assistantid", "assistant_id"),
    ("previousresponseid", "previous_response_id"),
    ("previousinteractionid", "previous_interaction_id"),
    ("cachedcontent", "cachedContent"),
    ("filesearchstorename", "fileSearchStoreNames"),
    ("filesearchstorenames", "fileSearchStoreNames"),
    ("corpora", "ragResources"),
    ("ragcorpus", "ragResources"),
    ("ragcorpora", "ragResources"),
    ("ragfileids", "ragResources"),
    ("datastore", "datastore"),
    ("engine", "datastore"),
    ("knowledgebaseid", "knowledge_base_id"),
];
/// Members whose value is an address.
const ADDRESS_KEYS: [&str; 8] =
    ["url", "uri", "imageurl", "videourl", "audiourl", "fileurl", "gcsuri", "s3uri"];
/// Schemes that lead to the web, and that of data.
const WEB_SCHEMES: [&str; 3] = ["http", "https", "data"];
/// Blocks that tell of files without reading them: what came of code that an upstream ran.
const OUTPUTS: [&[u8]; 2] = [b"\"code_execution_output\"", b"\"bash_code_execution_output\""];
/// Maximum number of references in one request.
const REFERENCES_MAX: usize = 256;
/// The deepest nesting that is searched. No id of a provider's stands as deep as ten.
const DEPTH_MAX: u32 = 32;

/// True for a block whose references are none.
pub(super) fn is_output(kind: &[u8]) -> bool {
    OUTPUTS.contains(&kind)
}

impl PolicyReader<'_> {
    /// Collects the references of an unknown member, anywhere in its value.
    #[cold]
    pub(super) fn note_kept(&mut self, key: &[u8], value: &[u8]) {
        let name = resolved(key).unwrap_or_default();
        self.note_named(&name, value, 0);
    }

    /// Notes what a medium refers to: a file, or an address that is not on the web.
    pub(super) fn note_medium(&mut self, written: WrittenValue<'_>) {
        match written.text().first() {
            Some(b'"') => self.note_address(written.text()),
            _ => self.note_within(written, 0),
        }
    }

    /// Notes a `fileData` of Google's that the operator's account opens.
    pub(super) fn note_file(&mut self, written: &[u8]) {
        let file = Value::new(written).as_object().ok();
        let uris = ["fileUri", "file_uri"];
        let mut uris = uris.into_iter().filter_map(|key| file.as_ref()?.get_non_null(key));
        if !is_public_file(written) {
            let id = uris.next().and_then(|uri| uri.as_str().map(Cow::into_owned));
            self.note("fileUri", id.unwrap_or_default());
            uris.for_each(|_| self.note("fileUri", String::new()));
        }
    }

    /// Removes the connectors of a tool that has a credential of the customer.
    pub(super) fn forget_connectors(&mut self, from: usize) {
        let mut at = 0;
        self.references.retain(|one| {
            at += 1;
            at <= from || one.field != "connector_id"
        });
    }

    fn note_named(&mut self, name: &str, value: &[u8], depth: u32) {
        let name = folded(name).replace(['_', '-'], "");
        let is_data = match name.as_str() {
            // A text is no template of one.
            "prompt" => value.starts_with(b"\""),
            // Of a search of Vertex AI's; elsewhere it is a setting.
            "engine" => depth == 0,
            _ => false,
        };
        let id_field = ID_KEYS.iter().find(|(id_field, _)| *id_field == name && !is_data);
        if let Some((_, field)) = id_field {
            self.note_ids(field, value, depth);
        } else if name == "voice" && value.starts_with(b"{") {
            // Voices that everybody has are named by a text.
            self.note_ids("voice", value, depth);
        } else if ADDRESS_KEYS.contains(&&*name) && value.starts_with(b"\"") {
            self.note_address(value);
        } else {
            self.note_within(value.into(), depth);
        }
    }

    /// Notes an id, each of a list, or that of an object.
    fn note_ids(&mut self, field: &'static str, value: &[u8], depth: u32) {
        if depth > DEPTH_MAX {
            return self.note(field, String::new());
        }
        match value.first() {
            Some(b'"') => {
                let id = Value::new(value).as_str().unwrap_or_default().into_owned();
                self.note(field, id);
            }
            Some(b'[') => {
                let read = Cursor::new(value).array(|one| {
                    let one = one.raw()?;
                    self.note_ids(field, one, depth + 1);
                    Some(())
                });
                self.note_unread(field, read);
            }
            Some(b'{') => {
                let read = Cursor::new(value).object(|key, value| {
                    let (name, value) = (resolved(key)?, value.raw()?);
                    match folded(&name).as_str() {
                        "id" | "name" => self.note_ids(field, value, depth + 1),
                        _ => self.note_named(&name, value, depth + 1),
                    }
                    Some(())
                });
                self.note_unread(field, read);
            }
            Some(b'n') | None => {}
            Some(_) => self.note(field, String::new()),
        }
    }

    /// Notes what the members of an object, or the elements of a list, refer to.
    fn note_within(&mut self, value: WrittenValue<'_>, depth: u32) {
        if depth > DEPTH_MAX {
            return self.note("input", String::new());
        }
        let read = match value.text().first() {
            Some(b'[') => value.cursor().array(|one| {
                let one = one.written()?;
                self.note_within(one, depth + 1);
                Some(())
            }),
            Some(b'{') => value.cursor().object(|key, value| {
                let (name, value) = (resolved(key)?, value.raw()?);
                self.note_named(&name, value, depth + 1);
                Some(())
            }),
            _ => Some(()),
        };
        self.note_unread("input", read);
    }

    /// Notes an address with a scheme of a provider's own, such as `gs://` or `ms://`. What has no scheme
    /// is data.
    fn note_address(&mut self, written: &[u8]) {
        /// Longer ones are data.
        const SCHEME_MAX: usize = 16;
        // Most are on the web, or megabytes of data.
        if [&b"\"https:"[..], b"\"http:", b"\"data:"].iter().any(|start| written.starts_with(start))
        {
            return;
        }
        let Some(address) = Value::new(written).as_str() else { return };
        let address = address.trim();
        let Some((scheme, _)) = address.split_once(':') else { return };
        let scheme = scheme.to_ascii_lowercase();
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let is_scheme = (1..=SCHEME_MAX).contains(&scheme.len()) && scheme.bytes().all(is_letter);
        if is_scheme && !WEB_SCHEMES.contains(&scheme.as_str()) {
            self.note("url", address.to_owned());
        }
    }

    /// Notes an unreadable value, which may refer to anything.
    fn note_unread(&mut self, field: &'static str, read: Option<()>) {
        if read.is_none() {
            self.note(field, String::new());
        }
    }

    fn note(&mut self, field: &'static str, id: String) {
        let reference = Reference { field, id };
        if self.references.contains(&reference) {
            return;
        }
        match self.references.len() {
            0..REFERENCES_MAX => self.references.push(reference),
            // One that nobody was given refuses the request.
            REFERENCES_MAX => self.references.push(Reference { field, id: String::new() }),
            _ => {}
        }
    }
}

/// True if a file, as written, is on the public web, where any customer could fetch it: not in Google's
/// storage, to which the operator's account has access.
pub(super) fn is_public_file(written: &[u8]) -> bool {
    let Ok(file) = Value::new(written).as_object() else { return false };
    let uris = ["fileUri", "file_uri"].into_iter().filter_map(|key| file.get(key));
    let mut uris = uris.map(|uri| public_url::parse_web(&uri.as_str().unwrap_or_default()).ok());
    let (Some(Some(url)), None) = (uris.next(), uris.next()) else { return false };
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    !["googleapis.com", "cloud.google.com"].into_iter().any(|domain| {
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Allowlist, CHAT, GEMINI, MESSAGES, RESPONSES, references};
    use crate::json::Object;

    fn referred(allowlist: &'static Allowlist, body: &str) -> Vec<(&'static str, String)> {
        let body = Object::parse(body.as_bytes()).expect("JSON");
        references(&body, allowlist).into_iter().map(|one| (one.field, one.id)).collect()
    }

    fn in_responses(item: &str) -> Vec<(&'static str, String)> {
        referred(&RESPONSES, &format!(r#"{{"model":"m","input":[{item}]}}"#))
    }

    fn one(field: &'static str, id: &str) -> Vec<(&'static str, String)> {
        vec![(field, id.to_owned())]
    }

    #[test]
    fn files_of_responses_are_found_wherever_they_stand() {
        let content = |part: &str| format!(r#"{{"role":"user","content":[{part}]}}"#);
        for (part, field, id) in [
            (r#"{"type":"input_file","file_id":"file-a"}"#, "file_id", "file-a"),
            (r#"{"type":"input_file","file\u005fid":"file\u002da"}"#, "file_id", "file-a"),
            (r#"{"type":"input_file","File_ID":"file-a"}"#, "file_id", "file-a"),
            (r#"{"type":"input_image","file_id":"file-a","detail":"low"}"#, "file_id", "file-a"),
            (r#"{"type":"input_file","file_id":7}"#, "file_id", ""),
            (
                r#"{"type":"input_image","image_url":"gs://bucket/a.png"}"#,
                "url",
                "gs://bucket/a.png",
            ),
            (r#"{"type":"input_file","file_url":"MS://file-a"}"#, "url", "MS://file-a"),
            (r#"{"type":"unknown","x":[{"y":{"file_ids":["file-a"]}}]}"#, "file_ids", "file-a"),
        ] {
            assert_eq!(in_responses(&content(part)), one(field, id), "{part}");
        }
        let output = r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"file-a"}]}"#;
        assert_eq!(in_responses(output), one("file_id", "file-a"));
        let code =
            r#"{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_1","code":"1"}"#;
        assert_eq!(in_responses(code), one("container", "cntr_1"));
        for part in [
            r#"{"type":"input_image","image_url":"https://example.com/a.png"}"#,
            r#"{"type":"input_image","image_url":"data:image/png;base64,AAAA"}"#,
            r#"{"type":"input_file","file_url":"https://example.com/a.pdf"}"#,
            r#"{"type":"input_text","text":"\"file_id\":\"file-a\""}"#,
            r#"{"type":"output_text","text":"a","annotations":[{"type":"file_citation","file_id":"f"}]}"#,
        ] {
            assert!(in_responses(&content(part)).is_empty(), "{part}");
        }
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"file_id\":\"a\"}"}"#;
        assert!(in_responses(call).is_empty(), "arguments are data");
    }

    #[test]
    fn tools_and_templates_name_what_the_operator_keeps() {
        let tools = |tool: &str| {
            referred(&RESPONSES, &format!(r#"{{"model":"m","input":"a","tools":[{tool}]}}"#))
        };
        let stores = r#"{"type":"file_search","vector_store_ids":["vs_a","vs_b"]}"#;
        assert_eq!(
            tools(stores),
            [("vector_store_ids", "vs_a".to_owned()), ("vector_store_ids", "vs_b".to_owned())]
        );
        let code = r#"{"type":"code_interpreter","container":"cntr_1"}"#;
        assert_eq!(tools(code), one("container", "cntr_1"));
        let files =
            r#"{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-a"]}}"#;
        assert_eq!(tools(files), one("file_ids", "file-a"));
        let mask = r#"{"type":"image_generation","input_image_mask":{"file_id":"file-a"}}"#;
        assert_eq!(tools(mask), one("file_id", "file-a"));
        let shell = r#"{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}"#;
        assert_eq!(tools(shell), one("container", "cntr_1"));
        let connector = r#"{"type":"mcp","server_label":"a","connector_id":"connector_x"}"#;
        assert_eq!(tools(connector), one("connector_id", "connector_x"));
        for tool in [
            r#"{"type":"mcp","connector_id":"connector_x","authorization":"ya29.customers"}"#,
            r#"{"type":"code_interpreter","container":{"type":"auto"}}"#,
            r#"{"type":"function","name":"f","parameters":{"properties":{"file_id":{"type":"string"}}}}"#,
            r#"{"type":"web_search","user_location":{"type":"approximate","city":"Bonn"}}"#,
        ] {
            assert!(tools(tool).is_empty(), "{tool}");
        }
        let prompt =
            referred(&RESPONSES, r#"{"model":"m","prompt":{"id":"pmpt_a","version":"2"}}"#);
        assert_eq!(prompt, one("prompt", "pmpt_a"));
        let files = r#"{"prompt":{"id":"pmpt_a","variables":{"x":{"type":"input_file","file_id":"file-a"}}}}"#;
        let found = referred(&RESPONSES, files);
        assert_eq!(found, [("prompt", "pmpt_a".to_owned()), ("file_id", "file-a".to_owned())]);
    }

    #[test]
    fn files_of_other_dialects_are_found() {
        let blocks = |block: &str| {
            referred(
                &MESSAGES,
                &format!(r#"{{"messages":[{{"role":"user","content":[{block}]}}]}}"#),
            )
        };
        let document = r#"{"type":"document","source":{"type":"file","file_id":"file_a"}}"#;
        assert_eq!(blocks(document), one("file_id", "file_a"));
        let result =
            format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{document}]}}"#);
        assert_eq!(blocks(&result), one("file_id", "file_a"));
        let upload = r#"{"type":"container_upload","file_id":"file_a"}"#;
        assert_eq!(blocks(upload), one("file_id", "file_a"));
        let output = r#"{"type":"bash_code_execution_tool_result","tool_use_id":"t","content":{"type":"bash_code_execution_result","stdout":"","content":[{"type":"bash_code_execution_output","file_id":"file_a"}]}}"#;
        assert!(blocks(output).is_empty(), "an answer that is sent back reads no file");
        let call = r#"{"type":"tool_use","id":"t","name":"n","input":{"file_id":"file_a"}}"#;
        assert!(blocks(call).is_empty(), "the input of a call is data");
        let container = r#"{"container":{"id":"container_a","skills":[{"skill_id":"skill_a"}]}}"#;
        let found = referred(&MESSAGES, container);
        assert_eq!(
            found,
            [("container", "container_a".to_owned()), ("skill_id", "skill_a".to_owned())]
        );
        let parts =
            |part: &str| referred(&GEMINI, &format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#));
        let at = "https://generativelanguage.googleapis.com/v1beta/files/a";
        let file = format!(r#"{{"fileData":{{"mimeType":"image/png","fileUri":"{at}"}}}}"#);
        assert_eq!(parts(&file), one("fileUri", at));
        let bucket = r#"{"file_data":{"file_uri":"gs://bucket/a"}}"#;
        assert_eq!(parts(bucket), one("fileUri", "gs://bucket/a"));
        assert!(parts(r#"{"fileData":{"fileUri":"https://youtu.be/a"}}"#).is_empty());
        assert!(parts(r#"{"functionCall":{"args":{"fileUri":"a"}}}"#).is_empty());
        let cached = referred(&GEMINI, r#"{"cachedContent":"cachedContents/a"}"#);
        assert_eq!(cached, one("cachedContent", "cachedContents/a"));
        let search =
            r#"{"tools":[{"fileSearch":{"fileSearchStoreNames":["fileSearchStores/a"]}}]}"#;
        assert_eq!(referred(&GEMINI, search), one("fileSearchStoreNames", "fileSearchStores/a"));
        let chat = |part: &str| {
            referred(&CHAT, &format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#))
        };
        let file = r#"{"type":"file","file":{"file_id":"file-a"}}"#;
        assert_eq!(chat(file), one("file_id", "file-a"));
        let kimi = r#"{"type":"image_url","image_url":{"url":"ms://file-a"}}"#;
        assert_eq!(chat(kimi), one("url", "ms://file-a"));
        let video = r#"{"type":"video_url","video_url":{"url":"oss://a"}}"#;
        assert_eq!(chat(video), one("url", "oss://a"));
        assert!(
            chat(r#"{"type":"image_url","image_url":{"url":"https://a.example/b"}}"#).is_empty()
        );
    }

    /// Bodies that coding agents have sent.
    #[test]
    fn requests_of_agents_refer_to_nothing() {
        for (allowlist, body) in [
            (&CHAT, &include_bytes!("../../../../tests/clients/bodies/aider.json")[..]),
            (&CHAT, &include_bytes!("../../../../tests/clients/bodies/copilot-chat.json")[..]),
            (
                &MESSAGES,
                &include_bytes!("../../../../tests/clients/bodies/copilot-messages.json")[..],
            ),
            (
                &RESPONSES,
                &include_bytes!("../../../../tests/clients/bodies/copilot-responses.json")[..],
            ),
        ] {
            let body = Object::parse(body).expect("JSON");
            let inner = body.get_non_null("body").and_then(|inner| inner.as_object().ok());
            let found = references(inner.as_ref().unwrap_or(&body), allowlist);
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_request_with_more_references_than_any_real_one_is_refused() {
        let ids: Vec<String> = (0..1000).map(|at| format!("\"vs_{at}\"")).collect();
        let tool = format!(r#"{{"type":"file_search","vector_store_ids":[{}]}}"#, ids.join(","));
        let found = referred(&RESPONSES, &format!(r#"{{"tools":[{tool}]}}"#));
        assert_eq!((found.len(), found.last()), (257, Some(&("vector_store_ids", String::new()))));
    }
}
