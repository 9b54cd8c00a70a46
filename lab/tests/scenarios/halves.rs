//! Rule 20: two devices for one cache, of which each can go on alone.

use crate::steps::*;
use engine::effect::{Errno, Target};
use engine::format::PAIR_PAGE_OFFSETS;
use engine::pair::Half;
use forebay_lab::disk::Fate;
use forebay_lab::disk::faults::Kind;
use forebay_lab::world::halves::Failing;
use forebay_lab::world::{AtStake, IoView, Setup, World};

crate::scenarios! {
    rule_20_answered_when_recorded: AnsweredBeforeOutRecorded, mirrored;
    rule_20_halves_are_made_the_same: HalvesUnmarked, mirrored;
    rule_20_a_page_takes_marks_away: MarkTakenAway, mirrored;
    rule_20_copy_waits_for_changes: CopyOverChange, mirrored;
    rule_20_rot_on_one_half: RottenHalfBelieved, mirrored_and_damaged;
    rule_20_rot_is_not_copied_over_what_may_come_back: OverwrittenForgotten, mirrored_and_damaged;
    rule_20_what_is_dirty_is_on_both: DirtyKeptOnce, mirrored;
    rule_20_what_one_half_has_ends_no_log: CutAtOnce, mirrored;
    rule_20_each_half_rots_somewhere_else: HalfReadAlone, mirrored_and_damaged;
    rule_20_a_scrub_looks_at_heads: ScrubForgetsHeads, mirrored_and_damaged;
}

/// Two volumes in writeback mode on a mirrored cache.
fn mirrored() -> Setup {
    Setup { is_mirrored: true, ..writeback() }
}

/// The same, where the script damages a half.
fn mirrored_and_damaged() -> Setup {
    Setup { is_mirrored: true, ..damaged() }
}

fn is_page(io: &IoView) -> bool {
    io.kind == Kind::Write && PAIR_PAGE_OFFSETS.iter().any(|offset| io.first == offset / 512)
}

/// The first half is gone for good, and everything is there.
fn go_on_without_the_first(world: &mut World) -> Run {
    world.half(Half::First).faults.gone = Some(Errno::NODEV);
    world.open()?;
    world.verify()
}

fn rule_20_answered_when_recorded(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 9, 1)?;
    world.fail_half(Half::Second, Failing::Always(Kind::Write));
    world.hold(is_page);
    let _answered_or_not = world.write_fua(0, blocks(10, 1));
    world.pass(50 * MS)?;
    world.cut_power(|_| Fate::Lost);
    world.half(Half::Second).faults.heal();
    go_on_without_the_first(world)
}

fn rule_20_halves_are_made_the_same(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 1)?;
    world.cut_power(|write| if write.target == Target::Mirror { Fate::Lost } else { Fate::Kept });
    world.open()?;
    read(world, 0, 10, 1)?;
    world.kill(|_| true);
    go_on_without_the_first(world)
}

fn rule_20_a_page_takes_marks_away(world: &mut World) -> Run {
    begin(world)?;
    world.fail_half(Half::Second, Failing::Once(Kind::Flush));
    write_fua(world, 0, 9, 1)?;
    let rejoined = world.rejoin();
    world.until_pending(|io| io.target == Target::Mirror && io.kind == Kind::Write && !is_page(io))?;
    // What comes next in the log is marked, too. The page that ends the copy says nothing of it.
    write(world, 0, 9, 1)?;
    world.hold(is_page);
    world.until_pending(is_page)?;
    world.hold(|io| io.target == Target::Mirror && io.kind == Kind::Write);
    let _unanswered = world.write(0, blocks(10, 48));
    world.pass(50 * MS)?;
    world.complete_all(is_page)?;
    world.succeed(rejoined)?;
    world.cut_power(|write| if write.target == Target::Mirror { Fate::Lost } else { Fate::Kept });
    world.release();
    world.open()?;
    read(world, 0, 10, 48)?;
    world.kill(|_| true);
    go_on_without_the_first(world)
}

fn rule_20_copy_waits_for_changes(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 9, 1)?;
    world.fail_half(Half::Second, Failing::Once(Kind::Flush));
    flush(world, 0)?;
    let rejoined = world.rejoin();
    world.until_pending(|io| io.target == Target::Mirror && io.kind == Kind::Write && !is_page(io))?;
    world.hold(|io| io.target == Target::Cache && io.kind == Kind::Write && !is_page(io));
    let written = world.write(0, blocks(10, 1));
    world.pass(200 * MS)?;
    world.release();
    world.succeed(written)?;
    world.succeed(rejoined)?;
    flush(world, 0)?;
    world.kill(|_| true);
    go_on_without_the_first(world)
}

fn rule_20_rot_on_one_half(world: &mut World) -> Run {
    begin(world)?;
    write(world, 0, 10, 16)?;
    flush(world, 0)?;
    for draw in 0..32 {
        world.rot_half(Half::First, true, draw * 7);
    }
    // A scrub looks at both halves, and writes again what is wrong on one.
    let scrubbed = world.scrub(0, blocks(10, 16));
    world.succeed(scrubbed)?;
    world.pass(5 * MS)?;
    for draw in 0..32 {
        world.rot_half(Half::Second, true, draw * 7);
    }
    read(world, 0, 10, 16)?;
    world.verify()
}

fn rule_20_rot_is_not_copied_over_what_may_come_back(world: &mut World) -> Run {
    begin(world)?;
    for changes in 0..12 {
        write(world, 0, 10, 1)?;
        flush(world, 0)?;
        let v1 = world.copies_of(0, 10 * 8);
        // The first half alone gets v2, and nobody is answered.
        world.hold(|io| io.target == Target::Mirror && io.kind == Kind::Write && !is_page(io));
        let _unanswered = world.write(0, blocks(10, 1));
        world.pass(5 * MS)?;
        let v2: Vec<u64> = world.copies_of(0, 10 * 8).into_iter().filter(|at| !v1.contains(at)).collect();
        world.kill(|write| write.target == Target::Cache);
        world.release();
        assert!(v1.iter().filter(|at| world.half(Half::First).rot(**at, 9)).count() > 0, "v1 is there");
        let is_v2 =
            |write: &AtStake| v2.iter().any(|at| (write.first..write.first + write.sectors()).contains(at));
        if world.open_and_cut(changes, |write| if is_v2(write) { Fate::Lost } else { Fate::Kept })? {
            world.open()?;
        }
        world.verify_cut()?;
    }
    Ok(())
}

fn rule_20_what_is_dirty_is_on_both(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 0, 16)?;
    // It is appended again and again, as it cannot go home.
    world.origin(0).faults.gone = Some(Errno::NODEV);
    wrap(world, 1)?;
    flush(world, 1)?;
    world.kill(|_| true);
    world.origin(0).faults.heal();
    go_on_without_the_first(world)
}

fn rule_20_what_one_half_has_ends_no_log(world: &mut World) -> Run {
    begin(world)?;
    write_fua(world, 0, 9, 1)?;
    fill(world, 1, 0, 16)?;
    write(world, 0, 10, 1)?;
    world.kill(|_| true);
    world.open()?;
    read(world, 0, 10, 1)?;
    world.verify()
}

/// Writes some segments full.
fn write_segments(world: &mut World) -> Run {
    begin(world)?;
    for first in (0..256).step_by(16) {
        write_fua(world, 0, first, 16)?;
    }
    Ok(())
}

fn rule_20_each_half_rots_somewhere_else(world: &mut World) -> Run {
    write_segments(world)?;
    world.kill(|_| true);
    let is_struck = world.rot_end(Half::First, 2, true) && world.rot_end(Half::Second, 4, true);
    assert!(is_struck, "both segments have heads");
    world.open()?;
    world.verify()?;
    // The start has mended both.
    world.kill(|_| true);
    go_on_without_the_first(world)
}

fn rule_20_a_scrub_looks_at_heads(world: &mut World) -> Run {
    write_segments(world)?;
    assert!(world.rot_end(Half::Second, 2, true), "the segment has a head");
    for segment in 0..8 {
        let scrubbed = world.scrub_segment(segment);
        world.succeed(scrubbed)?;
    }
    world.kill(|_| true);
    go_on_without_the_first(world)
}
