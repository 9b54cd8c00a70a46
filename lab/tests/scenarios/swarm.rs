//! The swarm finds planted bugs, too, without anybody telling it where to look.

use engine::composition::Composition;
use engine::mutation::{Mutation, Mutations};
use forebay_lab::swarm::{Knob, Options, run, run_with};
use forebay_lab::violation::Kind;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds that a mutation is tried with at the most.
const SEEDS_MAX: u64 = 15_000;

/// The seed that found each mutation when the list was made, which is tried before all others. A list that is out of date
/// costs time, and nothing else; `FOUND_SEEDS=write` makes a new one.
const FOUND: &str = include_str!("found.csv");
const FOUND_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/found.csv");

/// Why the swarm here does not find what concerns buckets.
const BUCKETS: &str = "the worlds here have no buckets";

/// The same of dirty data in memory.
const MEMORY: &str = "the worlds here keep no dirty data in memory";

/// The same of caches that may be gone.
const EPHEMERAL: &str = "the worlds here keep their caches";

/// The same of scrubs.
const SCRUBS: &str = "the worlds here are not scrubbed";

/// The same of caches that are slow for long.
const SLOWNESS: &str = "the worlds here have no cache that is slow for seconds";

/// Mutations that only a script brings to light, and why.
const ONLY_SCRIPTED: &[(Mutation, &str)] = &[
    (Mutation::DiscardTellsOfWrites, "fewer than one history in ten thousand shows it"),
    (
        Mutation::NewBehindCopy,
        "the exhaustive test finds it; a fill and a write behind it are seldom cut apart",
    ),
    (Mutation::NewBehindForgotten, "fewer than one history in ten thousand shows it"),
    (Mutation::FloodWaitsForNothing, "it takes two disks that fail when the ring is nearly full"),
    (Mutation::StopWaitsForRoom, "the swarm finds it with buckets, of which these worlds have none"),
    (Mutation::WritersOutrunDrain, "a load of the swarm ends, and then a drain does, too"),
    (Mutation::AreaOpenUnflushed, "the worlds here have no slots"),
    (Mutation::AreaClosedUnflushed, "the worlds here have no slots"),
    (Mutation::ForgetSlotChecksums, "the worlds here have no slots"),
    (Mutation::TrustRottenChecksums, "the worlds here have no slots"),
    (Mutation::OlderPageCounts, "the worlds here have no slots"),
    (Mutation::OlderRecordCounts, "the worlds here have no slots"),
    (Mutation::LostForgotten, "the worlds here have no slots"),
    (Mutation::LostInOnePlace, "the worlds here have no slots"),
    (Mutation::RestoreBesideWrites, "the worlds here have no slots"),
    (Mutation::FoundBeforeFlush, "the worlds here have no slots"),
    (Mutation::TrustWrittenAround, "the worlds here have no slots"),
    (Mutation::FlushBeforeAbandoned, "the worlds here have no slots"),
    (Mutation::RottenStays, "the worlds here have no slots"),
    (Mutation::TellDoubted, "the worlds here have no slots"),
    (Mutation::RecordBeforeData, "the worlds here have no slots"),
    (Mutation::RecordGoneUnflushed, "the worlds here have no slots"),
    (Mutation::RecordGoneUnwritten, "the worlds here have no slots"),
    (Mutation::StartUnflushed, "the worlds here have no slots"),
    (Mutation::OverlapInSlot, "the worlds here have no slots"),
    (Mutation::TrustSummaryPlaces, "the swarm forges no metadata"),
    (Mutation::CutSilently, "the swarm damages no durable metadata"),
    (Mutation::SkipHeadless, "the swarm here damages no durable metadata"),
    (Mutation::FlushForgotten, "the swarm here damages no durable metadata"),
    (Mutation::DoubtKeptKeys, BUCKETS),
    (Mutation::KeptUnflushed, BUCKETS),
    (Mutation::TrustStaleSuperblock, "the swarm brings no old superblock back"),
    (
        Mutation::EditUnflushed,
        "the first of two crashes cuts a change of the superblock, the second the operator's next one",
    ),
    (Mutation::ForgetChain, "the other line prevents it: TrustDeadTail"),
    (Mutation::TrustDeadTail, "the other line prevents it: ForgetChain"),
    (
        Mutation::LateAnswersCount,
        "the FLUSHes that fail after a loss tell of it, but where all was flushed before",
    ),
    (Mutation::SlownessIgnored, "the servers here are not slow"),
    (Mutation::LossToldOnce, "two losses in a row, the first without a death: seed 7008834 of a long run"),
    (Mutation::NoReserve, "other lines prevent it: FloorWithoutRoom, StuckMovedInPart"),
    (Mutation::FloorWithoutRoom, "other lines prevent it: NoReserve, StuckMovedInPart"),
    (Mutation::ForgetPins, "the checksum of the block prevents it"),
    (
        Mutation::SkipSummaryChecksum,
        "two lives of a segment with the same shape, and a tear between them: 1 seed in 1800",
    ),
    (Mutation::OldestDirtyTooHigh, "a cut between two batches, while none before them is published"),
    (
        Mutation::ReplayMistakesZeroes,
        "newer data just as far behind the header of zeroes as in their range, and a cut: 1 seed in 8000",
    ),
    (
        Mutation::CleanThoughReused,
        "a flush of the origin that takes as long as the log to go round, and one block at one place: 1 seed in 40 000",
    ),
    (Mutation::SharersGoHome, "a mode that changes while two writes of a block wait: 1 seed in 20 000"),
    (Mutation::StuckMovedInPart, "an origin that fails while a full cache takes hundreds of records"),
    (Mutation::CleanBeforeTombstone, "more tombstones than a batch takes, and a power cut between them"),
    (Mutation::StuckNotMoved, "an origin that fails for as long as the log takes to go round"),
    (
        Mutation::BypassBeforeFloor,
        "a durable bypass of a block whose segment was emptied a moment ago, then a power cut",
    ),
    (
        Mutation::OvertakeTombstone,
        "a read error while a batch is in flight, a bypass of the block, then a crash",
    ),
    (
        Mutation::TombstoneOverNewer,
        "a rotten clean copy, and a newer one that is written before its tombstone: 1 seed in 5000",
    ),
    (
        Mutation::FillBeforeFirstFlush,
        "a kill, a fill before the origin's first flush, and a cut that takes what the origin showed: none in 2500 seeds",
    ),
    (Mutation::ReuseVolumeId, "the swarm writes to no origin between a detach and an addition in one life"),
    (
        Mutation::RetireUnflushed,
        "a cut between the superblocks of two devices that takes one write of the one",
    ),
    (Mutation::HeirInOneCopy, "the same, and then rot of the copy that it kept"),
    (Mutation::ForgetTakenBack, "the worlds here do not grow"),
    (Mutation::GrowBeforeDurable, "the worlds here do not grow"),
    (
        Mutation::ForgetOrderEnd,
        "zeroes in an order that ends, and then a write around the cache to just there: none in 4000 seeds",
    ),
    (
        Mutation::OrderEndsBehindCut,
        "a power cut between the two copies of the superblock that ends an order, while fills are not flushed",
    ),
    (Mutation::CleanNotRecorded, "how much counts as dirty after a crash is compared in the script alone"),
    (Mutation::ForgetLeftOut, "the least budget of an index is more than the swarm's worlds fill"),
    (Mutation::IndexOverBudget, "the least budget of an index is more than the swarm's worlds fill"),
    (Mutation::WorkUnbounded, "the swarm's requests do not fill the slack of the pool's bound"),
    (Mutation::ScrubDropsDirty, SCRUBS),
    (Mutation::ScrubForgetsChange, SCRUBS),
    (Mutation::ScrubLosesWhatIsHome, SCRUBS),
    (Mutation::ScrubBelievesOnce, SCRUBS),
    (Mutation::ScrubForgetsHeads, "the swarm loses no half behind a scrub of the other one"),
    (Mutation::HalfReadAlone, "in the swarm heads rot on one half of the two alone"),
    (
        Mutation::AnsweredBeforeOutRecorded,
        "a crash within the write of a page, and then the half that was well a moment before is lost",
    ),
    (
        Mutation::OverwrittenForgotten,
        "rot of a block, a kill after it was written again, and a cut within the start: none in 4000 seeds",
    ),
    (
        Mutation::LateRemembered,
        "a slot of memory that nobody takes again, until the ring came round, and a kill: none in 3000 seeds",
    ),
    (
        Mutation::CheckpointBeforeTombstones,
        "a checkpoint that begins while a tombstone is on its way, and a cut that takes that alone: none in 6000 seeds",
    ),
    (
        Mutation::VoidIsReplayed,
        "a repair, a checkpoint in the segment that was cut, and a crash before the next segment: none in 3000 seeds",
    ),
    (Mutation::CheckpointInNewSegments, "sums that cannot be meet an assertion first"),
    (Mutation::SlowCacheKeepsReads, SLOWNESS),
    (Mutation::DirtyPassedBy, SLOWNESS),
    (Mutation::PassedReadFails, SLOWNESS),
    (Mutation::FormatThoughDirty, EPHEMERAL),
    (Mutation::OverlookRecovered, EPHEMERAL),
    (Mutation::TrustReplaced, EPHEMERAL),
    (Mutation::LogAlone, EPHEMERAL),
    (Mutation::BypassBeforeAbandoned, "a crash within the one operation that notes the abandonment"),
    (Mutation::KeepCleanFlag, "what a start takes for a clean stop is compared in the script alone"),
    (Mutation::TrustCleanAfterRepair, "the swarm repairs nothing"),
    (Mutation::ForgetFreed, BUCKETS),
    (Mutation::RefillBeforeFlush, BUCKETS),
    (Mutation::RefillBeforeStated, BUCKETS),
    (Mutation::BypassBeforeFreed, BUCKETS),
    (Mutation::RecordsBeforeKeys, BUCKETS),
    (Mutation::DropTailKeys, BUCKETS),
    (Mutation::KeyBehindNewer, "the worlds here have no frames"),
    (
        Mutation::FailedFlushOvertakes,
        "a server that dies with a flush under way, between a write's answer and the moment when it is told: none in 400 seeds",
    ),
    (
        Mutation::StandInUnchecked,
        "a copy that cannot be read between the death of a server and the flush that tells of it: none in 3000 seeds",
    ),
    (
        Mutation::ToldBehindCache,
        "a kill between the failure of an origin's flush and the end of the cache's: none in 3000 seeds",
    ),
    (Mutation::FlushedPlacesForgotten, "a copy that is the same wherever the client looks is not used"),
    (Mutation::DropFrameEarly, MEMORY),
    (Mutation::KeepStaleFrame, MEMORY),
    (Mutation::AnswerBeyondWindow, MEMORY),
    (Mutation::FlushBeforeOwed, MEMORY),
];

/// What an operator does besides, and rotten metadata, hide more of these bugs than they bring to light. Where the bug is in the
/// client of a server, all origins are behind one; where it is in strict order, that is the order.
fn options(seed: u64, worlds: Worlds) -> Options {
    let drawn = Options::draw(seed).in_any_order();
    let mut options = drawn.clone().without_later_knobs();
    for knob in [
        Knob::aimed,
        Knob::origin_changes,
        Knob::identities,
        Knob::older_copies,
        Knob::hasty_stops,
        Knob::detaches,
        Knob::silences,
        Knob::rot_while_off,
        Knob::additions,
        Knob::successions,
        Knob::holds,
    ] {
        options.set(knob, drawn.get(knob));
    }
    match worlds {
        Worlds::Any => options,
        Worlds::Remote => options.with_servers(&drawn),
        Worlds::Strict => options.with_strict_order(),
        Worlds::Lasting => {
            options.set(Knob::lasting, 1);
            options
        }
        Worlds::Checkpoints => {
            options.set(Knob::checkpoint_blocks, 300);
            options.set(Knob::checkpoint_interval, drawn.get(Knob::checkpoint_interval).min(64));
            options
        }
        Worlds::Groups => {
            let knobs = [(Knob::group_calls, 32), (Knob::faulty, 60), (Knob::origin_flush_error, 90_000)];
            knobs.into_iter().for_each(|(knob, value)| options.set(knob, value));
            options
        }
        Worlds::Notes => {
            let knobs = [(Knob::note_errors, 70), (Knob::faulty, 60), (Knob::cache_write_error, 40_000)];
            knobs.into_iter().for_each(|(knob, value)| options.set(knob, value));
            options
        }
        Worlds::Streams => {
            options.set(Knob::streams, 100);
            options.like("forebay", Composition::forebay())
        }
        Worlds::Mirrored => {
            let halves = [Knob::half_turns, Knob::half_losses, Knob::half_rot];
            halves.into_iter().for_each(|knob| options.set(knob, drawn.get(knob)));
            options.with_halves()
        }
        Worlds::HalvesAimedAt => {
            [Knob::half_aims, Knob::half_losses].into_iter().for_each(|knob| options.set(knob, 80));
            options.with_halves()
        }
    }
}

/// The worlds in which a bug can be found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worlds {
    Any,
    Remote,
    Strict,
    Mirrored,
    HalvesAimedAt,
    Lasting,
    Checkpoints,
    Streams,
    Groups,
    Notes,
}

impl Worlds {
    fn of(mutation: Mutation) -> Worlds {
        match mutation {
            _ if mutation.is_of_servers() => Worlds::Remote,
            _ if mutation.is_of_order() => Worlds::Strict,
            Mutation::MarkTakenAway => Worlds::HalvesAimedAt,
            _ if mutation.is_of_halves() => Worlds::Mirrored,
            _ if mutation.is_of_late_headers() => Worlds::Lasting,
            _ if mutation.is_of_checkpoints() => Worlds::Checkpoints,
            Mutation::StaleReadAhead | Mutation::RowNotHeld => Worlds::Streams,
            Mutation::GivenIsHad => Worlds::Groups,
            Mutation::BypassUnnoted => Worlds::Notes,
            _ => Worlds::Any,
        }
    }
}

/// Whether a seed finds nothing in the engine as it is: otherwise it would seem to find every mutation.
fn is_sound(seed: u64, worlds: Worlds) -> bool {
    static SOUND: Mutex<BTreeMap<(u64, Worlds), bool>> = Mutex::new(BTreeMap::new());
    let known = SOUND.lock().expect("violations are values").get(&(seed, worlds)).copied();
    known.unwrap_or_else(|| {
        let failure = run(&options(seed, worlds)).failure;
        if let Some(failure) = &failure {
            println!("without any mutation: seed {seed}: {}", short(&failure.violation));
        }
        SOUND.lock().expect("violations are values").insert((seed, worlds), failure.is_none());
        failure.is_none()
    })
}

fn short(what: &dyn std::fmt::Display) -> String {
    what.to_string().chars().take(160).collect()
}

/// The first seed that finds the mutation, and what it finds; panics of the engine do not count.
fn first_found(mutation: Mutation, seeds: u64) -> Result<(u64, String), String> {
    let mut asserted = String::new();
    let known = FOUND.lines().filter_map(|line| line.split_once(','));
    let known = known.filter(|(name, _)| *name == mutation.name());
    let known = known.filter_map(|(_, seed)| seed.parse().ok()).filter(|&seed| seed < seeds);
    for seed in known.chain(0..seeds) {
        let worlds = Worlds::of(mutation);
        let outcome = run_with(&options(seed, worlds), Mutations::NONE.with(mutation), false);
        let Some(failure) = outcome.failure.filter(|_| is_sound(seed, worlds)) else { continue };
        if failure.violation.kind != Kind::Assertion {
            return Ok((seed, short(&failure.violation)));
        }
        if asserted.is_empty() {
            asserted = format!("; seed {seed}: {}", short(&failure.violation));
        }
    }
    Err(format!("{} is not found by {seeds} seeds{asserted}", mutation.name()))
}

/// `MUTATION=name SEEDS=number` tries one, in a list or not, with as many seeds as one likes.
#[expect(clippy::disallowed_methods, reason = "mutations are spread over threads; each world has one")]
#[test]
fn the_swarm_finds_planted_bugs() {
    let chosen = std::env::var("MUTATION").ok();
    let seeds = std::env::var("SEEDS").map_or(SEEDS_MAX, |text| text.parse().expect("a number"));
    let is_wanted = |mutation: &Mutation| match &chosen {
        Some(names) => names.split(',').any(|name| name == mutation.name()),
        None => {
            let is_scripted = ONLY_SCRIPTED.iter().any(|(scripted, _)| scripted == mutation);
            !is_scripted && !mutation.is_of_transactions()
        }
    };
    let wanted: Vec<Mutation> = Mutation::ALL.iter().copied().filter(is_wanted).collect();
    assert!(!wanted.is_empty(), "no mutation is called {chosen:?}");
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    let found = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&mutation) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match first_found(mutation, seeds) {
                        Ok((seed, what)) => {
                            println!("{}: seed {seed}: {what}", mutation.name());
                            found.lock().expect("seeds are values").insert(mutation.name(), seed);
                        }
                        Err(what) => missed.lock().expect("violations are values").push(what),
                    }
                }
            });
        }
    });
    if chosen.is_none() && std::env::var_os("FOUND_SEEDS").is_some() {
        let found = found.into_inner().expect("seeds are values");
        let lines: String = found.iter().map(|(name, seed)| format!("{name},{seed}\n")).collect();
        std::fs::write(FOUND_FILE, lines).expect("the list of seeds can be written");
    }
    let missed = missed.into_inner().expect("violations are values");
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
