//! Suggestions for misspelled words: fields of a file, models, paths.

/// Closest word to `typed` among `candidates`, if one is close enough.
#[must_use]
pub fn closest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// A word further off than a third of its letters is another word.
    const LETTERS_PER_SLIP: usize = 3;
    /// Maximum number of candidates: each comparison takes some hundred nanoseconds, and the caller may have
    /// as many words.
    const WORDS_MAX: usize = 1024;
    let typed_letters = typed.chars().count();
    // As many slips as two words differ in length are certain. So no word is held against a text of a
    // megabyte, which would take as many megabytes for each of its own letters.
    let may_be_close = |word: &&str| {
        let letters = word.chars().count();
        letters.abs_diff(typed_letters) <= letters.max(typed_letters).div_ceil(LETTERS_PER_SLIP)
    };
    let candidates = candidates.into_iter().take(WORDS_MAX).filter(may_be_close);
    let mut candidates = candidates.peekable();
    candidates.peek()?;
    let typed_lower = typed.to_lowercase();
    candidates
        .map(|word| (strsim::damerau_levenshtein(&typed_lower, &word.to_lowercase()), word))
        .filter(|(slips, word)| {
            let letters = word.chars().count().max(typed_letters);
            *slips <= letters.div_ceil(LETTERS_PER_SLIP) && *slips < letters
        })
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_word_is_found_and_a_far_one_is_not() {
        let words = ["timeouts", "optional", "base_url"];
        assert_eq!(closest("timout", words), Some("timeouts"));
        assert_eq!(closest("Base_URL", words), Some("base_url"), "case does not count");
        assert_eq!(closest("listeners", words), None, "nothing is near");
        assert_eq!(closest("x", ["y"]), None, "one wrong letter of one is another word");
    }
}
