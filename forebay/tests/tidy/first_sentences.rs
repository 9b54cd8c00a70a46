//! A doc comment begins with what its item is.

use crate::findings::Finding;
use crate::tokens::{Comment, Token, tokens};
use crate::tree::Tree;

/// Beginnings that ask instead of telling.
const RIDDLES: [&str; 6] = ["What ", "Whoever ", "That of ", "Those of ", "Of a ", "Of an "];

/// All doc comments in `src` that begin with a riddle.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources().filter(|(path, _)| path.contains("/src/"));
    sources.flat_map(|(path, text)| check_source(path, text)).collect()
}

fn check_source(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut last: Option<(usize, Comment)> = None;
    for placed in tokens(text) {
        let Token::Comment(kind, said) = placed.token else { continue };
        let is_first = last != Some((placed.line - 1, kind));
        last = Some((placed.line, kind));
        let riddle = RIDDLES.iter().find(|riddle| said.starts_with(**riddle));
        if let (true, true, Some(riddle)) = (kind != Comment::Plain, is_first, riddle) {
            let what = format!("a doc comment begins with \"{}\": say what the item is", riddle.trim_end());
            findings.push(Finding::new(path, placed.line, what));
        }
    }
    findings
}

#[test]
fn riddles_are_found_at_the_beginning_alone() {
    let source = "//! What is kept.\n\n/// Whoever waits.\nfn f() {}\n/// A part of a whole.\n/// What is not.\nfn g() {} // What else?\n";
    let found = check(&Tree::of(&[("a/src/b.rs", source), ("a/tests/b.rs", source)]));
    assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [1, 3]);
}
