//! Marks of unfinished work, and paths of one machine.

use crate::findings::Finding;
use crate::tokens::{Token, tokens};
use crate::tree::Tree;

/// Macros that are for the moment.
const MACROS: [&str; 3] = ["todo", "dbg", "unimplemented"];
/// Words of comments that put something off.
const WORDS: [&str; 4] = ["FIXME", "XXX", "TODO", "HACK"];
/// Folders that every machine has otherwise.
const FOLDERS: [&str; 3] = ["/tmp/", "/home/", "/root/"];
/// Where such a folder is what the line is about, and why.
const EXCEPTED: [(&str, &str); 1] =
    [("forebay/src/run_dir.rs", "the folder of sockets where the system names none")];

/// Marks of unfinished work.
pub fn check_marks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources() {
        let tokens = tokens(text);
        for (at, placed) in tokens.iter().enumerate() {
            let mark = match placed.token {
                Token::Comment(_, said) => words(said).find(|word| WORDS.contains(word)),
                Token::Word(name) => {
                    let is_macro = tokens.get(at + 1).is_some_and(|next| next.token == Token::Sign('!'));
                    Some(name).filter(|name| is_macro && MACROS.contains(name))
                }
                _ => None,
            };
            findings.extend(mark.map(|mark| {
                Finding::new(path, placed.line, format!("{mark} is left here: finish it, or take it out"))
            }));
        }
    }
    for (path, text) in tree.documents().chain(tree.with_ending("toml")) {
        for (at, line) in text.lines().enumerate() {
            let mark = words(line).find(|word| WORDS.contains(word));
            findings.extend(mark.map(|mark| {
                Finding::new(path, at + 1, format!("{mark} is left here: finish it, or take it out"))
            }));
        }
    }
    findings
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric())
}

/// Paths of one machine.
pub fn check_machines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let texts = ["rs", "md", "toml", "sh", "yml"].into_iter().flat_map(|ending| tree.with_ending(ending));
    for (path, text) in texts.filter(|(path, _)| !path.starts_with(crate::tree::CHECKS)) {
        if EXCEPTED.iter().any(|(excepted, _)| *excepted == path) {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let is_folder = |folder: &&&str| {
                let begins = line.match_indices(**folder).map(|(at, _)| &line[..at]);
                begins.into_iter().any(|before| {
                    !before.ends_with(|last: char| last.is_alphanumeric() || "._-}".contains(last))
                })
            };
            if let Some(folder) = FOLDERS.iter().find(is_folder) {
                let what = format!(
                    "{folder} is a folder of one machine: take it from the environment, or name none"
                );
                findings.push(Finding::new(path, at + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_in_code_comments_and_documents() {
        let marks = |path: &str, text: &str| check_marks(&Tree::of(&[(path, text)])).len();
        assert_eq!(marks("a.rs", "fn f() { todo!() }"), 1);
        assert_eq!(marks("a.rs", "let x = dbg!(y); // FIXME: soon\n/// XXX\n"), 3);
        assert_eq!(marks("a.md", "TODO"), 1);
        assert_eq!(marks("a.rs", "fn todo() {} let a = \"XXX\"; // todo lists"), 0);
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        let found = |text: &str| check_machines(&Tree::of(&[("a/src/b.rs", text)])).len();
        assert_eq!(found("let a = \"/tmp/a\";\n// see /root/b"), 2);
        assert_eq!(found("let a = temp.join(\"tmp/a\"); // lab/home/b, a/work/c"), 0);
    }
}
