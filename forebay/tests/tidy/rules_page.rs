//! The items of `docs/rules.md`: what they name exists, and every scenario and planted bug is named by one.

use crate::findings::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Where the page is.
pub const PATH: &str = "docs/rules.md";
const MUTATIONS: &str = "engine/src/mutation.rs";
const SCENARIOS: &str = "lab/tests/scenarios/";

/// A list below an item that the check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `Kept in:` files or folders.
    Kept,
    /// `Proved by:` tests, as `file::function`.
    Proved,
    /// `Planted bug:` variants of `engine::mutation::Mutation`.
    Planted,
    /// `No planted bug:` and the reason.
    NoBug,
    /// `Not built:` and what is so instead.
    NotBuilt,
}

const FIELDS: [(&str, Field); 5] = [
    ("Kept in:", Field::Kept),
    ("Proved by:", Field::Proved),
    ("Planted bug:", Field::Planted),
    ("No planted bug:", Field::NoBug),
    ("Not built:", Field::NotBuilt),
];

/// A rule, a hazard, an invariant, a history.
#[derive(Debug, Default)]
pub struct Item {
    /// As it is cited: `RULE 7`, `S3`.
    pub tag: String,
    line: usize,
    must: bool,
    steps: usize,
    fields: Vec<Field>,
    names: Vec<(Field, usize, String)>,
}

/// The page.
#[derive(Debug, Default)]
pub struct Page {
    items: Vec<Item>,
}

impl Page {
    /// Reads the page; what has no place in its form is a finding.
    pub fn parse(text: &str) -> (Page, Vec<Finding>) {
        let (mut page, mut findings) = (Page::default(), Vec::new());
        let mut field = None;
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            if let Some(heading) = line.strip_prefix("## ") {
                let Some((tag, _)) = heading.split_once(": ") else {
                    findings.push(Finding::new(PATH, number, "write the heading as `## TAG: what it is`"));
                    continue;
                };
                if page.has(tag) {
                    findings.push(Finding::new(
                        PATH,
                        number,
                        format!("{tag} is here twice: number one anew"),
                    ));
                }
                page.items.push(Item { tag: tag.to_owned(), line: number, ..Item::default() });
                field = None;
                continue;
            }
            let Some(item) = page.items.last_mut() else { continue };
            if let Some(list) = line.strip_prefix("- ") {
                let known = FIELDS.iter().find(|(name, _)| list.starts_with(name));
                field = known.map(|(_, field)| *field);
                item.fields.extend(field);
                if field.is_none() {
                    let what = "this list is none that the check reads: see `FIELDS` in rules_page.rs";
                    findings.push(Finding::new(PATH, number, what));
                }
            } else if !line.starts_with("  ") {
                field = None;
                let is_text = line.starts_with(|first: char| first.is_alphabetic()) && line != "Without it:";
                item.must |= item.fields.is_empty() && is_text;
                item.steps += usize::from(line.starts_with(|first: char| first.is_ascii_digit()));
            }
            let names = line.split('`').skip(1).step_by(2);
            item.names.extend(
                field
                    .into_iter()
                    .flat_map(|field| names.clone().map(move |name| (field, number, name.to_owned()))),
            );
        }
        (page, findings)
    }

    /// Whether there is an item with that tag.
    pub fn has(&self, tag: &str) -> bool {
        self.items.iter().any(|item| item.tag == tag)
    }

    fn names(&self, field: Field) -> impl Iterator<Item = (&Item, usize, &str)> {
        let all = self.items.iter().flat_map(|item| item.names.iter().map(move |name| (item, name)));
        all.filter(move |(_, name)| name.0 == field)
            .map(|(item, (_, line, name))| (item, *line, name.as_str()))
    }
}

/// Everything that can be wrong between the page and the tree.
pub fn check(page: &Page, tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = page.items.iter().flat_map(check_form).collect();
    findings.extend(page.names(Field::Kept).filter_map(|(_, line, path)| {
        let is_there = !tree.text(path).is_empty() || tree.has_folder(path);
        (!is_there)
            .then(|| Finding::new(PATH, line, format!("{path} is gone: name the file that keeps it now")))
    }));
    findings.extend(
        page.names(Field::Proved)
            .filter_map(|(_, line, test)| Some(Finding::new(PATH, line, missing_test(tree, test)?))),
    );
    findings.extend(check_mutations(page, tree));
    findings.extend(check_scenarios(page, tree));
    findings.extend(check_switches(page, tree));
    findings
}

/// A planted bug is switched in a file that one of its items says keeps it.
fn check_switches(page: &Page, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, name) in variants(tree.text(MUTATIONS)) {
        let items =
            page.names(Field::Planted).filter(|(_, _, planted)| *planted == name).map(|(item, _, _)| item);
        let kept: BTreeSet<&str> = items
            .flat_map(|item| &item.names)
            .filter_map(|(field, _, path)| (*field == Field::Kept).then_some(path.as_str()))
            .collect();
        let sources =
            tree.sources().filter(|(path, _)| path.starts_with("engine/src/") && *path != MUTATIONS);
        let switched: Vec<&str> =
            sources.filter(|(_, text)| is_switched(text, name)).map(|(path, _)| path).collect();
        if switched.is_empty() {
            let what =
                format!("nothing in engine/src switches {name}: take the planted bug out, or plant it");
            findings.push(Finding::new(MUTATIONS, line, what));
        } else if !kept.is_empty() && !switched.iter().any(|path| kept.contains(path)) {
            let what = format!(
                "{name} is switched in {}: add that to `Kept in:` of its item in {PATH}",
                switched.join(", ")
            );
            findings.push(Finding::new(MUTATIONS, line, what));
        }
    }
    findings
}

fn is_switched(text: &str, name: &str) -> bool {
    let mut after = text.split("Mutation::").skip(1).filter_map(|rest| rest.strip_prefix(name));
    after.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

fn check_form(item: &Item) -> Vec<Finding> {
    let has = |field| item.fields.contains(&field);
    let is_built = !has(Field::NotBuilt);
    let demands = [
        (!item.must, "say in a sentence what must hold"),
        (item.steps < 2, "tell the history without it in numbered steps"),
        (is_built && !has(Field::Kept), "add `- Kept in:` and the files that keep it, or `- Not built:`"),
        (is_built && !has(Field::Proved), "add `- Proved by:` and tests"),
        (
            is_built && !has(Field::Planted) && !has(Field::NoBug),
            "add `- Planted bug:`, or `- No planted bug:` and why",
        ),
    ];
    let failed = demands.into_iter().filter(|(is_missing, _)| *is_missing);
    failed.map(|(_, what)| Finding::new(PATH, item.line, format!("{}: {what}", item.tag))).collect()
}

/// Why a test cannot be found as `file::function`.
fn missing_test(tree: &Tree, test: &str) -> Option<String> {
    let Some((path, function)) = test.split_once("::") else {
        return Some(format!("write {test} as `file.rs::function`"));
    };
    let files = tree.ending_with(path);
    let [file] = files[..] else {
        return Some(match files.is_empty() {
            true => format!("{path} is gone: name the file of {function}"),
            false => format!("{path} may be {}: name more of its path", files.join(" or ")),
        });
    };
    let lines: Vec<&str> = tree.text(file).lines().collect();
    let begin = format!("fn {function}(");
    let is_function = |line: &&str| line.trim_start().trim_start_matches("pub ").starts_with(&begin);
    let Some(at) = lines.iter().position(is_function) else {
        return Some(format!("{file} has no {function}: name the test that proves it now"));
    };
    let mut attributes = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
    let is_test = attributes.any(|line| line.contains("#[test]"));
    let is_scenario = scenarios(tree.text(file)).iter().any(|(_, name, _)| *name == function);
    (!is_test && !is_scenario).then(|| format!("{function} in {file} is no test and no scenario: name one"))
}

fn check_mutations(page: &Page, tree: &Tree) -> Vec<Finding> {
    let variants = variants(tree.text(MUTATIONS));
    let known: BTreeSet<&str> = variants.iter().map(|(_, name)| *name).collect();
    let named: BTreeSet<&str> = page.names(Field::Planted).map(|(_, _, name)| name).collect();
    let gone = page.names(Field::Planted).filter(|(_, _, name)| !known.contains(name));
    let mut findings: Vec<Finding> = gone
        .map(|(_, line, name)| {
            Finding::new(PATH, line, format!("there is no planted bug {name}: take it away"))
        })
        .collect();
    findings.extend(variants.iter().filter(|(_, name)| !named.contains(name)).map(|(line, name)| {
        Finding::new(MUTATIONS, *line, format!("{name} is on no item of {PATH}: add it to one, or write one"))
    }));
    findings
}

/// The variants of `Mutation`, with their lines.
fn variants(text: &str) -> Vec<(usize, &str)> {
    let begin = |line: &(usize, &str)| line.1.trim_end() == "mutations! {";
    let table = text.lines().enumerate().skip_while(move |line| !begin(line)).skip(1);
    let rows = table.take_while(|(_, line)| !line.starts_with('}'));
    let names = rows.filter_map(|(at, line)| Some((at + 1, line.trim().strip_suffix(',')?)));
    names
        .filter(|(_, name)| name.starts_with(|first: char| first.is_ascii_uppercase()) && !name.contains(' '))
        .collect()
}

fn check_scenarios(page: &Page, tree: &Tree) -> Vec<Finding> {
    let named: BTreeSet<(&str, &str)> = page
        .names(Field::Proved)
        .filter_map(|(item, _, test)| Some((item.tag.as_str(), test.split_once("::")?.1)))
        .collect();
    let mut findings = Vec::new();
    for (path, text) in tree.with_ending("rs").filter(|(path, _)| path.starts_with(SCENARIOS)) {
        for (line, name, _) in scenarios(text) {
            let is_named = match tag_of_scenario(name) {
                Some(tag) => named.contains(&(tag.as_str(), name)),
                None => named.iter().any(|(_, test)| *test == name),
            };
            if !is_named {
                let item = tag_of_scenario(name).unwrap_or_else(|| "an item".to_owned());
                findings.push(Finding::new(
                    path,
                    line,
                    format!("{name} is not on {PATH}: add it to {item}, `Proved by:`"),
                ));
            }
        }
    }
    findings
}

/// `RULE 7` of `rule_07_flush_of_the_origin`.
fn tag_of_scenario(name: &str) -> Option<String> {
    let mut parts = name.split('_');
    let kind = parts.next().filter(|kind| ["rule", "hazard"].contains(kind))?;
    let number: u32 = parts.next()?.parse().ok()?;
    Some(format!("{} {number}", kind.to_uppercase()))
}

/// Lines, names and planted bugs of the scenarios in a file's table.
fn scenarios(text: &str) -> Vec<(usize, &str, &str)> {
    let begin = |line: &str| line.trim_end().ends_with("scenarios! {") && !line.starts_with("macro_rules");
    let table = text.lines().enumerate().skip_while(move |(_, line)| !begin(line)).skip(1);
    let rows = table.take_while(|(_, line)| !line.starts_with('}'));
    let cells = rows.filter_map(|(at, line)| {
        let (name, rest) = line.trim().split_once(": ")?;
        let is_name =
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        is_name.then(|| (at + 1, name, rest.split(',').next().unwrap_or(rest)))
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Rules\n\n## RULE 7: first\n\nIt holds.\n\nWithout it:\n\n1. a\n2. b\n\n\
        - Kept in: `engine/src/a.rs`\n- Proved by: `scenarios/b.rs::rule_07_b`,\n  `lab/tests/t.rs::proof`\n\
        - Planted bug: `Bug`\n";

    fn tree() -> Tree {
        Tree::of(&[
            ("engine/src/a.rs", "fn a() { has(Mutation::Bug) }"),
            ("engine/src/c.rs", "fn c() { has(Mutation::Bugs) }"),
            ("lab/tests/t.rs", "#[test]\n#[ignore]\nfn proof() {}\nfn no_proof() {}"),
            (
                "lab/tests/scenarios/b.rs",
                "crate::scenarios! {\n    rule_07_b: Bug, a;\n}\nfn rule_07_b(world: &mut World) {}",
            ),
            (MUTATIONS, "mutations! {\n    // ---- all\n    /// A bug.\n    Bug,\n}\n"),
        ])
    }

    fn found(text: &str) -> String {
        let (page, mut findings) = Page::parse(text);
        findings.extend(check(&page, &tree()));
        findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_true_page_passes() {
        assert_eq!(found(GOOD), "");
    }

    #[test]
    fn what_is_gone_is_found() {
        let without = |from: &str, to: &str| found(&GOOD.replace(from, to));
        assert!(without("src/a.rs", "src/z.rs").contains("docs/rules.md:12: engine/src/z.rs is gone"));
        assert!(without("::proof", "::prove").contains("docs/rules.md:14: lab/tests/t.rs has no prove"));
        assert!(without("::proof", "::no_proof").contains("no test and no scenario"));
        assert!(without("t.rs::", "u.rs::").contains("lab/tests/u.rs is gone"));
        assert!(without("`Bug`", "`Bag`").contains("there is no planted bug Bag"));
        assert!(without("`Bug`", "`Bag`").contains("engine/src/mutation.rs:4: Bug is on no item"));
        assert!(
            without("RULE 7", "RULE 8")
                .contains("scenarios/b.rs:2: rule_07_b is not on docs/rules.md: add it to RULE 7")
        );
    }

    #[test]
    fn a_bug_that_is_switched_elsewhere_is_found() {
        let elsewhere = found(&GOOD.replace("src/a.rs", "src/c.rs"));
        assert!(elsewhere.contains("mutation.rs:4: Bug is switched in engine/src/a.rs: add that"));
        let (page, _) = Page::parse(GOOD);
        let nowhere = Tree::of(&[(MUTATIONS, "mutations! {\n    Bug,\n}\n"), ("engine/src/a.rs", "// Bug")]);
        assert!(check_switches(&page, &nowhere)[0].what.contains("nothing in engine/src switches Bug"));
    }

    #[test]
    fn what_has_another_form_is_found() {
        assert!(found(&GOOD.replace("It holds.", "")).contains("what must hold"));
        assert!(found(&GOOD.replace("2. b", "")).contains("numbered steps"));
        assert!(found(&GOOD.replace("- Kept", "- Somewhere")).contains("none that the check reads"));
        assert!(found(&GOOD.replace("- Planted bug:", "- No planted bug:")).contains("is on no item"));
        assert!(found(&GOOD.replace("7: first", "7")).contains("write the heading"));
        assert!(found(&format!("{GOOD}{}", &GOOD[9..])).contains("RULE 7 is here twice"));
        let not_built = "## RULE 14: later\n\nIt will hold.\n\n1. a\n2. b\n\n- Not built: because.\n";
        assert_eq!(found(&format!("{GOOD}\n{not_built}")), "");
    }

    #[test]
    fn a_name_with_two_files_needs_more_of_its_path() {
        let tree = Tree::of(&[("a/tests.rs", "fn x() {}"), ("b/tests.rs", "fn x() {}")]);
        assert!(
            missing_test(&tree, "tests.rs::x").expect("it is two files").contains("a/tests.rs or b/tests.rs")
        );
    }
}
