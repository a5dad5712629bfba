//! Rules for passwords of customers.

use tollgate_web_kit::FieldErrors;
use tollgate_web_kit::password::CHARS_MIN;

/// The longest password in bytes: longer than any that a person or a program makes.
pub(super) const BYTES_MAX: usize = 256;

/// Validates a new password; errors appear beside its field.
pub(super) fn check_new(
    errors: &mut FieldErrors,
    field: &'static str,
    password: &str,
    email: &str,
) {
    if password.chars().count() < CHARS_MIN {
        errors.note(field, format!("At least {CHARS_MIN} characters; a few words are fine."));
    } else if password.len() > BYTES_MAX {
        errors.note(field, format!("At most {BYTES_MAX} bytes."));
    } else if password.to_lowercase() == email.to_lowercase() {
        errors.note(field, "Not the e-mail address.");
    } else if is_one_piece_repeated(password) {
        errors.note(field, "This is the same few characters over and over.");
    }
}

/// True if the text repeats at most three characters: `aaaaaaaaaa`, `abcabcabcabc`.
fn is_one_piece_repeated(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    (1..=3).any(|length| chars.iter().skip(length).zip(&chars).all(|(later, c)| later == c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_passwords_are_long_and_not_obvious() {
        for (password, is_wrong) in [
            ("short", true),
            ("aaaaaaaaaaaa", true),
            ("abcabcabcabc", true),
            ("Me@Example.com", true),
            ("correct horse battery", false),
            (&"ab ".repeat(100), true),
            ("пароль-пароль-7", false),
        ] {
            let mut errors = FieldErrors::default();
            check_new(&mut errors, "password", password, "me@example.com");
            assert_eq!(errors.is_any(), is_wrong, "{password}: {:?}", errors.at("password"));
        }
    }
}
