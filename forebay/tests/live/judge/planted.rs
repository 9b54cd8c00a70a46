//! The judge can find something: devices that break their own promise are found, and named for what it is.

use super::medium::Plant;
use super::run::{Setup, run};
use super::trial::Finding;
use crate::fuse;
use crate::verifier::{Violation, Wrong};

/// What the judge finds within some seeds.
fn found(name: &str, plant_in_cache: Plant, plant_in_origins: Plant) -> Option<Finding> {
    if fuse::is_left_out("the test of planted faults") {
        return None;
    }
    let setup = Setup {
        profile: "forebay",
        seed: 0,
        crashes: 8,
        has_threads: false,
        is_layered: true,
        plant_in_cache,
        plant_in_origins,
    };
    let finding = (1..=4).find_map(|seed| run(&Setup { seed, ..setup }).err());
    let finding = finding.unwrap_or_else(|| panic!("{name}: the judge finds nothing"));
    println!("{name}: {finding}");
    Some(finding)
}

/// Whether it is old data under a client's eyes, or one of these refusals, which look at devices and not at sectors.
fn is_named(finding: &Finding, wrongs: &[Wrong], refusals: &[&str]) -> bool {
    match finding.violation.as_deref() {
        Some(Violation::Content { wrong: Some(wrong), .. }) => wrongs.contains(wrong),
        Some(_) => false,
        None => refusals.iter().any(|refusal| finding.what.contains(refusal)),
    }
}

#[test]
fn an_origin_that_forgets_what_was_flushed_is_found() {
    let Some(finding) = found("forgetful origin", Plant::None, Plant::ForgetsFlushes) else { return };
    assert!(is_named(&finding, &[Wrong::Lost], &["changed behind"]), "a flushed write was lost: {finding}");
}

#[test]
fn an_origin_that_reads_older_versions_is_found() {
    let Some(finding) = found("older reads", Plant::None, Plant::OlderReads) else { return };
    let wrongs = [Wrong::Stale, Wrong::Lost, Wrong::Changed];
    assert!(
        is_named(&finding, &wrongs, &["changed behind", "detach"]),
        "an older version was read: {finding}"
    );
}

#[test]
fn a_cache_that_forgets_what_was_flushed_is_found() {
    let Some(finding) = found("forgetful cache", Plant::ForgetsFlushes, Plant::None) else { return };
    // A superblock among what was forgotten is "older than the log", "an older copy" or damage that `check` finds.
    let refusals = ["damage", "older than the log", "older copy", "changed behind"];
    assert!(is_named(&finding, &[Wrong::Lost], &refusals), "a flushed write was lost: {finding}");
}

#[test]
fn an_origin_that_drops_writes_is_found() {
    let Some(finding) = found("dropped writes", Plant::None, Plant::DropsWrites) else { return };
    let wrongs = [Wrong::Stale, Wrong::Lost];
    assert!(
        is_named(&finding, &wrongs, &["changed behind", "detach"]),
        "an acknowledged write was lost: {finding}"
    );
}
