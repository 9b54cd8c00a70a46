//! Rule 17: caches on devices that may be blank at any start, or hold what they held some time ago.

use crate::kinds::{ALL, RINGS};
use crate::steps::*;
use engine::effect::{RequestOp, Target, WriteMode};
use engine::recovery::Lacking;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::violation::{Kind as Broken, Violation};
use forebay_lab::world::{Refusal, Setup, World};

crate::scenarios! {
    rule_17_blank_though_something_is_needed: FormatThoughDirty, through, on RINGS;
    rule_17_what_was_recovered_is_needed: OverlookRecovered, through, on RINGS;
    rule_17_replaced_cache_comes_back: TrustReplaced, through, on ALL;
    rule_17_dirty_block_outside_writeback: LogAlone, around, on RINGS;
}

fn ephemeral(modes: &[WriteMode]) -> Setup {
    let mut setup = Setup::new(1).with_modes(modes);
    setup.is_ephemeral = true;
    setup
}

fn through() -> Setup {
    ephemeral(&[WriteMode::Writethrough, WriteMode::Writethrough])
}

fn around() -> Setup {
    ephemeral(&[WriteMode::Writearound, WriteMode::Writethrough])
}

/// The device is blank, and another cache takes the place of the one that is gone.
fn replace(world: &mut World) -> Run {
    match world.start_blank(u64::MAX)? {
        Ok(_) => world.open(),
        Err(lacking) => Err(Violation::new(Broken::Contract, format!("nothing is to be lost: {lacking:?}"))),
    }
}

/// A write of block 10 is in the log and not on the origin when the process dies. Its successor finds it, and it is read and
/// flushed; then the power goes before it is home.
fn read_what_the_origin_lacks(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    drain(world, 0)?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    let _never_answered = world.write(0, blocks(10, 1));
    world.until_pending(|io| io.is_origin(0, Kind::Write))?;
    world.kill(|_| false);
    world.open()?;
    world.hold(|io| io.is_origin(0, Kind::Write));
    read(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.cut_power(|write| if write.target == Target::Cache { Fate::Kept } else { Fate::Lost });
    Ok(())
}

/// A blank device is refused; when the cache is back, all is there. Where it is not refused, the clients tell.
fn blank_is_refused(world: &mut World) -> Run {
    read_what_the_origin_lacks(world)?;
    if let Ok(_formatted) = world.start_blank(u64::MAX)? {
        world.open()?;
        read(world, 0, 10, 1)?;
    } else {
        world.open()?;
    }
    world.verify()
}

fn rule_17_blank_though_something_is_needed(world: &mut World) -> Run {
    blank_is_refused(world)
}

fn rule_17_what_was_recovered_is_needed(world: &mut World) -> Run {
    blank_is_refused(world)
}

fn rule_17_replaced_cache_comes_back(world: &mut World) -> Run {
    begin(world)?;
    fill(world, 0, 10, 2)?;
    world.stop()?;
    let gone = world.cache().clone();
    replace(world)?;
    begin(world)?;
    write_fua(world, 0, 10, 1)?;
    world.stop()?;
    let new = world.swap_cache(gone);
    match world.try_open()? {
        Err(Refusal::Replaced) => (),
        Err(refusal) => return Err(Violation::new(Broken::Contract, refusal.to_string())),
        Ok(()) => return read(world, 0, 10, 1),
    }
    let _gone_again = world.swap_cache(new);
    world.open()?;
    world.verify()
}

fn rule_17_dirty_block_outside_writeback(world: &mut World) -> Run {
    begin(world)?;
    // The zeroes are on the origin, and dirty until that is flushed.
    let zeroes = world.submit(0, RequestOp::WriteZeroes { range: blocks(10, 1), fua: false });
    world.succeed(zeroes)?;
    write(world, 0, 10, 1)?;
    flush(world, 0)?;
    world.cut_power(|_| Fate::Lost);
    replace(world)?;
    read(world, 0, 10, 1)?;
    world.verify()
}

/// Goal: only an ephemeral cache is replaced. Method: one that is none, with nothing dirty, is asked for.
#[test]
fn a_cache_that_is_to_stay_is_never_replaced() {
    let mut world = World::new(Setup { is_ephemeral: false, ..through() });
    begin(&mut world).expect("it starts");
    world.stop().expect("it stops");
    assert_eq!(world.start_blank(u64::MAX), Ok(Err(Lacking::Ephemeral)));
    world.open().expect("it is there");
    world.verify().expect("all is there");
}

/// Goal: a start that is cut while it formats is repeated, however often. Method: cut after each of its writes and flushes, with
/// random fates; then all that was promised is there, and an older cache is refused.
#[test]
fn a_new_cache_may_be_cut_anywhere_while_it_is_formatted() {
    for kind in ALL {
        for changes in 0..8 {
            let mut world = World::new(kind.of(through()));
            begin(&mut world).expect("it starts");
            write_fua(&mut world, 0, 40, 4).expect("it writes");
            world.stop().expect("it stops");
            let gone = world.cache().clone();
            let first = world.start_blank(changes).expect("sound").expect("allowed");
            if !first {
                let again = world.start_blank(changes / 2).expect("sound").expect("allowed");
                let is_done = again || world.start_blank(u64::MAX).expect("sound").expect("allowed");
                assert!(is_done, "a whole start of {} is done", kind.name());
            }
            let new = world.swap_cache(gone);
            assert!(matches!(world.try_open(), Ok(Err(Refusal::Replaced))), "{} comes back", kind.name());
            let _gone_again = world.swap_cache(new);
            world.open().expect("the new cache is there");
            read(&mut world, 0, 40, 4).expect("it reads");
            world.verify().expect("all is there");
        }
    }
}
