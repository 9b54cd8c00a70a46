//! Paths in documents and comments exist: as the path of a file or a folder, or as its last parts.

use crate::findings::Finding;
use crate::tokens::{Token, tokens};
use crate::tree::Tree;

/// Endings that make a word a path.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".txt", ".csv"];
/// Paths that lead nowhere here, with the file that names them: an explanation makes them up, or they are another project's.
const ELSEWHERE: [(&str, &str); 2] =
    [("CONTRIBUTING.md", "replacement/lfu.rs"), ("live/src/nbd/wire/mod.rs", "doc/proto.md")];

/// Paths in documents that lead nowhere.
pub fn check_documents(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.documents().filter(|(path, _)| *path != "CHANGELOG.md") {
        let mut is_code = false;
        for (at, line) in text.lines().enumerate() {
            is_code ^= line.starts_with("```");
            if !is_code {
                look(tree, path, at + 1, line, &mut findings);
            }
        }
    }
    findings
}

/// Paths in comments that lead nowhere.
pub fn check_comments(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        for placed in tokens(text) {
            if let Token::Comment(_, said) = placed.token {
                look(tree, path, placed.line, said, &mut findings);
            }
        }
    }
    findings
}

fn look(tree: &Tree, path: &str, line: usize, text: &str, findings: &mut Vec<Finding>) {
    for named in named(text) {
        let is_elsewhere = ELSEWHERE.iter().any(|(file, other)| *file == path && named.ends_with(other));
        let is_there = match named.ends_with('/') {
            true => tree.has_folder(named),
            false => !tree.ending_with(named.trim_start_matches("./").trim_start_matches("../")).is_empty(),
        };
        if !is_there && !is_elsewhere {
            findings.push(Finding::new(
                path,
                line,
                format!("there is no {named}: name the file or folder as it is now"),
            ));
        }
    }
}

/// The paths that a text names: Rust files always, other files with their folder, folders in backticks.
fn named(text: &str) -> Vec<&str> {
    let is_border = |character: char| character.is_whitespace() || "`()[]\"'*,;|<>{}=".contains(character);
    let mut found: Vec<&str> = Vec::new();
    for word in text.split(is_border) {
        let word = word.trim_end_matches(['.', ':', '!', '?']);
        let word = word.split_once("::").map_or(word, |(path, _)| path);
        let has_ending = ENDINGS.iter().any(|ending| {
            word.strip_suffix(ending).is_some_and(|stem| !stem.is_empty() && !stem.ends_with('/'))
        });
        let is_ours = !word.contains("://")
            && !word.starts_with(['/', '~', '-', '$', '.', '@'])
            && !word.starts_with("target/");
        if has_ending && is_ours && (word.ends_with(".rs") || word.contains('/')) {
            found.push(word);
        }
    }
    let quoted = text.split('`').skip(1).step_by(2);
    let is_folder = |word: &&str| {
        word.ends_with('/')
            && word.len() > 1
            && word.chars().all(|letter| letter.is_alphanumeric() || "_-/.".contains(letter))
    };
    found.extend(quoted.filter(is_folder).filter(|word| !word.starts_with(['/', '.']) && *word != "target/"));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_other_words() {
        assert_eq!(
            named("see `store/log/fills.rs` (`guard.rs`, store/mod.rs), `log/`."),
            ["store/log/fills.rs", "guard.rs", "store/mod.rs", "log/"]
        );
        assert_eq!(
            named("`scenarios/fills.rs::hazard_01` and docs/a.md."),
            ["scenarios/fills.rs", "docs/a.md"]
        );
        assert!(
            named("a.toml, /etc/a.toml, https://a.b/c.rs, `target/`, <name>.rs, read/write, `a / b/`")
                .is_empty()
        );
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        let files = [
            ("engine/src/store/log/fills.rs", "// As `log/fills.rs`, and `gone.rs`.\n"),
            ("README.md", "[a](docs/b.md)\n`slots/`\n"),
            ("docs/b.md", "see log/fills.rs"),
        ];
        let tree = Tree::of(&files);
        let documents = check_documents(&tree);
        assert_eq!(
            documents.iter().map(|found| (found.path.as_str(), found.line)).collect::<Vec<_>>(),
            [("README.md", 2)]
        );
        let comments = check_comments(&tree);
        assert_eq!(comments.len(), 1);
        assert!(comments[0].what.contains("gone.rs"));
    }
}
