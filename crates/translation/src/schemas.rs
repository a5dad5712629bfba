//! JSON schemas within what the validators of providers take.
//!
//! A schema that fits stays as it is, byte for byte. In one that does not, constraints that the provider
//! cannot enforce move into descriptions, where the model reads them, as Anthropic's SDKs do it
//! (`transform_schema`); what cannot be kept at all is refused by its path. Members keep their order, and
//! a schema becomes the same text in every turn. The rules:
//!
//! - Claude's answers and strict tools, also on Amazon Bedrock: "JSON Schema limitations" of
//!   <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>.
//! - Gemini's answers: `GenerationConfig.responseJsonSchema` of
//!   <https://ai.google.dev/api/generate-content>.

mod merge;
mod tool;

use std::borrow::Cow;

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList as Read, Raw, is_given};
use crate::json::{self, Members};

pub(crate) use tool::input as tool_input;

/// The most levels of a schema: each is a level of the stack.
const DEPTH_MAX: usize = 64;
/// The formats of texts that Claude's grammar has (the SDK's `SupportedStringFormats`).
const CLAUDE_FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];
/// Annotations that no grammar needs and that say nothing to a model.
const SILENT: [&str; 6] =
    ["$schema", "$id", "$comment", "$anchor", "propertyOrdering", "additionalItems"];
/// Annotations that restrict nothing: a model reads them in the description.
const ANNOTATIONS: [&str; 9] = [
    "description",
    "title",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
];

/// The part of JSON Schema that a provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subset {
    /// Answers and strict tools of Claude, and all answers over Bedrock.
    Claude,
    /// Schemas of Gemini's answers (`responseJsonSchema`).
    Gemini,
    /// Inputs of Gemini's tools: any keyword, but no empty text in an `enum`.
    GeminiTools,
}

/// A schema within a [`Subset`].
pub(crate) struct FittedSchema<'a> {
    /// The schema: unchanged bytes if it already fits.
    pub(crate) text: Cow<'a, str>,
    /// Some constraint has become words of a description.
    pub(crate) is_looser: bool,
}

/// Rewrites the schema to the subset that the provider accepts.
///
/// # Errors
/// What cannot be said there, by its path.
pub(crate) fn fit(schema: &str, subset: Subset) -> Result<FittedSchema<'_>, Untranslatable> {
    let at = FieldPath::ROOT.key("response_format");
    let at = at.key("schema");
    let root = Raw::document(schema).ok_or_else(|| at.malformed("a JSON schema"))?;
    let mut fitter = Fitter { subset, root, differs: false, is_looser: false, depth: 0 };
    if subset == Subset::Claude {
        // First: Claude takes no recursive schema, and what is written below follows references.
        merge::check_references(&at, root)?;
    }
    let mut out = Vec::with_capacity(schema.len() + 64);
    fitter.schema(&at, root, &mut out)?;
    let text = match fitter.differs {
        false => Cow::Borrowed(schema),
        true => Cow::Owned(String::from_utf8(out).unwrap_or_default()),
    };
    Ok(FittedSchema { text, is_looser: fitter.is_looser })
}

/// The value of a member.
fn member<'a>(members: &Read<'a>, key: &str) -> Option<Raw<'a>> {
    members.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
}

/// True if a schema states the type of a value, or the choices of which it is one.
fn is_typed(members: &Read<'_>) -> bool {
    let words = ["type", "enum", "const", "anyOf", "oneOf", "$ref"];
    members.iter().any(|(key, value)| words.contains(&&**key) && is_given(*value))
}

/// The types of the values that a level describes.
#[derive(Clone, Copy, Default)]
struct Types {
    object: bool,
    array: bool,
    string: bool,
}

impl Types {
    fn from_members(members: &Read<'_>) -> Self {
        let mut types = Self::default();
        let mut add = |word: &str| match word {
            "object" => types.object = true,
            "array" => types.array = true,
            "string" => types.string = true,
            _ => {}
        };
        match member(members, "type").filter(|kind| is_given(*kind)) {
            Some(kind) => {
                let list = kind.elements().unwrap_or_else(|| vec![kind]);
                list.into_iter().filter_map(Raw::string).for_each(|word| add(&word));
            }
            None if is_typed(members) => {}
            // Pydantic and Zod always write a type, people leave it out.
            None => {
                if let Some(word) = members.iter().find_map(|(key, _)| implied_type(key)) {
                    add(word);
                }
            }
        }
        types
    }
}

/// The type that a keyword is about.
fn implied_type(key: &str) -> Option<&'static str> {
    match key {
        "properties" | "additionalProperties" | "required" | "patternProperties" => Some("object"),
        "items" | "prefixItems" | "minItems" | "maxItems" | "uniqueItems" => Some("array"),
        _ => None,
    }
}

/// Handling of a keyword of a schema.
enum KeywordRule {
    /// The keyword stays as written.
    Keep,
    /// It is left out, as it constrains nothing.
    Drop,
    /// It goes into the description.
    Describe,
    /// It holds schemas by name: `properties`, `$defs`.
    Named,
    /// It holds a list of schemas, under this keyword.
    List(&'static str),
    /// The value is a schema.
    One,
    /// The value lists the permitted values.
    Enum,
    /// The value is the only permitted value.
    Const,
    /// No other properties may come.
    Closed,
}

struct Fitter<'a> {
    subset: Subset,
    /// The whole schema, in which references are found.
    root: Raw<'a>,
    differs: bool,
    is_looser: bool,
    depth: usize,
}

impl Fitter<'_> {
    fn schema(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        // Each level is a call: a schema of brackets alone must not fill the stack.
        if self.depth == DEPTH_MAX {
            return Err(at.malformed("a schema of 64 levels at most"));
        }
        if !value.get().starts_with('{') {
            if self.subset == Subset::Claude {
                return Err(untyped(at));
            }
            // `true` or `false`.
            out.extend_from_slice(value.get().as_bytes());
            return Ok(());
        }
        self.depth += 1;
        let members = at.object(value)?;
        let written = match self.rewritten(at, &members)? {
            None => self.level(at, &members, out),
            Some(text) => {
                self.differs = true;
                match Raw::document(&text) {
                    Some(value) => self.schema(at, value, out),
                    None => Err(at.malformed("a JSON schema")),
                }
            }
        };
        self.depth -= 1;
        written
    }

    /// Merges `allOf`, and properties beside a choice, into one schema: with `additionalProperties: false` in
    /// each of them, no value would match all.
    fn rewritten(
        &self,
        at: &FieldPath<'_>,
        members: &Read<'_>,
    ) -> Result<Option<String>, Untranslatable> {
        // Tools of Gemini take any keyword: merging would only lose what the model reads.
        if self.subset == Subset::GeminiTools {
            return Ok(None);
        }
        if member(members, "$defs").is_some() && member(members, "definitions").is_some() {
            return Ok(Some(merge::one_place(members)));
        }
        let all = member(members, "allOf").and_then(Raw::elements);
        if all.is_some_and(|all| !all.is_empty()) {
            return merge::all_of(at, members, self.root).map(Some);
        }
        if self.subset == Subset::Claude
            && member(members, "properties").is_some()
            && choice(members).is_some_and(|(_, list)| !only_restricts(list))
        {
            return Ok(Some(merge::into_choices(members)));
        }
        Ok(None)
    }

    fn level(
        &mut self,
        at: &FieldPath<'_>,
        members: &Read<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        if self.subset != Subset::GeminiTools && member(members, "$ref").is_some() {
            return self.reference(at, members, out);
        }
        let types = Types::from_members(members);
        if self.subset == Subset::Claude {
            check_object(at, members, types)?;
            if !is_typed(members) && !types.object && !types.array {
                return Err(untyped(at));
            }
        }
        let notes = self.notes(members, types);
        let mut object = Members::object(out);
        if self.subset == Subset::Claude && !is_typed(members) {
            object.text(out, "type", if types.object { "object" } else { "array" });
            self.differs = true;
        }
        for (key, value) in members {
            let rule = self.rule(key, *value, members, types);
            self.member((at, key, *value), rule, &notes, &mut object, out)?;
        }
        if member(members, "description").is_none_or(|text| !is_given(text)) && !notes.is_empty() {
            object.text(out, "description", &notes);
        }
        let is_open = member(members, "additionalProperties").is_none();
        if self.subset == Subset::Claude && types.object && choice(members).is_none() && is_open {
            // Structured outputs demand it of every object, as Anthropic's SDKs add it.
            object.boolean(out, "additionalProperties", false);
            self.differs = true;
        }
        object.end(out);
        Ok(())
    }

    /// Rewrites a reference, beside which only definitions are permitted: Gemini's documentation says so, and
    /// Anthropic's SDK drops the rest.
    fn reference(
        &mut self,
        at: &FieldPath<'_>,
        members: &Read<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let mut object = Members::object(out);
        for (key, value) in members {
            match &**key {
                "$ref" => {
                    let target = at.key("$ref").text(*value)?;
                    let written = merge::renamed(&target);
                    self.differs |= written != target;
                    object.text(out, "$ref", &written);
                }
                "$defs" | "definitions" => {
                    let rule = KeywordRule::Named;
                    self.member((at, key, *value), rule, "", &mut object, out)?;
                }
                other => {
                    self.differs = true;
                    self.is_looser |= !SILENT.contains(&other) && !ANNOTATIONS.contains(&other);
                }
            }
        }
        object.end(out);
        Ok(())
    }

    /// Keywords of a level that move into its description, formatted as the SDKs do: `{minimum: 1, maximum:
    /// 10}`.
    fn notes(&mut self, members: &Read<'_>, types: Types) -> String {
        let mut notes = String::new();
        for (key, value) in members {
            let is_noted = match self.rule(key, *value, members, types) {
                KeywordRule::Describe => true,
                KeywordRule::Enum => self.fitting_values(*value).is_none(),
                _ => false,
            };
            if is_noted {
                notes.push_str(if notes.is_empty() { "{" } else { ", " });
                notes.push_str(key);
                notes.push_str(": ");
                notes.push_str(value.get());
                self.differs = true;
                self.is_looser |= !ANNOTATIONS.contains(&&**key);
            }
        }
        if !notes.is_empty() {
            notes.push('}');
        }
        notes
    }

    fn rule(&self, key: &str, value: Raw<'_>, members: &Read<'_>, types: Types) -> KeywordRule {
        let has = |key: &str| member(members, key).is_some();
        match (self.subset, key) {
            (Subset::GeminiTools, "enum") => KeywordRule::Enum,
            (Subset::GeminiTools, "$ref") => KeywordRule::Keep,
            (Subset::GeminiTools, "allOf") => KeywordRule::List("allOf"),
            (Subset::GeminiTools, "oneOf") => KeywordRule::List("oneOf"),
            // Clients in Go write what is not there as null.
            (_, key) if !is_given(value) && key != "const" && key != "default" => KeywordRule::Drop,
            (_, "properties") if value.get().starts_with('{') => KeywordRule::Named,
            (_, "$defs" | "definitions") if value.get().starts_with('{') => KeywordRule::Named,
            (_, "anyOf") if only_restricts(value) && has("properties") => KeywordRule::Describe,
            (_, "anyOf") if value.get().starts_with('[') => KeywordRule::List("anyOf"),
            (_, "oneOf") if has("anyOf") || only_restricts(value) => KeywordRule::Describe,
            (_, "oneOf") if value.get().starts_with('[') => KeywordRule::List("anyOf"),
            (Subset::Claude, key) => claude_rule(key, value, members, types),
            (Subset::Gemini, key) => gemini_fate(key, value, members),
            (Subset::GeminiTools, "prefixItems") => KeywordRule::List("prefixItems"),
            (Subset::GeminiTools, "items" | "additionalProperties" | "not") => KeywordRule::One,
            (Subset::GeminiTools, _) => KeywordRule::Keep,
        }
    }

    fn member(
        &mut self,
        (at, key, value): (&FieldPath<'_>, &str, Raw<'_>),
        rule: KeywordRule,
        notes: &str,
        object: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let at = at.key(key);
        match rule {
            KeywordRule::Drop => self.differs = true,
            KeywordRule::Describe => {}
            KeywordRule::Keep if key == "description" && !notes.is_empty() => {
                let text = at.text(value)?;
                object.text(out, key, &format!("{text}\n\n{notes}"));
            }
            KeywordRule::Keep => push_member(object, key, value.get(), out),
            KeywordRule::Closed => {
                self.differs |= value.get() != "false";
                object.boolean(out, key, false);
            }
            KeywordRule::One => {
                push_member(object, key, "", out);
                self.schema(&at, value, out)?;
            }
            KeywordRule::Named => self.named(&at, key, value, object, out)?,
            KeywordRule::List(written) => {
                self.differs |= written != key;
                object.key(out, written);
                let mut list = Members::array(out);
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    list.next(out);
                    self.schema(&at.index(place), value, out)?;
                }
                list.end(out);
            }
            KeywordRule::Enum => match self.fitting_values(value) {
                None => {}
                Some(values) if values.len() == at.list(value)?.len() => {
                    push_member(object, key, value.get(), out);
                }
                Some(values) => {
                    self.differs = true;
                    object.raw(out, key, &listed(&values));
                }
            },
            // `const` is in the provider's list and not in the SDK's: `enum` is in both.
            KeywordRule::Const => {
                self.differs = true;
                object.raw(out, "enum", &listed(&[value]));
            }
        }
        Ok(())
    }

    /// Schemas by name. References are to `$defs`: the name is the same there and in references.
    fn named(
        &mut self,
        at: &FieldPath<'_>,
        key: &str,
        value: Raw<'_>,
        object: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let is_renamed = key == "definitions" && self.subset != Subset::GeminiTools;
        self.differs |= is_renamed;
        object.key(out, if is_renamed { "$defs" } else { key });
        let mut inner = Members::object(out);
        for (name, value) in at.object(value)? {
            push_member(&mut inner, &name, "", out);
            self.schema(&at.key(&name), value, out)?;
        }
        inner.end(out);
        Ok(())
    }

    /// Values of an `enum` that the provider accepts; `None` if there are none, or if the others must be
    /// described in text.
    fn fitting_values<'v>(&self, value: Raw<'v>) -> Option<Vec<Raw<'v>>> {
        let values = value.elements()?;
        let count = values.len();
        let first = |value: &Raw<'_>| value.get().as_bytes().first().copied().unwrap_or(b'n');
        let taken = |value: &Raw<'_>| match self.subset {
            // "No complex types."
            Subset::Claude => !matches!(first(value), b'{' | b'['),
            // "For strings and numbers."
            Subset::Gemini => {
                matches!(first(value), b'"' | b'-' | b'0'..=b'9') && value.get() != "\"\""
            }
            // "enum[0]: cannot be empty" (opencode PR 46676).
            Subset::GeminiTools => value.get() != "\"\"",
        };
        let fitting: Vec<Raw<'_>> = values.into_iter().filter(taken).collect();
        let is_whole = fitting.len() == count || self.subset == Subset::GeminiTools;
        (is_whole && !fitting.is_empty()).then_some(fitting)
    }
}

fn claude_rule(key: &str, value: Raw<'_>, members: &Read<'_>, types: Types) -> KeywordRule {
    let is_choice = choice(members).is_some();
    match key {
        "description" | "title" => KeywordRule::Keep,
        // The branches of a choice have their own.
        "type" if is_choice => KeywordRule::Drop,
        "type" => KeywordRule::Keep,
        "enum" => KeywordRule::Enum,
        "const" if member(members, "enum").is_some() => KeywordRule::Describe,
        "const" if value.get().starts_with(['{', '[']) => KeywordRule::Describe,
        "const" => KeywordRule::Const,
        "additionalProperties" if is_choice => KeywordRule::Drop,
        "items" | "minItems" | "format" if is_choice => KeywordRule::Describe,
        "required" if types.object && !is_choice => KeywordRule::Keep,
        "additionalProperties" if types.object => KeywordRule::Closed,
        // Items of any type are those that nothing is said of.
        "items" if types.array && matches!(value.get(), "true" | "{}") => KeywordRule::Drop,
        "items" if types.array => KeywordRule::One,
        "minItems" if types.array && matches!(value.get(), "0" | "1") => KeywordRule::Keep,
        "format" if types.string => match value.string() {
            Some(word) if CLAUDE_FORMATS.contains(&&*word) => KeywordRule::Keep,
            _ => KeywordRule::Describe,
        },
        key if SILENT.contains(&key) => KeywordRule::Drop,
        _ => KeywordRule::Describe,
    }
}

fn gemini_fate(key: &str, value: Raw<'_>, members: &Read<'_>) -> KeywordRule {
    match key {
        "type" | "format" | "title" | "description" | "minItems" | "maxItems" | "minimum"
        | "maximum" | "required" | "propertyOrdering" | "$id" | "$anchor" => KeywordRule::Keep,
        "enum" => KeywordRule::Enum,
        "const" if member(members, "enum").is_some() => KeywordRule::Describe,
        "const" if matches!(value.get().as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9')) => {
            KeywordRule::Const
        }
        "items" | "additionalProperties" => KeywordRule::One,
        "prefixItems" if value.get().starts_with('[') => KeywordRule::List("prefixItems"),
        key if SILENT.contains(&key) => KeywordRule::Drop,
        _ => KeywordRule::Describe,
    }
}

/// The schemas of which a value fits one.
fn choice<'a>(members: &Read<'a>) -> Option<(&'static str, Raw<'a>)> {
    let find = |key| member(members, key).filter(|list| list.get().starts_with('['));
    let any = find("anyOf").map(|list| ("anyOf", list));
    let found = any.or_else(|| find("oneOf").map(|list| ("oneOf", list)))?;
    let is_restriction = member(members, "properties").is_some() && only_restricts(found.1);
    (!is_restriction).then_some(found)
}

/// True if the choices only state required properties, as MCP servers write "one of the two".
fn only_restricts(list: Raw<'_>) -> bool {
    let describes = |one: Raw<'_>| {
        one.members().is_none_or(|members| {
            is_typed(&members)
                || members.iter().any(|(key, _)| matches!(&**key, "properties" | "items" | "allOf"))
        })
    };
    list.elements().is_some_and(|all| !all.is_empty() && !all.into_iter().any(describes))
}

/// Refuses objects whose properties have no names: a grammar of Claude's has none for them, and with
/// `additionalProperties: false` every such object would be empty.
fn check_object(
    at: &FieldPath<'_>,
    members: &Read<'_>,
    types: Types,
) -> Result<(), Untranslatable> {
    if !types.object || choice(members).is_some() {
        return Ok(());
    }
    let more = member(members, "additionalProperties").map_or("", Raw::get);
    let named = member(members, "properties").is_some_and(|all| all.get().starts_with('{'));
    if named && !more.starts_with('{') || more == "false" {
        return Ok(());
    }
    let expected =
        "an object whose properties all have names: the provider of this model takes no other";
    Err(at.malformed(expected))
}

fn untyped(at: &FieldPath<'_>) -> Untranslatable {
    at.malformed("a schema with a `type`: the provider of this model takes no other")
}

fn listed(values: &[Raw<'_>]) -> String {
    let values: Vec<&str> = values.iter().map(|value| value.get()).collect();
    format!("[{}]", values.join(","))
}

/// Writes a member whose key may need escapes.
fn push_member(object: &mut Members, key: &str, value: &str, out: &mut Vec<u8>) {
    object.next(out);
    json::push_string(out, key);
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}
