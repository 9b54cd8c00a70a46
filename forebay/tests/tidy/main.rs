//! What the compiler does not see: numbers, names and paths in comments and documents are true, and the house rules of
//! CONTRIBUTING.md are kept. Each finding says where it is and what to do.
//!
//! | file | subject |
//! | --- | --- |
//! | `tree.rs` | the files of the repository |
//! | `tokens.rs` | Rust source as comments, strings, words and signs |
//! | `findings.rs` | what is wrong, and how much of it is allowed today (a ratchet) |
//! | `rules_page.rs` | the items of `docs/rules.md`; what they name exists, and every planted bug is named |
//! | `citations.rs` | rules, hazards and invariants that code and documents cite |
//! | `module_invariants.rs` | `I1`, `I2`, ... stand in the header of their module |
//! | `assertions.rs` | an assertion says what must hold |
//! | `paths.rs` | paths in documents and comments exist |
//! | `first_sentences.rs` | a doc comment begins with what its item is |
//! | `guide.rs` | the guide explains every event and quotes messages as they are; links lead somewhere |
//! | `json_page.rs` | the page on JSON has each field of the reports |
//! | `lengths.rs` | files, functions and lines of documents are short |
//! | `leftovers.rs` | marks of unfinished work, paths of one machine |
//!
//! Each check has tests of its own on small texts, one that must pass and one that must fail at the least.

mod assertions;
mod citations;
mod findings;
mod first_sentences;
mod guide;
mod json_page;
mod leftovers;
mod lengths;
mod module_invariants;
mod paths;
mod rules_page;
mod tokens;
mod tree;

use findings::Ratchet;
use rules_page::Page;
use std::sync::LazyLock;
use tree::Tree;

/// Doc comments that begin with a riddle. Those of `models/src/parameters.rs` are output of `forebay models --json`, which
/// stays as it is.
const FIRST_SENTENCES: &[(&str, usize)] = &[("models/src/parameters.rs", 3)];
static REPOSITORY: LazyLock<Option<Tree>> = LazyLock::new(Tree::of_this_repository);

/// The repository. Without one (a packaged crate has no files beside its own) a test has nothing to look at, and says so.
fn repository() -> Option<&'static Tree> {
    if REPOSITORY.is_none() {
        println!("skipped: this crate stands alone; its repository is where documents and rules are");
    }
    REPOSITORY.as_ref()
}

#[test]
fn the_rules_page_names_what_exists() {
    let Some(tree) = repository() else { return };
    let (page, mut findings) = Page::parse(tree.text(rules_page::PATH));
    findings.extend(rules_page::check(&page, tree));
    Ratchet::none("docs/rules.md is true").judge(findings);
}

#[test]
fn what_code_cites_is_on_the_rules_page() {
    let Some(tree) = repository() else { return };
    let (page, _) = Page::parse(tree.text(rules_page::PATH));
    Ratchet::none("cited rules exist").judge(citations::check(&page, tree));
}

#[test]
fn a_cited_rule_is_told_in_words() {
    let Some(tree) = repository() else { return };
    Ratchet::none("a number comes with words").judge(citations::check_words(tree));
}

#[test]
fn invariants_of_a_module_stand_in_its_header() {
    let Some(tree) = repository() else { return };
    Ratchet::none("invariants are written down").judge(module_invariants::check(tree));
}

#[test]
fn an_assertion_says_what_must_hold() {
    let Some(tree) = repository() else { return };
    Ratchet::none("assertions say what must hold").judge(assertions::check(tree));
}

#[test]
fn paths_in_documents_exist() {
    let Some(tree) = repository() else { return };
    Ratchet::none("paths in documents exist").judge(paths::check_documents(tree));
}

#[test]
fn paths_in_comments_exist() {
    let Some(tree) = repository() else { return };
    Ratchet::none("paths in comments exist").judge(paths::check_comments(tree));
}

#[test]
fn a_doc_comment_begins_with_what_its_item_is() {
    let Some(tree) = repository() else { return };
    Ratchet::at_most("first sentences", FIRST_SENTENCES).judge(first_sentences::check(tree));
}

#[test]
fn files_are_short() {
    let Some(tree) = repository() else { return };
    Ratchet::none("files of 800 lines at most").judge(lengths::check_files(tree));
}

#[test]
fn functions_are_short() {
    let Some(tree) = repository() else { return };
    Ratchet::none("functions of 100 lines at most").judge(lengths::check_functions(tree));
}

#[test]
fn lines_of_documents_are_short() {
    let Some(tree) = repository() else { return };
    Ratchet::none("lines of 100 columns at most").judge(lengths::check_documents(tree));
}

#[test]
fn the_guide_explains_every_event() {
    let Some(tree) = repository() else { return };
    Ratchet::none("every event is explained").judge(guide::check_events(tree));
}

#[test]
fn the_guide_quotes_messages_as_they_are() {
    let Some(tree) = repository() else { return };
    Ratchet::none("messages are quoted as they are").judge(guide::check_messages(tree));
}

#[test]
fn the_page_on_json_has_each_field() {
    let Some(tree) = repository() else { return };
    Ratchet::none("fields of JSON are told of").judge(json_page::check(tree));
}

#[test]
fn links_in_documents_lead_somewhere() {
    let Some(tree) = repository() else { return };
    Ratchet::none("links lead somewhere").judge(guide::check_links(tree));
}

#[test]
fn nothing_is_left_over() {
    let Some(tree) = repository() else { return };
    Ratchet::none("no marks of unfinished work").judge(leftovers::check_marks(tree));
}

#[test]
fn no_machine_is_named() {
    let Some(tree) = repository() else { return };
    Ratchet::none("no paths of one machine").judge(leftovers::check_machines(tree));
}
