//! Writes the content of a turn for the Converse API.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::call_input;
use crate::dialect::Untranslatable;
use crate::json::Members;
use crate::media::MediaContent;
use crate::part::{Cache, ContentPart, MediaPart, Reasoning, Source, ToolCall, ToolResult};
use crate::seal::{self, Maker};
use crate::turns::{self, MergedTurn, TurnContent};

/// The longest name of a document, in letters, with room for the number that tells two of one name
/// apart: the API takes 200.
const DOCUMENT_NAME_CHARS_MAX: usize = 180;
/// The name of a document that has none.
const DOCUMENT_NAME: &str = "document";
/// The text beside a document that has none: "you must also include a text field in the content"
/// (`DocumentBlock` of Converse's reference).
const DOCUMENT_TEXT: &str = "(See the document.)";

/// The token of a thought that a model behind this API sealed.
pub(super) fn own_seal<'s>(one: &'s Reasoning<'_>) -> Option<NativeSeal<'s>> {
    let seal = one.seal.as_deref()?;
    let signature = seal::open(Maker::Converse, seal).map(NativeSeal::Signature);
    signature.or_else(|| seal::open(Maker::ConverseRedacted, seal).map(NativeSeal::Redacted))
}

/// A token, by the field in which it stands.
pub(super) enum NativeSeal<'s> {
    /// Signature beside the text of the thought.
    Signature(&'s str),
    /// Encrypted data instead of the thought.
    Redacted(&'s str),
}

/// Writes contents, and remembers the names of documents: a request has each of them once.
#[derive(Default)]
pub(super) struct ContentWriter {
    /// Names written so far, without the numbers that distinguish equal ones.
    documents: Vec<String>,
}

impl ContentWriter {
    /// Writes the contents of a turn with their cache marks.
    ///
    /// # Errors
    /// What the API has no words for.
    pub(super) fn turn(
        &mut self,
        turn: &MergedTurn<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let mut list = Members::array(out);
        let (mut has_document, mut has_text) = (false, false);
        // A mark directly behind a document of text is refused: it goes behind the next text.
        let mut kept_mark = None;
        for block in &turn.blocks {
            match &block.content {
                TurnContent::Note(one) => text(one, &mut list, out),
                TurnContent::Reasoning(one) => reasoning(one, &mut list, out),
                TurnContent::Call(call) => {
                    list.next(out);
                    tool_use(call, out)?;
                }
                TurnContent::Result(call, result) => {
                    list.next(out);
                    self.tool_result(call, *result, out)?;
                }
                TurnContent::Content(one) => self.content(one, &mut list, out)?,
            }
            // Documents alone are refused: the turn needs a text beside them, wherever it stands.
            has_text |= match &block.content {
                TurnContent::Note(_) => true,
                TurnContent::Content(one) => turns::text_of(one).is_some(),
                _ => false,
            };
            let is_document = matches!(block.content, TurnContent::Content(ContentPart::File(_)));
            has_document |= is_document;
            if is_document {
                kept_mark = block.cache.or(kept_mark);
            } else {
                cache_point(block.cache.or(kept_mark.take()), &mut list, out);
            }
        }
        if has_document && !has_text || kept_mark.is_some() {
            text(DOCUMENT_TEXT, &mut list, out);
            cache_point(kept_mark, &mut list, out);
        }
        list.end(out);
        Ok(())
    }

    fn tool_result(
        &mut self,
        call: &ToolCall<'_>,
        result: Option<&ToolResult<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let mut object = Members::object(out);
        object.key(out, "toolResult");
        let mut inner = Members::object(out);
        inner.text(out, "toolUseId", &call.id);
        inner.key(out, "content");
        let mut list = Members::array(out);
        let empty = out.len();
        for one in result.map_or(&[][..], |result| &result.content) {
            if !turns::text_of(one).is_some_and(turns::is_blank) {
                self.content(one, &mut list, out)?;
            }
        }
        let is_error = result.is_none_or(|result| result.is_error);
        if out.len() == empty && is_error {
            let placeholder =
                if result.is_none() { turns::NO_RESULT } else { turns::EMPTY_FAILURE };
            text(placeholder, &mut list, out);
        }
        list.end(out);
        if is_error {
            inner.text(out, "status", "error");
        }
        inner.end(out);
        object.end(out);
        Ok(())
    }

    fn content(
        &mut self,
        content: &ContentPart<'_>,
        list: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let (media, is_image) = match content {
            ContentPart::Text(one) => {
                text(&one.text, list, out);
                return Ok(());
            }
            ContentPart::Refusal(one) => {
                text(one, list, out);
                return Ok(());
            }
            ContentPart::Image(media) => (media, true),
            ContentPart::File(media) => (media, false),
            ContentPart::Audio(_) => {
                return Err(Untranslatable::uncarried("messages.content: audio"));
            }
            ContentPart::Video(_) => {
                return Err(Untranslatable::uncarried("messages.content: a video"));
            }
        };
        let shown = MediaContent::from_part(media);
        if let MediaContent::Image(media_type, data) = &shown {
            let format = image_format(media_type)?;
            list.next(out);
            media_block("image", format, None, data, out);
            return Ok(());
        }
        let (format, data) = document(media, &shown, is_image)?;
        let name = self.document_name(media.name.as_deref().unwrap_or(DOCUMENT_NAME));
        list.next(out);
        media_block("document", format, Some(&name), &data, out);
        Ok(())
    }

    /// The name in letters that the API takes. Of two documents of one name the second gets a number,
    /// which it has in every later request of the conversation too.
    fn document_name(&mut self, name: &str) -> String {
        let mut written = String::with_capacity(name.len());
        for letter in name.chars() {
            let letter = match letter {
                letter if letter.is_ascii_alphanumeric() || "-()[]".contains(letter) => letter,
                letter if letter.is_whitespace() => ' ',
                _ => '-',
            };
            if letter != ' ' || !written.ends_with(' ') {
                written.push(letter);
            }
        }
        let mut written: String = written.trim().chars().take(DOCUMENT_NAME_CHARS_MAX).collect();
        if written.is_empty() {
            DOCUMENT_NAME.clone_into(&mut written);
        }
        let earlier =
            self.documents.iter().filter(|earlier_text| **earlier_text == written).count();
        self.documents.push(written.clone());
        if earlier == 0 { written } else { format!("{} [{}]", written.trim_end(), earlier + 1) }
    }
}

/// Writes up to where the prompt is cached.
pub(super) fn cache_point(cache: Option<Cache>, list: &mut Members, out: &mut Vec<u8>) {
    let Some(cache) = cache else { return };
    list.next(out);
    out.extend_from_slice(match cache {
        Cache::Short => br#"{"cachePoint":{"type":"default"}}"#,
        Cache::Long => br#"{"cachePoint":{"type":"default","ttl":"1h"}}"#,
    });
}

/// Writes a text as a block of a message.
pub(super) fn text(text: &str, list: &mut Members, out: &mut Vec<u8>) {
    list.next(out);
    let mut object = Members::object(out);
    object.text(out, "text", text);
    object.end(out);
}

fn reasoning(one: &Reasoning<'_>, list: &mut Members, out: &mut Vec<u8>) {
    let Some(own) = own_seal(one) else { return };
    list.next(out);
    let mut object = Members::object(out);
    object.key(out, "reasoningContent");
    let mut inner = Members::object(out);
    match own {
        NativeSeal::Signature(signature) => {
            inner.key(out, "reasoningText");
            let mut text = Members::object(out);
            text.text(out, "text", &one.text);
            text.text(out, "signature", signature);
            text.end(out);
        }
        NativeSeal::Redacted(data) => inner.text(out, "redactedContent", data),
    }
    inner.end(out);
    object.end(out);
}

fn tool_use(call: &ToolCall<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.key(out, "toolUse");
    let mut inner = Members::object(out);
    inner.text(out, "toolUseId", &call.id);
    inner.text(out, "name", &call.name);
    inner.raw(out, "input", &call_input::object_input(call)?);
    inner.end(out);
    object.end(out);
    Ok(())
}

/// A picture or a document, whose words need no escapes but for the data of whoever asks.
fn media_block(kind: &str, format: &str, name: Option<&str>, data: &str, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.key(out, kind);
    let mut inner = Members::object(out);
    inner.text(out, "format", format);
    if let Some(name) = name {
        inner.text(out, "name", name);
    }
    inner.key(out, "source");
    let mut source = Members::object(out);
    source.text(out, "bytes", data);
    source.end(out);
    inner.end(out);
    object.end(out);
}

fn image_format(media_type: &str) -> Result<&'static str, Untranslatable> {
    Ok(match media_type {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpeg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        _ => return Err(Untranslatable::uncarried("messages.content: an image of this type")),
    })
}

/// The format of a document, and its bytes in base64.
fn document<'m>(
    media: &'m MediaPart<'_>,
    shown: &MediaContent<'m>,
    is_image: bool,
) -> Result<(&'static str, Cow<'m, str>), Untranslatable> {
    let uncarried = |what| Err(Untranslatable::uncarried(what));
    let format = match (shown, &media.source) {
        (MediaContent::Url(_), _) if is_image => {
            return uncarried("messages.content: an image by URL");
        }
        (MediaContent::Url(_), _) => return uncarried("messages.content: a document by URL"),
        (MediaContent::Pdf(data), _) => return Ok(("pdf", Cow::Borrowed(*data))),
        (MediaContent::Text(text), Source::Plain(_)) => {
            return Ok(("txt", STANDARD.encode(text.as_bytes()).into()));
        }
        (_, Source::Inline { media_type, .. }) => &**media_type,
        _ => "",
    };
    let format = match format {
        "text/markdown" => "md",
        "text/html" => "html",
        "text/csv" => "csv",
        _ if matches!(shown, MediaContent::Text(_)) => "txt",
        "text/plain" => "txt",
        "application/msword" => "doc",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        _ if is_image => return uncarried("messages.content: an image of this type"),
        _ => return uncarried("messages.content: a document of this type"),
    };
    match &media.source {
        Source::Inline { data, .. } => Ok((format, Cow::Borrowed(data))),
        _ => uncarried("messages.content: a document of this type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_names_that_the_api_takes_and_each_its_own() {
        let mut writer = ContentWriter::default();
        for (name, written) in [
            ("Report (final) [2].pdf", "Report (final) [2]-pdf"),
            ("a \t b/c\u{e9}.txt", "a b-c--txt"),
            ("  ", "document"),
            ("Report (final) [2].pdf", "Report (final) [2]-pdf [2]"),
            ("", "document [2]"),
        ] {
            assert_eq!(writer.document_name(name), written, "{name:?}");
        }
        assert_eq!(writer.document_name(&"x".repeat(500)).len(), DOCUMENT_NAME_CHARS_MAX);
    }
}
