//! The root of a tool's schema: an object with properties, whatever else JSON Schema knows.

use std::borrow::Cow;

use super::{Subset, fit, listed, member, push_member};
use crate::field_path::{MemberList as Read, Raw, is_given};
use crate::json::Members;
use crate::tool_schema;

/// The longest name of a property that Claude takes, in letters.
const PROPERTY_CHARS_MAX: usize = 64;

/// The input of a tool, within what a provider takes.
pub(crate) struct ToolInput<'a> {
    /// The schema: unchanged bytes if it already fits.
    pub(crate) schema: Cow<'a, str>,
    /// Properties that the provider takes no names of; they are not in the schema.
    pub(crate) left_out: Vec<String>,
    /// A required parameter cannot be expressed: the tool cannot be called.
    pub(crate) is_uncallable: bool,
}

/// The schema of a tool's input with `type: object` at its root, and without what providers refuse there:
///
/// - Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the top level" (claude-code 5973),
///   "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'" (claude-code 79418), and
///   "input_schema.type: Field required".
/// - Gemini: "functionDeclaration parameters schema should be of type OBJECT" (OmniRoute PR 3360),
///   "enum[0]: cannot be empty" (opencode PR 46676).
///
/// What is `null` there is left out: servers in Go write `"properties": null, "required": null`.
pub(crate) fn input(schema: Option<&str>, subset: Option<Subset>) -> ToolInput<'_> {
    let whole = |schema| ToolInput { schema, left_out: Vec::new(), is_uncallable: false };
    let Some(schema) = schema else { return whole(tool_schema::EMPTY_SCHEMA.into()) };
    let Some(members) = Raw::document(schema).and_then(Raw::members) else {
        return whole(tool_schema::EMPTY_SCHEMA.into());
    };
    let is_claude = subset == Some(Subset::Claude);
    let left_out = if is_claude { unnamable(&members) } else { Vec::new() };
    let kind = member(&members, "type").and_then(Raw::string);
    let has_null = members.iter().any(|(_, value)| !is_given(*value));
    let has_choice = is_claude && members.iter().any(|(key, _)| is_choice(key));
    let is_named = member(&members, "properties").is_some();
    if kind.as_deref() == Some("object")
        && is_named
        && !has_null
        && !has_choice
        && left_out.is_empty()
    {
        return whole(without_empty_values(schema, subset));
    }
    let required = member(&members, "required").and_then(Raw::elements).unwrap_or_default();
    let is_required =
        required.iter().filter_map(|name| name.string()).any(|name| left_out.contains(&name));
    let schema = rooted(&members, has_choice, &left_out, schema);
    let schema = without_empty_values(&schema, subset).into_owned();
    let left_out: Vec<String> = left_out.into_iter().map(Cow::into_owned).collect();
    ToolInput { schema: schema.into(), left_out, is_uncallable: is_required }
}

fn is_choice(key: &str) -> bool {
    matches!(key, "anyOf" | "oneOf" | "allOf")
}

/// Fits a schema that may have an empty `enum` value to Gemini's subset, since Gemini refuses `""` there.
/// Other schemas, and those of other providers, are returned unparsed.
fn without_empty_values(schema: &str, subset: Option<Subset>) -> Cow<'_, str> {
    let Some(subset @ Subset::GeminiTools) = subset else { return schema.into() };
    if !schema.contains("\"enum\"") || !schema.contains("\"\"") {
        return schema.into();
    }
    fit(schema, subset).map_or(Cow::Borrowed(schema), |fitted| fitted.text)
}

/// The names of properties that Claude does not take.
fn unnamable<'a>(members: &Read<'a>) -> Vec<Cow<'a, str>> {
    let properties = member(members, "properties").and_then(Raw::members).unwrap_or_default();
    let fits = |name: &str| {
        (1..=PROPERTY_CHARS_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    properties.into_iter().map(|(name, _)| name).filter(|name| !fits(name)).collect()
}

/// Properties of an object and of its alternatives, each with all its definitions.
type Properties<'a> = Vec<(Cow<'a, str>, Vec<Raw<'a>>)>;

fn add_properties<'a>(all: &mut Properties<'a>, members: &Read<'a>) {
    let own = member(members, "properties").and_then(Raw::members).unwrap_or_default();
    for (name, value) in own {
        match all.iter_mut().find(|(property, _)| *property == name) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => all.push((name, vec![value])),
        }
    }
}

/// The members of a choice, or of the definition that it refers to.
fn choice_members<'a>(one: Raw<'a>, root: &Read<'a>) -> Option<Read<'a>> {
    let members = one.members()?;
    let Some(target) = member(&members, "$ref").and_then(Raw::string) else { return Some(members) };
    ["$defs", "definitions"].into_iter().find_map(|key| {
        let name = target.strip_prefix("#/")?.strip_prefix(key)?.strip_prefix('/')?;
        member(&member(root, key)?.members()?, name)?.members()
    })
}

/// The object at the root: the properties of all choices are its own, and which of them go together is
/// told in the description.
fn rooted(members: &Read<'_>, has_choice: bool, left_out: &[Cow<'_, str>], schema: &str) -> String {
    let mut properties = Properties::new();
    add_properties(&mut properties, members);
    let mut notes = String::new();
    let mut required: Vec<Raw<'_>> =
        member(members, "required").and_then(Raw::elements).unwrap_or_default();
    for (key, value) in members.iter().filter(|(key, _)| has_choice && is_choice(key)) {
        notes.push_str(if notes.is_empty() { "{" } else { ", " });
        notes.push_str(&format!("{key}: {}", value.get()));
        for one in value.elements().unwrap_or_default() {
            let Some(one) = choice_members(one, members) else { continue };
            add_properties(&mut properties, &one);
            if key == "allOf" {
                let more = member(&one, "required").and_then(Raw::elements).unwrap_or_default();
                required.extend(more);
            }
        }
    }
    if !notes.is_empty() {
        notes.push('}');
    }
    properties.retain(|(name, _)| !left_out.contains(name));
    required.retain(|name| name.string().is_none_or(|name| !left_out.contains(&name)));
    let mut out = Vec::with_capacity(schema.len() + 64);
    let mut object = Members::object(&mut out);
    object.text(&mut out, "type", "object");
    let description = member(members, "description").and_then(Raw::string).unwrap_or_default();
    let description =
        [&*description, &notes].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    if !description.is_empty() {
        object.text(&mut out, "description", &description.join("\n\n"));
    }
    object.key(&mut out, "properties");
    let mut inner = Members::object(&mut out);
    for (name, values) in &properties {
        let written = match &values[..] {
            [one] => one.get().to_owned(),
            all => format!("{{\"anyOf\":{}}}", listed(all)),
        };
        push_member(&mut inner, name, &written, &mut out);
    }
    inner.end(&mut out);
    if !required.is_empty() {
        object.raw(&mut out, "required", &listed(&required));
    }
    for (key, value) in members {
        let is_left_out = match &**key {
            "type" | "description" | "properties" | "required" => true,
            // With properties of its choices, an object that takes no others would take none of theirs.
            "additionalProperties" => has_choice,
            key => has_choice && is_choice(key),
        };
        if is_given(*value) && !is_left_out {
            push_member(&mut object, key, value.get(), &mut out);
        }
    }
    object.end(&mut out);
    String::from_utf8(out).unwrap_or_default()
}
