//! Rust source as comments, strings, words and signs. Enough of the language to tell these apart, and no more.

/// A piece of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'text> {
    /// A comment up to the end of its line, without its slashes.
    Comment(Comment, &'text str),
    /// What is between the quotes of a string, as written.
    Text(&'text str),
    /// A name, a keyword or a number.
    Word(&'text str),
    /// Any other character.
    Sign(char),
}

/// For whom a comment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comment {
    /// `//`: who reads the code.
    Plain,
    /// `///`: who uses the next item.
    Item,
    /// `//!`: who uses the module.
    Module,
}

/// A token and its line, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'text> {
    /// Where it begins.
    pub line: usize,
    /// What it is.
    pub token: Token<'text>,
}

/// The tokens of a file.
pub fn tokens(text: &str) -> Vec<Placed<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, token) = next(rest, first);
        if let Some(token) = token {
            found.push(Placed { line, token });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// How long the token at the beginning is, and what it is unless space.
fn next(rest: &str, first: char) -> (usize, Option<Token<'_>>) {
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        return (end, Some(comment(&rest[..end])));
    }
    if rest.starts_with("/*") {
        let end = rest.find("*/").map_or(rest.len(), |at| at + 2);
        return (end, Some(Token::Comment(Comment::Plain, &rest[2..end])));
    }
    if first == '"' {
        return string(rest, 0);
    }
    if let Some((length, token)) = prefixed_string(rest) {
        return (length, token);
    }
    if is_word(first) {
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        return (end, Some(Token::Word(&rest[..end])));
    }
    if first == '\'' {
        return (quote(rest), Some(Token::Sign('\'')));
    }
    (first.len_utf8(), (!first.is_whitespace()).then_some(Token::Sign(first)))
}

fn comment(line: &str) -> Token<'_> {
    let line = line.trim_end();
    match (line.strip_prefix("//!"), line.strip_prefix("///")) {
        (Some(text), _) => Token::Comment(Comment::Module, text.trim_start()),
        (_, Some(text)) if !text.starts_with('/') => Token::Comment(Comment::Item, text.trim_start()),
        _ => Token::Comment(Comment::Plain, line.trim_start_matches('/').trim_start()),
    }
}

/// A string whose quote is at `quote_at`.
fn string(rest: &str, quote_at: usize) -> (usize, Option<Token<'_>>) {
    let begin = quote_at + 1;
    let mut is_escaped = false;
    for (at, character) in rest[begin..].char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return (begin + at + 1, Some(Token::Text(&rest[begin..begin + at]))),
            _ => {}
        }
    }
    (rest.len(), Some(Token::Text(&rest[begin..])))
}

/// `b"…"`, `c"…"`, `r"…"`, `r#"…"#`, and the like.
fn prefixed_string(rest: &str) -> Option<(usize, Option<Token<'_>>)> {
    let letters = rest
        .find(|character: char| !matches!(character, 'b' | 'c' | 'r'))
        .filter(|at| (1..=2).contains(at))?;
    let is_raw = rest[..letters].contains('r');
    let hashes = if is_raw { rest[letters..].chars().take_while(|sign| *sign == '#').count() } else { 0 };
    let quote_at = letters + hashes;
    if !rest[quote_at..].starts_with('"') {
        return None;
    }
    if !is_raw {
        return Some(string(rest, quote_at));
    }
    let end_mark = format!("\"{}", "#".repeat(hashes));
    let end = rest[quote_at + 1..].find(&end_mark).map_or(rest.len(), |at| quote_at + 1 + at);
    Some(((end + end_mark.len()).min(rest.len()), Some(Token::Text(&rest[quote_at + 1..end]))))
}

/// The length of a character literal, or of the quote alone where it begins a lifetime.
fn quote(rest: &str) -> usize {
    let inner = &rest[1..];
    if inner.starts_with('\\') {
        return inner[2..].find('\'').map_or(rest.len(), |at| at + 4);
    }
    let mut characters = inner.char_indices();
    let _content = characters.next();
    match characters.next() {
        Some((at, '\'')) => at + 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Token<'_>> {
        tokens(text).into_iter().map(|placed| placed.token).collect()
    }

    #[test]
    fn comments_strings_words_and_signs_are_told_apart() {
        use Token::{Sign, Text, Word};
        assert_eq!(
            kinds("let a = \"b // c\";"),
            [Word("let"), Word("a"), Sign('='), Text("b // c"), Sign(';')]
        );
        assert_eq!(kinds(r##"r#"a "b" c"# b"\"x" "##), [Text("a \"b\" c"), Text("\\\"x")]);
        assert_eq!(
            kinds("'{' '\\'' 'a b'"),
            [Sign('\''), Sign('\''), Sign('\''), Word("a"), Word("b"), Sign('\'')]
        );
        assert_eq!(kinds("&'a str"), [Sign('&'), Sign('\''), Word("a"), Word("str")]);
        assert_eq!(kinds("crab"), [Word("crab")], "no string without a quote");
    }

    #[test]
    fn comments_have_kinds_and_lines() {
        let found = tokens("//! one\n\n/// two\n//// rule\nfn f() {} // three\n\"a\nb\" x");
        let comments: Vec<(usize, Token<'_>)> =
            found.iter().map(|placed| (placed.line, placed.token)).collect();
        assert_eq!(comments[0], (1, Token::Comment(Comment::Module, "one")));
        assert_eq!(comments[1], (3, Token::Comment(Comment::Item, "two")));
        assert_eq!(comments[2], (4, Token::Comment(Comment::Plain, "rule")));
        assert!(comments.contains(&(5, Token::Comment(Comment::Plain, "three"))));
        assert_eq!(comments.last(), Some(&(7, Token::Word("x"))), "a string may have several lines");
    }
}
