//! An assertion says what must hold: its message is not a number alone.

use crate::findings::Finding;
use crate::tokens::{Placed, Token, tokens};
use crate::tree::Tree;

/// Macros whose last string is a message.
const MACROS: [&str; 10] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "unimplemented",
    "todo",
];
/// Words before a string that is a message: `.expect("...")`, `#[should_panic(expected = "...")]`.
const CALLS: [(&str, char); 3] = [("expect", '('), ("expect_err", '('), ("expected", '=')];

/// All messages that are numbers alone.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources().flat_map(|(path, text)| check_source(path, text)).collect()
}

fn check_source(path: &str, text: &str) -> Vec<Finding> {
    let tokens: Vec<Placed<'_>> =
        tokens(text).into_iter().filter(|placed| !matches!(placed.token, Token::Comment(..))).collect();
    let mut findings = Vec::new();
    for (at, placed) in tokens.iter().enumerate() {
        let Token::Text(message) = placed.token else { continue };
        if is_number(message) && (is_called(&tokens[..at]) || is_asserted(&tokens[..at])) {
            let what = format!(
                "\"{message}\" tells a stranger nothing: say what must hold, and the number behind it"
            );
            findings.push(Finding::new(path, placed.line, what));
        }
    }
    findings
}

/// `S3`, `I3, I4`, `RULE 7`, `7`.
fn is_number(message: &str) -> bool {
    let is_one = |word: &str| {
        let word = word.strip_prefix(|first: char| first.is_ascii_uppercase()).unwrap_or(word);
        !word.is_empty() && word.chars().all(|digit| digit.is_ascii_digit())
    };
    let words = message.split([' ', ',', ':', '.']).filter(|word| !word.is_empty());
    let mut numbers = words
        .filter(|word| !matches!(word.to_ascii_lowercase().as_str(), "rule" | "hazard" | "and"))
        .peekable();
    numbers.peek().is_some() && numbers.all(is_one)
}

fn is_called(before: &[Placed<'_>]) -> bool {
    let [.., Placed { token: Token::Word(word), .. }, Placed { token: Token::Sign(sign), .. }] = before
    else {
        return false;
    };
    CALLS.contains(&(word, *sign))
}

/// Whether what follows is an argument of an assertion, behind another argument or alone.
fn is_asserted(before: &[Placed<'_>]) -> bool {
    let mut depth = 0_usize;
    let Some(last) = before.last() else { return false };
    let is_argument = matches!(last.token, Token::Sign(',' | '('));
    for (at, placed) in before.iter().enumerate().rev() {
        match placed.token {
            Token::Sign(')' | ']' | '}') => depth += 1,
            Token::Sign('(' | '[' | '{') if depth > 0 => depth -= 1,
            Token::Sign('(') => {
                let [.., Placed { token: Token::Word(name), .. }, Placed { token: Token::Sign('!'), .. }] =
                    &before[..at]
                else {
                    return false;
                };
                // The first two arguments of `assert_eq` are what is compared.
                let is_compared = name.ends_with("_eq") || name.ends_with("_ne");
                let commas = top_level_commas(&before[at + 1..]);
                let is_message = match name.starts_with("assert") || name.starts_with("debug_assert") {
                    true => commas > usize::from(is_compared),
                    false => commas == 0,
                };
                return is_argument && is_message && MACROS.contains(name);
            }
            Token::Sign('[' | '{' | ';') => return false,
            _ => {}
        }
    }
    false
}

fn top_level_commas(arguments: &[Placed<'_>]) -> usize {
    let (mut depth, mut commas) = (0_usize, 0);
    for placed in arguments {
        match placed.token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            Token::Sign(',') if depth == 0 => commas += 1,
            _ => {}
        }
    }
    commas
}

#[test]
fn a_number_alone_is_found_where_it_is_a_message() {
    let lines =
        |source: &str| check_source("a.rs", source).iter().map(|found| found.line).collect::<Vec<_>>();
    assert_eq!(lines("assert!(self.may_leave(slot), \"S3\");"), [1]);
    assert_eq!(lines("\nassert_eq!(\n    f(a, b),\n    2,\n    \"I3, I4\"\n);"), [5]);
    assert_eq!(
        lines("x.expect(\"S3\"); y.expect_err(\"RULE 7\");\n#[should_panic(expected = \"S2\")]"),
        [1, 1, 2]
    );
    assert_eq!(lines("panic!(\"7\")"), [1]);
    assert!(
        lines("assert!(a, \"S3: a free slot is known nowhere\"); assert_eq!(name, \"S3\"); f(\"S3\");")
            .is_empty()
    );
    assert!(lines("assert_eq!(a.name(\"S3\"), \"12\"); // \"S3\"").is_empty());
    assert!(lines("panic!(\"{} is not 7\", \"7\")").is_empty());
}
