//! A device that is read and written step by step: recovery, `create` and `check` stand on it.
//!
//! Before a cache serves its first request it is one synchronous job: read the superblock,
//! the segment heads, the summaries; rebuild the index; write the new session. The engine
//! does it through this trait, and its implementation decides what the steps mean: system calls
//! in the daemon, virtual time and power cuts in a simulator, where any call may fail.

use crate::effect::Errno;
use crate::format::FlushNote;
use crate::pair::Half;
use alloc::vec::Vec;

/// One read of a group.
#[derive(Debug)]
pub struct ReadAt {
    /// The offset on the device.
    pub offset_bytes: u64,
    /// Filled with exactly its length.
    pub bytes: Vec<u8>,
    /// Its outcome.
    pub result: Result<(), Errno>,
}

/// Knowledge of a block of one copy of a device that is kept twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is what was written.
    Right,
    /// It is not.
    Wrong,
    /// Each copy has something of its own there.
    Differs,
    /// Nothing.
    Nothing,
}

/// A device used by one synchronous job. All offsets and lengths are multiples of 4096.
pub trait Image {
    /// The device's size in bytes.
    fn size_bytes(&self) -> u64;
    /// Performs all reads, in any order and at once if it can; each has its own result.
    fn read_group(&mut self, reads: &mut [ReadAt]);
    /// The same, and `beside` once: while the device is read, if it can.
    fn read_group_beside(&mut self, reads: &mut [ReadAt], beside: &mut dyn FnMut()) {
        self.read_group(reads);
        beside();
    }
    /// Writes `bytes` at the offset.
    ///
    /// # Errors
    /// The device's errno.
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno>;
    /// Makes durable all that was written before.
    ///
    /// # Errors
    /// The device's errno.
    fn flush(&mut self) -> Result<(), Errno>;

    /// Reads the other copy from now on, where the device is kept twice and the two may differ. False if there is one alone.
    fn turn_over(&mut self) -> bool {
        false
    }

    /// Reads a range of the device from the other copy from now on, where it is kept twice. False if there is one alone, or that
    /// was asked for before.
    fn turn_over_at(&mut self, _offset_bytes: u64, _len_bytes: u64) -> bool {
        false
    }

    /// Makes two copies the same, where the device is kept twice. `known` says what is known of a block of one copy, by its offset.
    ///
    /// # Errors
    /// The device's errno.
    fn settle(&mut self, _known: &mut dyn FnMut(u64, &[u8]) -> Known) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether the two copies of a range may differ, where the device is kept twice.
    fn may_differ(&self, _offset_bytes: u64, _len_bytes: u64) -> bool {
        false
    }

    /// The generations of a log's segments from which on counts what the first or the second half of a mirrored cache has alone;
    /// `None` for a device that is not kept twice.
    fn once_counts_from(&self) -> Option<[u64; 2]> {
        None
    }

    /// The note of a flush in memory that outlived the last process, where there is such memory.
    fn flush_note(&self) -> Option<FlushNote> {
        None
    }

    /// Performs reads of what one half alone has.
    fn read_of(&mut self, _half: Half, reads: &mut [ReadAt]) {
        self.read_group(reads);
    }

    /// Reads `len_bytes` of one half at the offset.
    ///
    /// # Errors
    /// The device's errno.
    fn read_half(&mut self, half: Half, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut group = [ReadAt { offset_bytes, bytes: alloc::vec![0; len_bytes], result: Ok(()) }];
        self.read_of(half, &mut group);
        let [read] = group;
        read.result.map(|()| read.bytes)
    }

    /// Reads `len_bytes` at the offset.
    ///
    /// # Errors
    /// The device's errno.
    fn read(&mut self, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut group = [ReadAt { offset_bytes, bytes: alloc::vec![0; len_bytes], result: Ok(()) }];
        self.read_group(&mut group);
        let [read] = group;
        read.result.map(|()| read.bytes)
    }
}
