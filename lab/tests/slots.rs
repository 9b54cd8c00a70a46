//! The swarm over slots: power cuts and process crashes on devices that do not fail otherwise; and small histories of
//! origins that fail.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, Target};
use engine::units::{Frame, Nanos, SectorRange};
use forebay_lab::content::Tag;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::swarm::{Knob, Options, SLOT_RULES, Totals, run};
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, SlotSetup, Ticket, World, blocks};

/// Histories of the plain rules, and of each of the others; each has some ten cuts.
const SEEDS: u64 = 400;
const SEEDS_OF_OTHERS: u64 = 100;
/// Cuts that they must come to at the least.
const CUTS_MIN: u64 = 3_000;
const CUTS_MIN_OF_OTHERS: u64 = 700;

fn keep_what_was_promised(rules: std::ops::Range<u64>, seeds: u64, cuts_min: u64) {
    let mut found = Vec::new();
    for rules in rules {
        let mut totals = Totals::default();
        for seed in 0..seeds {
            let mut options = Options::draw(seed).with_slots();
            options.set(Knob::faulty, 0);
            options.set(Knob::slot_rules, rules);
            let outcome = run(&options);
            totals.add(&outcome.counts, outcome.failure.is_some());
            found.extend(outcome.failure.map(|failure| failure.to_string()));
        }
        let counts = totals.counts;
        assert!(counts.cuts >= cuts_min, "{} cuts", counts.cuts);
        assert!(counts.dirty_recoveries > 0 && counts.destaged_blocks > 0 && counts.hits > 0, "{counts:?}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn slots_keep_what_was_promised() {
    keep_what_was_promised(0..1, SEEDS, CUTS_MIN);
}

#[test]
fn whatever_the_rules_are() {
    keep_what_was_promised(1..SLOT_RULES, SEEDS_OF_OTHERS, CUTS_MIN_OF_OTHERS);
}

/// Goal: without `safe` slots recorded by page keep what was promised, on devices that lose nothing that they acknowledged.
#[test]
fn unsafe_slots_keep_what_was_promised_where_devices_lose_nothing() {
    let mut totals = Totals::default();
    let mut found = Vec::new();
    for seed in 0..SEEDS_OF_OTHERS {
        let mut options = Options::draw(seed).with_slots();
        options.set(Knob::faulty, 0);
        options.set(Knob::safe, 0);
        let outcome = run(&options);
        totals.add(&outcome.counts, outcome.failure.is_some());
        found.extend(outcome.failure.map(|failure| failure.to_string()));
    }
    assert!(totals.counts.cuts >= CUTS_MIN_OF_OTHERS, "{} cuts", totals.counts.cuts);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Goal: and they need such devices. Method: a write is answered; of what is unflushed a power cut leaves its record alone.
#[test]
fn unsafe_slots_lose_data_where_devices_do() {
    let script = |is_safe: bool| -> Result<(), Violation> {
        let mut composition = Composition::plain_slots();
        composition.safe = is_safe;
        let slots = SlotSetup::new(512, composition);
        let mut setup = Setup::new(1);
        setup.slots = Some(slots);
        let first_of_data = slots.layout().slot_offset_bytes(Frame(0)) / 512;
        let mut world = World::new(setup);
        world.run_dry()?;
        let ticket = world.write(0, blocks(10, 1));
        world.succeed(ticket)?;
        world.cut_power(|write| {
            let is_data = write.target == Target::Cache && write.first >= first_of_data;
            if is_data { Fate::Lost } else { Fate::Kept }
        });
        world.open()?;
        world.verify_cut()
    };
    assert_eq!(script(true), Ok(()));
    assert!(script(false).is_err(), "a record told of data that was gone");
}

/// Histories with failing devices that found something once.
const FOUND: [u64; 4] = [297, 1621, 3349, 3576];

#[test]
fn what_was_found_with_failing_devices_stays_mended() {
    let found: Vec<String> = FOUND
        .into_iter()
        .filter_map(|seed| run(&Options::draw(seed).with_slots()).failure)
        .map(|failure| failure.to_string())
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Half of a block that is dirty in a slot.
const HALF: SectorRange = SectorRange { start: 24, sectors: 4 };

/// A world in which blocks 0 to 7 are dirty in slots, written as `writes` says.
fn dirty_world(writes: &str) -> Result<World, Violation> {
    let mut composition = Composition::plain_slots();
    composition.set("writes", writes).expect("it is possible");
    let mut setup = Setup::new(1);
    setup.slots = Some(SlotSetup::new(512, composition));
    let mut world = World::new(setup);
    let ticket = world.write(0, blocks(0, 8));
    world.succeed(ticket)?;
    Ok(world)
}

/// Submits a change.
type Change = fn(&mut World) -> Ticket;

/// All that changes the origin only when what is dirty is home, and `writes`.
const AFTER_HOME: [(&str, Change); 3] = [
    ("in-place", |world| world.submit(0, RequestOp::WriteZeroes { range: HALF, fua: false })),
    ("in-place", |world| world.submit(0, RequestOp::Discard { range: blocks(2, 2), fua: false })),
    ("invalidate", |world| world.write(0, HALF)),
];

/// Goal: rule 9 holds for what waits for dirty data to go home: it waits for an origin that fails, and not for one that is
/// absent. What is dirty stays so, and goes home when the origin is back.
#[test]
fn nobody_waits_for_an_absent_origin_to_take_what_is_dirty() -> Result<(), Violation> {
    for (writes, change) in AFTER_HOME {
        let mut world = dirty_world(writes)?;
        for kind in [Kind::Write, Kind::WriteZeroes, Kind::Discard] {
            world.origin(0).faults.fail_always(kind, Errno::IO);
        }
        let ticket = change(&mut world);
        world.pass(20 * Nanos::SECOND)?;
        assert!(world.answer(ticket).is_none(), "{writes}: it may yet come back");
        assert_eq!(world.wait(ticket)?, Err(Errno::IO), "{writes}");
        let later = change(&mut world);
        assert_eq!(world.wait(later)?, Err(Errno::IO), "{writes}: while it is absent");
        world.verify()?;
        world.origin(0).faults.heal();
        world.run_dry()?;
        world.expect_origin_equals_view(0)?;
        let ticket = change(&mut world);
        world.succeed(ticket)?;
        world.verify()?;
    }
    Ok(())
}

/// Goal: an origin that fails for a while causes no error.
#[test]
fn a_change_waits_for_an_origin_that_fails_for_a_while() -> Result<(), Violation> {
    for (writes, change) in AFTER_HOME {
        let mut world = dirty_world(writes)?;
        world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
        let ticket = change(&mut world);
        world.pass(10 * Nanos::SECOND)?;
        world.origin(0).faults.heal();
        world.succeed(ticket)?;
        world.run_dry()?;
        world.expect_origin_equals_view(0)?;
    }
    Ok(())
}

/// Goal: a stop answers what waits for an origin that fails.
#[test]
fn a_stop_waits_for_nothing_to_go_home_to_an_origin_that_fails() -> Result<(), Violation> {
    for (writes, change) in AFTER_HOME {
        let mut world = dirty_world(writes)?;
        world.origin(0).faults.fail_always(Kind::Write, Errno::IO);
        let ticket = change(&mut world);
        world.pass(2 * Nanos::SECOND)?;
        let stop = world.submit(0, RequestOp::Stop);
        assert_eq!(world.wait(ticket)?, Err(Errno::SHUTDOWN), "{writes}");
        assert_eq!(world.wait(stop)?, Ok(()), "{writes}");
    }
    Ok(())
}

/// Goal: a write that fails may be read as long as the process runs, and be gone after a crash: its data is in a slot, and
/// its record is what the cache failed to write. What was acknowledged stays. Method: chance decides whether the record
/// lands, and both are seen.
#[test]
fn a_failed_write_is_read_until_a_crash_takes_it() -> Result<(), Violation> {
    let mut seen = [0; 2];
    for seed in 0..12 {
        let mut composition = Composition::plain_slots();
        composition.set("writes", "invalidate").expect("it is possible");
        let slots = SlotSetup::new(512, composition);
        let mut setup = Setup::new(seed);
        setup.slots = Some(slots);
        let mut world = World::new(setup);
        let kept = world.write(0, blocks(0, 8));
        world.succeed(kept)?;
        let before = content(&mut world, 16)?;
        let first_page = slots.layout().slot_page_offset_bytes(0, 0) / 512;
        let first_data = slots.layout().slot_offset_bytes(Frame(0)) / 512;
        let is_record =
            move |io: &IoView| io.is_cache(Kind::Write) && (first_page..first_data).contains(&io.first);
        world.hold(is_record);
        let failing = world.write(0, blocks(16, 1));
        let record = world.until_pending(is_record)?;
        world.complete_failed(record.id, Errno::IO)?;
        world.release();
        assert_eq!(world.wait(failing)?, Err(Errno::IO));
        assert_ne!(content(&mut world, 16)?, before, "its data is in the slot");
        world.kill(|_| false);
        world.open()?;
        seen[usize::from(content(&mut world, 16)? == before)] += 1;
        world.verify()?;
    }
    assert!(seen.iter().all(|&times| times > 0), "a record that fails lands, or does not: {seen:?}");
    Ok(())
}

/// The content of a block, as a client reads it.
fn content(world: &mut World, block: u64) -> Result<Vec<Tag>, Violation> {
    let ticket = world.read(0, blocks(block, 1));
    world.succeed(ticket)?;
    Ok(world.answer(ticket).expect("it was answered").found.clone())
}

/// Goal: beside a block that rotted the others of a large slot are still the only copies, also when the cache has failed.
#[test]
fn neighbours_of_a_lost_block_are_read_from_the_cache() -> Result<(), Violation> {
    let mut composition = Composition::plain_slots();
    for (name, value) in [("ways", "0"), ("slot_bytes", "65536"), ("persistence", "commit")] {
        composition.set(name, value).expect("names and values of the tables");
    }
    let mut setup = Setup::new(5);
    setup.slots = Some(SlotSetup::new(64, composition));
    let mut world = World::new(setup);
    let ticket = world.write_fua(0, blocks(16, 16));
    world.succeed(ticket)?;
    for sector in world.copies_of(0, 20 * 8) {
        world.rot_cache(sector, 3);
    }
    let lost = world.read(0, blocks(20, 1));
    assert_eq!(world.wait(lost)?, Err(Errno::IO));
    world.cache().faults.fail_next(Kind::Flush, Errno::IO);
    let failing = world.write_fua(0, blocks(64, 16));
    let _ = world.wait(failing)?;
    assert!(world.engine().is_some_and(|engine| engine.status().cache.latched));
    let neighbour = world.read(0, blocks(21, 1));
    world.succeed(neighbour)?;
    world.verify()
}

/// Goal: who reads a block that is being written finds its old or its new content, also where the cache drops what it had.
/// Method: clean content that no flush covers, a write over it, a read that is carried out after a flush failed. Chance
/// decides what that takes.
#[test]
fn a_read_beside_a_write_does_not_believe_what_a_failed_flush_left() -> Result<(), Violation> {
    for seed in 0..12 {
        let mut setup = Setup::new(seed);
        setup.slots = Some(SlotSetup::new(512, Composition::plain_slots()));
        let mut world = World::new(setup);
        let filling = world.read(0, blocks(16, 1));
        world.succeed(filling)?;
        world.pass(5 * Nanos::MILLISECOND)?;
        let place = world.copies_of(0, 16 * 8)[0];
        world.hold(move |io| io.is_cache(Kind::Write) && io.first == place);
        world.hold(|io| io.is_cache(Kind::Read) || io.is_cache(Kind::Flush));
        let changing = world.write(0, blocks(16, 1));
        world.until_pending(|io| io.is_cache(Kind::Write))?;
        let reading = world.read(0, blocks(16, 1));
        let read = world.until_pending(|io| io.is_cache(Kind::Read))?;
        let failing = world.write_fua(0, blocks(64, 1));
        let flush = world.until_pending(|io| io.is_cache(Kind::Flush))?;
        world.complete_failed(flush.id, Errno::IO)?;
        world.complete(read.id)?;
        world.release();
        world.succeed(reading)?;
        for ticket in [changing, failing] {
            let _ = world.wait(ticket)?;
        }
        world.verify()?;
    }
    Ok(())
}

/// Goal: a block whose checksum becomes known while it is read is compared with that.
/// Method: a power cut leaves a block in an open area. It is written in its place and read; behind the write it rots, before
/// the read is carried out.
#[test]
fn a_read_is_compared_with_what_became_known_meanwhile() -> Result<(), Violation> {
    let mut setup = Setup { cache_keeps: true, ..Setup::new(7) };
    setup.slots = Some(SlotSetup::new(64, Composition::plain_slots()));
    let mut world = World::new(setup);
    let first = world.write_fua(0, blocks(16, 1));
    world.succeed(first)?;
    world.cut_power(|_| Fate::Lost);
    world.open()?;
    let place = world.copies_of(0, 16 * 8)[0];
    world.hold(move |io| io.first == place && (io.is_cache(Kind::Write) || io.is_cache(Kind::Read)));
    let changing = world.write(0, blocks(16, 1));
    let write = world.until_pending(move |io| io.is_cache(Kind::Write) && io.first == place)?;
    let reading = world.read(0, blocks(16, 1));
    let read = world.until_pending(|io| io.is_cache(Kind::Read))?;
    world.complete(write.id)?;
    assert!(world.rot_cache(place, 3), "the device keeps what it was given");
    world.complete(read.id)?;
    world.release();
    assert_eq!(world.wait(reading)?, Err(Errno::IO), "the only copy of the block rotted");
    world.succeed(changing)?;
    world.verify()
}

/// Goal: a write keeps the slots that it finds. Method: all slots are taken, and a write begins in a piece that wants to be
/// promoted and ends in the one that would leave first.
#[test]
fn a_write_promotes_nothing_into_a_slot_of_its_own() -> Result<(), Violation> {
    for persistence in ["sync-sector", "commit", "bit-tree"] {
        let mut composition = Composition::plain_slots();
        let choices = [("ways", "0"), ("slot_bytes", "65536"), ("fetch", "frame"), ("waits", "true")];
        for (name, value) in choices.into_iter().chain([("replacement", "lru"), ("persistence", persistence)])
        {
            composition.set(name, value).expect("names and values of the tables");
        }
        let mut setup = Setup::new(3);
        setup.slots = Some(SlotSetup::new(8, composition));
        let mut world = World::new(setup);
        let slots_free = |world: &World| world.engine().expect("it runs").status().cache.slots_free;
        for piece in 1..=u64::from(slots_free(&world)) {
            let ticket = world.write(0, blocks(piece * 16, 16));
            world.succeed(ticket)?;
        }
        assert_eq!(world.ask(0, RequestOp::Drain)?, Ok(()));
        world.pass(2 * Nanos::SECOND)?;
        assert_eq!(slots_free(&world), 0, "{persistence}");
        let ticket = world.write(0, blocks(12, 8));
        world.succeed(ticket)?;
        let ticket = world.read(0, blocks(16, 16));
        world.succeed(ticket)?;
        let counters = world.engine().expect("it runs").status().volumes[0].counters;
        assert_eq!((counters.hit_blocks, counters.miss_blocks), (16, 0), "{persistence}");
        world.verify()?;
        world.kill(|_| true);
        world.open()?;
        world.verify()?;
    }
    Ok(())
}

/// Goal: an origin is not changed in a well-known place while its checksum is on record, also where the cache fails meanwhile.
/// Method: a volume with dirty data; zeroes go around the cache to its first block, and the flush fails that makes it durable that the
/// checksum is taken back. After a power cut its own origin must not be refused.
#[test]
fn a_cache_that_fails_leaves_well_known_places_alone() -> Result<(), Violation> {
    for persistence in ["sync-sector", "commit", "bit-tree"] {
        let mut composition = Composition::plain_slots();
        for (name, value) in [("ways", "0"), ("persistence", persistence)] {
            composition.set(name, value).expect("names and values of the tables");
        }
        let mut setup = Setup::new(6);
        setup.slots = Some(SlotSetup::new(64, composition));
        let mut world = World::new(setup);
        world.run_dry()?;
        world.stop()?;
        world.open()?;
        let dirty = world.write_fua(0, blocks(500, 1));
        world.succeed(dirty)?;
        world.hold(|io| io.is_cache(Kind::Flush));
        let zeroes = world.submit(0, RequestOp::WriteZeroes { range: blocks(0, 1), fua: false });
        let flush = world.until_pending(|io| io.is_cache(Kind::Flush))?;
        world.complete_failed(flush.id, Errno::IO)?;
        world.release();
        let _an_error = world.wait(zeroes)?;
        world.cut_power(|write| if write.target == Target::Cache { Fate::Lost } else { Fate::Kept });
        world.cache().faults.heal();
        world.open()?;
        world.verify_cut()?;
    }
    Ok(())
}

/// Goal: a detach is answered, whatever happens to the cache. Method: a clean volume is taken off the cache, and the write fails that
/// takes its slots off the records.
#[test]
fn a_detach_is_answered_when_the_cache_fails() -> Result<(), Violation> {
    for persistence in ["sync-sector", "commit", "bit-tree"] {
        let mut composition = Composition::plain_slots();
        for (name, value) in [("ways", "0"), ("persistence", persistence)] {
            composition.set(name, value).expect("names and values of the tables");
        }
        let mut setup = Setup::new(7);
        setup.slots = Some(SlotSetup::new(64, composition));
        let mut world = World::new(setup);
        let ticket = world.write_fua(0, blocks(500, 1));
        world.succeed(ticket)?;
        assert_eq!(world.ask(0, RequestOp::Drain)?, Ok(()));
        world.hold(|io| io.is_cache(Kind::Write));
        let detach = world.submit(0, RequestOp::Detach);
        let write = world.until_pending(|io| io.is_cache(Kind::Write))?;
        world.complete_failed(write.id, Errno::IO)?;
        world.release();
        assert_eq!(world.wait(detach)?, Err(Errno::IO), "{persistence}: it may be back after a crash");
    }
    Ok(())
}

#[cfg(feature = "mutations")]
mod planted {
    use engine::mutation::{Mutation, Mutations};
    use forebay_lab::swarm::{Knob, Options, run_with};
    use forebay_lab::violation::Kind;

    /// Histories that a planted bug is tried with at the most.
    const SEEDS_MAX: u64 = 10_000;

    /// Bugs of the checksums on the device, and of what a start believes of transactions.
    const PLANTED: [Mutation; 6] = [
        Mutation::AreaOpenUnflushed,
        Mutation::AreaClosedUnflushed,
        Mutation::ForgetSlotChecksums,
        Mutation::TrustRottenChecksums,
        Mutation::OlderPageCounts,
        Mutation::OlderRecordCounts,
    ];

    fn first_found(mutation: Mutation) -> Result<(u64, String), String> {
        for seed in 0..SEEDS_MAX {
            let drawn = Options::draw(seed);
            let mut options = match seed % 3 {
                0 => drawn.with_slots(),
                kind => drawn.with_transactions(kind == 2),
            };
            options.set(Knob::faulty, 0);
            let failure = run_with(&options, Mutations::NONE.with(mutation), false).failure;
            if let Some(failure) = failure.filter(|failure| failure.violation.kind != Kind::Assertion) {
                return Ok((seed, failure.violation.to_string().chars().take(160).collect()));
            }
        }
        Err(format!("{} is not found", mutation.name()))
    }

    #[test]
    fn the_swarm_finds_bugs_of_checksums_and_transactions() {
        let mut missed = Vec::new();
        for mutation in PLANTED {
            match first_found(mutation) {
                Ok((seed, what)) => println!("{}: seed {seed}: {what}", mutation.name()),
                Err(what) => missed.push(what),
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }
}
