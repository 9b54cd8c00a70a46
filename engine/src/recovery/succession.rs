//! A cache that takes the place of another one: on another device, or on the same one in another size (rule 16).
//!
//! Nothing dirty is left when that begins: the origins have everything, and the new cache begins empty. What matters is that
//! of all caches in a line exactly one is ever believed, whatever crash comes when:
//!
//! ```text
//!   replace:  old: none ──(1)──> replaced      new: heir, without volumes ──(2)──> none, with the volumes
//!   remake:   one device: none ──(1)──> remade ──(2)──> records of the new cache ──(3)──> none, under a new set id
//! ```
//!
//! Each step is durable before the next. A crash before (1) leaves the old cache as it was. After it the old one is never
//! believed again, and what is left to do is told by the superblocks alone: [`hand_over`] and [`remake`] go on where they
//! were cut off.

use super::{SuperblockError, format, load_superblock, write_superblock, write_superblock_copies};
use crate::effect::Errno;
use crate::format::{Layout, Line, SetId, Succession, Superblock};
use crate::image::Image;
use crate::mutation::{Mutation, Mutations};
use crate::number::{index_wide, wide};
use alloc::vec;

/// Bytes that are zeroed at once.
const ZERO_BYTES: usize = 1 << 20;

/// Why a cache does not take another one's place.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuccessionError {
    /// A superblock cannot be trusted.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The caches are not in one line.
    #[error("The one cache was not made to take the place of the other")]
    Strangers,
    /// The old cache may hold something that its origins do not have.
    #[error("The cache was not stopped with all of its data at the origins")]
    NotHome,
    /// A device failed.
    #[error("The device failed (errno {})", .0.0)]
    Device(Errno),
}

impl From<Errno> for SuccessionError {
    fn from(errno: Errno) -> SuccessionError {
        SuccessionError::Device(errno)
    }
}

/// The superblock of a cache on one device that is to take the place of `old`: made of the same, and without its volumes.
#[must_use]
pub fn heir(old: &Superblock, set_id: SetId, cache_bytes: u64, layout: Layout) -> Superblock {
    Superblock {
        update: 1,
        is_ephemeral: old.is_ephemeral,
        profile: old.profile.clone(),
        composition: old.composition.clone(),
        next_volume_id: old.next_volume_id,
        history: old.history.clone(),
        line: Line {
            succession: Succession::Heir { of: old.set_id },
            ancestor: Some(old.line.ancestor.unwrap_or(old.set_id)),
            is_home: true,
        },
        ..Superblock::of_new_cache(set_id, cache_bytes, layout)
    }
}

/// Writes the records of an heir, and its superblock last. What the device held before is void then.
///
/// # Errors
/// The device's errno.
pub fn write_heir<I: Image>(image: &mut I, heir: &Superblock, mutations: Mutations) -> Result<(), Errno> {
    write_records(image, heir)?;
    write_superblock(image, heir, mutations)
}

/// Writes the records of a cache without its superblock. What is left of an earlier cache there could pass for one.
fn write_records<I: Image>(image: &mut I, superblock: &Superblock) -> Result<(), Errno> {
    if let Layout::Slots(slots) = &superblock.layout {
        let region = slots.metadata();
        let zeroes = vec![0; ZERO_BYTES];
        let end = region.offset_bytes + region.len_bytes;
        let mut at = region.offset_bytes;
        while at < end {
            let len_bytes = wide(ZERO_BYTES).min(end - at);
            image.write(at, &zeroes[..index_wide(len_bytes)])?;
            at += len_bytes;
        }
    }
    format(image, superblock)?;
    image.flush()
}

/// Whether the place of a cache may be taken: it was stopped cleanly, and nothing dirty was left.
fn check_home(old: &Superblock, mutations: Mutations) -> Result<(), SuccessionError> {
    // RULE 16: what is dirty would be lost with the old cache.
    let is_home = old.clean_stop && old.line.is_home;
    if is_home || mutations.has(Mutation::HandOverDirty) { Ok(()) } else { Err(SuccessionError::NotHome) }
}

/// Gives the volumes of the cache on `old` to its heir on `new`, and returns the superblock of that. Goes on where it was cut
/// off.
///
/// # Errors
/// [`SuccessionError`]. After [`SuccessionError::Device`] either may be believed, and never both: it is to be repeated.
pub fn hand_over<O: Image, N: Image>(
    old: &mut O,
    new: &mut N,
    mutations: Mutations,
) -> Result<Superblock, SuccessionError> {
    let (mut retired, _) = load_superblock(old)?;
    let (mut heir, _) = load_superblock(new)?;
    match (retired.line.succession, heir.line.succession) {
        (Succession::None, Succession::Heir { of }) if of == retired.set_id => {
            check_home(&retired, mutations)?;
        }
        (Succession::Replaced { by }, Succession::Heir { of })
            if by == heir.set_id && of == retired.set_id => {}
        (Succession::Replaced { by }, Succession::None) if by == heir.set_id => {
            // RULE 16: one copy may say so alone, where that was cut off.
            if !mutations.has(Mutation::HeirInOneCopy) {
                write_superblock(new, &heir, mutations)?;
            }
            return Ok(heir);
        }
        _ => return Err(SuccessionError::Strangers),
    }
    retired.line.succession = Succession::Replaced { by: heir.set_id };
    retired.update += 1;
    heir.line.succession = Succession::None;
    heir.update += 1;
    heir.next_volume_id = retired.next_volume_id;
    heir.history.clone_from(&retired.history);
    heir.volumes.clone_from(&retired.volumes);
    for record in heir.volumes.iter_mut().flatten() {
        // Nothing is recorded of them yet.
        record.clean_floor_sequence = 0;
    }
    // RULE 16: the old cache is durably not believed any more before the new one is.
    if mutations.has(Mutation::HeirBeforeRetired) {
        write_superblock(new, &heir, mutations)?;
        write_superblock(old, &retired, mutations)?;
        return Ok(heir);
    }
    if mutations.has(Mutation::RetireUnflushed) {
        write_superblock_copies(old, &retired, false)?;
    } else {
        write_superblock(old, &retired, mutations)?;
    }
    write_superblock(new, &heir, mutations)?;
    Ok(heir)
}

/// Makes the cache on `image` anew in another size, under the id `set_id`, with its volumes and without content. Goes on where
/// it was cut off, under the id and with the size that it began with. `divide` tells how a device of that size is divided.
///
/// # Errors
/// [`SuccessionError`]. After [`SuccessionError::Device`] it is to be repeated.
pub fn remake<I: Image>(
    image: &mut I,
    (set_id, cache_bytes): (SetId, u64),
    divide: impl FnOnce(&Superblock, u64) -> Layout,
    mutations: Mutations,
) -> Result<Superblock, SuccessionError> {
    let (mut old, _) = load_superblock(image)?;
    let (by, cache_bytes) = match old.line.succession {
        Succession::None => {
            check_home(&old, mutations)?;
            (set_id, cache_bytes)
        }
        Succession::Remade { by, cache_bytes } => (by, cache_bytes),
        Succession::Heir { .. } | Succession::Replaced { .. } => return Err(SuccessionError::Strangers),
    };
    let layout = divide(&old, cache_bytes);
    // RULE 16: while one copy of the superblock is the new cache's and one the old one's, the old one says whose place it
    // gave up. Without that nobody could tell which counts.
    if !mutations.has(Mutation::RemakeWithoutNote) {
        old.line.succession = Succession::Remade { by, cache_bytes };
        old.update += 1;
        write_superblock(image, &old, mutations)?;
    }
    // RULE 16: under its old id the new cache would believe what is left of its log.
    let is_same = mutations.has(Mutation::RemakeKeepsSetId);
    let mut new = heir(&old, if is_same { old.set_id } else { by }, cache_bytes, layout);
    new.line.succession = Succession::None;
    new.update = old.update + 1;
    new.volumes.clone_from(&old.volumes);
    for record in new.volumes.iter_mut().flatten() {
        record.clean_floor_sequence = 0;
    }
    write_records(image, &new)?;
    write_superblock_copies(image, &new, true)?;
    Ok(new)
}
