//! Contents of a prompt: messages, items and their parts, at any depth.

use super::PolicyReader;
use super::allowlist::{Key, Kind, MediaShape, ObjectTable, Size};
use super::item::Item;
use super::names::{resolved, shown};
use super::{inline, references};
use crate::json::Value;
use crate::json_cursor::Cursor;
use tollgate_money::price::Unit;

impl PolicyReader<'_> {
    /// Reads text, or one entry, or an array of them.
    pub(super) fn items(
        &mut self,
        value: &mut Cursor<'_>,
        table: &'static ObjectTable,
    ) -> Option<()> {
        match value.next_byte()? {
            b'"' => value.skip(),
            b'[' => value.array(|item| self.item(item, table)),
            _ => self.item(value, table),
        }
    }

    fn item(&mut self, value: &mut Cursor<'_>, table: &'static ObjectTable) -> Option<()> {
        match value.next_byte()? {
            b'{' => {}
            b'"' | b'n' => return value.skip(),
            _ => {
                self.is_bounded = false;
                return value.skip();
            }
        }
        let mut item = Item::default();
        let references_before = self.references.len();
        value.object(|key, value| self.member(&mut item, key, value, table))?;
        let size = self.size(item.kind, table);
        if references::is_output(item.kind) {
            self.references.truncate(references_before);
        }
        if let Some((shape, medium)) = item.medium {
            self.medium(shape, medium, &item);
        }
        self.is_bounded &= match size {
            Some(Size::Bytes(needs) | Size::Sound(needs)) => {
                !item.is_odd && item.has_all(table, needs)
            }
            Some(Size::ToolAgain) => {
                self.tools_again = self.tools_again.saturating_add(1);
                !item.is_odd
            }
            Some(Size::Result(needs, tokens)) => {
                self.is_text = false;
                self.added_tokens = self.added_tokens.saturating_add(*tokens);
                !item.is_odd && item.has_all(table, needs)
            }
            Some(Size::Context | Size::Billed(_)) | None => false,
        };
        // Inside of what holds the whole context, what is not known is data: the result of a tool.
        let counts = !matches!(size, Some(Size::Context | Size::Billed(_)));
        if let Some(refusal) = item.inner_refusal.filter(|_| counts) {
            self.refusal.get_or_insert(refusal);
        }
        Some(())
    }

    fn member<'a>(
        &mut self,
        item: &mut Item<'a>,
        key: &'a [u8],
        value: &mut Cursor<'a>,
        table: &'static ObjectTable,
    ) -> Option<()> {
        let Some((index, role)) = self.key(key, table) else {
            return self.odd_member(item, key, value);
        };
        let bit = 1_u64 << (index & 63);
        let is_repeated = item.seen & bit != 0;
        item.is_odd |= is_repeated;
        item.seen |= bit;
        match role {
            Key::Plain => value.skip(),
            Key::Opaque => {
                self.is_text = false;
                value.skip()
            }
            Key::Type => {
                let kind = value.non_null()?.unwrap_or_default();
                // Which of two is meant, parsers disagree on: none is offered.
                item.kind = if is_repeated { b"two" } else { kind };
                Some(())
            }
            // In a text there is nothing to refuse.
            Key::Items(_) if value.next_byte()? == b'"' => value.skip(),
            Key::Items(_) | Key::Tools => {
                let earlier = self.refusal.take();
                match role {
                    Key::Items(nested) => self.items(value, nested)?,
                    _ => self.tools(value)?,
                }
                let inner = std::mem::replace(&mut self.refusal, earlier);
                item.inner_refusal = item.inner_refusal.take().or(inner);
                Some(())
            }
            Key::Definition => self.definition(value),
            Key::Picture => self.picture(item, value),
            Key::Medium(shape) => {
                if let Some(written) = value.written()?.non_null() {
                    item.add_medium(*shape, written);
                }
                Some(())
            }
            Key::Detail => {
                item.add_detail(value.non_null()?);
                Some(())
            }
            Key::Citations => {
                item.is_cited = cites(value.raw()?);
                Some(())
            }
            Key::Media => {
                self.is_bounded &= value.non_null()?.is_none();
                Some(())
            }
            Key::File => self.file(key, value, table),
            Key::Settings(settings) => {
                let object = Value::new(value.raw()?);
                self.settings(&resolved(key)?, &object, settings);
                Some(())
            }
            Key::Billed(unit) => {
                let raw = value.non_null()?;
                self.is_bounded &= raw.is_none();
                self.billed(*unit, raw, key, table)
            }
            Key::Sound => {
                let written = value.written()?.non_null();
                if let Some(written) = written {
                    item.add_medium(MediaShape::Sound, written);
                }
                let raw = written.map(|written| written.text());
                self.billed(Unit::AudioInputTokens, raw, key, table)
            }
        }
    }

    /// A member that is in no table: what it may refer to is known by its name.
    fn odd_member(
        &mut self,
        item: &mut Item<'_>,
        key: &[u8],
        value: &mut Cursor<'_>,
    ) -> Option<()> {
        if let Some(odd) = value.non_null()? {
            item.is_odd = true;
            self.note_kept(key, odd);
        }
        Some(())
    }

    /// Refuses what is there and has no price.
    fn billed(
        &mut self,
        unit: Unit,
        raw: Option<&[u8]>,
        key: &[u8],
        table: &'static ObjectTable,
    ) -> Option<()> {
        let name = resolved(key)?;
        // Of sound the answer that it goes on from is named, by an id of the chat's own.
        if let Some(raw) = raw.filter(|_| unit != Unit::AudioInputTokens || name != "audio") {
            self.note_kept(key, raw);
        }
        if raw.is_some() && !self.priced.has_unit(unit) && !self.pass.has_content(&name) {
            let what = format!("`{}` in {}", shown(&name), table.what);
            self.refuse_content(&what);
        }
        Some(())
    }

    /// Checks a tool that is defined within a message. A refusal is recorded in `setting_refusal`, so that
    /// the content around it cannot turn the tool into data.
    fn definition(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        let earlier = self.refusal.take();
        self.tool(value)?;
        let refusal = std::mem::replace(&mut self.refusal, earlier);
        self.setting_refusal = self.setting_refusal.take().or(refusal);
        Some(())
    }

    fn file(
        &mut self,
        key: &[u8],
        value: &mut Cursor<'_>,
        table: &'static ObjectTable,
    ) -> Option<()> {
        let file = value.non_null()?;
        self.is_bounded &= file.is_none();
        if let Some(file) = file {
            self.note_file(file);
        }
        let name = resolved(key)?;
        if file.is_some_and(|file| !references::is_public_file(file))
            && !self.pass.has_content(&name)
        {
            let what = format!("`{}` in {} that is not on the web", shown(&name), table.what);
            self.refuse_content(&what);
        }
        Some(())
    }

    /// The key's place in the table.
    fn key(
        &mut self,
        written: &[u8],
        table: &'static ObjectTable,
    ) -> Option<(usize, &'static Key)> {
        let index = self.place(written, table.keys)?;
        table.keys.get(index).map(|(_, role)| (index, role))
    }

    /// The bound of an object of this type, as written; notes a refusal of a type that is not allowed.
    fn size(&mut self, written: &[u8], table: &'static ObjectTable) -> Option<&'static Size> {
        let inner = written.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        let find = |name: &[u8]| table.kinds.iter().find(|kind| kind.name.as_bytes() == name);
        let priced = self.priced;
        let is_offered = |kind: &&Kind| match kind.size {
            Size::Bytes(_) | Size::ToolAgain | Size::Result(..) | Size::Context => true,
            Size::Billed(unit) => priced.has_unit(unit),
            Size::Sound(_) => priced.has_unit(Unit::AudioInputTokens),
        };
        if let Some(kind) = find(inner.unwrap_or(written)).filter(is_offered) {
            return Some(&kind.size);
        }
        let name = inner.and_then(resolved).unwrap_or_default();
        let kind = find(name.as_bytes()).filter(|kind| !kind.name.is_empty());
        if let Some(kind) = kind.filter(is_offered) {
            return Some(&kind.size);
        }
        if !name.is_empty() && self.pass.has_content(&name) {
            self.has_passed = true;
            return Some(&Size::Context);
        }
        let what = match (&*name, written) {
            ("", b"") => format!("{} without a `type`", table.what),
            ("", _) => format!("{} with such a `type`", table.what),
            (name, _) => format!("{} of type `{}`", table.what, shown(name)),
        };
        self.refuse_content(&what);
        None
    }

    /// A picture is at an address, or in the body as `data:image/…`.
    fn picture<'a>(&mut self, item: &mut Item<'a>, value: &mut Cursor<'a>) -> Option<()> {
        let mut is_picture = true;
        if value.next_byte()? == b'{' {
            value.object(|key, value| {
                let name = resolved(key)?;
                match &*name {
                    "url" => {
                        let url = value.written()?;
                        is_picture &= may_be_picture(url.text());
                        item.add_medium(MediaShape::Url, url);
                    }
                    "detail" if item.detail.is_none() => item.detail = value.non_null()?,
                    // What else is there may say how large the upstream makes the picture.
                    name => {
                        is_picture &= !name.eq_ignore_ascii_case("url");
                        self.odd_member(item, key, value)?;
                    }
                }
                Some(())
            })?;
        } else {
            let url = value.written()?;
            is_picture = may_be_picture(url.text());
            item.add_medium(MediaShape::Url, url);
        }
        if !is_picture {
            self.refuse_content("an `image_url` with data that is no image");
        }
        Some(())
    }
}

/// True if a URL, as written, is no data URL, or one of an image.
fn may_be_picture(written: &[u8]) -> bool {
    /// More than a media type has.
    const START: usize = 64;
    let start = written.get(..written.len().min(START)).unwrap_or_default();
    if start.contains(&b'\\') {
        let url = Value::new(written).as_str();
        return url.is_none_or(|url| begins_as_picture(url.as_bytes()));
    }
    begins_as_picture(start.get(1..).unwrap_or_default())
}

fn begins_as_picture(url: &[u8]) -> bool {
    const START: usize = 64;
    let start = url.get(..url.len().min(START)).unwrap_or_default();
    let start = start.trim_ascii_start().to_ascii_lowercase();
    start.strip_prefix(b"data:").is_none_or(|data| data.starts_with(b"image/"))
}

/// True if a `citations` setting asks for citations.
fn cites(raw: &[u8]) -> bool {
    raw.starts_with(b"{") && !inline::is_switched_off(raw)
}
