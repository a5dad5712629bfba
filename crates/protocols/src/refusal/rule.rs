//! A row of a table: what a refusal says, and whose fault that is.

use super::RefusalFault;
use super::body::RefusalBody;

/// A row of a table. All that it names must be there.
#[derive(Debug)]
pub(super) struct Rule {
    /// A code, type, status or reason, in small letters; with `*` at its end, the beginning of one.
    /// Empty for any.
    word: &'static str,
    /// The words that the message begins with, in small letters. A word that ends with `*` stands for any
    /// that begins like it, such as an id. Empty for any message.
    message: &'static str,
    pub(super) fault: RefusalFault,
}

/// A refusal with this code, type, status or reason.
pub(super) const fn code(word: &'static str, fault: RefusalFault) -> Rule {
    Rule { word, message: "", fault }
}

/// A refusal whose message begins like this.
pub(super) const fn says(message: &'static str, fault: RefusalFault) -> Rule {
    Rule { word: "", message, fault }
}

/// A refusal with this code, type, status or reason whose message begins like this.
pub(super) const fn code_says(
    word: &'static str,
    message: &'static str,
    fault: RefusalFault,
) -> Rule {
    Rule { word, message, fault }
}

impl Rule {
    pub(super) fn matches(&self, body: &RefusalBody) -> bool {
        let has_word = match self.word.strip_suffix('*') {
            Some(beginning) => body.words.iter().any(|word| word.starts_with(beginning)),
            None => self.word.is_empty() || body.words.iter().any(|word| word == self.word),
        };
        let is_decisive = self.message.is_empty() || !body.begins_with_field;
        has_word && is_decisive && begins(&body.lower, self.message)
    }
}

/// True if `message`, in lower case, begins with the words of `pattern`.
fn begins(message: &str, pattern: &str) -> bool {
    // Chinese has no spaces between its words.
    if !pattern.is_ascii() {
        return message.starts_with(pattern);
    }
    let mut words = message.split_ascii_whitespace();
    pattern.split(' ').filter(|word| !word.is_empty()).all(|expected| {
        let Some(word) = words.next() else { return false };
        match expected.strip_suffix('*') {
            Some(beginning) => word.starts_with(beginning) && !opens_quote(word),
            None => word == expected || without_stop(word) == without_stop(expected),
        }
    })
}

/// A word without punctuation at its end. Quotes stay, since they may begin text of the customer.
fn without_stop(word: &str) -> &str {
    word.trim_end_matches(['.', ',', ';', ':', '!', '?'])
}

/// True if the word begins a quotation that continues.
fn opens_quote(word: &str) -> bool {
    let quote = word.chars().next().filter(|letter| matches!(letter, '\'' | '"' | '`'));
    quote.is_some_and(|quote| without_stop(word).len() < 2 || !without_stop(word).ends_with(quote))
}

/// A word without the marks around it.
pub(super) fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| letter.is_ascii_punctuation() && letter != '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_compared_from_its_first_word_on() {
        for (message, pattern, expected) in [
            ("this organization has been disabled.", "this organization has been disabled", true),
            ("project `proj_1` does not have access", "project * does not have access", true),
            ("project does not have access", "project * does not have access", false),
            ("invalid value: 'this organization has been disabled'", "this organization", false),
            ("'this organization has been disabled' is no date", "this organization", false),
            ("'a is not valid' is no date", "* is not valid", false),
            ("'a' is not valid", "* is not valid", true),
            ("余额不足或无可用资源包,请充值。", "余额不足", true),
            ("提示：余额不足", "余额不足", false),
            ("this", "this organization", false),
            ("anything", "", true),
        ] {
            assert_eq!(begins(message, pattern), expected, "{message} | {pattern}");
        }
    }
}
