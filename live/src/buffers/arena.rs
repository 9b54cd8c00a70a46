//! Arena: a buddy allocator over a run of the pool's frames, with a quota.

use super::{BUFFER_BYTES_MAX, FRAME_BYTES};

/// The largest block of the allocator: 2^8 frames are 1 MiB.
const ORDER_MAX: u32 = 8;
const BLOCK_FRAMES_MAX: u32 = 1 << ORDER_MAX;
const _: () = assert!(BLOCK_FRAMES_MAX * FRAME_BYTES == BUFFER_BYTES_MAX, "a buffer fits a block");
/// Marks the end of a list.
const NIL: u32 = u32::MAX;
/// In `Arena::free_order`: the frame is not the first one of a free block.
const TAKEN: u8 = u8::MAX;
/// The buffer lengths kept aside, in frames, and the number of each.
const ASIDE: [(u32, usize); 3] = [(1, 512), (32, 32), (64, 16)];

/// A buddy allocator over a run of frames.
pub(super) struct Arena {
    /// The arena's first frame in the pool, a multiple of the largest block.
    pub(super) first: u32,
    /// Bytes it may hand out.
    pub(super) quota_bytes: u64,
    /// Bytes handed out.
    pub(super) used_bytes: u64,
    /// By frame: the order of the free block that begins there.
    free_order: Vec<u8>,
    /// By frame: neighbours in the list of free blocks of that order.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By order: the first free block.
    heads: [u32; ORDER_MAX as usize + 1],
    /// Free buffers of the common lengths, as first frames.
    aside: [Vec<u32>; ASIDE.len()],
}

impl Arena {
    pub(super) fn new(first: u32, frames: u32, quota_bytes: u64) -> Arena {
        assert!(
            first.is_multiple_of(BLOCK_FRAMES_MAX) && frames.is_multiple_of(BLOCK_FRAMES_MAX),
            "an arena is a whole number of the largest blocks"
        );
        let mut arena = Arena {
            first,
            quota_bytes,
            used_bytes: 0,
            free_order: vec![TAKEN; frames as usize],
            next: vec![NIL; frames as usize],
            previous: vec![NIL; frames as usize],
            heads: [NIL; ORDER_MAX as usize + 1],
            aside: ASIDE.map(|(_, count)| Vec::with_capacity(count)),
        };
        for block in (0..frames).step_by(BLOCK_FRAMES_MAX as usize).rev() {
            arena.link(block, ORDER_MAX);
        }
        arena
    }

    /// Takes `frames` contiguous frames; the number of the first one in the pool.
    pub(super) fn take(&mut self, frames: u32) -> Option<u32> {
        assert!(0 < frames && frames <= BLOCK_FRAMES_MAX, "a buffer is no longer than the largest block");
        let bytes = u64::from(frames) * u64::from(FRAME_BYTES);
        if self.used_bytes + bytes > self.quota_bytes {
            return None;
        }
        let kept = ASIDE.iter().position(|(length, _)| *length == frames);
        let start = match kept.and_then(|list| self.aside[list].pop()) {
            Some(start) => start,
            None => match self.split(frames) {
                Some(start) => start,
                None => {
                    // Buffers kept aside may keep large blocks from forming.
                    self.merge_aside();
                    self.split(frames)?
                }
            },
        };
        self.used_bytes += bytes;
        Some(self.first + start)
    }

    /// Gives back `frames` frames that `take` handed out.
    pub(super) fn give(&mut self, start: u32, frames: u32) {
        let start = start - self.first;
        self.used_bytes -= u64::from(frames) * u64::from(FRAME_BYTES);
        for (list, (length, count)) in ASIDE.iter().enumerate() {
            if *length == frames && self.aside[list].len() < *count {
                self.aside[list].push(start);
                return;
            }
        }
        self.free_run(start, frames);
    }

    fn split(&mut self, frames: u32) -> Option<u32> {
        let order = frames.next_power_of_two().trailing_zeros();
        let mut found = (order..=ORDER_MAX).find(|order| self.heads[*order as usize] != NIL)?;
        let start = self.heads[found as usize];
        self.unlink(start, found);
        while found > order {
            found -= 1;
            self.link(start + (1 << found), found);
        }
        self.free_run(start + frames, (1 << order) - frames);
        Some(start)
    }

    fn merge_aside(&mut self) {
        for (list, (length, _)) in ASIDE.iter().enumerate() {
            while let Some(start) = self.aside[list].pop() {
                self.free_run(start, *length);
            }
        }
    }

    /// Frees a run of any length: as the largest aligned blocks that it holds.
    fn free_run(&mut self, mut start: u32, mut frames: u32) {
        while frames > 0 {
            let order = start.trailing_zeros().min(frames.ilog2()).min(ORDER_MAX);
            self.free_block(start, order);
            start += 1 << order;
            frames -= 1 << order;
        }
    }

    fn free_block(&mut self, mut start: u32, mut order: u32) {
        while order < ORDER_MAX {
            let buddy = start ^ (1 << order);
            if u32::from(self.free_order[buddy as usize]) != order {
                break;
            }
            self.unlink(buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.link(start, order);
    }

    fn link(&mut self, start: u32, order: u32) {
        assert!(self.free_order[start as usize] == TAKEN, "frame {start} is freed only while it is in use");
        let head = self.heads[order as usize];
        self.free_order[start as usize] = order as u8;
        self.next[start as usize] = head;
        self.previous[start as usize] = NIL;
        if head != NIL {
            self.previous[head as usize] = start;
        }
        self.heads[order as usize] = start;
    }

    fn unlink(&mut self, start: u32, order: u32) {
        let (next, previous) = (self.next[start as usize], self.previous[start as usize]);
        self.free_order[start as usize] = TAKEN;
        if next != NIL {
            self.previous[next as usize] = previous;
        }
        if previous == NIL {
            self.heads[order as usize] = next;
        } else {
            self.next[previous as usize] = next;
        }
    }
}
