//! `I1`, `I2`, ... are invariants of one module: they stand in its header, in the same file or in the `mod.rs` of its folder.

use crate::findings::Finding;
use crate::tokens::{Comment, Token, tokens};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// All that is cited and stands in no header.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        let mut known = written(text);
        for parent in parents(path) {
            known.extend(written(tree.text(&parent)));
        }
        for placed in tokens(text) {
            let (Token::Comment(_, said) | Token::Text(said)) = placed.token else { continue };
            findings.extend(cited(said).filter(|number| !known.contains(number)).map(|number| {
                let what =
                    format!("I{number} is in no header: write `* I{number}: ...` into that of the module");
                Finding::new(path, placed.line, what)
            }));
        }
    }
    findings
}

/// Where the header of a file's module may be: `a/b/c.rs` is of `a/b/mod.rs` or `a/b.rs`.
fn parents(path: &str) -> Vec<String> {
    let Some((folder, _)) = path.rsplit_once('/') else { return Vec::new() };
    vec![format!("{folder}/mod.rs"), format!("{folder}.rs")]
}

/// The numbers that a file's comments explain: `I1: ...`, `I1 (S7): ...`.
fn written(text: &str) -> BTreeSet<u32> {
    let explained = tokens(text).into_iter().filter_map(|placed| {
        let Token::Comment(Comment::Module | Comment::Item, said) = placed.token else { return None };
        let said = said.trim_start_matches(['*', '-', ' ']).strip_prefix('I')?;
        let digits = said.find(|character: char| !character.is_ascii_digit())?;
        let number = said[..digits].parse().ok()?;
        said[digits..].starts_with([':', ' ']).then_some(number)
    });
    explained.collect()
}

fn cited(said: &str) -> impl Iterator<Item = u32> {
    let words = said.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.filter_map(|word| word.strip_prefix('I').filter(|rest| rest.len() <= 2)?.parse().ok())
}

#[test]
fn an_invariant_without_a_header_is_found() {
    let header = "//! * I1: so.\n//! - I2 (S7): so.\n";
    let good = [
        ("a/mod.rs", header),
        ("a/b.rs", "/// As I2 says.\nfn f() { g(\"I1\") }"),
        ("c.rs", "fn f<I9>() {}"),
    ];
    assert!(check(&Tree::of(&good)).is_empty());
    let bad = check(&Tree::of(&[("a/mod.rs", header), ("b/c.rs", "\nfn f() { g(\"I1, I2\") }")]));
    assert_eq!(bad.len(), 2);
    assert_eq!((bad[0].path.as_str(), bad[0].line), ("b/c.rs", 2));
}
