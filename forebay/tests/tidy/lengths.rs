//! Files, functions and lines of documents are short enough to be read at once.

use crate::findings::Finding;
use crate::tokens::{Placed, Token, tokens};
use crate::tree::Tree;

/// Lines of a Rust file at the most.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function at the most, from its name to its last brace.
const FUNCTION_LINES_MAX: usize = 100;
/// Columns of a line of a document at the most.
const COLUMNS_MAX: usize = 100;

/// Files that are too long.
pub fn check_files(tree: &Tree) -> Vec<Finding> {
    let too_long = |(path, text): (&str, &str)| {
        let lines = text.lines().count();
        let what = || {
            format!("{lines} lines, more than {FILE_LINES_MAX}: give one of its subjects a file of its own")
        };
        (lines > FILE_LINES_MAX).then(|| Finding::new(path, lines, what()))
    };
    tree.with_ending("rs").filter_map(too_long).collect()
}

/// Functions that are too long.
pub fn check_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_ending("rs") {
        for (line, name, lines) in functions(text) {
            if lines > FUNCTION_LINES_MAX {
                let what = format!(
                    "{name} has {lines} lines, more than {FUNCTION_LINES_MAX}: give a step of it a name"
                );
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    findings
}

/// Line, name and number of lines of each function that has a body.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let tokens: Vec<Placed<'_>> = tokens(text);
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        let [Placed { token: Token::Word("fn"), line }, Placed { token: Token::Word(name), .. }] = pair
        else {
            continue;
        };
        if let Some(last) = last_line(&tokens[at + 2..]) {
            found.push((*line, *name, last - line + 1));
        }
    }
    found
}

/// The line of the brace that ends the body; `None` where a semicolon comes instead.
fn last_line(rest: &[Placed<'_>]) -> Option<usize> {
    let (mut brackets, mut braces) = (0_i32, 0_i32);
    for placed in rest {
        match placed.token {
            Token::Sign('(' | '[') => brackets += 1,
            Token::Sign(')' | ']') => brackets -= 1,
            Token::Sign(';') if brackets == 0 && braces == 0 => return None,
            Token::Sign('{') => braces += 1,
            Token::Sign('}') => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(placed.line);
                }
            }
            _ => {}
        }
    }
    None
}

/// Lines of documents that are too long, and fences with text beside them. Tables, code and links may be long.
pub fn check_documents(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.documents() {
        let (mut is_fenced, mut is_indented, mut is_after_blank) = (false, false, true);
        for (at, line) in text.lines().enumerate() {
            is_fenced ^= line.starts_with("```");
            is_indented = line.starts_with("    ") && (is_indented || is_after_blank);
            is_after_blank = line.is_empty();
            if line.starts_with("```") && line.contains(char::is_whitespace) {
                let what =
                    "text beside a fence: give the fence its own line, and the code behind it its lines";
                findings.push(Finding::new(path, at + 1, what));
            }
            let columns = line.chars().count();
            let is_link = line.contains("](") || line.contains("://");
            if columns > COLUMNS_MAX && !is_fenced && !is_indented && !is_link && !line.starts_with('|') {
                let what = format!("{columns} columns, more than {COLUMNS_MAX}: wrap the paragraph");
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
    fn a_long_file_is_found() {
        let lines = |count: usize| check_files(&Tree::of(&[("a.rs", "\n".repeat(count).as_str())])).len();
        assert_eq!((lines(FILE_LINES_MAX), lines(FILE_LINES_MAX + 1)), (0, 1));
    }

    #[test]
    fn a_long_function_is_found() {
        let source = |count: usize| {
            format!(
                "\ntrait T {{ fn none(&self) -> [u8; 4]; }}\nfn long() {{{}}}\n",
                "\n    f(\"}\");".repeat(count)
            )
        };
        let found = |count: usize| check_functions(&Tree::of(&[("a.rs", &source(count))]));
        assert!(found(FUNCTION_LINES_MAX - 1).is_empty());
        assert_eq!(found(FUNCTION_LINES_MAX).first().map(|found| found.line), Some(3));
        assert_eq!(functions("fn a() { let b = || { 1 };\n}\nfn c() {}"), [(1, "a", 2), (3, "c", 1)]);
    }

    #[test]
    fn a_long_line_is_found() {
        let long = "word ".repeat(21);
        let found = |line: String| check_documents(&Tree::of(&[("docs/a.md", &line)])).len();
        assert_eq!(found(long.clone()), 1);
        assert_eq!(
            found(format!("| {long}|"))
                + found(format!("```\n{long}\n```"))
                + found(format!("[a](b) {long}")),
            0
        );
        assert_eq!(found(format!("text\n\n    {long}")), 0, "code may be indented");
        assert_eq!(found(format!("- text\n    {long}")), 1, "what belongs to a list is no code");
        assert_eq!(found("word ".repeat(19)), 0);
        assert_eq!(found("```text\nword\n```".to_owned()), 0);
        assert_eq!(found("``` a table that was wrapped\n```".to_owned()), 1);
    }
}
