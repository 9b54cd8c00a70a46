//! Blank devices: whether an instance store, or a file, holds nothing that anybody could miss.

use crate::signature;
use crate::superblock::system;
use anyhow::{Context, Result};
use engine::effect::Errno;
use engine::format::{Layout, Region, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS};
use engine::units::BLOCK_BYTES;
use live::devices::BlockingDevice;

/// Bytes that are looked at as a whole at the beginning and at the end: labels and tables lie there.
const END_BYTES: u64 = 1 << 20;
/// Blocks that are looked at between them.
const SAMPLES: u64 = 1024;

/// The content of a device, if it has any. Blank is what reads as zeroes, or as ones, block by block: all of its first and last
/// mebibyte, and 1024 blocks between them, evenly spread. Behind `forming`, the division of a cache that was being formatted,
/// the places of its records may hold anything but the mark of something else.
///
/// # Errors
/// If it cannot be read.
pub fn content(
    image: &mut BlockingDevice,
    size_bytes: u64,
    forming: Option<&Layout>,
) -> Result<Option<String>> {
    if let Some(found) = signature::find(image, size_bytes).map_err(system).context("cannot read it")? {
        return Ok(Some(format!("holds {found}")));
    }
    let records = forming.map_or_else(Vec::new, records);
    let whole = size_bytes / BLOCK_BYTES;
    let end = (END_BYTES / BLOCK_BYTES).min(whole);
    let between = whole - 2 * end.min(whole / 2);
    let samples = (0..SAMPLES.min(between)).map(|at| end + at * between / SAMPLES.min(between).max(1));
    let blocks = (0..end).chain(samples).chain(whole - end..whole);
    for block in blocks {
        let offset_bytes = block * BLOCK_BYTES;
        let is_record = |region: &Region| {
            (region.offset_bytes..region.offset_bytes + region.len_bytes).contains(&offset_bytes)
        };
        if !records.iter().any(is_record) && !is_blank(image, offset_bytes).map_err(system)? {
            return Ok(Some(format!("holds something (at byte {offset_bytes})")));
        }
    }
    Ok(None)
}

/// The places that are written when a cache is formatted.
fn records(layout: &Layout) -> Vec<Region> {
    let superblocks = SUPERBLOCK_OFFSETS
        .into_iter()
        .map(|offset_bytes| Region { offset_bytes, len_bytes: SUPERBLOCK_BYTES as u64 });
    let metadata = match layout {
        Layout::Slots(slots) => Some(slots.metadata()),
        Layout::Log(_) | Layout::Keys(_) | Layout::Frames(_) => None,
    };
    superblocks.chain(metadata).collect()
}

fn is_blank(image: &mut BlockingDevice, offset_bytes: u64) -> Result<bool, Errno> {
    let mut block = [0; BLOCK_BYTES as usize];
    image.read_at(offset_bytes, &mut block)?;
    Ok(block.iter().all(|byte| *byte == 0) || block.iter().all(|byte| *byte == u8::MAX))
}
