//! Phrases about the operator's account, for providers without a table of their own. There are hundreds of
//! such providers, and they copy each other's messages.
//!
//! A phrase counts only at a message's beginning, behind words that any provider may begin with
//! ([`LEADING`]) and ids; a text of the customer's that is repeated there is told by the words before
//! it, by its quotes, or by the field that is named beside it.

use super::RefusalFault;
use super::body::RefusalBody;
use super::rule::bare;

/// Maximum number of words before a phrase.
const LEADING_MAX: usize = 14;
/// Longest word that counts as an id, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Words that may stand before a phrase: none that a provider writes before a customer's text.
const LEADING: [&str; 80] = [
    "a",
    "access",
    "account",
    "actively",
    "all",
    "an",
    "any",
    "api",
    "are",
    "associated",
    "available",
    "balance",
    "be",
    "because",
    "been",
    "billing",
    "call",
    "cannot",
    "credential",
    "credentials",
    "credit",
    "current",
    "currently",
    "denied",
    "does",
    "due",
    "either",
    "enough",
    "error",
    "failed",
    "for",
    "forbidden",
    "free",
    "has",
    "have",
    "in",
    "is",
    "it",
    "key",
    "monthly",
    "newly",
    "created",
    "no",
    "not",
    "now",
    "of",
    "on",
    "or",
    "org",
    "organization",
    "organisation",
    "our",
    "out",
    "owner",
    "paid",
    "plan",
    "please",
    "prepaid",
    "project",
    "provider",
    "quota",
    "remaining",
    "request",
    "resource",
    "service",
    "sorry",
    "subscription",
    "system",
    "team",
    "tenant",
    "that",
    "the",
    "their",
    "this",
    "to",
    "user",
    "with",
    "workspace",
    "you",
    "your",
];

/// Each phrase in small letters, with its marks left out.
const PHRASES: [(&str, RefusalFault); 132] = [
    ("credit balance is too low", RefusalFault::Account),
    ("balance is too low", RefusalFault::Account),
    ("balance is insufficient", RefusalFault::Account),
    ("balance is not enough", RefusalFault::Account),
    ("balance is not sufficient", RefusalFault::Account),
    ("balance not enough", RefusalFault::Account),
    ("balance insufficient", RefusalFault::Account),
    ("balance is negative", RefusalFault::Account),
    ("balance is exhausted", RefusalFault::Account),
    ("balance exhausted", RefusalFault::Account),
    ("negative balance", RefusalFault::Account),
    ("insufficient balance", RefusalFault::Account),
    ("insufficient account balance", RefusalFault::Account),
    ("insufficient credit", RefusalFault::Account),
    ("insufficient credits", RefusalFault::Account),
    ("insufficient funds", RefusalFault::Account),
    ("insufficient quota", RefusalFault::Account),
    ("insufficient user quota", RefusalFault::Account),
    ("enough credits", RefusalFault::Account),
    ("enough credit", RefusalFault::Account),
    ("enough balance", RefusalFault::Account),
    ("out of credits", RefusalFault::Account),
    ("out of credit", RefusalFault::Account),
    ("run out of credits", RefusalFault::Account),
    ("ran out of credits", RefusalFault::Account),
    ("no credits", RefusalFault::Account),
    ("have any credits", RefusalFault::Account),
    ("requires more credits", RefusalFault::Account),
    ("used all available credits", RefusalFault::Account),
    ("credits are exhausted", RefusalFault::Account),
    ("credits exhausted", RefusalFault::Account),
    ("credits have been exhausted", RefusalFault::Account),
    ("credits are depleted", RefusalFault::Account),
    ("credits have been depleted", RefusalFault::Account),
    ("credit limit exceeded", RefusalFault::Account),
    ("credit limit reached", RefusalFault::Account),
    ("exceeded current quota", RefusalFault::Account),
    ("exceeded your current quota", RefusalFault::Account),
    ("exceeded your monthly included credits", RefusalFault::Account),
    ("exceeded the monthly", RefusalFault::Account),
    ("exceeded its monthly", RefusalFault::Account),
    ("exceeded your monthly", RefusalFault::Account),
    ("exceeded your budget", RefusalFault::Account),
    ("exceeded its budget", RefusalFault::Account),
    ("budget has been exceeded", RefusalFault::Account),
    ("budget exceeded", RefusalFault::Account),
    ("quota is exhausted", RefusalFault::Account),
    ("quota has been exhausted", RefusalFault::Account),
    ("quota is insufficient", RefusalFault::Account),
    ("spending limit", RefusalFault::Account),
    ("spend limit", RefusalFault::Account),
    ("spending cap", RefusalFault::Account),
    ("monthly limit", RefusalFault::Account),
    ("reached your specified", RefusalFault::Account),
    ("reached your usage limit", RefusalFault::Account),
    ("hit your usage limit", RefusalFault::Account),
    ("usage limit reached", RefusalFault::Account),
    ("usage limit exceeded", RefusalFault::Account),
    ("reached your monthly", RefusalFault::Account),
    ("reached its monthly", RefusalFault::Account),
    ("hard limit has been reached", RefusalFault::Account),
    ("hard limit reached", RefusalFault::Account),
    ("limit has been reached", RefusalFault::Account),
    ("payment required", RefusalFault::Account),
    ("payment method", RefusalFault::Account),
    ("past due", RefusalFault::Account),
    ("in arrears", RefusalFault::Account),
    ("overdue", RefusalFault::Account),
    ("unpaid invoice", RefusalFault::Account),
    ("unpaid invoices", RefusalFault::Account),
    ("billing is not enabled", RefusalFault::Account),
    ("billing is disabled", RefusalFault::Account),
    ("not active", RefusalFault::Account),
    ("inactive", RefusalFault::Account),
    ("account is disabled", RefusalFault::Account),
    ("account disabled", RefusalFault::Account),
    ("account is suspended", RefusalFault::Account),
    ("account suspended", RefusalFault::Account),
    ("is suspended", RefusalFault::Account),
    ("been suspended", RefusalFault::Account),
    ("been disabled", RefusalFault::Account),
    ("been deactivated", RefusalFault::Account),
    ("been restricted", RefusalFault::Account),
    ("been terminated", RefusalFault::Account),
    ("been banned", RefusalFault::Account),
    ("been blocked", RefusalFault::Account),
    ("been archived", RefusalFault::Account),
    ("is deactivated", RefusalFault::Account),
    ("is disabled", RefusalFault::Account),
    ("is banned", RefusalFault::Account),
    ("account deactivated", RefusalFault::Account),
    ("recharge", RefusalFault::Account),
    ("top up", RefusalFault::Account),
    ("country region or territory not supported", RefusalFault::Account),
    ("location is not supported", RefusalFault::Account),
    ("region is not supported", RefusalFault::Account),
    ("country is not supported", RefusalFault::Account),
    ("available in your country", RefusalFault::Account),
    ("available in your region", RefusalFault::Account),
    ("supported in your country", RefusalFault::Account),
    ("supported in your region", RefusalFault::Account),
    ("invalid api key", RefusalFault::Credential),
    ("invalid api-key", RefusalFault::Credential),
    ("invalid apikey", RefusalFault::Credential),
    ("invalid x-api-key", RefusalFault::Credential),
    ("incorrect api key", RefusalFault::Credential),
    ("incorrect api-key", RefusalFault::Credential),
    ("wrong api key", RefusalFault::Credential),
    ("unknown api key", RefusalFault::Credential),
    ("missing api key", RefusalFault::Credential),
    ("no api key", RefusalFault::Credential),
    ("api key not valid", RefusalFault::Credential),
    ("api key not found", RefusalFault::Credential),
    ("api key is not valid", RefusalFault::Credential),
    ("api key is invalid", RefusalFault::Credential),
    ("api key is expired", RefusalFault::Credential),
    ("api key is required", RefusalFault::Credential),
    ("api key is missing", RefusalFault::Credential),
    ("api key expired", RefusalFault::Credential),
    ("api key has expired", RefusalFault::Credential),
    ("been revoked", RefusalFault::Credential),
    ("been deleted", RefusalFault::Credential),
    ("was revoked", RefusalFault::Credential),
    ("invalid access token", RefusalFault::Credential),
    ("invalid bearer token", RefusalFault::Credential),
    ("invalid authentication", RefusalFault::Credential),
    ("invalid credentials", RefusalFault::Credential),
    ("authentication failed", RefusalFault::Credential),
    ("authentication fails", RefusalFault::Credential),
    ("unauthorized", RefusalFault::Credential),
    ("overloaded", RefusalFault::Busy),
    ("too many requests", RefusalFault::Busy),
];

/// All of the phrases, for a test that quotes them.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    PHRASES.iter().map(|(phrase, _)| *phrase)
}

/// Party at fault by the beginning of the message.
pub(super) fn fault_of(body: &RefusalBody) -> Option<RefusalFault> {
    // A message about a field may begin with what the customer has put there.
    if body.has_param || body.begins_with_field {
        return None;
    }
    let clause = leading_clause(&body.lower);
    let words: Vec<&str> = clause.split_ascii_whitespace().map(bare).collect();
    for at in 0..words.len().min(LEADING_MAX + 1) {
        let rest = words.get(at..).unwrap_or_default();
        let found = PHRASES.iter().find(|(phrase, _)| stands_first(rest, phrase));
        if let Some((phrase, fault)) = found {
            return Some(fault_after(phrase, *fault, words.get(..at).unwrap_or_default()));
        }
        let may_lead = rest.first().is_some_and(|word| LEADING.contains(word) || is_id(word));
        if !may_lead {
            return None;
        }
    }
    None
}

/// Adjusts the fault of a phrase: a disabled or suspended key is a fault of the credential, not of the
/// account.
fn fault_after(phrase: &str, fault: RefusalFault, before: &[&str]) -> RefusalFault {
    let is_about_state = phrase.starts_with("been ") || phrase.starts_with("is ");
    if is_about_state && before.contains(&"key") { RefusalFault::Credential } else { fault }
}

/// The first clause, up to where a provider may begin to repeat something.
fn leading_clause(message: &str) -> &str {
    let end = message.find(['"', '`', '{', '[', '\n', ':']).unwrap_or(message.len());
    let clause = message.get(..end).unwrap_or_default();
    // An apostrophe within a word is no quote.
    let quote = clause.match_indices('\'').find(|(at, _)| {
        let before = clause.get(..*at).and_then(|text| text.chars().next_back());
        !before.is_some_and(char::is_alphanumeric)
    });
    quote.map_or(clause, |(at, _)| clause.get(..at).unwrap_or_default())
}

fn stands_first(words: &[&str], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase.split(' ').all(|expected| words.next().is_some_and(|word| *word == expected))
}

/// True if a word is an id or a masked key, which providers put into such messages.
fn is_id(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte);
    let has_mark = |byte: u8| byte.is_ascii_digit() || b"*_".contains(&byte);
    word.len() <= ID_BYTES_MAX && word.bytes().all(is_letter) && word.bytes().any(has_mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(message: &str) -> Option<RefusalFault> {
        let lower = message.to_lowercase();
        fault_of(&RefusalBody { message: message.to_owned(), lower, ..RefusalBody::default() })
    }

    #[test]
    fn a_phrase_counts_behind_words_that_are_no_customers() {
        use RefusalFault::{Account, Busy, Credential};
        for (message, expected) in [
            ("Insufficient account balance", Some(Account)),
            ("Sorry, your account balance is insufficient", Some(Account)),
            ("Your account org-1 <ak-2> is suspended due to insufficient balance", Some(Account)),
            ("The API key is disabled", Some(Credential)),
            ("Your API key has been suspended", Some(Credential)),
            ("You have run out of credits or need a subscription", Some(Account)),
            ("Unauthorized", Some(Credential)),
            ("The model is fine", None),
            ("System is overloaded now", Some(Busy)),
            ("Function name was insufficient balance but must be a word", None),
            ("Invalid value: 'insufficient balance'", None),
            ("Unknown parameter insufficient balance", None),
            ("Your 'credit balance is too low' is no date", None),
        ] {
            assert_eq!(fault(message), expected, "{message}");
        }
    }
}
