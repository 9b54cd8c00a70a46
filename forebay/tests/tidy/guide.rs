//! The guide is true: it explains every event, quotes messages as they are, and its links lead somewhere.

use crate::findings::Finding;
use crate::tree::Tree;
use std::path::{Component, Path, PathBuf};

/// The page that explains events and messages.
const TROUBLESHOOTING: &str = "docs/guide/troubleshooting.md";
/// The source that defines the events.
const EVENTS: &str = "forebay/src/events.rs";
/// Characters of a message that tell it from others.
const TELLING_MIN: usize = 8;

/// Events without a row on the page, and rows without an event.
pub fn check_events(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let page = tree.text(TROUBLESHOOTING);
    let defined: Vec<&str> = tree.text(EVENTS).lines().filter_map(event_id).collect();
    for id in &defined {
        if !page.contains(&format!("\n| {id} |")) {
            let what = format!("{id} has no row: say what it means and what to do");
            findings.push(Finding::new(TROUBLESHOOTING, 1, what));
        }
    }
    for (at, line) in page.lines().enumerate() {
        let id =
            line.strip_prefix("| ").and_then(|row| row.split(' ').next()).filter(|word| is_event_id(word));
        if id.is_some_and(|id| !defined.contains(&id)) {
            findings.push(Finding::new(TROUBLESHOOTING, at + 1, "there is no such event".to_owned()));
        }
    }
    findings
}

/// The id of an event in a line of its definition: `Name "F01" Error,`.
fn event_id(line: &str) -> Option<&str> {
    let id = line.split('"').nth(1)?;
    (line.starts_with("    ") && is_event_id(id)).then_some(id)
}

fn is_event_id(word: &str) -> bool {
    word.len() == 3
        && word.strip_prefix('F').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Messages that the page quotes and that the program does not say.
pub fn check_messages(tree: &Tree) -> Vec<Finding> {
    let ours = tree.sources().filter(|(path, _)| path.contains("/src/"));
    let said: String = ours.map(|(_, text)| plain(text)).collect();
    let mut findings = Vec::new();
    for (at, line) in tree.text(TROUBLESHOOTING).lines().enumerate() {
        let Some(row) = line.strip_prefix("| ") else { continue };
        let quoted = row.split(" | ").next().unwrap_or_default();
        for message in quoted.split('`').skip(1).step_by(2) {
            let pieces = message.split('…').map(str::trim);
            let telling = pieces.max_by_key(|piece| piece.len()).unwrap_or_default();
            if telling.len() >= TELLING_MIN && !said.contains(telling) {
                let what = format!("nothing says \"{telling}\" any more: quote the message as it is now");
                findings.push(Finding::new(TROUBLESHOOTING, at + 1, what));
            }
        }
    }
    findings
}

/// Source text with its string literals as they are printed, without backticks.
fn plain(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("\\\n") {
        plain.push_str(before);
        rest = after.trim_start();
    }
    plain.push_str(rest);
    plain.replace("\\\"", "\"").replace("{{", "{").replace("}}", "}").replace('`', "")
}

/// Relative links of documents that lead nowhere: to no file, or to no heading of it.
pub fn check_links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.documents() {
        for (line, target) in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
            if !tree.has_file(&there) && !tree.has_folder(&there) {
                findings.push(Finding::new(path, line, format!("{target} leads to no file")));
            } else if !heading.is_empty() && !anchors(tree.text(&there)).any(|anchor| anchor == heading) {
                findings.push(Finding::new(path, line, format!("{there} has no heading for #{heading}")));
            }
        }
    }
    findings
}

/// Line and target of each relative link outside of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with("    ") {
            continue;
        }
        for after in line.split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            if !target.contains("://") && !target.is_empty() {
                found.push((at + 1, target));
            }
        }
    }
    found
}

/// A path beside another one.
fn resolve(from: &str, to: &str) -> String {
    let mut path = PathBuf::new();
    for part in Path::new(from).parent().unwrap_or(Path::new("")).join(to).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

/// What a link may say behind `#` to reach the headings of a page, as forges make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINED: &str = "    /// It.\n    Failed \"F01\" Error,\n    Gone \"F02\" Notice,\n";

    #[test]
    fn an_event_without_a_row_is_found() {
        let found = |page: &str| check_events(&Tree::of(&[(EVENTS, DEFINED), (TROUBLESHOOTING, page)])).len();
        assert_eq!(found("\n| F01 | a | b |\n| F02 | a | b |\n"), 0);
        assert_eq!(found("\n| F01 | a | b |\n"), 1, "F02 is missing");
        assert_eq!(found("\n| F01 | a | b |\n| F02 | a | b |\n| F03 | a | b |\n"), 1, "there is no F03");
    }

    #[test]
    fn a_message_that_is_not_said_any_more_is_found() {
        let source = "fn f() { bail!(\"the disk `{disk}` is away; \\\n    look for it\"); }";
        let found =
            |page: &str| check_messages(&Tree::of(&[("forebay/src/a.rs", source), (TROUBLESHOOTING, page)]));
        assert!(found("| `the disk … is away; look for it` | Do. |").is_empty());
        assert_eq!(found("| `the disk … is gone; look for it` | Do. |").len(), 1);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let found = |link: &str| {
            let page = format!("[a]({link})\n");
            let files =
                [("docs/guide/a.md", page.as_str()), ("docs/b.md", "# The b\n"), ("README.md", "# c\n")];
            check_links(&Tree::of(&files)).len()
        };
        assert_eq!(
            found("../b.md") + found("../b.md#the-b") + found("../../README.md") + found("http://x/y"),
            0
        );
        assert_eq!((found("b.md"), found("../b.md#a-b"), found("#none")), (1, 1, 1));
    }
}
