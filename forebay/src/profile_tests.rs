//! The built-in profiles, and what is answered to others.

use super::*;
use engine::composition::contract::{Aftermath, Keeps};

const OWN: &str = r#"
name = "mine"
description = "one of mine"
extends = "flashcache"

[tunables]
ways = 256
set_dirty_percent = { value = 40, source = "by taste" }
"#;

fn refused(text: &str) -> String {
    let error = read("mine.toml", text).expect_err("it is wrong").to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

/// A tunable's value as text.
fn value(profile: &Profile, name: &str) -> String {
    let (_, value) = profile.composition.tunables().find(|(key, _)| key.name == name).expect("it has it");
    value.to_string()
}

#[test]
fn every_built_in_profile_is_possible_and_complete() {
    let profiles = all();
    for (profile, (name, _)) in profiles.iter().zip(FILES) {
        assert_eq!(profile.name, *name);
        assert!(profile.composition.safe && profile.confidence != Confidence::Own);
        assert!(!profile.description.is_empty() && !profile.versions.is_empty());
        let stem = name.split('@').next().expect("a name has a beginning");
        assert_eq!(profile.system, stem);
        let text = profile.composition.text();
        assert_eq!(Composition::parse(&text), Ok(profile.composition));
    }
    let kinds: std::collections::BTreeSet<_> =
        profiles.iter().map(|profile| profile.composition.text()).collect();
    // The imitated parts of bcache did not change between 3.16 and 4.5.
    assert_eq!(kinds.len(), profiles.len() - 1);
}

#[test]
fn forebay_is_the_engines_own() {
    assert_eq!(named(DEFAULT).composition, Composition::forebay());
}

#[test]
fn what_the_profiles_promise() {
    let unsafe_of = |name: &str| {
        let safe = named(name).composition;
        let published = Composition { safe: false, ..safe }.contract();
        (published.process, published.gives_up(&safe.contract()).len(), published.aftermath)
    };
    let last = |within_ms| Keeps::AllButLast { within_ms };
    assert_eq!(unsafe_of("forebay"), (Keeps::All, 0, Aftermath::Prefix));
    assert_eq!(unsafe_of("flashcache"), (Keeps::All, 3, Aftermath::DirtyKept));
    assert_eq!(unsafe_of("enhanceio"), (Keeps::All, 3, Aftermath::DirtyKept));
    assert_eq!(unsafe_of("dm-cache"), (last(1000), 3, Aftermath::AllDirty));
    for era in ["dm-cache@4.5", "dm-cache@3.16", "dm-cache@3.9"] {
        assert_eq!(unsafe_of(era), (Keeps::All, 2, Aftermath::AllDirty));
    }
    let tree = Aftermath::DirtySuperset { leaf_pieces: 32, leaves: 8192 };
    assert_eq!(unsafe_of("mapperx"), (Keeps::All, 2, tree));
    assert_eq!(unsafe_of("bcache"), (last(100), 2, Aftermath::Prefix));
    assert_eq!(unsafe_of("gflash"), (Keeps::AllButNewest { writes: 4 }, 1, Aftermath::Prefix));
}

#[test]
fn eras_differ_in_what_changed() {
    assert_eq!(
        ["bcache", "bcache@4.5", "bcache@3.10"].map(|name| value(&named(name), "p_inverse")),
        ["40", "6000", "64"]
    );
    assert_eq!(value(&named("bcache@3.10"), "cutoff_writeback_sync_percent"), "75");
    assert_eq!(
        ["dm-cache", "dm-cache@4.5", "dm-cache@3.16", "dm-cache@3.9", "mapperx"]
            .map(|name| value(&named(name), "waits")),
        ["false", "true", "true", "true", "true"]
    );
    assert_eq!(named("dm-cache@3.9").composition.choice(Axis::Admission).name, "mq");
    assert_eq!(value(&named("dm-cache@3.9"), "slot_bytes"), "262144", "what the base says stays");
}

#[test]
fn a_users_own_profile() {
    let own = read("mine.toml", OWN).expect("it is right");
    assert_eq!(
        [value(&own, "ways"), value(&own, "set_dirty_percent"), value(&own, "slot_bytes")],
        ["256", "40", "4096"]
    );
    let source = |name| own.source(Key::named(name).expect("it exists"));
    assert_eq!(source("set_dirty_percent"), "by taste");
    assert_eq!(source("slot_bytes"), "flashcache-sa-guide", "the base's");
    assert_eq!(source("ways"), "mine", "the guide says 512");
    assert_eq!(source("set_runs_max"), "flashcache-sa-guide, max_clean_ios_set", "a default");
    assert_eq!((own.confidence, own.name.as_str()), (Confidence::Own, "mine"));
}

#[test]
fn a_wrong_profile_is_answered_with_the_line_and_what_is_allowed() {
    let with = |from: &str, to: &str| refused(&OWN.replace(from, to));
    assert_eq!(
        with("ways = 256", "ways = 9000"),
        "mine.toml:7: ways = 9000 is not allowed: it must be 0 to 8192 slots"
    );
    assert_eq!(with("ways = 256", "ways = -1"), "mine.toml:7: ways = -1: it must be 0 to 8192 slots");
    assert_eq!(with("ways = 256", "colour = 1"), "mine.toml:7: there is no colour");
    assert_eq!(
        with("ways = 256", "idle_ms = 1"),
        "mine.toml:7: idle_ms is nothing that destage = threshold has"
    );
    let no_scalar = with("ways = 256", "ways = [1]");
    assert!(no_scalar.starts_with("mine.toml:7: ways: it must be 0 to 8192 slots, or {"), "{no_scalar}");
    with("ways = 256", "ways = 2.5");
    with("ways = 256", "ways = { value = 1, unit = \"slots\" }");
    with("ways = 256", "ways = { value = { value = 1 } }");
    assert_eq!(
        with("ways = 256", "ways = 0"),
        "mine.toml: threshold-needs-sets: destage = threshold or threshold-sets needs ways above 0 (they count by set)"
    );
    assert!(
        with("extends = \"flashcache\"", "extends = \"cash\"")
            .starts_with("mine.toml:4: extends cash: unknown profile; there are forebay, ")
    );
    assert!(with("extends = \"flashcache\"", "").contains("[axes] has no placement; there are log, slots"));
    assert!(
        with("[tunables]", "[axes]\ndestage = \"sweeping\"\n[tunables]")
            .starts_with("mine.toml:7: destage = sweeping: there are sweep, pi,")
    );
    assert!(
        with("[tunables]", "[axes]\ncolour = \"red\"\n[tunables]")
            .starts_with("mine.toml:7: there is no colour")
    );
    assert!(with("name = \"mine\"", "name = 1").starts_with("mine.toml:2: "));
    assert!(with("name", "nom").starts_with("mine.toml:2: unknown field"));
    assert!(refused("name = \"mine").starts_with("mine.toml:1: "));
}

#[test]
fn what_does_not_run_yet_is_refused_by_name() {
    named(DEFAULT).runnable().expect("it runs");
    for profile in all() {
        if let Err(error) = profile.runnable() {
            let error = error.to_string();
            assert!(error.contains(&profile.name) && error.contains("use --profile forebay"), "{error}");
        }
    }
    let mine = |tunables: &str| {
        let text = format!("name = \"mine\"\ndescription = \"\"\nextends = \"forebay\"\n{tunables}");
        read("mine.toml", &text).expect("it is right")
    };
    mine("[axes]\nwrite_mode = \"writethrough\"").runnable().expect("a volume has its own mode");
    mine("[tunables]\nidle_ms = 301").runnable().expect("it is kept with the cache");
    let error = mine("[axes]\nadmission = \"always\"\n[tunables]\nghost_pieces = 1")
        .runnable()
        .expect_err("nothing looks at it")
        .to_string();
    assert!(error.contains("ghost_pieces = 1"), "{error}");
}

#[test]
fn a_name_that_no_superblock_can_have_is_refused() {
    let long = "x".repeat(65);
    for name in ["", long.as_str(), "a\\u001bb"] {
        let text = OWN.replace("\"mine\"", &format!("\"{name}\""));
        assert!(refused(&text).contains("name: it must have 1 to 64 bytes"), "{name}");
    }
}

#[test]
fn an_unknown_profile_is_answered_with_those_there_are() {
    assert!(parse_name("bcache9").expect_err("no such profile").to_string().contains("bcache@3.10"));
    assert_eq!(parse_wanted("bcache").expect("it is built in"), Wanted::BuiltIn("bcache"));
    for file in ["x.toml", "./x", "/etc/forebay/x"] {
        assert_eq!(parse_wanted(file).expect("it is a file"), Wanted::File(file.into()));
    }
    assert!(matches!(load(&Wanted::File("/nowhere/x.toml".into())), Err(ProfileError::Read { .. })));
}
