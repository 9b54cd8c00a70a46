//! The page on JSON: it has each field of the reports, and no other.

use crate::findings::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Where the page is.
const PATH: &str = "docs/json.md";
/// The sources that define the reports of `status`, `stats` and `check`.
const REPORTS: [&str; 9] = [
    "forebay/src/report/status.rs",
    "forebay/src/report/stats.rs",
    "forebay/src/report/halves.rs",
    "forebay/src/report/scrub.rs",
    "forebay/src/report/clients.rs",
    "forebay/src/report/pace.rs",
    "forebay/src/report/division.rs",
    "forebay/src/report/history.rs",
    "forebay/src/verbs/check.rs",
];

/// Fields without a place in a table of the page, and names there that are no fields.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let defined: BTreeSet<&str> = REPORTS.iter().flat_map(|path| fields(tree.text(path))).collect();
    let page = tree.text(PATH);
    let told: BTreeSet<&str> = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let missing = defined.difference(&told);
    let mut findings: Vec<Finding> = missing
        .map(|field| Finding::new(PATH, 1, format!("`{field}` is missing: say what it means")))
        .collect();
    // Those behind the first column may be words of another kind.
    let first = page.lines().enumerate().filter_map(|(at, line)| Some((at, line.strip_prefix("| `")?)));
    for (at, line) in first {
        let column = line.split(" | ").next().unwrap_or_default();
        for name in column.split(['`', ',', ' ']).filter(|name| !name.is_empty() && !defined.contains(name)) {
            findings.push(Finding::new(PATH, at + 1, format!("no report has a field `{name}`")));
        }
    }
    findings
}

/// The fields of structs and enums that are written as JSON, but for those whose own fields stand in their place.
fn fields(source: &str) -> Vec<&str> {
    let (mut fields, mut is_inside, mut is_flat) = (Vec::new(), false, false);
    let mut is_written = false;
    for line in source.lines() {
        if line.starts_with("#[derive(") {
            is_written = line.contains("Serialize");
        } else if is_written && line.ends_with('{') && (line.contains("struct ") || line.contains("enum ")) {
            (is_inside, is_written) = (true, false);
        } else if line == "}" {
            is_inside = false;
        } else if is_inside {
            let bare = line.trim_start();
            let field = bare.strip_prefix("pub ").unwrap_or(bare).split_once(": ").map(|(name, _)| name);
            let is_letter =
                |letter: char| letter == '_' || letter.is_ascii_lowercase() || letter.is_ascii_digit();
            match field.filter(|name| name.chars().all(is_letter)) {
                Some(_) if is_flat => is_flat = false,
                Some(field) => fields.push(field),
                None => is_flat |= bare.contains("serde(flatten)"),
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[derive(Clone, Serialize)]\npub struct A {\n    /// Text: more.\n    pub one: u64,\n    \
                          #[serde(flatten)]\n    pub flat: B,\n    #[serde(default)]\n    p99_us: f64,\n}\n\
                          #[derive(Clone)]\nstruct Other {\n    hidden: u64,\n}\n\
                          #[derive(Serialize)]\nenum E {\n    Some {\n        three: u32,\n    },\n}\n";

    #[test]
    fn fields_that_are_written_are_found() {
        assert_eq!(fields(SOURCE), ["one", "p99_us", "three"]);
    }

    #[test]
    fn a_field_without_a_place_and_a_place_without_a_field_are_found() {
        let page = "`one` is here\n\n| field | meaning |\n| --- | --- |\n| `three`, `four` | `p99_us` |\n";
        let mut texts: Vec<(&str, &str)> = REPORTS.iter().map(|path| (*path, "")).collect();
        texts[0].1 = SOURCE;
        texts.push((PATH, page));
        let found = check(&Tree::of(&texts));
        assert_eq!(found.len(), 1, "four is no field: {found:?}");
        texts[REPORTS.len()].1 = "`one`, `three`";
        assert_eq!(check(&Tree::of(&texts)).len(), 1, "p99_us is missing");
    }
}
