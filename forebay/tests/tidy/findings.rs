//! What is wrong, and how much of it is allowed today.

use std::collections::BTreeMap;
use std::fmt;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Finding {
    /// It is wrong at that line.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// How many findings are allowed below a path, until somebody has mended them. The numbers may only go down.
#[derive(Debug)]
pub struct Ratchet {
    rule: &'static str,
    allowed: &'static [(&'static str, usize)],
}

impl Ratchet {
    /// Nothing is allowed.
    pub const fn none(rule: &'static str) -> Ratchet {
        Ratchet { rule, allowed: &[] }
    }

    /// So many are allowed in files whose path begins so.
    pub const fn at_most(rule: &'static str, allowed: &'static [(&'static str, usize)]) -> Ratchet {
        Ratchet { rule, allowed }
    }

    fn allowance_of(&self, path: &str) -> Option<&'static str> {
        let prefixes = self.allowed.iter().map(|(prefix, _)| *prefix);
        prefixes.filter(|prefix| path.starts_with(prefix)).max_by_key(|prefix| prefix.len())
    }

    /// What is more than allowed, and notes about allowances that are larger than need be.
    fn excess(&self, findings: Vec<Finding>) -> (Vec<Finding>, Vec<String>) {
        let mut by_allowance: BTreeMap<Option<&str>, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            by_allowance.entry(self.allowance_of(&finding.path)).or_default().push(finding);
        }
        let mut excess = by_allowance.remove(&None).unwrap_or_default();
        let mut notes = Vec::new();
        for &(prefix, allowed) in self.allowed {
            let found = by_allowance.remove(&Some(prefix)).unwrap_or_default();
            if found.len() > allowed {
                excess.extend(found);
            } else if found.len() < allowed {
                let count = found.len();
                notes.push(format!("{}: {prefix} has {count}, and may have {allowed}: lower it", self.rule));
            }
        }
        (excess, notes)
    }

    /// # Panics
    /// If there is more than allowed.
    pub fn judge(&self, findings: Vec<Finding>) {
        let (excess, notes) = self.excess(findings);
        notes.iter().for_each(|note| println!("{note}"));
        let lines: Vec<String> = excess.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{}: {} findings\n{}", self.rule, lines.len(), lines.join("\n"));
    }
}

#[test]
fn an_allowance_is_for_its_own_files_and_no_more() {
    const RATCHET: Ratchet = Ratchet::at_most("test", &[("lab/", 2), ("lab/src/", 1)]);
    let at = |path: &str| Finding::new(path, 1, "wrong");
    let excess = |paths: &[&str]| RATCHET.excess(paths.iter().map(|path| at(path)).collect());
    assert_eq!(excess(&["lab/a.rs", "lab/b.rs", "lab/src/c.rs"]), (vec![], vec![]));
    assert_eq!(excess(&["lab/src/a.rs", "lab/src/b.rs"]).0.len(), 2, "all are shown: which one is new?");
    assert_eq!(excess(&["live/a.rs"]).0.len(), 1);
    assert_eq!(excess(&["lab/a.rs"]).1.len(), 2, "both allowances could be lower");
    assert_eq!(Ratchet::none("test").excess(vec![at("a.rs")]).0.len(), 1);
    assert_eq!(at("a.rs").to_string(), "a.rs:1: wrong");
}
