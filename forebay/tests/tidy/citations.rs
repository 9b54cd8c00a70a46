//! Rules, hazards and invariants that code and documents cite: they are on the page, and code says what they are about.

use crate::findings::Finding;
use crate::rules_page::{PATH, Page};
use crate::tokens::{Token, tokens};
use crate::tree::Tree;

/// The letters of items that are cited as `S3`.
const LETTERS: &str = "SHDL";
/// Words of a comment that begins with `RULE n:` at the least, besides that.
const WORDS_MIN: usize = 3;

/// All that is cited and not on the page.
pub fn check(page: &Page, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut look = |path: &str, line: usize, text: &str, is_commentary: bool| {
        for tag in cited(text, is_commentary) {
            if !page.has(&tag) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("{tag} is not in {PATH}: write it there, or cite another"),
                ));
            }
        }
    };
    for (path, text) in tree.sources() {
        for (line, text) in commentary(text) {
            look(path, line, &text, true);
        }
    }
    for (path, text) in tree.with_ending("md").chain(tree.with_ending("toml")) {
        let paragraphs = paragraphs(text);
        paragraphs.iter().for_each(|(line, text)| look(path, *line, text, path.ends_with(".md")));
    }
    findings
}

/// Comments that cite a rule, and say nothing about it.
pub fn check_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        for (line, comment) in commentary(text) {
            let Some(rest) = ["RULE ", "HAZARD "].iter().find_map(|word| comment.strip_prefix(word)) else {
                continue;
            };
            let rest = rest.split_once(':').map_or("", |(_, rest)| rest);
            if rest.split_whitespace().count() < WORDS_MIN {
                findings.push(Finding::new(
                    path,
                    line,
                    "say in words what this line prevents: the number alone is a riddle",
                ));
            }
        }
    }
    findings
}

/// Comments and strings of a source; the lines of a comment are joined, so that a citation may go over the end of one.
fn commentary(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut last = None;
    for placed in tokens(source) {
        match placed.token {
            Token::Comment(kind, text) => match (&mut found[..], last) {
                ([.., (_, before)], Some((line, same))) if line + 1 == placed.line && same == kind => {
                    before.push(' ');
                    before.push_str(text);
                }
                _ => found.push((placed.line, text.to_owned())),
            },
            Token::Text(text) => found.push((placed.line, text.to_owned())),
            Token::Word(_) | Token::Sign(_) => {}
        }
        last = match placed.token {
            Token::Comment(kind, _) => Some((placed.line, kind)),
            _ => None,
        };
    }
    found
}

/// The paragraphs of a document, each on one line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let line_text = line.trim().trim_start_matches('#').trim_start();
        match found.last_mut() {
            Some((_, before)) if is_open && !line_text.is_empty() => {
                before.push(' ');
                before.push_str(line_text);
            }
            _ if line_text.is_empty() => {}
            _ => found.push((at + 1, line_text.to_owned())),
        }
        is_open = !line_text.is_empty() && !line.starts_with('|');
    }
    found
}

/// The tags that a text cites: `rules 7 and 12` are `RULE 7` and `RULE 12`.
fn cited(text: &str, has_letters: bool) -> Vec<String> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    for (word, kind) in [("rule", "RULE"), ("hazard", "HAZARD")] {
        for (at, _) in lower.match_indices(word) {
            let is_whole = !lower[..at]
                .ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '-');
            let after = &lower[at + word.len()..];
            let (after, are_many) = after.strip_prefix('s').map_or((after, false), |after| (after, true));
            if let (true, Some(after)) = (is_whole, after.strip_prefix(' ')) {
                found.extend(numbers(after, are_many).iter().map(|number| format!("{kind} {number}")));
            }
        }
    }
    if has_letters {
        found.extend(lettered(text));
    }
    found
}

/// `7`, and where several are meant `7, 8 and 10 to 12`.
fn numbers(text: &str, are_many: bool) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let (mut rest, mut is_range) = (text, false);
    loop {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let Ok(number) = rest[..digits].parse() else { return found };
        if rest[digits..].starts_with(|after: char| after.is_alphanumeric() || after == '_') {
            return found;
        }
        match found.last().copied() {
            Some(first) if is_range => found.extend(first + 1..=number),
            _ => found.push(number),
        }
        rest = &rest[digits..];
        let joints = [(", ", false), (" and ", false), (" or ", false), (" to ", true)];
        let Some((joint, range)) = joints.into_iter().find(|(joint, _)| are_many && rest.starts_with(joint))
        else {
            return found;
        };
        (rest, is_range) = (&rest[joint.len()..], range);
    }
}

/// `S3`, `H9 to H13`; not `S3-FIFO`, nor part of a longer word.
fn lettered(text: &str) -> Vec<String> {
    let is_border = |character: char| character.is_whitespace() || "()[]{},.;:`'\"".contains(character);
    let words: Vec<&str> = text.split(is_border).filter(|word| !word.is_empty()).collect();
    let tag = |word: &str| {
        let letter = word.chars().next().filter(|letter| LETTERS.contains(*letter))?;
        let number: u32 = word[1..].parse().ok().filter(|_| word.len() <= 3)?;
        Some((letter, number))
    };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Some((letter, number)) = tag(word) else { continue };
        let first = match at.checked_sub(2).map(|before| (words[before], words[at - 1])) {
            Some((before, "to")) => {
                tag(before).filter(|from| from.0 == letter).map_or(number, |from| from.1 + 1)
            }
            _ => number,
        };
        found.extend((first..=number).map(|number| format!("{letter}{number}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_are_understood() {
        assert_eq!(cited("RULE 7: so", false), ["RULE 7"]);
        assert_eq!(cited("(rule 2's second half), hazard 13.", false), ["RULE 2", "HAZARD 13"]);
        assert_eq!(cited("Hazards 3 and 14, rule 4, 30 s", false), ["RULE 4", "HAZARD 3", "HAZARD 14"]);
        assert_eq!(cited("rules 2, 5 to 7", false), ["RULE 2", "RULE 5", "RULE 6", "RULE 7"]);
        assert!(cited("the overrule 3, RULE n, rule 3rd, rule_07_x, rules of", false).is_empty());
        assert_eq!(cited("(S3), H9 to H11: D1, \"L2\"", true), ["S3", "H9", "H10", "H11", "D1", "L2"]);
        assert!(cited("S3-FIFO, HD155UI, S, S3x", true).is_empty());
    }

    #[test]
    fn what_is_not_on_the_page_is_found_in_comments_strings_and_documents() {
        let (page, _) = Page::parse("## RULE 1: one\n\n## S3: three\n");
        let good = Tree::of(&[("a.rs", "// RULE 1: S3\nfn f<S9>() { g(\"S3\") }"), ("a.md", "Rule\n1.")]);
        assert!(check(&page, &good).is_empty());
        let bad = Tree::of(&[
            ("a.rs", "\n/// As rule\n/// 99 says.\nfn f() { g(\"S9\") }"),
            ("b.md", "one\n\nhazard 4"),
            ("c.toml", "# RULE 2"),
        ]);
        let lines: Vec<(String, usize)> =
            check(&page, &bad).into_iter().map(|found| (found.path, found.line)).collect();
        let expected = [("a.rs", 2), ("a.rs", 4), ("b.md", 3), ("c.toml", 1)];
        assert_eq!(lines, expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn a_number_without_words_is_found() {
        let words = |source: &str| check_words(&Tree::of(&[("a.rs", source)])).len();
        assert_eq!(words("// RULE 4: answered when durable.\nf();"), 0);
        assert_eq!(words("// RULE 4:\n// answered when durable.\nf();"), 0);
        assert_eq!(words("// RULE 4.\nf();"), 1);
        assert_eq!(words("// HAZARD 4: see there.\nf();"), 1);
    }
}
