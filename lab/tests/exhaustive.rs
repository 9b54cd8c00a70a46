//! Goal: no crash at any moment of a short script loses or mixes up anything. Method: every moment, every subset of
//! what was unflushed, in every write mode; see `forebay_lab::exhaustive`.

use engine::effect::WriteMode;
#[cfg(feature = "mutations")]
use engine::mutation::Mutations;
use engine::units::SectorRange;
use forebay_lab::exhaustive::Act::{
    Discard, Drain, Flush, Fua, Mode, Read, Rest, Settle, Stop, UntilOriginWrite, Write, Zeroes,
};
use forebay_lab::exhaustive::{Explorer, Script, Visited};

/// Sectors of a volume: 40 blocks, the last one not whole.
const VOLUME_SECTORS: u64 = 40 * 8 - 3;

const WRITABLE: &[WriteMode] =
    &[WriteMode::Writeback, WriteMode::Writethrough, WriteMode::Writearound, WriteMode::Passthrough];
/// Those that put writes into the log.
const LOGGED: &[WriteMode] = &[WriteMode::Writeback, WriteMode::Writethrough];

const fn blocks(first: u64, count: u64) -> SectorRange {
    SectorRange { start: first * 8, sectors: count * 8 }
}

const fn sectors(start: u64, sectors: u64) -> SectorRange {
    SectorRange { start, sectors }
}

const SCRIPTS: &[Script<'static>] = &[
    Script {
        name: "overwrite",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 2)),
            Settle,
            Flush,
            Settle,
            Write(blocks(4, 2)),
            Write(blocks(5, 2)),
            Settle,
            Flush,
            Settle,
        ],
    },
    Script {
        name: "flush_among_writes",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 1)),
            Write(blocks(9, 1)),
            Flush,
            Write(blocks(4, 1)),
            Settle,
            Flush,
            Write(blocks(9, 1)),
            Settle,
        ],
    },
    Script {
        name: "flush_after_flush",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 1)),
            Settle,
            Flush,
            Settle,
            Write(blocks(9, 1)),
            Settle,
            Flush,
            Settle,
            Write(blocks(4, 1)),
            Settle,
            Flush,
            Settle,
        ],
    },
    Script {
        name: "one_by_one",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: &[WriteMode::Writeback],
        acts: &[
            // It goes with the head of a segment.
            Write(blocks(4, 1)),
            Settle,
            // Three parts at least, or the next batch goes with its header.
            Write(blocks(9, 2)),
            Settle,
            Write(blocks(4, 1)),
            Settle,
            Write(blocks(10, 1)),
            Settle,
            Flush,
            Write(sectors(75, 9)),
            Settle,
            Write(blocks(20, 1)),
            Write(blocks(4, 1)),
            Flush,
            Settle,
            Write(blocks(30, 1)),
            Settle,
            Rest,
        ],
    },
    Script {
        name: "fua",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(5, 1)),
            Fua(blocks(4, 1)),
            Settle,
            Write(blocks(4, 1)),
            Settle,
            Fua(blocks(20, 2)),
            Settle,
        ],
    },
    Script {
        name: "discard",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 4)),
            Settle,
            Flush,
            Settle,
            Discard(blocks(5, 2)),
            Settle,
            Flush,
            Settle,
            Read(blocks(4, 4)),
            Write(blocks(6, 1)),
            Settle,
        ],
    },
    Script {
        name: "zeroes",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 4)),
            Settle,
            Zeroes(blocks(5, 2)),
            Settle,
            Flush,
            Settle,
            Zeroes(sectors(37, 9)),
            Write(blocks(6, 1)),
            Settle,
            Flush,
            Settle,
        ],
    },
    Script {
        name: "partial_writes",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(sectors(33, 3)),
            Settle,
            Write(sectors(36, 9)),
            Write(sectors(34, 1)),
            Settle,
            Flush,
            Settle,
            Write(sectors(VOLUME_SECTORS - 7, 7)),
            Settle,
        ],
    },
    Script {
        name: "destage_and_rewrite",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: LOGGED,
        acts: &[
            Write(blocks(4, 3)),
            Settle,
            Flush,
            Settle,
            UntilOriginWrite,
            Write(blocks(5, 1)),
            Settle,
            Flush,
            Settle,
            Rest,
            Write(blocks(6, 1)),
            Settle,
        ],
    },
    Script {
        name: "fill_and_write",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Read(blocks(8, 4)),
            Write(blocks(9, 1)),
            Settle,
            Read(blocks(8, 4)),
            Discard(blocks(10, 1)),
            Settle,
            Flush,
            Read(blocks(9, 2)),
            Write(blocks(8, 1)),
            Settle,
        ],
    },
    Script {
        name: "write_behind_a_fill",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Rest,
            Read(blocks(8, 1)),
            Settle,
            Write(blocks(8, 1)),
            Settle,
            Write(blocks(9, 1)),
            Settle,
            Write(blocks(8, 2)),
            Settle,
        ],
    },
    Script {
        name: "change_of_mode",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[
            Write(blocks(4, 2)),
            Settle,
            Mode(WriteMode::Writearound),
            Write(blocks(4, 1)),
            Settle,
            Mode(WriteMode::Writeback),
            Write(blocks(5, 1)),
            Settle,
            Flush,
            Settle,
        ],
    },
    Script {
        name: "drain",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: LOGGED,
        acts: &[
            Write(blocks(4, 2)),
            Zeroes(blocks(8, 2)),
            Settle,
            Drain,
            Write(blocks(4, 1)),
            Settle,
            Write(blocks(8, 1)),
            Settle,
        ],
    },
    Script {
        name: "clean_stop",
        volume_sectors: VOLUME_SECTORS,
        is_wrapped: false,
        modes: WRITABLE,
        acts: &[Write(blocks(4, 2)), Read(blocks(9, 1)), Settle, Stop, Settle],
    },
    Script {
        name: "wrap",
        volume_sectors: 400 * 8,
        is_wrapped: true,
        modes: LOGGED,
        acts: &[
            Write(blocks(0, 16)),
            Write(blocks(100, 16)),
            Settle,
            Flush,
            Settle,
            Write(blocks(8, 16)),
            Settle,
            Flush,
            Settle,
        ],
    },
];

fn script(name: &str) -> Script<'static> {
    *SCRIPTS.iter().find(|script| script.name == name).expect("a script of that name")
}

/// Plays a script in all its modes, with other times of the devices for each seed, and prints what was visited.
fn explore(name: &str, seeds: u64) {
    explore_in(name, seeds, |explorer| explorer);
}

/// After each crash one of two devices is lost for good.
fn on_two_devices(explorer: Explorer<'_>) -> Explorer<'_> {
    Explorer { is_mirrored: true, ..explorer }
}

/// The end of the process leaves late headers in memory.
fn with_lasting_memory(explorer: Explorer<'_>) -> Explorer<'_> {
    Explorer { has_lasting_memory: true, ..explorer }
}

/// The same in other worlds.
fn explore_in(name: &str, seeds: u64, world: fn(Explorer<'_>) -> Explorer<'_>) {
    let script = script(name);
    #[expect(clippy::disallowed_methods, reason = "how long it took is printed, and decides nothing")]
    let started = std::time::Instant::now();
    let mut all = Visited::default();
    for &mode in script.modes {
        for seed in 1..=seeds {
            match world(Explorer::new(script, mode, seed)).explore() {
                Ok(visited) => all.add(&visited),
                Err(found) => panic!("{found}"),
            }
        }
    }
    assert!(all.events > 20 * seeds && all.states() > 500 * seeds, "{name} visits little: {all:?}");
    println!(
        "{name}: {} states after {} events ({} with every subset; {} subsets drawn): {} cuts, {} torn, {} kills, \
         {} cuts of recovery; {} ms",
        all.states(),
        all.events,
        all.events_exhausted,
        all.sampled,
        all.cuts,
        all.torn,
        all.kills,
        all.recovery_cuts,
        started.elapsed().as_millis()
    );
}

#[test]
fn overwrite() {
    explore("overwrite", 3);
}

#[test]
fn overwrite_on_two_devices() {
    explore_in("overwrite", 1, on_two_devices);
}

#[test]
fn flush_after_flush_on_two_devices() {
    explore_in("flush_after_flush", 1, on_two_devices);
}

#[test]
fn late_headers() {
    explore_in("one_by_one", 3, with_lasting_memory);
}

#[test]
fn late_headers_among_flushes() {
    explore_in("flush_among_writes", 1, with_lasting_memory);
}

#[test]
fn late_headers_of_what_goes_home() {
    explore_in("destage_and_rewrite", 1, with_lasting_memory);
}

#[test]
fn late_headers_beside_a_mode_that_changes() {
    explore_in("change_of_mode", 1, with_lasting_memory);
}

#[test]
fn flush_among_writes() {
    explore("flush_among_writes", 3);
}

#[test]
fn flush_after_flush() {
    explore("flush_after_flush", 3);
}

#[test]
fn fua() {
    explore("fua", 3);
}

#[test]
fn discard() {
    explore("discard", 3);
}

#[test]
fn zeroes() {
    explore("zeroes", 3);
}

#[test]
fn partial_writes() {
    explore("partial_writes", 3);
}

#[test]
fn destage_and_rewrite() {
    explore("destage_and_rewrite", 3);
}

#[test]
fn fill_and_write() {
    explore("fill_and_write", 3);
}

#[test]
fn write_behind_a_fill() {
    explore("write_behind_a_fill", 3);
}

#[test]
fn change_of_mode() {
    explore("change_of_mode", 3);
}

#[test]
fn drain() {
    explore("drain", 3);
}

#[test]
fn clean_stop() {
    explore("clean_stop", 3);
}

#[test]
fn wrap() {
    explore("wrap", 1);
}

/// Goal: the end of a log is known wherever anything can tell, as `lab/src/world/log_end.rs` has it. Method: at every moment of a
/// script, behind every kind of end, one sector in each block of the cache rots.
#[test]
fn rot_at_every_moment() {
    for name in ["overwrite", "flush_after_flush", "fua", "clean_stop"] {
        for mode in [WriteMode::Writeback, WriteMode::Writethrough] {
            let explorer = Explorer::new(script(name), mode, 1);
            let visited = explorer.explore_rot().unwrap_or_else(|found| panic!("{found}"));
            println!("{name} in {}: {visited:?}", mode.name());
            assert!(visited.states > 100 && visited.refused > 0, "{name} visits little: {visited:?}");
        }
    }
    let explorer = with_lasting_memory(Explorer::new(script("one_by_one"), WriteMode::Writeback, 1));
    let visited = explorer.explore_rot().unwrap_or_else(|found| panic!("{found}"));
    println!("late headers: {visited:?}");
    assert!(visited.states > 100 && visited.ends_lost > 0, "late headers: {visited:?}");
}

/// The same with lines taken out.
#[cfg(feature = "mutations")]
#[test]
fn rot_finds_planted_bugs() {
    use engine::mutation::Mutation;
    for mutation in [Mutation::EndNotNoted, Mutation::SkipHeadless, Mutation::CutSilently] {
        let (script, mode) = (script("flush_after_flush"), WriteMode::Writeback);
        let mutations = Mutations::NONE.with(mutation);
        let found = Explorer { mutations, ..Explorer::new(script, mode, 1) }
            .explore_rot()
            .expect_err(mutation.name());
        assert_eq!(
            found.violation.kind,
            forebay_lab::violation::Kind::Content,
            "{}: {found}",
            mutation.name()
        );
    }
}

/// Goal: what is looked at from every side is also seen. Method: lines of protection are taken out, and a script
/// that needs them must fail, by what a client or `check` sees.
#[cfg(feature = "mutations")]
#[test]
fn planted_bugs_are_found() {
    use engine::mutation::Mutation;
    let planted = [
        (Mutation::FlushWithoutCacheFlush, "flush_among_writes", WriteMode::Writeback),
        (Mutation::FlushWithoutOriginFlush, "overwrite", WriteMode::Writearound),
        (Mutation::FuaWithoutFlush, "fua", WriteMode::Writeback),
        (Mutation::AckBeforeWritten, "overwrite", WriteMode::Writeback),
        (Mutation::SkipPayloadAtRecovery, "overwrite", WriteMode::Writeback),
        (Mutation::PartialWriteWithoutOld, "partial_writes", WriteMode::Writeback),
        (Mutation::NewBehindCopy, "write_behind_a_fill", WriteMode::Writethrough),
    ];
    for (mutation, name, mode) in planted {
        let explorer =
            Explorer { mutations: Mutations::NONE.with(mutation), ..Explorer::new(script(name), mode, 1) };
        let found = explorer.explore().expect_err(mutation.name());
        assert_ne!(
            found.violation.kind,
            forebay_lab::violation::Kind::Assertion,
            "{}: {found}",
            mutation.name()
        );
    }
}

/// The same of late headers.
#[cfg(feature = "mutations")]
#[test]
fn planted_bugs_of_late_headers_are_found() {
    use engine::mutation::Mutation;
    for mutation in [Mutation::LateForgotten, Mutation::HeaderBeforePayload, Mutation::FlushWithoutLate] {
        let explorer = with_lasting_memory(Explorer::new(script("one_by_one"), WriteMode::Writeback, 1));
        let mutations = Mutations::NONE.with(mutation);
        let found = Explorer { mutations, ..explorer }.explore().expect_err(mutation.name());
        let kind = found.violation.kind;
        assert_eq!(kind, forebay_lab::violation::Kind::Content, "{}: {found}", mutation.name());
    }
}
