//! Moments at which a crash is most likely to find a bug, and which random runs seldom reach: drawn, prepared, and
//! then left to the crash.

use crate::disk::faults::Kind;
use crate::random::Random;
use crate::violation::Violation;
use crate::world::{World, blocks};
use engine::effect::{RequestOp, WriteMode};
use engine::format::SUPERBLOCK_OFFSETS;

/// Events that a moment is waited for at the most.
const STEPS_MAX: u32 = 300;
/// Sectors of the cache that are looked at for one that may rot.
const LOOKS_MAX: u32 = 64;
/// Blocks of a write that fills a group commit, and the number of such writes.
const COMPANY_BLOCKS: u64 = 64;
const COMPANY: u64 = 2;

/// Goes on to such a moment, if it comes.
pub(super) fn aim(random: &mut Random, world: &mut World) -> Result<(), Violation> {
    // Of the halves of a mirrored cache one is hurt at a time, and others say which.
    if random.one_in(2) || world.is_mirrored() {
        superblock_under_way(random, world)
    } else {
        rot_under_a_write(random, world)
    }
}

/// Lets things happen until `is_there`, for a while.
fn until(world: &mut World, is_there: impl Fn(&World) -> bool) -> Result<(), Violation> {
    for _ in 0..STEPS_MAX {
        if is_there(world) || !world.step()? {
            break;
        }
    }
    world.is_sound()
}

/// Changes a mode, and waits until the second copy of the superblock is being written.
fn superblock_under_way(random: &mut Random, world: &mut World) -> Result<(), Violation> {
    let volume = random.below(world.volumes() as u64) as usize;
    if world.mode(volume) == WriteMode::Readonly || !world.is_served(volume) {
        return Ok(());
    }
    let (mode, _) = WriteMode::ALL[random.below(4) as usize];
    world.submit(volume, RequestOp::SetMode(world.allowed_mode(mode)));
    until(world, |world| {
        let second = SUPERBLOCK_OFFSETS[1] / 512;
        !world.pending(|io| io.is_cache(Kind::Write) && io.first == second).is_empty()
    })
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
