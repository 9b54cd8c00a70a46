//! The table of tunables, the text form, the contract.

use super::choices;
use super::contract::{Aftermath, Keeps, Rot};
use super::keys::{Grain, Unit};
use super::points::points;
use super::*;
use crate::limits::Config;
use crate::policies::admission::congestion::CongestionChoice;
use crate::policies::admission::mq::MqChoice;
use crate::policies::admission::runs::RunsChoice;
use crate::policies::controllers::cleaner::CleanerChoice;
use crate::policies::controllers::idle::IdleChoice;
use crate::policies::controllers::mirror_fill::MirrorFillChoice;
use crate::policies::controllers::pi::PiChoice;
use crate::policies::controllers::threshold::ThresholdChoice;
use crate::policies::controllers::threshold_sets::ThresholdSetsChoice;
use crate::prng::Prng;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

fn set(changes: &[(&str, &str)]) -> Composition {
    let mut composition = Composition::plain_log();
    for (name, value) in changes {
        composition.set(name, value).expect("the test sets what there is");
    }
    composition
}

/// Whatever log it is, a start has a bounded part of it to verify.
#[test]
fn every_log_is_flushed_in_time() {
    for persistence in ["inline", "frames", "journal", "mirror"] {
        let mut config = Config::for_cache(1024, 64);
        config.tune(&set(&[("persistence", persistence)]));
        assert_eq!(config.unflushed_blocks_max * 4096, 256 << 20, "{persistence}");
    }
}

#[test]
fn names_are_unique_and_every_tunable_is_complete() {
    let mut names: BTreeSet<&str> = Axis::ALL.into_iter().map(Axis::name).collect();
    names.insert("safe");
    for key in KEYS {
        assert!(names.insert(key.name), "{} is there twice", key.name);
        assert!(!key.meaning.is_empty() && !key.source.is_empty(), "{}", key.name);
        for value in [key.least, key.default, key.most] {
            let text = key.show(value).to_string();
            assert_eq!(key.parse(&text), Ok(value), "{} = {text}", key.name);
        }
        let owners = choices::all().filter(|choice| choice.keys().any(|of| of.name == key.name)).count();
        assert_eq!(owners == 0, key.axis.is_none(), "{} belongs to a choice", key.name);
    }
    let names: BTreeSet<_> = choices::all().map(|choice| (choice.axis, choice.name)).collect();
    assert_eq!(names.len(), choices::all().count());
}

/// Goal: what is set is what is got, and nothing else changes. Method: every tunable of every choice, at both ends.
#[test]
fn each_tunable_is_a_field_of_its_own() {
    for choice in choices::all() {
        let before = set(&[(choice.axis.name(), choice.name)]);
        assert_eq!(before.choice(choice.axis).name, choice.name);
        for key in choice.keys() {
            for value in [key.least, key.most] {
                let mut after = before;
                key.put(&mut after, value);
                assert_eq!(key.get(&after), Some(value), "{}", key.name);
                for other in KEYS.iter().filter(|other| other.name != key.name) {
                    assert_eq!(other.get(&after), other.get(&before), "{} sets {}", key.name, other.name);
                }
                let mut back = after;
                key.put(&mut back, key.get(&before).expect("the choice has it"));
                assert_eq!(back, before);
            }
        }
    }
}

#[test]
fn defaults_are_what_the_policies_call_published() {
    let bcache = set(&[("cutoff", "runs-and-congestion"), ("destage", "pi")]);
    assert_eq!(bcache.cutoff.runs, Some(RunsChoice::PUBLISHED));
    assert_eq!(bcache.cutoff.congestion, Some(CongestionChoice::PUBLISHED));
    assert_eq!(bcache.destage, DestageChoice::Pi(PiChoice::PUBLISHED));
    assert_eq!(set(&[("admission", "mq")]).admission, AdmissionChoice::Mq(MqChoice::PUBLISHED));
    for (name, choice) in [
        ("threshold", DestageChoice::Threshold(ThresholdChoice::PUBLISHED)),
        ("threshold-sets", DestageChoice::ThresholdSets(ThresholdSetsChoice::PUBLISHED)),
        ("idle", DestageChoice::Idle(IdleChoice::PUBLISHED)),
        ("cleaner", DestageChoice::Cleaner(CleanerChoice::PUBLISHED)),
        ("mirror", DestageChoice::MirrorFill(MirrorFillChoice::PUBLISHED)),
    ] {
        assert_eq!(set(&[("destage", name)]).destage, choice);
    }
}

#[test]
fn what_cannot_be_set_is_answered_with_what_can() {
    let refused = |name: &str, value: &str| {
        let mut composition = Composition::plain_log();
        let error = composition.set(name, value).expect_err("it cannot be set").to_string();
        assert_eq!(composition, Composition::plain_log(), "nothing has changed");
        error
    };
    assert_eq!(refused("colour", "red"), "there is no colour");
    assert_eq!(refused("placement", "heap"), "placement = heap: there are log, slots");
    assert_eq!(refused("ways", "4"), "ways is nothing that placement = log has");
    assert_eq!(refused("idle_ms", "0"), "idle_ms = 0 is not allowed: it must be 1 to 600000 ms");
    assert_eq!(refused("idle_ms", "soon"), "idle_ms = soon: it must be 1 to 600000 ms");
    assert_eq!(
        refused("readahead_bytes", "100"),
        "readahead_bytes = 100 is not allowed: it must be 0 to 1048576 bytes, a multiple of 512"
    );
    assert_eq!(
        refused("free_order", "any"),
        "free_order = any: it must be lowest, near-last, last-freed, first-freed"
    );
    assert!(refused("aligned_sectors", "3").ends_with("0 to 4096 sectors, a power of two or 0"));
    for value in ["", "+1", "01", "1 ", "0x1", "99999999999999999999999", "-1", "1.0"] {
        refused("idle_ms", value);
    }
}

#[test]
fn couplings_of_tunables() {
    let mut bcache = set(&[
        ("persistence", "journal"),
        ("replacement", "bucket-lru"),
        ("writes", "extents"),
        ("destage", "pi"),
    ]);
    assert!(bcache.validate().is_ok());
    bcache.set("cutoff_writeback_sync_percent", "96").unwrap();
    assert_eq!(bcache.validate().unwrap_err().name, "bucket-cutoffs-rise");
    let mut deaf = Composition::plain_log();
    deaf.cutoff.congestion = Some(CongestionChoice::PUBLISHED);
    assert_eq!(deaf.validate().unwrap_err().name, "congestion-needs-runs");
}

#[test]
fn safe_promises_what_a_disk_does_and_unsafe_says_what_it_gives_up() {
    for point in points().filter(|point| point.validate().is_ok()).step_by(97) {
        let safe = point.contract();
        assert!(safe.process == Keeps::All && !safe.cache_needs_plp && !safe.origin_needs_plp);
        let published = Composition { safe: false, ..point }.contract();
        assert_eq!(published.aftermath, safe.aftermath);
        assert_eq!(published.rot == safe.rot, safe.rot == Rot::Always, "only slots give up checksums");
        assert_eq!(published.gives_up(&safe).is_empty(), published == safe);
    }
    let gives_up = |changes: &[(&str, &str)]| {
        let safe = set(changes);
        let published = Composition { safe: false, ..safe };
        published.contract().gives_up(&safe.contract()).len()
    };
    assert_eq!(gives_up(&[]), 0, "forebay has nothing to give up");
    assert_eq!(gives_up(&[("persistence", "journal")]), 2);
    assert_eq!(gives_up(&[("persistence", "sync-sector")]), 3);
    assert_eq!(gives_up(&[("persistence", "commit")]), 3, "smq 2's mappings of the last second");
    assert_eq!(gives_up(&[("persistence", "commit"), ("commits_promotions", "true")]), 2);
    assert_eq!(gives_up(&[("persistence", "mirror")]), 1);
    let tree = set(&[("persistence", "bit-tree")]).contract().aftermath;
    assert_eq!(tree, Aftermath::DirtySuperset { leaf_pieces: 32, leaves: 8192 });
}

#[test]
fn the_text_of_a_plain_log() {
    assert_eq!(
        Composition::plain_log().text(),
        "forebay composition 1\n\
         safe = true\n\
         placement = log\n\
         admission = always\n\
         cutoff = none\n\
         replacement = fifo-reinsertion\n\
         write_mode = writeback\n\
         writes = merge\n\
         persistence = inline\n\
         destage = sweep\n\
         fetch = request\n\
         order = free\n\
         false_dirty_bytes = 268435456\n\
         ghost_pieces = 0\n\
         aligned_sectors = 0\n\
         laps_max = 3\n\
         keep_percent = 50\n\
         credit_percent = 50\n\
         idle_ms = 300\n\
         destage_runs = 16\n\
         readahead_bytes = 0\n\
         flush_after_ms = 500\n\
         backoff_ms = 1000\n\
         absent_ms = 30000\n"
    );
}

#[test]
fn a_text_is_read_only_as_it_was_written() {
    let text = Composition::plain_log().text();
    assert_eq!(Composition::parse(&text), Ok(Composition::plain_log()));
    let refused = |text: &str| Composition::parse(text).expect_err("it was changed").to_string();
    assert_eq!(refused(""), "line 1 of the composition: forebay composition 1 is missing");
    assert_eq!(
        refused(&text.replace("safe = true", "safe = yes")),
        "line 2 of the composition: safe is missing"
    );
    assert!(
        refused(&text.replace("= log", "= heap")).starts_with("line 3 of the composition: placement = heap")
    );
    assert_eq!(
        refused(&text.replace("idle_ms", "idle_mss")),
        "line 19 of the composition: idle_ms is missing"
    );
    assert!(refused(&text.replace("= 300\n", "= 0300\n")).starts_with("line 19"));
    assert_eq!(refused(&(text.clone() + "\n")), "line 25 of the composition: nothing more belongs there");
    assert_eq!(refused(&text[..text.len() - 1]), "line 24 of the composition: absent_ms is missing");
    assert_eq!(
        refused(&text.replace('\n', "\r\n")),
        "line 1 of the composition: forebay composition 1 is missing"
    );
    assert!(refused(&text.replace("= request", "= frame")).starts_with("line 21"));
    let frames =
        text.replace("fetch = request", "fetch = frame").replace("readahead_bytes = 0", "waits = false");
    assert!(refused(&frames).starts_with("frame-needs-slots"));
    assert_eq!(Composition::parse(&" ".repeat(TEXT_BYTES_MAX + 1)), Err(ParseError::TooLong));
}

/// A possible composition with any values.
fn any_composition() -> impl Strategy<Value = Composition> {
    let possible: Vec<Composition> = points().filter(|point| point.validate().is_ok()).step_by(53).collect();
    (prop::sample::select(possible), any::<u64>(), any::<bool>()).prop_map(|(mut composition, seed, safe)| {
        composition.safe = safe;
        let mut prng = Prng::new(seed);
        for key in KEYS {
            let before = composition;
            let span = key.most - key.least;
            let value =
                key.least + if span == u64::MAX { prng.next_u64() } else { prng.next_u64() % (span + 1) };
            let value = match (key.unit, key.grain) {
                (Unit::Name(_) | Unit::Flag, _) | (_, Grain::Any) => value,
                (_, Grain::Multiple(of)) => (value - value % of).max(key.least),
                (_, Grain::PowerOfTwo) => value.next_power_of_two().min(key.most),
            };
            key.put(&mut composition, value);
            if composition.validate().is_err() {
                composition = before;
            }
        }
        composition
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Goal: a cache is opened as what it was made. Method: any possible composition with any values, there and back.
    #[test]
    fn every_composition_comes_back_from_its_text(composition in any_composition()) {
        let text = composition.text();
        prop_assert!(text.len() <= TEXT_BYTES_MAX / 2, "there is room for more tunables: {}", text.len());
        prop_assert_eq!(Composition::parse(&text), Ok(composition));
    }

    /// Goal: hostile bytes are an error, or a text that this program would have written. Method: bytes of a text
    /// changed, left out, repeated, cut.
    #[test]
    fn a_damaged_text_is_refused_or_another_composition(
        composition in any_composition(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..4),
    ) {
        let mut bytes = composition.text().into_bytes();
        for (at, byte, how) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[at]),
                _ => bytes.truncate(at),
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(read) = Composition::parse(&text) {
            prop_assert_eq!(read.text(), text);
        }
    }
}
