//! The word that was meant, where another one was written.

/// The line for a word that does not exist: the one that is like it, or all that there are.
#[must_use]
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|known| (strsim::jaro_winkler(word, known), *known))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match nearest {
        Some((likeness, nearest)) if likeness > 0.75 => {
            format!("unknown {what} `{word}`; did you mean `{nearest}`?")
        }
        _ => format!("unknown {what} `{word}`; there are {}", known.join(", ")),
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
