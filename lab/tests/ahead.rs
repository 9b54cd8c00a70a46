//! What is read from the cache, or from an origin, ahead of streams.

use engine::composition::Composition;
use engine::effect::{Errno, RequestOp, WriteMode};
use engine::status::Counters;
use engine::units::{BLOCK_BYTES, Nanos};
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::Violation;
use forebay_lab::world::{IoView, Setup, Ticket, VolumeSetup, World, blocks};

/// Blocks of a request.
const LONG: u64 = 16;
/// Requests of a stream.
const REQUESTS: u64 = 40;

/// An empty cache of so many segments of half a mebibyte before a volume of 64 MiB.
fn empty(fetch: &str, segments: u32) -> Result<World, Violation> {
    let mut composition = Composition::plain_log();
    composition.set("fetch", fetch).expect("a choice of that axis");
    let mut setup = Setup { composition: composition.text(), segments, segment_blocks: 128, ..Setup::new(1) };
    setup.volumes = vec![VolumeSetup { sectors: 16 * 1024 * 8, mode: WriteMode::Writeback }];
    let mut world = World::new(setup);
    world.run_dry()?;
    Ok(world)
}

/// A cache of 32 MiB that has the first requests of a stream.
fn world(fetch: &str) -> Result<World, Violation> {
    let mut world = empty(fetch, 64)?;
    for at in 0..REQUESTS {
        read(&mut world, at)?;
    }
    world.pass(Nanos::SECOND)?;
    Ok(world)
}

fn is_read_of_cache(io: &IoView) -> bool {
    io.is_cache(Kind::Read)
}

/// Reads where the request of that number in the stream is.
fn read(world: &mut World, at: u64) -> Result<(), Violation> {
    let ticket = world.read(0, blocks(at * LONG, LONG));
    world.succeed(ticket)
}

fn counters(world: &World) -> Counters {
    world.engine().expect("an engine runs").status().volumes[0].counters
}

#[test]
fn what_a_stream_asks_for_next_is_read_before_it_does() -> Result<(), Violation> {
    for (fetch, is_ahead) in [("neighbourhood", true), ("request", false)] {
        let mut world = world(fetch)?;
        let before = counters(&world);
        for at in 0..REQUESTS {
            read(&mut world, at)?;
        }
        let Counters { hits, hit_blocks, ahead_blocks, ahead_hit_blocks, .. } = counters(&world);
        assert_eq!(
            (hits - before.hits, hit_blocks - before.hit_blocks),
            (REQUESTS, REQUESTS * LONG),
            "{fetch}"
        );
        assert_eq!(
            ahead_hit_blocks > REQUESTS * LONG / 2,
            is_ahead,
            "{fetch}: {ahead_hit_blocks} of {ahead_blocks}"
        );
        assert!(
            ahead_blocks <= ahead_hit_blocks + 128,
            "no more than a part of the stream is read for nothing"
        );
        world.verify()?;
    }
    Ok(())
}

/// A request finds in memory what was read since the one before it was answered.
#[test]
fn who_comes_later_does_not_wait_for_the_device() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..8 {
        read(&mut world, at)?;
        world.pass(Nanos::MILLISECOND)?;
    }
    world.hold(is_read_of_cache);
    let ahead = [8, 9].map(|at| world.read(0, blocks(at * LONG, LONG)));
    world.pass(Nanos::MILLISECOND)?;
    assert!(world.answer(ahead[0]).is_some(), "it was in memory");
    world.release();
    world.succeed(ahead[1])?;
    world.verify()
}

/// Two streams of one block at a time, the one behind the other, and one that is alone.
#[test]
fn short_requests_are_a_stream_where_nobody_else_reads() -> Result<(), Violation> {
    for (clients, is_ahead) in [(1, true), (2, false)] {
        let mut world = world("neighbourhood")?;
        for block in 0..200 {
            for client in 0..clients {
                let ticket = world.read(0, blocks(client * 300 + block, 1));
                world.succeed(ticket)?;
            }
        }
        let ahead_hit_blocks = counters(&world).ahead_hit_blocks;
        assert_eq!(ahead_hit_blocks > 100, is_ahead, "{clients} clients: {ahead_hit_blocks}");
        world.verify()?;
    }
    Ok(())
}

/// Streams are told apart from each other, and from requests of others.
#[test]
fn several_streams_are_read_ahead_of() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..REQUESTS / 4 {
        for stream in 0..3 {
            read(&mut world, stream * REQUESTS / 4 + at)?;
        }
        for other in 0..12 {
            let ticket =
                world.read(0, blocks((REQUESTS * 3 / 4 + (at * 12 + other) * 7 % 10) * LONG + other, 3));
            world.succeed(ticket)?;
        }
        for other in 0..40 {
            let ticket = world.read(0, blocks(REQUESTS * 3 / 4 * LONG + (at * 40 + other) * 7 % 100, 1));
            world.succeed(ticket)?;
        }
    }
    let Counters { ahead_blocks, ahead_hit_blocks, .. } = counters(&world);
    assert!(ahead_hit_blocks > 200, "{ahead_hit_blocks} of {ahead_blocks}");
    world.verify()
}

/// More streams than are followed at a time.
#[test]
fn streams_that_ended_make_room_for_others() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for stream in 0..30 {
        for step in 0..2 {
            let ticket = world.read(0, blocks((stream * 7 % 30) * LONG + step * 4, 4));
            world.succeed(ticket)?;
        }
    }
    assert_eq!(counters(&world).ahead_blocks, 0);
    for at in 30..REQUESTS {
        read(&mut world, at)?;
    }
    assert!(counters(&world).ahead_hit_blocks > 0);
    world.verify()
}

/// Nobody is read ahead of who reads here and there; of who asks for all at once, no more than the first requests.
#[test]
fn others_are_not_read_ahead_of() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..REQUESTS {
        read(&mut world, at * 7 % REQUESTS)?;
    }
    assert_eq!(counters(&world).ahead_blocks, 0);
    let all: Vec<_> = (0..REQUESTS).map(|at| world.read(0, blocks(at * LONG, LONG))).collect();
    world.finish()?;
    assert!(all.iter().all(|ticket| world.answer(*ticket).is_some()));
    let Counters { ahead_blocks, ahead_hit_blocks, .. } = counters(&world);
    assert!(
        ahead_blocks <= 4 * LONG && ahead_blocks == ahead_hit_blocks,
        "{ahead_hit_blocks} of {ahead_blocks}"
    );
    world.verify()
}

/// Three of four requests are written to before they are read: what was read ahead of them does not count.
#[test]
fn what_changes_meanwhile_is_read_again() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..REQUESTS {
        read(&mut world, at)?;
        if at % 4 > 0 {
            let ticket = world.write(0, blocks((at + 1) * LONG + at % LONG, 1));
            world.succeed(ticket)?;
        }
    }
    assert!(counters(&world).ahead_blocks > 0);
    world.verify()
}

#[test]
fn what_cannot_be_read_ahead_is_read_by_who_asks() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..3 {
        read(&mut world, at)?;
    }
    world.hold(is_read_of_cache);
    let asked = [3, 4].map(|at| world.read(0, blocks(at * LONG, LONG)));
    let [_, ahead, ..] = world.pending(is_read_of_cache)[..] else {
        panic!("the second request is read ahead")
    };
    world.complete_failed(ahead.id, Errno::IO)?;
    world.release();
    asked.into_iter().try_for_each(|ticket| world.succeed(ticket))?;
    assert_eq!(counters(&world).corrupt_clean_blocks, 0, "the cache keeps what could not be read once");
    world.verify()
}

/// The origin has what has rotted in the cache.
#[test]
fn what_has_rotted_is_not_given_to_who_waits_for_it() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    let flushed = world.flush(0);
    world.succeed(flushed)?;
    for sector in [4 * LONG * 8 + 3, 5 * LONG * 8 + 100] {
        let copies = world.copies_of(0, sector);
        assert!(!copies.is_empty(), "it is cached");
        copies.into_iter().for_each(|copy| assert!(world.rot_cache(copy, 7), "a copy rots"));
    }
    for at in 0..8 {
        read(&mut world, at)?;
    }
    let Counters { corrupt_clean_blocks, ahead_hit_blocks, .. } = counters(&world);
    assert!(ahead_hit_blocks > 0);
    assert_eq!(corrupt_clean_blocks, 2, "each is dropped once, by who reads it again");
    world.verify()
}

/// Another disk may come to the place of a volume that was taken off.
#[test]
fn what_was_read_ahead_goes_with_its_volume() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for at in 0..3 {
        read(&mut world, at)?;
    }
    world.hold(is_read_of_cache);
    // One begins the read of what follows, the other one waits for a part of that.
    let asked = [blocks(3 * LONG, LONG), blocks(4 * LONG, 1)].map(|range| world.read(0, range));
    let detach = world.submit(0, RequestOp::Detach);
    world.release();
    asked.into_iter().chain([detach]).try_for_each(|ticket| world.succeed(ticket))?;
    assert_eq!(world.engine().expect("an engine runs").status().volumes.len(), 0);
    world.write_behind(0, blocks(4 * LONG, LONG));
    let add = world.add(0, WriteMode::Writeback);
    world.succeed(add)?;
    for _ in 0..2 {
        read(&mut world, 4)?;
        world.pass(Nanos::SECOND)?;
    }
    world.verify()
}

#[test]
fn memory_is_given_back() -> Result<(), Violation> {
    let mut world = world("neighbourhood")?;
    for stream in 0..20 {
        for at in stream..stream + 6 {
            read(&mut world, at)?;
        }
    }
    world.check_memory()?;
    let stop = world.submit(0, RequestOp::Stop);
    world.succeed(stop)?;
    world.stopped()
}

/// Blocks of a request beside which no neighbours lie.
const WIDEST: u64 = 64;

/// A cache of 64 MiB, cold but for the first requests of a stream.
fn cold(requests: u64) -> Result<World, Violation> {
    let mut world = empty("neighbourhood", 128)?;
    for at in 0..requests {
        let ticket = read_widest(&mut world, at);
        world.succeed(ticket)?;
    }
    Ok(world)
}

fn read_widest(world: &mut World, at: u64) -> Ticket {
    world.read(0, blocks(at * WIDEST, WIDEST))
}

fn is_read_of_origin(io: &IoView) -> bool {
    io.is_origin(0, Kind::Read)
}

#[test]
fn what_a_stream_asks_its_origin_for_next_is_read_before_it_does() -> Result<(), Violation> {
    let mut world = cold(12)?;
    world.pass(Nanos::MILLISECOND)?;
    world.hold(is_read_of_origin);
    let next = read_widest(&mut world, 12);
    world.pass(Nanos::MILLISECOND)?;
    assert!(world.answer(next).is_some(), "it was in memory");
    world.release();
    for at in 13..40 {
        let ticket = read_widest(&mut world, at);
        world.succeed(ticket)?;
    }
    let Counters { hits, hit_blocks, misses, miss_blocks, .. } = counters(&world);
    assert_eq!((hits, hit_blocks), (0, 0), "nothing of it was cached");
    assert_eq!((misses, miss_blocks), (40, 40 * WIDEST));
    let cached_bytes = world.engine().expect("an engine runs").status().volumes[0].cached_bytes;
    assert!(
        cached_bytes >= 39 * WIDEST * BLOCK_BYTES,
        "what was asked for entered the cache: {cached_bytes}"
    );
    world.verify()
}

/// A client with several requests under way needs nobody who reads ahead of him.
#[test]
fn who_asks_an_origin_for_several_at_a_time_is_not_read_ahead_of() -> Result<(), Violation> {
    for (depth, is_ahead) in [(1, true), (4, false)] {
        let mut world = cold(0)?;
        for at in 0..12 {
            let all: Vec<_> = (0..depth).map(|step| read_widest(&mut world, at * depth + step)).collect();
            all.into_iter().try_for_each(|ticket| world.succeed(ticket))?;
        }
        let beside_blocks = counters(&world).beside_blocks;
        assert_eq!(beside_blocks > 0, is_ahead, "{depth} at a time: {beside_blocks}");
        world.verify()?;
    }
    Ok(())
}

/// A disk that has always one more read of a row beside another does not turn to that.
#[test]
fn no_origin_is_read_ahead_while_somebody_has_waited_for_it() -> Result<(), Violation> {
    for (waited_ms, is_ahead) in [(10, true), (30, false)] {
        let mut world = cold(0)?;
        let elsewhere = blocks(15_000, 1);
        world.hold(move |io| is_read_of_origin(io) && io.touches(elsewhere));
        let other = world.read(0, elsewhere);
        world.pass(waited_ms * Nanos::MILLISECOND)?;
        let before = counters(&world).beside_blocks;
        for at in 0..12 {
            let ticket = read_widest(&mut world, at);
            world.succeed(ticket)?;
        }
        let ahead_blocks = counters(&world).beside_blocks - before;
        assert_eq!(ahead_blocks > 0, is_ahead, "after {waited_ms} ms: {ahead_blocks}");
        world.release();
        world.succeed(other)?;
        world.verify()?;
    }
    Ok(())
}

/// What is written to while it is read ahead, or after that, does not count; nor does what was not read.
#[test]
fn what_an_origin_had_before_a_write_is_not_read() -> Result<(), Violation> {
    for (is_before, is_bad) in [(true, false), (false, false), (true, true)] {
        let mut world = cold(8)?;
        world.pass(Nanos::MILLISECOND)?;
        world.hold(is_read_of_origin);
        let mut at = 8;
        while world.pending(is_read_of_origin).is_empty() {
            let _ = read_widest(&mut world, at);
            world.pass(Nanos::MILLISECOND)?;
            at += 1;
        }
        if !is_before {
            world.release();
            world.pass(Nanos::MILLISECOND)?;
        }
        for block in [at * WIDEST + 1, (at + 1) * WIDEST + 63] {
            let ticket = world.write(0, blocks(block, 1));
            world.succeed(ticket)?;
        }
        let asked = [at, at + 1].map(|at| read_widest(&mut world, at));
        if is_bad {
            let ahead = world.pending(is_read_of_origin)[0].id;
            world.complete_failed(ahead, Errno::IO)?;
        }
        world.release();
        asked.into_iter().try_for_each(|ticket| world.succeed(ticket))?;
        world.verify()?;
    }
    Ok(())
}

/// Another disk may come to the place of one that is taken off.
#[test]
fn a_detach_waits_for_what_is_read_ahead() -> Result<(), Violation> {
    let mut world = cold(8)?;
    world.hold(is_read_of_origin);
    let mut at = 8;
    while world.pending(is_read_of_origin).is_empty() {
        let ticket = read_widest(&mut world, at);
        world.succeed(ticket)?;
        at += 1;
    }
    let detach = world.submit(0, RequestOp::Detach);
    world.pass(Nanos::SECOND)?;
    assert!(world.answer(detach).is_none());
    world.release();
    world.succeed(detach)
}
