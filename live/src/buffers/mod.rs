//! The payload pool: one mapping, cut into 4 KiB frames, two quotas.
//!
//! A buffer is a contiguous run of frames; its name is the number of its first frame. Two
//! arenas share the mapping: the engine allocates from one, the doors from the other, so that
//! clients can never take what the engine needs to make progress. Each arena is a buddy
//! allocator whose blocks are trimmed to the exact length; the sizes that requests use all
//! the time are kept aside whole, last in, first out, because their lines are still in the caches.
//!
//! Invariants:
//! - I1: a frame belongs to at most one buffer or one free block.
//! - I2: `used_bytes` of an arena is the sum of its buffers' lengths.
//! - I3: a buffer with references has its length in the frame table; every other entry is 0.

mod arena;
mod lasting;

use arena::Arena;
use engine::format::LASTING_BYTES;
use engine::limits::{ENGINE_BUFFER_BYTES_MAX, ENGINE_POOL_BYTES};
use engine::memory::{BufferId, Memory, Purpose, Slice};
use engine::units::{BLOCK_BYTES, payload_checksum};
pub use lasting::{BootId, LastingMemory, boot_id, left_in};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Bytes of a frame.
pub const FRAME_BYTES: u32 = BLOCK_BYTES as u32;
/// Bytes of the largest buffer.
pub const BUFFER_BYTES_MAX: u32 = ENGINE_BUFFER_BYTES_MAX;
/// Least memory of the doors: an eighth of it is several of the pieces that requests are cut into.
pub const DOOR_BYTES_MIN: u64 = 8 << 20;

/// Address space beyond the engine's quota, so that scattered small buffers never make a
/// large one fail while the quota has room.
const ENGINE_SLACK_BYTES: u64 = 16 << 20;
/// Entry of a buffer in the frame table, at its first frame.
#[derive(Clone, Copy, Default)]
struct Frame {
    references: u32,
    frames: u32,
}

/// All payload buffers of a daemon.
pub struct Pool {
    base: NonNull<u8>,
    mapped_bytes: usize,
    frames: Vec<Frame>,
    engine: Arena,
    door: Arena,
    /// Buffers of the doors that came back since the start.
    door_returns: u64,
    /// Memory that outlives the process, if there is any.
    lasting: Option<LastingMemory>,
}

// SAFETY: the mapping is private to the pool and reached only through it; the pool is used by one
// thread at a time, as `&mut` and the absence of `Sync` say.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of which the doors may use `door_bytes` (at least [`DOOR_BYTES_MIN`]) besides the
    /// engine's [`ENGINE_POOL_BYTES`].
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn new(door_bytes: u64) -> io::Result<Pool> {
        Pool::with_kept(door_bytes, 0)
    }

    /// The same, of which the engine may use `kept_bytes` more, for dirty data that it keeps in memory.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn with_kept(door_bytes: u64, kept_bytes: u64) -> io::Result<Pool> {
        let kept_bytes = kept_bytes.next_multiple_of(u64::from(BUFFER_BYTES_MAX));
        let quota_bytes = ENGINE_POOL_BYTES + kept_bytes;
        let door_bytes = door_bytes.max(DOOR_BYTES_MIN).next_multiple_of(u64::from(BUFFER_BYTES_MAX));
        let engine_bytes = quota_bytes + ENGINE_SLACK_BYTES;
        let engine_frames = u32::try_from(engine_bytes / BLOCK_BYTES).map_err(io::Error::other)?;
        let door_frames =
            u32::try_from(door_bytes / BLOCK_BYTES).ok().filter(|frames| *frames < 1 << 30).ok_or_else(
                || io::Error::new(io::ErrorKind::OutOfMemory, "a pool of more than 4 TiB is not supported"),
            )?;
        let mapped_bytes = usize::try_from(engine_bytes + door_bytes).map_err(io::Error::other)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        // Huge pages save TLB misses; without them all works as well.
        // SAFETY: the advice concerns exactly the mapping made above and changes no content.
        let _ = unsafe { rustix::mm::madvise(base, mapped_bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        Ok(Pool {
            base,
            mapped_bytes,
            frames: vec![Frame::default(); (engine_frames + door_frames) as usize],
            engine: Arena::new(0, engine_frames, quota_bytes),
            door: Arena::new(engine_frames, door_frames, door_bytes),
            door_returns: 0,
            lasting: None,
        })
    }

    /// The same with memory that outlives the process.
    #[must_use]
    pub fn with_lasting(mut self, lasting: Option<LastingMemory>) -> Pool {
        self.lasting = lasting;
        self
    }

    /// A buffer for a client's data, with one reference; `None` if the doors' quota has no room.
    pub fn allocate_for_door(&mut self, len_bytes: u32) -> Option<BufferId> {
        let frames = frames_of(len_bytes);
        let start = self.door.take(frames)?;
        Some(self.begin(start, frames))
    }

    /// Bytes the doors may use in all.
    #[must_use]
    pub fn door_quota_bytes(&self) -> u64 {
        self.door.quota_bytes
    }

    /// Bytes the doors have in use.
    #[must_use]
    pub fn door_used_bytes(&self) -> u64 {
        self.door.used_bytes
    }

    /// Buffers that doors had and that are free again, ever: while the number stays the same, a client that waits for
    /// memory need not look again.
    #[must_use]
    pub fn door_returns(&self) -> u64 {
        self.door_returns
    }

    /// Bytes the engine has in use.
    #[must_use]
    pub fn engine_used_bytes(&self) -> u64 {
        self.engine.used_bytes
    }

    /// The address of a piece, for a system call. It stays valid as long as the buffer has
    /// references; the caller that hands it to the kernel keeps one until the kernel is done.
    ///
    /// # Panics
    /// If the piece is not inside its buffer.
    #[must_use]
    pub fn pointer(&self, slice: Slice) -> *mut u8 {
        let frame = self.frames[slice.buffer.0 as usize];
        assert!(frame.references > 0, "buffer {} is in use", slice.buffer.0);
        let end = u64::from(slice.offset_bytes) + u64::from(slice.len_bytes);
        assert!(end <= u64::from(frame.frames) * u64::from(FRAME_BYTES), "the piece is inside its buffer");
        let offset = slice.buffer.0 as usize * FRAME_BYTES as usize + slice.offset_bytes as usize;
        // SAFETY: the offset is below `mapped_bytes`, since the buffer's frames are and the piece
        // is inside the buffer.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The bytes of a piece that no system call is writing at the moment.
    #[must_use]
    pub fn bytes(&self, slice: Slice) -> &[u8] {
        // SAFETY: the range is inside the mapping (`pointer` checks) and lives as long as `self`.
        // Nobody in the process holds it mutably, as that takes `&mut self`. The kernel does not write it:
        // the owner of a read under way does not look at its bytes before it completed.
        unsafe { std::slice::from_raw_parts(self.pointer(slice), slice.len_bytes as usize) }
    }

    /// The bytes of a piece that no system call is using at the moment.
    pub fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        // SAFETY: as for `bytes`; `&mut self` makes this the only reference in the process, and
        // the owner of a write under way does not change its bytes before it completed.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(slice), slice.len_bytes as usize) }
    }

    /// The whole of a buffer.
    fn whole(&self, buffer: BufferId) -> Slice {
        let frame = self.frames[buffer.0 as usize];
        Slice { buffer, offset_bytes: 0, len_bytes: frame.frames * FRAME_BYTES }
    }

    fn begin(&mut self, start: u32, frames: u32) -> BufferId {
        let frame = &mut self.frames[start as usize];
        assert!(frame.references == 0 && frame.frames == 0, "frame {start} is free");
        *frame = Frame { references: 1, frames };
        BufferId(start)
    }
}

fn frames_of(len_bytes: u32) -> u32 {
    assert!(
        0 < len_bytes && len_bytes <= BUFFER_BYTES_MAX && len_bytes.is_multiple_of(FRAME_BYTES),
        "a buffer is a whole number of frames, at most {BUFFER_BYTES_MAX} bytes"
    );
    len_bytes / FRAME_BYTES
}

impl Memory for Pool {
    fn allocate(&mut self, _purpose: Purpose, len_bytes: u32) -> Option<BufferId> {
        let frames = frames_of(len_bytes);
        let start = self.engine.take(frames)?;
        Some(self.begin(start, frames))
    }

    fn retain(&mut self, buffer: BufferId) {
        let frame = &mut self.frames[buffer.0 as usize];
        assert!(frame.references > 0, "buffer {} is in use", buffer.0);
        frame.references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let frame = &mut self.frames[buffer.0 as usize];
        assert!(frame.references > 0, "buffer {} is in use", buffer.0);
        frame.references -= 1;
        if frame.references == 0 {
            let frames = std::mem::take(&mut frame.frames);
            if buffer.0 < self.door.first {
                self.engine.give(buffer.0, frames);
            } else {
                self.door_returns += 1;
                self.door.give(buffer.0, frames);
            }
        }
    }

    fn metadata(&self, buffer: BufferId) -> &[u8] {
        self.bytes(self.whole(buffer))
    }

    fn metadata_mut(&mut self, buffer: BufferId) -> &mut [u8] {
        self.bytes_mut(self.whole(buffer))
    }

    fn checksum(&self, slice: Slice) -> u32 {
        payload_checksum(self.bytes(slice))
    }

    fn copy(&mut self, from: Slice, to: Slice) {
        assert!(from.len_bytes == to.len_bytes, "both pieces have one length");
        let (source, target) = (self.pointer(from), self.pointer(to));
        assert!(
            from.buffer != to.buffer || source.addr().abs_diff(target.addr()) >= from.len_bytes as usize,
            "the pieces do not overlap"
        );
        // SAFETY: both ranges are inside the mapping and do not overlap: they are in different
        // buffers, or as far apart as they are long.
        unsafe { std::ptr::copy_nonoverlapping(source, target, from.len_bytes as usize) };
    }

    fn zero(&mut self, slice: Slice) {
        self.bytes_mut(slice).fill(0);
    }

    #[inline]
    fn lasting_bytes(&self) -> usize {
        self.lasting.as_ref().map_or(0, |_| LASTING_BYTES)
    }

    fn store_lasting(&mut self, at_bytes: usize, bytes: &[u8]) {
        self.lasting.as_mut().expect("the engine saw that there is such memory").store(at_bytes, bytes);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing refers to it any more; the
        // reactor keeps the pool until the kernel has finished every operation on it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Engine(u32),
        Door(u32),
        Retain(usize),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let frames = prop_oneof![4 => Just(1u32), 2 => Just(32u32), 2 => Just(64u32), 3 => 1u32..=256];
        prop_oneof![
            2 => frames.clone().prop_map(Step::Engine),
            4 => frames.prop_map(Step::Door),
            1 => any::<usize>().prop_map(Step::Retain),
            5 => any::<usize>().prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Buffers never overlap, keep their content while they have references, and both quotas
        /// are exact: a pool emptied again can hand out its largest buffers up to the quota.
        #[test]
        fn buffers_are_disjoint_and_accounted(steps in proptest::collection::vec(step(), 1..300)) {
            let mut pool = Pool::new(DOOR_BYTES_MIN).unwrap();
            // Model: first frame to (frames, references, tag).
            let mut live: BTreeMap<u32, (u32, u32, u8)> = BTreeMap::new();
            for (turn, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Engine(frames) | Step::Door(frames) => {
                        let bytes = frames * FRAME_BYTES;
                        let for_door = matches!(step, Step::Door(_));
                        let got = if for_door {
                            pool.allocate_for_door(bytes)
                        } else {
                            pool.allocate(Purpose::Payload, bytes)
                        };
                        let Some(buffer) = got else { continue };
                        prop_assert_eq!(buffer.0 >= pool.door.first, for_door);
                        if let Some((start, (length, ..))) = live.range(..=buffer.0).next_back() {
                            prop_assert!(start + length <= buffer.0);
                        }
                        if let Some((start, _)) = live.range(buffer.0..).next() {
                            prop_assert!(buffer.0 + frames <= *start);
                        }
                        let slice = Slice { buffer, offset_bytes: 0, len_bytes: bytes };
                        prop_assert_eq!(pool.pointer(slice).addr() % 4096, 0);
                        pool.bytes_mut(slice).fill(turn as u8);
                        live.insert(buffer.0, (frames, 1, turn as u8));
                    }
                    Step::Retain(pick) if !live.is_empty() => {
                        let start = *live.keys().nth(pick % live.len()).unwrap();
                        pool.retain(BufferId(start));
                        live.get_mut(&start).unwrap().1 += 1;
                    }
                    Step::Release(pick) if !live.is_empty() => {
                        let start = *live.keys().nth(pick % live.len()).unwrap();
                        let (frames, references, tag) = live.get_mut(&start).unwrap();
                        let slice = Slice {
                            buffer: BufferId(start), offset_bytes: 0, len_bytes: *frames * FRAME_BYTES,
                        };
                        prop_assert!(pool.bytes(slice).iter().all(|byte| byte == tag));
                        pool.release(BufferId(start));
                        *references -= 1;
                        if *references == 0 {
                            live.remove(&start);
                        }
                    }
                    Step::Retain(_) | Step::Release(_) => {}
                }
                let border = pool.door.first;
                let sum = |from: u32, to: u32| -> u64 {
                    live.range(from..to).map(|(_, (frames, ..))| u64::from(*frames) * BLOCK_BYTES).sum()
                };
                prop_assert_eq!(pool.engine_used_bytes(), sum(0, border));
                prop_assert_eq!(pool.door_used_bytes(), sum(border, u32::MAX));
            }
            for (start, (_, references, _)) in live {
                for _ in 0..references {
                    pool.release(BufferId(start));
                }
            }
            for _ in 0..ENGINE_POOL_BYTES / u64::from(BUFFER_BYTES_MAX) {
                prop_assert!(pool.allocate(Purpose::Metadata, BUFFER_BYTES_MAX).is_some());
            }
            prop_assert!(pool.allocate(Purpose::Metadata, FRAME_BYTES).is_none());
            for _ in 0..DOOR_BYTES_MIN / u64::from(BUFFER_BYTES_MAX) {
                prop_assert!(pool.allocate_for_door(BUFFER_BYTES_MAX).is_some());
            }
            prop_assert!(pool.allocate_for_door(FRAME_BYTES).is_none());
        }
    }

    #[test]
    fn copies_zeroes_and_sums_pieces() {
        let mut pool = Pool::new(0).unwrap();
        let first = pool.allocate(Purpose::Payload, 8192).unwrap();
        let second = pool.allocate_for_door(4096).unwrap();
        let from = Slice { buffer: first, offset_bytes: 512, len_bytes: 1024 };
        let to = Slice { buffer: second, offset_bytes: 0, len_bytes: 1024 };
        pool.bytes_mut(from).copy_from_slice(&[7; 1024]);
        pool.copy(from, to);
        assert_eq!(pool.checksum(to), engine::units::payload_checksum(&[7; 1024]));
        pool.zero(to.part(0, 512));
        assert_eq!(pool.bytes(to)[511..513], [0, 7]);
    }

    #[test]
    #[should_panic(expected = "is in use")]
    fn a_released_buffer_is_not_touched_again() {
        let mut pool = Pool::new(0).unwrap();
        let buffer = pool.allocate_for_door(4096).unwrap();
        pool.release(buffer);
        pool.retain(buffer);
    }
}
