//! The word that was meant, where another one was written.

/// The word that is like another one; `None` if none is.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = known.into_iter().map(|known| (strsim::jaro_winkler(word, known), known));
    let (likeness, nearest) = likeness.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness > 0.75).then_some(nearest)
}

/// The line for a word that does not exist: the one that is like it, or all that there are.
#[must_use]
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(nearest) => format!("unknown {what} `{word}`; did you mean `{nearest}`?"),
        None => format!("unknown {what} `{word}`; there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_or_all_of_them() {
        let known = ["iops", "bandwidth"];
        assert_eq!(
            unknown("setting", "bandwith", &known),
            "unknown setting `bandwith`; did you mean `bandwidth`?"
        );
        assert_eq!(
            unknown("setting", "colour", &known),
            "unknown setting `colour`; there are iops, bandwidth"
        );
    }
}
