//! References within a schema, and several schemas as one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::{DEPTH_MAX, choice, member, push_member};
use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList as Read, Raw};
use crate::json::Members;

/// Keys that hold the definitions of a schema: since draft 2019-09, and before.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The reference, to where definitions are written.
pub(super) fn renamed(target: &str) -> Cow<'_, str> {
    match target.strip_prefix("#/definitions/") {
        Some(name) => format!("#/$defs/{name}").into(),
        None => target.into(),
    }
}

/// Name of the definition that a reference points to; `None` for other targets.
fn name_of(target: &str) -> Option<Cow<'_, str>> {
    let name = DEFINITIONS
        .into_iter()
        .find_map(|key| target.strip_prefix("#/")?.strip_prefix(key)?.strip_prefix('/'))?;
    match name.contains(['~', '%']) {
        false => Some(name.into()),
        true => Some(name.replace("~1", "/").replace("~0", "~").into()),
    }
}

fn definition<'a>(root: Raw<'a>, name: &str) -> Option<Raw<'a>> {
    let members = root.members()?;
    DEFINITIONS.into_iter().find_map(|key| member(&member(&members, key)?.members()?, name))
}

/// The schema with its definitions in one place.
pub(super) fn one_place(members: &Read<'_>) -> String {
    let mut out = Vec::new();
    let mut object = Members::object(&mut out);
    for (key, value) in members.iter().filter(|(key, _)| !DEFINITIONS.contains(&&**key)) {
        push_member(&mut object, key, value.get(), &mut out);
    }
    object.key(&mut out, "$defs");
    let mut inner = Members::object(&mut out);
    let mut seen = HashSet::new();
    for all in DEFINITIONS.into_iter().filter_map(|key| member(members, key)?.members()) {
        for (name, value) in all {
            if seen.insert(name.clone()) {
                push_member(&mut inner, &name, value.get(), &mut out);
            }
        }
    }
    inner.end(&mut out);
    object.end(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Refuses references out of the schema, and schemas that refer to themselves: Claude's grammars have
/// neither.
///
/// # Errors
/// The reference or the definition.
pub(super) fn check_references(at: &FieldPath<'_>, root: Raw<'_>) -> Result<(), Untranslatable> {
    if !root.get().contains("$ref") {
        return Ok(());
    }
    let mut targets = Vec::new();
    collect(at, root, 0, &mut targets)?;
    for target in &targets {
        if name_of(target).and_then(|name| definition(root, &name)).is_none() {
            let expected = "a schema whose references are to its own `$defs`, and none to itself";
            return Err(at.malformed(expected));
        }
    }
    let mut open: HashMap<Cow<'_, str>, HashSet<String>> = HashMap::new();
    let members = at.object(root)?;
    for definitions in DEFINITIONS.into_iter().filter_map(|key| member(&members, key)) {
        for (name, schema) in definitions.members().unwrap_or_default() {
            let mut targets = Vec::new();
            collect(at, schema, 0, &mut targets)?;
            let names = targets.iter().filter_map(|target| name_of(target).map(Cow::into_owned));
            open.insert(name, names.collect());
        }
    }
    // What refers to nothing that is still open is no part of a circle.
    loop {
        let closed: Vec<String> = open
            .iter()
            .filter(|(_, targets)| !targets.iter().any(|name| open.contains_key(name.as_str())))
            .map(|(name, _)| name.clone().into_owned())
            .collect();
        if closed.is_empty() {
            break;
        }
        closed.iter().for_each(|name| drop(open.remove(name.as_str())));
    }
    match open.keys().min() {
        None => Ok(()),
        Some(name) => {
            let at = at.key("$defs");
            let expected =
                "a schema that does not contain itself: the provider of this model takes no other";
            Err(at.key(name).malformed(expected))
        }
    }
}

/// All references within a value.
fn collect<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    depth: usize,
    targets: &mut Vec<Cow<'a, str>>,
) -> Result<(), Untranslatable> {
    // A level of a schema is up to two of JSON.
    if depth > 2 * DEPTH_MAX {
        return Err(at.malformed("a schema of 64 levels at most"));
    }
    match value.get().as_bytes().first() {
        Some(b'{') => {
            for (key, value) in value.members().unwrap_or_default() {
                match (&*key, value.string()) {
                    ("$ref", Some(target)) => targets.push(target),
                    _ => collect(at, value, depth + 1, targets)?,
                }
            }
        }
        Some(b'[') => {
            for value in value.elements().unwrap_or_default() {
                collect(at, value, depth + 1, targets)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Members that several schemas have, as one schema has them.
#[derive(Default)]
struct MergedMembers<'m> {
    /// All members except those below. Of several with one name the first stays, and the others are described
    /// in text.
    members: Vec<(Cow<'m, str>, Raw<'m>)>,
    properties: Vec<(Cow<'m, str>, Vec<Raw<'m>>)>,
    required: Vec<Raw<'m>>,
    descriptions: Vec<Cow<'m, str>>,
    has_properties: bool,
}

impl<'m> MergedMembers<'m> {
    fn add(
        &mut self,
        at: &FieldPath<'_>,
        members: &Read<'m>,
        root: Raw<'m>,
        depth: usize,
    ) -> Result<(), Untranslatable> {
        if depth > DEPTH_MAX {
            return Err(at.malformed("a schema of 64 levels at most"));
        }
        for (key, value) in members {
            match &**key {
                "allOf" => {
                    for one in value.elements().unwrap_or_default() {
                        let members = at.object(one)?;
                        self.add(at, &members, root, depth + 1)?;
                    }
                }
                "$ref" => {
                    let target = at.key("$ref").text(*value)?;
                    let found = name_of(&target).and_then(|name| definition(root, &name));
                    let found = found.ok_or_else(|| {
                        at.key("$ref").malformed("a reference to a definition of the schema")
                    })?;
                    let members = at.object(found)?;
                    self.add(at, &members, root, depth + 1)?;
                }
                "properties" => {
                    self.has_properties = true;
                    for (name, value) in at.key("properties").object(*value)? {
                        self.property(name, value);
                    }
                }
                "required" => {
                    for name in value.elements().unwrap_or_default() {
                        if !self.required.contains(&name) {
                            self.required.push(name);
                        }
                    }
                }
                "description" => self.descriptions.extend(value.string()),
                _ => self.member(key.clone(), *value),
            }
        }
        Ok(())
    }

    fn property(&mut self, name: Cow<'m, str>, value: Raw<'m>) {
        match self.properties.iter_mut().find(|(property, _)| *property == name) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => self.properties.push((name, vec![value])),
        }
    }

    fn member(&mut self, key: Cow<'m, str>, value: Raw<'m>) {
        match self.members.iter().find(|(existing, _)| *existing == key) {
            Some((_, existing)) if *existing == value => {}
            Some(_) if matches!(&*key, "type" | "title" | "additionalProperties") => {}
            Some(_) => self.descriptions.push(format!("{{{key}: {}}}", value.get()).into()),
            None => self.members.push((key, value)),
        }
    }

    fn write(self) -> String {
        let mut out = Vec::new();
        let mut object = Members::object(&mut out);
        for (key, value) in &self.members {
            push_member(&mut object, key, value.get(), &mut out);
        }
        if !self.descriptions.is_empty() {
            object.text(&mut out, "description", &self.descriptions.join("\n\n"));
        }
        if self.has_properties {
            object.key(&mut out, "properties");
            let mut properties = Members::object(&mut out);
            for (name, values) in &self.properties {
                let written = match &values[..] {
                    [one] => one.get().to_owned(),
                    all => format!("{{\"allOf\":{}}}", super::listed(all)),
                };
                push_member(&mut properties, name, &written, &mut out);
            }
            properties.end(&mut out);
        }
        if !self.required.is_empty() {
            object.raw(&mut out, "required", &super::listed(&self.required));
        }
        object.end(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

/// The schema with `allOf` merged into it.
///
/// # Errors
/// A reference that is to nothing.
pub(super) fn all_of<'m>(
    at: &FieldPath<'_>,
    members: &Read<'m>,
    root: Raw<'m>,
) -> Result<String, Untranslatable> {
    let mut merged = MergedMembers::default();
    merged.add(at, members, root, 0)?;
    Ok(merged.write())
}

/// The schema with its properties in each of the choices beside them.
pub(super) fn into_choices(members: &Read<'_>) -> String {
    let Some((key, list)) = choice(members) else { return String::new() };
    let mut shared = Vec::new();
    let mut out = Vec::new();
    let mut object = Members::object(&mut out);
    let mut own = Members::object(&mut shared);
    for (name, value) in members.iter().filter(|(name, _)| name != key) {
        match &**name {
            "$defs" | "definitions" | "description" | "title" => {
                push_member(&mut object, name, value.get(), &mut out);
            }
            _ => push_member(&mut own, name, value.get(), &mut shared),
        }
    }
    own.end(&mut shared);
    object.key(&mut out, "anyOf");
    let mut choices = Members::array(&mut out);
    for one in list.elements().unwrap_or_default() {
        choices.next(&mut out);
        out.extend_from_slice(b"{\"allOf\":[");
        out.extend_from_slice(&shared);
        out.push(b',');
        out.extend_from_slice(one.get().as_bytes());
        out.extend_from_slice(b"]}");
    }
    choices.end(&mut out);
    object.end(&mut out);
    String::from_utf8(out).unwrap_or_default()
}
