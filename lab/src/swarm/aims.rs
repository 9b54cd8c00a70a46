//! Moments at which a crash is most likely to find a bug, and which random runs seldom reach: drawn, prepared, and
//! then left to the crash.

use crate::disk::faults::Kind;
use crate::random::Random;
use crate::violation::Violation;
use crate::world::halves::Failing;
use crate::world::{World, blocks};
use engine::effect::{RequestOp, WriteMode};
use engine::format::{PAIR_PAGE_OFFSETS, SUPERBLOCK_OFFSETS};
use engine::pair::{Half, HalfStatus, Standing};

/// Events that a moment is waited for at the most.
const STEPS_MAX: u32 = 300;
/// Sectors of the cache that are looked at for one that may rot.
const LOOKS_MAX: u32 = 64;
/// Blocks of a write that fills a group commit, and the number of such writes.
const COMPANY_BLOCKS: u64 = 64;
const COMPANY: u64 = 2;
/// Writes that have the halves of a mirrored cache marked anew, at the most, and blocks of each.
const MARKED_WRITES: u64 = 24;
const MARKED_BLOCKS: u64 = 32;
/// Events after which the halves have said what is new, at the most, and those of a copy of a whole half.
const SAID_STEPS: u64 = 12;
const COPY_STEPS: u32 = 3000;

/// Goes on to such a moment, if it comes.
pub(super) fn aim(random: &mut Random, world: &mut World) -> Result<(), Violation> {
    // Of the halves of a mirrored cache one is hurt at a time, and others say which.
    if random.one_in(2) || world.is_mirrored() {
        superblock_under_way(random, world)
    } else {
        rot_under_a_write(random, world)
    }
}

/// Goes on to a moment at which pages of the halves of a mirrored cache are being written: one of them fails, or is copied, the
/// superblock changes, or the log goes on to where nothing is marked.
pub(super) fn aim_at_halves(
    random: &mut Random,
    world: &mut World,
    (weak, may_change_mode): (Half, bool),
) -> Result<(), Violation> {
    let is_page = |first: u64| PAIR_PAGE_OFFSETS.iter().any(|offset| offset / 512 == first);
    let is_page_written =
        |world: &World| !world.pending(|io| io.kind == Kind::Write && is_page(io.first)).is_empty();
    let is_well = world.are_halves_well();
    match world.standings() {
        [Standing::In, Standing::In] if is_well && random.one_in(2) => {
            world.fail_half(weak, Failing::Once(Kind::Write));
        }
        standings if standings.contains(&Standing::Out) && random.one_in(2) => {
            world.rejoin();
            if random.one_in(2) {
                until_steps(world, COPY_STEPS, is_half_copied)?;
            }
        }
        _ if may_change_mode && random.one_in(2) && change_mode(random, world) => {
            until(world, is_page_written)?;
        }
        _ => (),
    }
    for _ in 0..random.between(1, MARKED_WRITES) {
        let volume = random.below(world.volumes() as u64) as usize;
        let whole = world.volume_sectors(volume) / 8;
        if world.is_served(volume) && world.mode(volume) != WriteMode::Readonly {
            let count = random.between(1, MARKED_BLOCKS).min(whole);
            world.write(volume, blocks(random.below(whole - count + 1), count));
        }
    }
    until(world, is_page_written)?;
    for _ in 0..random.below(SAID_STEPS) {
        if !world.step()? {
            break;
        }
    }
    world.is_sound()
}

/// Whether all of a half is copied, and nobody was told yet that it counts.
fn is_half_copied(world: &World) -> bool {
    let is_copied = |half: &HalfStatus| half.to_copy_bytes > 0 && half.copied_bytes == half.to_copy_bytes;
    let pair = world.engine().and_then(|engine| engine.status().cache.pair);
    pair.is_some_and(|pair| pair.halves.iter().any(is_copied))
}

/// Lets things happen until `is_there`, for a while.
fn until(world: &mut World, is_there: impl Fn(&World) -> bool) -> Result<(), Violation> {
    until_steps(world, STEPS_MAX, is_there)
}

/// The same for so many events at the most.
fn until_steps(world: &mut World, steps: u32, is_there: impl Fn(&World) -> bool) -> Result<(), Violation> {
    for _ in 0..steps {
        if is_there(world) || !world.step()? {
            break;
        }
    }
    world.is_sound()
}

/// Changes a mode, and waits until the second copy of the superblock is being written.
fn superblock_under_way(random: &mut Random, world: &mut World) -> Result<(), Violation> {
    if !change_mode(random, world) {
        return Ok(());
    }
    until(world, |world| {
        let second = SUPERBLOCK_OFFSETS[1] / 512;
        !world.pending(|io| io.is_cache(Kind::Write) && io.first == second).is_empty()
    })
}

/// Changes the mode of a volume; false if it cannot be changed.
fn change_mode(random: &mut Random, world: &mut World) -> bool {
    let volume = random.below(world.volumes() as u64) as usize;
    if world.mode(volume) == WriteMode::Readonly || !world.is_served(volume) {
        return false;
    }
    let (mode, _) = WriteMode::ALL[random.below(4) as usize];
    world.submit(volume, RequestOp::SetMode(world.allowed_mode(mode)));
    true
}

/// Reads a block that rotted while it is written; when its reader knows, there is more to write. All of that is
/// flushed.
fn rot_under_a_write(random: &mut Random, world: &mut World) -> Result<(), Violation> {
    let sectors = world.cache().sectors();
    let looked = (0..LOOKS_MAX).map(|_| random.below(sectors));
    let Some((rotten, (volume, sector))) =
        looked.into_iter().find_map(|sector| Some((sector, world.may_rot(sector)?)))
    else {
        return Ok(());
    };
    let is_done = world.rot_cache(rotten, random.below(4096) as usize);
    if !is_done || !world.is_served(volume) || world.mode(volume) == WriteMode::Readonly {
        return Ok(());
    }
    let block = blocks(sector / 8, 1);
    if block.end() > world.volume_sectors(volume) {
        return Ok(());
    }
    world.read(volume, block);
    world.write(volume, block);
    until(world, |world| world.pending(|io| io.is_cache(Kind::Read)).is_empty())?;
    let volume_blocks = world.volume_sectors(volume) / 8;
    for _ in 0..COMPANY {
        let first = random.below(volume_blocks.saturating_sub(COMPANY_BLOCKS).max(1));
        world.write(volume, blocks(first, COMPANY_BLOCKS.min(volume_blocks - first)));
    }
    let flush = world.flush(volume);
    until(world, |world| world.answer(flush).is_some())
}
