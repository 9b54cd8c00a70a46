//! Hazard 16: an origin behind a server that goes away and comes back.

use crate::steps::*;
use engine::effect::Errno;
use engine::units::Nanos;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{Found, IoView, ServerSetup, Setup, Ticket, World};

crate::scenarios! {
    hazard_16_under_way_is_sent_again: UnderWayCounts, remote;
    hazard_16_parts_are_sent_again: PartsNotSentAgain, remote_in_parts;
    hazard_16_parts_before_a_failed_flush: PartsOutliveFailedFlush, remote_in_parts;
    hazard_16_flush_under_way_fails: FlushSentAgain, remote;
    hazard_16_loss_is_told_by_the_next_flush: LossNotOwed, remote;
    hazard_16_loss_is_told_until_a_flush_succeeds: LossToldOnce, remote;
    hazard_16_failed_flush_is_told_last: FailedFlushOvertakes, remote;
    hazard_16_server_settles_before_it_is_written: SentAgainAtOnce, remote;
    hazard_16_server_settles_before_a_start: UnsettledStart, remote;
    hazard_16_slow_server_settles_before_it_is_written: SlownessIgnored, remote_slow;
    hazard_16_slow_server_settles_before_a_start: SlownessIgnored, remote_slow;
    hazard_16_answered_twice: CookiesComeAgain, remote;
    hazard_16_answered_late: LateAnswersCount, remote;
    hazard_16_another_disk: RejoinAnother, remote;
    hazard_16_smaller_disk: RejoinShrunk, remote;
    hazard_16_older_copy: FlushedPlacesForgotten, remote;
    hazard_16_right_disk_without_what_it_lost: LostPlacesKept, remote;
    hazard_16_right_disk_without_what_a_flush_lost: FailedFlushBelieved, remote;
    hazard_16_right_disk_with_a_place_that_changed: ChangedPlacesKept, remote;
    hazard_16_server_without_a_flush: FuaForgotten, remote_without_flush;
    hazard_16_origin_stands_in_for_a_copy: StandInUnchecked, remote_written_through;
}

/// The volume under test is in write-around mode, and its origin behind a server.
fn remote() -> Setup {
    Setup { servers: ServerSetup { volumes: 1, ..ServerSetup::default() }, ..writearound() }
}

/// The same in write-through mode.
fn remote_written_through() -> Setup {
    Setup { servers: remote().servers, ..writethrough() }
}

fn remote_without_flush() -> Setup {
    let mut setup = remote();
    setup.servers.without_flush = true;
    setup
}

/// A flush takes the server half a second, and anything else may take ten times as long.
fn remote_slow() -> Setup {
    let mut setup = remote();
    setup.servers.flush_ns = 500 * MS;
    setup
}

/// A request to the server has a block at the most.
fn remote_in_parts() -> Setup {
    let mut setup = remote();
    setup.servers.request_sectors = 8;
    setup
}

fn is_write(io: &IoView) -> bool {
    io.is_origin(0, Kind::Write)
}

fn is_flush(io: &IoView) -> bool {
    io.is_origin(0, Kind::Flush)
}

/// Writes a block, and returns when the server has it and has not carried it out.
fn write_held(world: &mut World, block: u64) -> Result<(Ticket, IoView), Violation> {
    world.hold(is_write);
    let ticket = world.write(0, blocks(block, 1));
    let view = world.until_pending(is_write)?;
    Ok((ticket, view))
}

/// If a write is answered although nobody carried it out, a read tells.
fn read_if_answered(world: &mut World, ticket: Ticket, block: u64) -> Run {
    world.pass(MS)?;
    if world.answer(ticket).is_some() { read(world, 0, block, 1) } else { Ok(()) }
}

/// A FLUSH that fails, as it must.
fn flush_in_vain(world: &mut World) -> Run {
    let ticket = world.flush(0);
    match world.wait(ticket)? {
        Err(_) => Ok(()),
        Ok(()) => Err(Violation::new(Broken::Contract, "a FLUSH succeeds that must fail")),
    }
}

/// Something else came in the place of the origin, and was refused.
fn refused(world: &World) -> Run {
    match world.counts().servers.refused {
        0 => Err(Violation::new(Broken::Contract, "what came in the place of the origin was not refused")),
        _ => Ok(()),
    }
}

fn hazard_16_under_way_is_sent_again(world: &mut World) -> Run {
    begin(world)?;
    let (ticket, _) = write_held(world, 10)?;
    world.cut_connection(0, false);
    world.pass(10 * MS)?;
    read_if_answered(world, ticket, 10)?;
    world.release();
    world.succeed(ticket)?;
    read(world, 0, 10, 1)
}

fn hazard_16_parts_are_sent_again(world: &mut World) -> Run {
    begin(world)?;
    world.hold(is_write);
    let ticket = world.write(0, blocks(10, 2));
    let view = world.until_pending(is_write)?;
    world.complete_request(0, view.id);
    world.cut_connection(0, true);
    world.release();
    world.succeed(ticket)?;
    flush(world, 0)?;
    read(world, 0, 10, 2)
}

fn hazard_16_parts_before_a_failed_flush(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 100, 1)?;
    world.hold(is_write);
    let ticket = world.write(0, blocks(10, 16));
    let view = world.until_pending(is_write)?;
    // Of so many parts the failed flush drops some.
    for _ in 0..15 {
        world.complete_request(0, view.id);
    }
    world.origin(0).faults.fail_next(Kind::Flush, Errno::IO);
    flush_in_vain(world)?;
    world.release();
    world.succeed(ticket)?;
    flush_what_is_left(world)?;
    read(world, 0, 10, 16)
}

fn hazard_16_flush_under_way_fails(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.hold(is_flush);
    let flush = world.flush(0);
    world.until_pending(is_flush)?;
    world.cut_connection(0, true);
    world.release();
    let _it_fails = world.wait(flush)?;
    flush_what_is_left(world)?;
    world.verify()
}

/// What was written again is durable, and everybody can rely on that.
fn flush_what_is_left(world: &mut World) -> Run {
    write(world, 0, 600, 1)?;
    flush(world, 0)
}

fn hazard_16_origin_stands_in_for_a_copy(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    world.cache().faults.fail_next(Kind::Read, Errno::IO);
    let ticket = world.read(0, blocks(10, 1));
    let result = world.wait(ticket)?;
    if result != Err(Errno::IO) {
        return Err(Violation::new(Broken::Content, "the origin has lost it, and the copy cannot be read"));
    }
    // It could be read again.
    read(world, 0, 10, 1)
}

fn hazard_16_loss_is_told_by_the_next_flush(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    flush_in_vain(world)?;
    flush_what_is_left(world)?;
    world.verify()
}

fn hazard_16_loss_is_told_until_a_flush_succeeds(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_connection(0, false);
    world.pass(100 * MS)?;
    flush_in_vain(world)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    flush_in_vain(world)?;
    flush_what_is_left(world)?;
    world.verify()
}

fn hazard_16_failed_flush_is_told_last(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 20, 1)?;
    world.hold(is_flush);
    let flush = world.flush(0);
    world.until_pending(is_flush)?;
    let (written, view) = write_held(world, 10)?;
    world.silence_server(0, true);
    world.complete(view.id)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    world.release();
    world.silence_server(0, false);
    world.succeed(written)?;
    let _it_fails = world.wait(flush)?;
    // That one came before the write was answered, and does not speak for it.
    let second = world.flush(0);
    let _it_fails = world.wait(second)?;
    flush_what_is_left(world)?;
    world.verify()
}

/// A server goes on with a write so long after its connection.
fn goes_on_for(world: &mut World, ns: u64) -> Run {
    begin(world)?;
    let (first, _) = write_held(world, 10)?;
    world.cut_connection(0, false);
    world.release();
    world.pass(ns)?;
    if world.answer(first).is_some() {
        write(world, 0, 10, 1)?;
    }
    world.land_late_at_server(0);
    world.succeed(first)?;
    read(world, 0, 10, 1)?;
    write(world, 0, 10, 1)?;
    read(world, 0, 10, 1)
}

/// The same behind the end of a process.
fn goes_on_behind_the_end_for(world: &mut World, ns: u64) -> Run {
    begin(world)?;
    let _never_answered = write_held(world, 10)?;
    world.kill_before_servers(ns);
    world.open()?;
    flush(world, 0)?;
    fill(world, 0, 10, 1)?;
    world.pass(ns + 500 * MS)?;
    evict(world)
}

fn hazard_16_server_settles_before_it_is_written(world: &mut World) -> Run {
    goes_on_for(world, 100 * MS)
}

fn hazard_16_server_settles_before_a_start(world: &mut World) -> Run {
    goes_on_behind_the_end_for(world, 500 * MS)
}

fn hazard_16_slow_server_settles_before_it_is_written(world: &mut World) -> Run {
    goes_on_for(world, 3000 * MS)
}

fn hazard_16_slow_server_settles_before_a_start(world: &mut World) -> Run {
    goes_on_behind_the_end_for(world, 3000 * MS)
}

fn hazard_16_answered_twice(world: &mut World) -> Run {
    begin(world)?;
    world.answer_twice_at_server(0);
    write(world, 0, 10, 1)?;
    let (ticket, _) = write_held(world, 20)?;
    world.answer_again_at_server(0);
    read_if_answered(world, ticket, 20)?;
    world.release();
    world.succeed(ticket)?;
    read(world, 0, 20, 1)
}

fn hazard_16_answered_late(world: &mut World) -> Run {
    begin(world)?;
    let (ticket, view) = write_held(world, 10)?;
    world.land_op(view.id);
    world.cut_connection(0, true);
    world.pass(1500 * MS)?;
    world.answer_late_at_server(0);
    read_if_answered(world, ticket, 10)?;
    world.release();
    world.succeed(ticket)?;
    read(world, 0, 10, 1)
}

fn hazard_16_another_disk(world: &mut World) -> Run {
    begin(world)?;
    world.comes_back_as(0, Found::Another { one_in: 1 }, 5 * Nanos::SECOND);
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    refused(world)?;
    read(world, 0, 10, 1)
}

fn hazard_16_smaller_disk(world: &mut World) -> Run {
    begin(world)?;
    let sectors = world.volume_sectors(0);
    // Of its end nothing is known.
    write(world, 0, sectors / 8 - 1, 1)?;
    world.comes_back_as(0, Found::Smaller(sectors - 8), 5 * Nanos::SECOND);
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    refused(world)?;
    read(world, 0, 10, 1)
}

fn hazard_16_older_copy(world: &mut World) -> Run {
    begin(world)?;
    let older = world.as_it_is(0);
    let all = world.volume_sectors(0) / 8;
    for first in (0..all).step_by(50) {
        write(world, 0, first, 50)?;
    }
    flush(world, 0)?;
    world.comes_back_as(0, older, 5 * Nanos::SECOND);
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    refused(world)?;
    read(world, 0, 10, 1)
}

fn hazard_16_right_disk_without_what_it_lost(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    flush_in_vain(world)?;
    flush_what_is_left(world)?;
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    read(world, 0, 20, 1)
}

fn hazard_16_right_disk_without_what_a_flush_lost(world: &mut World) -> Run {
    begin(world)?;
    // Of so many the failed flush drops some.
    for block in 10..18 {
        write(world, 0, block, 1)?;
    }
    world.origin(0).faults.fail_next(Kind::Flush, Errno::IO);
    flush_in_vain(world)?;
    flush_what_is_left(world)?;
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    read(world, 0, 20, 1)
}

fn hazard_16_right_disk_with_a_place_that_changed(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 0, 1)?;
    world.cut_connection(0, false);
    world.pass(3 * Nanos::SECOND)?;
    read(world, 0, 20, 1)
}

fn hazard_16_server_without_a_flush(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_connection(0, true);
    world.pass(100 * MS)?;
    flush(world, 0)?;
    read(world, 0, 10, 1)
}
