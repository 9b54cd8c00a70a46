//! Command lines in the documents: they parse, and every verb is told of.

use super::Arguments;
use clap::{Command, CommandFactory, Parser};
use std::fs;
use std::path::{Path, PathBuf};

/// Pages at the root, and those of `docs/`; none in a packaged crate, which stands alone.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate lies in a folder");
    let mut pages = Vec::new();
    let mut folders = vec![root.join("docs")];
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("an entry of docs").path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        pages.extend(fs::read_to_string(&path).ok().map(|text| (path, text)));
    }
    pages
}

/// The words of a command line as a shell would split it; variables become `1`, and what comes behind a `#`, a `|` or a
/// `&` is left out. `None` if it is no command of ours.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo ");
    let rest = line.strip_prefix("forebay ")?;
    let (mut words, mut word, mut quote) = (vec!["forebay".to_owned()], None::<String>, None);
    let mut letters = rest.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (letter, Some(end)) if letter == end => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('$', None | Some('"')) => {
                while letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_').is_some() {}
                word.get_or_insert_default().push('1');
            }
            ('#' | '|' | '&' | '>', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

/// The lines of code of a page, those that end with a backslash joined with the next.
fn code(text: &str) -> Vec<String> {
    let (mut lines, mut is_fenced, mut open) = (Vec::new(), false, None::<String>);
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        if !is_fenced && !line.starts_with("    ") {
            continue;
        }
        let whole = open.take().unwrap_or_default() + line;
        match whole.strip_suffix('\\') {
            Some(begun) => open = Some(begun.to_owned()),
            None => lines.push(whole),
        }
    }
    lines
}

/// Whether a verb has an option of that name.
fn has_option(command: &Command, option: &str) -> bool {
    ["help", "version"].contains(&option)
        || command.get_arguments().any(|argument| argument.get_long() == Some(option))
}

/// The fault of a command in running text, which may leave things out.
fn fault_of_mention(command: &Command, mention: &str) -> Option<String> {
    let mut verb = command;
    let mut is_named = false;
    for word in mention.split_whitespace().skip(1) {
        let word = word.trim_matches(|letter: char| "[].,;".contains(letter));
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or_default();
            if !has_option(verb, name) {
                return Some(format!("{} has no --{name}", verb.get_name()));
            }
        } else if let Some(next) = verb.find_subcommand(word) {
            (verb, is_named) = (next, true);
        } else if !is_named && word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Some(format!("there is no verb {word}"));
        }
    }
    None
}

#[test]
fn command_lines_in_documents_are_understood() {
    let command = Arguments::command();
    let mut faults = Vec::new();
    for (path, text) in pages() {
        for line in code(&text) {
            // A name that the reader fills in is no number and no address, and this machine may lack the package's group.
            let line = line.replace("HOST:PORT", "127.0.0.1:1").replace(" VERB ", " status ");
            let line = line.replace("--socket-group forebay", "--socket-group 0");
            let Some(words) = words(&line) else { continue };
            if let Err(error) = Arguments::try_parse_from(&words)
                && error.use_stderr()
            {
                faults.push(format!("{}: {}: {error}", path.display(), line.trim()));
            }
        }
        let flowing = text.replace('\n', " ");
        for mention in flowing.split('`').filter(|piece| piece.starts_with("forebay ")) {
            let fault = fault_of_mention(&command, mention);
            faults.extend(fault.map(|fault| format!("{}: {mention}: {fault}", path.display())));
        }
    }
    assert!(
        faults.is_empty(),
        "documents have command lines that are not understood:\n{}",
        faults.join("\n")
    );
}

#[test]
fn every_verb_is_told_of() {
    let all = pages();
    if all.is_empty() {
        return;
    }
    let guides = all.iter().filter(|(path, _)| {
        path.ends_with("docs/manual.md")
            || path.ends_with("README.md")
            || path.to_string_lossy().contains("/guide/")
    });
    let told: String = guides.map(|(_, text)| text.replace('\n', " ") + " ").collect();
    for verb in Arguments::command().get_subcommands() {
        let inner: Vec<&Command> = verb.get_subcommands().collect();
        let names = match inner.as_slice() {
            [] => vec![verb.get_name().to_owned()],
            inner => inner.iter().map(|inner| format!("{} {}", verb.get_name(), inner.get_name())).collect(),
        };
        for name in names {
            let is_told = told.contains(&format!("forebay {name}")) || told.contains(&format!("`{name}"));
            assert!(is_told, "neither the manual nor the guide tells of `forebay {name}`");
        }
    }
}

#[test]
fn a_command_line_is_split_as_a_shell_does() {
    let split = |line: &str| words(line).unwrap_or_default().join("|");
    assert_eq!(
        split("    sudo forebay serve \"$SSD\" --nbd 'unix:/a b'  # why"),
        "forebay|serve|1|--nbd|unix:/a b"
    );
    assert_eq!(words("nbdinfo x"), None);
    let command = Arguments::command();
    assert!(fault_of_mention(&command, "forebay set CACHE VOLUME mode=NAME").is_none());
    assert!(fault_of_mention(&command, "forebay help VERB").is_some());
    assert!(fault_of_mention(&command, "forebay serve CACHE --unheard").is_some());
}
