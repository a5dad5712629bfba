//! Which word was meant by one that nobody knows: a field of a file, a model, a path.

/// Which of `known` was probably meant by `typed`.
#[must_use]
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// A word further off than a third of its letters is another word.
    const LETTERS_PER_SLIP: usize = 3;
    let typed_lower = typed.to_lowercase();
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&typed_lower, &word.to_lowercase()), word))
        .filter(|(slips, word)| {
            let letters = word.chars().count().max(typed.chars().count());
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
