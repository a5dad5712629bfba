//! Validation of names that customers choose, with the messages beside the fields.

use tollgate_ledger::key_rules::{NAME_BYTES_MAX, TextError, check_name};
use tollgate_web_kit::FieldErrors;

/// Notes what is wrong with a name: what the ledger takes, and at most `chars_max` characters. The
/// pages' columns have no room for longer ones; operators may give longer names over the admin API.
pub(super) fn check_short_name(
    errors: &mut FieldErrors,
    field: &'static str,
    name: &str,
    chars_max: usize,
) {
    let checked = check_name(name);
    if checked == Err(TextError::Empty) {
        errors.note(field, "Write something here.");
    } else if name.chars().count() > chars_max {
        errors.note(field, format!("At most {chars_max} characters."));
    } else if checked == Err(TextError::TooLong) {
        errors.note(field, format!("At most {NAME_BYTES_MAX} bytes."));
    } else if checked == Err(TextError::ControlCharacter) {
        errors.note(field, "Letters, digits and marks in one line only.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_of_bounded_length() {
        for (text, is_wrong) in
            [("a", false), ("", true), ("a\nb", true), ("éééé", false), ("eeeee", true)]
        {
            let mut errors = FieldErrors::default();
            check_short_name(&mut errors, "name", text, 4);
            assert_eq!(errors.is_any(), is_wrong, "{text:?}: {:?}", errors.at("name"));
        }
        let mut errors = FieldErrors::default();
        check_short_name(&mut errors, "name", &"𝒏".repeat(80), 80);
        assert_eq!(errors.at("name"), Some("At most 256 bytes."), "80 characters of 4 bytes");
    }
}
