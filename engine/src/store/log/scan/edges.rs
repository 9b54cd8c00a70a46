//! The first and the last block of every segment.

use super::ScanError;
use crate::effect::Errno;
use crate::format::{DecodedFooter, SegmentHead, Superblock};
use crate::image::{Image, ReadAt};
use crate::mutation::{Mutation, Mutations};
use crate::number::{index, index_wide};
use crate::units::BLOCK_BYTES;
use alloc::vec::Vec;

/// Reads in one group.
const GROUP: u32 = 256;
const BLOCK: usize = index_wide(BLOCK_BYTES);

/// The structures at the two ends of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edges {
    /// The head, if it is one of this cache.
    pub head: Option<SegmentHead>,
    /// The footer, if it belongs to the head.
    pub footer: Option<DecodedFooter>,
}

impl Edges {
    fn take_head(&mut self, block: &[u8]) {
        self.head = SegmentHead::decode(block).ok();
    }
}

/// Reads of `len_bytes` each at the offsets, as one group.
pub(crate) fn read_group_into<I: Image>(
    image: &mut I,
    pieces: impl Iterator<Item = (u64, usize)>,
    group: &mut Vec<ReadAt>,
) {
    fill_group(pieces, group);
    image.read_group(group);
}

/// Makes a group of reads of `len_bytes` each at the offsets, in the memory of another one.
pub(crate) fn fill_group(pieces: impl Iterator<Item = (u64, usize)>, group: &mut Vec<ReadAt>) {
    let mut count = 0;
    for (offset_bytes, len_bytes) in pieces {
        if count == group.len() {
            group.push(ReadAt { offset_bytes, bytes: Vec::new(), result: Ok(()) });
        }
        let read = &mut group[count];
        read.offset_bytes = offset_bytes;
        read.bytes.resize(len_bytes, 0);
        read.result = Ok(());
        count += 1;
    }
    group.truncate(count);
}

/// Reads the edges of all segments, in the order of their numbers.
///
/// The end of one segment and the head of the next are neighbours: one read of two blocks has both.
pub(super) fn read_edges<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    repair: bool,
    mutations: Mutations,
) -> Result<Vec<Edges>, ScanError> {
    let geometry = superblock.geometry();
    let mut edges = alloc::vec![Edges::default(); index(geometry.segments)];
    let mut group = Vec::new();
    let mut border = 0;
    while border <= geometry.segments {
        let borders = border..(border + GROUP).min(geometry.segments + 1);
        border = borders.end;
        let pieces = borders.clone().map(|at| {
            let blocks = if at == geometry.segments { 1 } else { 2 };
            (geometry.offset_bytes(at, 0) - BLOCK_BYTES, blocks * BLOCK)
        });
        read_group_into(image, pieces, &mut group);
        for (at, read) in borders.zip(&group) {
            match read.result {
                Ok(()) => (),
                // A footer that cannot be read is as good as none. One border in two has a head that the log may
                // need, and whether it does is not known without it.
                Err(_) if repair => continue,
                Err(errno) => retry_head(image, superblock, at, errno, &mut edges)?,
            }
            if read.result.is_ok() {
                let (footer, head) = read.bytes.split_at(BLOCK);
                if at > 0 {
                    edges[index(at) - 1].footer = DecodedFooter::decode(footer).ok();
                }
                if at < geometry.segments {
                    edges[index(at)].take_head(head);
                }
            }
        }
    }
    for (edges, segment) in edges.iter_mut().zip(0..) {
        judge(edges, superblock, segment, mutations)?;
    }
    Ok(edges)
}

/// Reads a head alone, without the footer beside it that may be what failed.
fn retry_head<I: Image>(
    image: &mut I,
    superblock: &Superblock,
    segment: u32,
    errno: Errno,
    edges: &mut [Edges],
) -> Result<(), ScanError> {
    if segment == superblock.geometry().segments {
        return Ok(());
    }
    let offset_bytes = superblock.geometry().offset_bytes(segment, 0);
    let bytes = image.read(offset_bytes, BLOCK).map_err(|_| ScanError::Device { offset_bytes, errno })?;
    edges[index(segment)].take_head(&bytes);
    Ok(())
}

/// Drops what is not of this cache or not of this life of the segment.
fn judge(
    edges: &mut Edges,
    superblock: &Superblock,
    segment: u32,
    mutations: Mutations,
) -> Result<(), ScanError> {
    edges.head = edges.head.filter(|head| head.set_id == superblock.set_id && head.ring == 0);
    let Some(head) = edges.head else {
        edges.footer = None;
        return Ok(());
    };
    edges.footer = edges.footer.filter(|decoded| {
        let footer = &decoded.footer;
        footer.set_id == head.set_id
            && footer.ring == head.ring
            && footer.generation == head.generation
            && footer.first_sequence == head.first_sequence
            && decoded.body_blocks <= superblock.geometry().segment_blocks - 2
    });
    let footer_session = edges.footer.map_or(0, |decoded| decoded.footer.session);
    let found_session = head.session.max(footer_session);
    // RULE 6: a copy of the superblock that missed a session cannot tell live from dead.
    if found_session > superblock.session && !mutations.has(Mutation::TrustStaleSuperblock) {
        return Err(ScanError::SuperblockStale {
            segment,
            found_session,
            superblock_session: superblock.session,
        });
    }
    Ok(())
}
