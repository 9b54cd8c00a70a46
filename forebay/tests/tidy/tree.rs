//! The files of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders that hold nothing of ours: what is built, fetched or found.
const FOREIGN: [&str; 4] = ["target", ".git", "corpus", "artifacts"];
/// Endings of files that are read as text.
const TEXTS: [&str; 7] = ["rs", "md", "toml", "txt", "csv", "sh", "yml"];
/// These checks themselves: their tests cite rules that do not exist.
pub const CHECKS: &str = "forebay/tests/tidy/";

/// Names of all files, and the text of those that have any, by path from the root with `/` between folders.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

impl Tree {
    /// The repository around this crate; `None` if the crate was packaged and stands alone.
    ///
    /// # Panics
    /// If there is a workspace around it, and the rules page is not in it.
    pub fn of_this_repository() -> Option<Tree> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
        let manifest = fs::read_to_string(root.join("Cargo.toml")).ok()?;
        if !manifest.contains("[workspace]") {
            return None;
        }
        let mut tree = Tree::default();
        tree.walk(root, "");
        assert!(
            tree.texts.contains_key(super::rules_page::PATH),
            "the repository at {} has lost {}: put it back, or say here where the rules went",
            root.display(),
            super::rules_page::PATH
        );
        Some(tree)
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        let entries = fs::read_dir(folder).expect("a folder of the repository can be read");
        for entry in entries {
            let entry = entry.expect("an entry of a folder can be read");
            let name = entry.file_name().into_string().expect("names are UTF-8");
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() {
                if !FOREIGN.contains(&name.as_str()) {
                    self.walk(&entry.path(), &format!("{path}/"));
                }
            } else if kind.is_file() {
                if TEXTS.iter().any(|ending| path.ends_with(&format!(".{ending}"))) {
                    let text = fs::read_to_string(entry.path());
                    let text = text.unwrap_or_else(|error| panic!("{path} is no text: {error}"));
                    self.texts.insert(path.clone(), text);
                }
                self.names.insert(path);
            }
        }
    }

    /// A tree for tests of a check.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let texts: BTreeMap<String, String> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Tree { names: texts.keys().cloned().collect(), texts }
    }

    /// The text of a file; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.texts.get(path).map_or("", String::as_str)
    }

    /// All files with an ending, and their text.
    pub fn with_ending<'tree>(&'tree self, ending: &str) -> impl Iterator<Item = (&'tree str, &'tree str)> {
        let ending = format!(".{ending}");
        let all = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| path.ends_with(&ending))
    }

    /// Rust files, without these checks.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_ending("rs").filter(|(path, _)| !path.starts_with(CHECKS))
    }

    /// What people read: the pages at the root and in `docs/`.
    pub fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_ending("md").filter(|(path, _)| !path.contains('/') || path.starts_with("docs/"))
    }

    /// Whether there is a file of exactly this path.
    pub fn has_file(&self, path: &str) -> bool {
        self.names.contains(path)
    }

    /// The files whose path is this or ends with it, folder by folder.
    pub fn ending_with(&self, path: &str) -> Vec<&str> {
        let suffix = format!("/{path}");
        let is_meant = |name: &&String| name.as_str() == path || name.ends_with(&suffix);
        self.names.iter().filter(is_meant).map(String::as_str).collect()
    }

    /// Whether there is such a folder: named from the root, or its last part.
    pub fn has_folder(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let (first, inner) = (format!("{path}/"), format!("/{path}/"));
        self.names.iter().any(|name| name.starts_with(&first) || name.contains(&inner))
    }
}

#[test]
fn files_and_folders_are_found_by_their_last_parts() {
    let tree = Tree::of(&[("engine/src/store/log/fills.rs", ""), ("engine/src/refills.rs", "")]);
    assert_eq!(tree.ending_with("log/fills.rs"), ["engine/src/store/log/fills.rs"]);
    assert_eq!(tree.ending_with("fills.rs"), ["engine/src/store/log/fills.rs"]);
    assert!(tree.ending_with("slots/fills.rs").is_empty());
    assert!(tree.has_folder("store/log/") && tree.has_folder("engine/") && !tree.has_folder("tore/"));
}
