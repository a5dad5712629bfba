//! Handling of the fields of a customer's request that no other dialect can express.
//!
//! Each dialect has its tables in a file `fields.rs`: one row for each field, item or block that its
//! reader does not carry. A new field of a client is one row.

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, Raw, is_given};

/// The longest type of a customer's that a refusal repeats, in letters.
const KIND_LETTERS_MAX: usize = 64;

/// Handling of a field that is not carried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldRule {
    /// Passed over in silence: it repeats what an answer said of itself, or is the client's own record.
    Silent,
    /// Left out, and named in `x-tollgate-left-out`: it hints, or repeats what a provider said or did.
    LeftOut,
    /// Refused: it changes what the request costs or means. Why, as the end of a sentence.
    Refused(&'static str),
    /// Ignored silently if the value is one of these JSON texts, which are defaults.
    Usual(&'static [&'static str], &'static FieldRule),
}

impl FieldRule {
    /// Applies the rule to a field with this value. `null` and empty values are ignored.
    ///
    /// # Errors
    /// The path of a field that is refused.
    fn settle(self, at: &FieldPath<'_>, value: Raw<'_>) -> Result<(), Untranslatable> {
        if is_empty(value) {
            return Ok(());
        }
        match self {
            Self::Silent => Ok(()),
            Self::LeftOut => {
                at.leave_out();
                Ok(())
            }
            Self::Refused(reason) => Err(at.refused(reason)),
            Self::Usual(usual, otherwise) => {
                let text: String = value.get().split_ascii_whitespace().collect();
                if usual.contains(&&*text) { Ok(()) } else { otherwise.settle(at, value) }
            }
        }
    }
}

/// Rows of a table: the name of a field, or the type of an item, and what becomes of it.
pub(crate) type FieldRows = &'static [(&'static str, FieldRule)];

/// The fields of one place of a request, or the types of its items, that are not carried.
#[derive(Debug)]
pub(crate) struct FieldRules {
    /// The listed names, each with its rule.
    pub(crate) rows: FieldRows,
    /// Handling of all other names.
    pub(crate) others: FieldRule,
}

impl FieldRules {
    fn rule(&self, name: &str) -> FieldRule {
        let row = self.rows.iter().find(|(row_name, _)| *row_name == name);
        row.map_or(self.others, |(_, rule)| *rule)
    }

    /// True if the table has a row of this name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.rows.iter().any(|(row_name, _)| *row_name == name)
    }

    /// Deals with a field that is not carried.
    ///
    /// # Errors
    /// The path of a field that is refused.
    pub(crate) fn field(
        &self,
        at: &FieldPath<'_>,
        key: &str,
        value: Raw<'_>,
    ) -> Result<(), Untranslatable> {
        self.rule(key).settle(at, value)
    }

    /// Deals with an item of a type that is not carried.
    ///
    /// # Errors
    /// The path of an item that is refused, and its type.
    pub(crate) fn item(&self, at: &FieldPath<'_>, kind: &str) -> Result<(), Untranslatable> {
        match self.rule(kind) {
            FieldRule::Silent | FieldRule::Usual(..) => Ok(()),
            FieldRule::LeftOut => {
                at.leave_out_kind(kind);
                Ok(())
            }
            FieldRule::Refused(reason) => {
                let kind: String = kind.chars().take(KIND_LETTERS_MAX).collect();
                Err(at.key("type").refused(&format!("an item of type `{kind}` {reason}")))
            }
        }
    }
}

/// True if a value is null or an empty text, array or object.
fn is_empty(value: Raw<'_>) -> bool {
    let text = value.get();
    !is_given(value)
        || text == "\"\""
        || matches!(text.as_bytes(), [b'[', inside @ .., b']'] | [b'{', inside @ .., b'}'] if inside.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_path::{OmissionLog, document};

    #[test]
    fn what_is_not_carried_is_settled_by_its_row() {
        const TABLE: FieldRules = FieldRules {
            rows: &[
                ("id", FieldRule::Silent),
                ("hint", FieldRule::LeftOut),
                ("tier", FieldRule::Usual(&["\"auto\""], &FieldRule::Refused("it has a price"))),
            ],
            others: FieldRule::Refused("the gateway does not know it"),
        };
        let left_out = OmissionLog::default();
        let root = FieldPath::root(&left_out);
        let settle = |key: &str, value: &str| {
            TABLE.field(&root.key(key), key, document(value.as_bytes()).expect("a value"))
        };
        for (key, value) in [
            ("id", "1"),
            ("hint", "2"),
            ("tier", "\"auto\""),
            ("tier", "null"),
            ("other", "[ ]"),
            ("other", "{}"),
            ("other", "\"\""),
        ] {
            settle(key, value).expect("settled");
        }
        let refusal = settle("tier", "\"fast\"").expect_err("refused");
        assert_eq!(refusal.field, "tier");
        assert!(refusal.message.ends_with("another protocol: it has a price."), "{refusal:?}");
        settle("other", "0").expect_err("refused");
        let refusal = TABLE.item(&root, "odd").expect_err("refused");
        assert!(refusal.message.contains("an item of type `odd` the gateway"), "{refusal:?}");
        let names = left_out.into_omissions();
        assert_eq!(names.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["hint"]);
    }
}
