//! Files that are laid out and copied: through the page cache, so that the device sees long sequential requests. At the
//! end there is a flush: fio syncs what it lays out, and a file system's journal flushes every few seconds.

use super::procedure::File;
use crate::long::{Action, Answer, Demand, Next, Workload};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};
use std::collections::BTreeSet;

/// The length of a request: Linux 4.5 puts no more than 256 pages into one (`BIO_MAX_PAGES`).
const REQUEST_BYTES: u64 = 1 << 20;
/// The first one is shorter: what the flusher takes together begins at no border of a cache's blocks. An inference, from ext4's
/// reserved extents, which have 32767 blocks at most: if each begins where a group of 32768 does, place and request are out of
/// line by a block more with each extent. Any length that ends between two borders leaves as many blocks whole.
const FIRST_BYTES: u64 = 100 << 10;
/// Requests are handed over in parts that end at multiples of this, as device mapper cuts them for blocks of this size.
const CUT_BYTES: u64 = 256 << 10;
/// Chunks under way at the same time: the page cache has gigabytes to write, and whoever hands them over waits only when the
/// disk's queue is full. Source: `nr_requests` of Linux.
const CHUNKS_UNDER_WAY: u32 = 128;
/// Chunks that a copy reads ahead. Assumed.
const CHUNKS_READ_AHEAD: u32 = 4;

/// Files are written from beginning to end, or copied.
pub(super) struct FileLoad {
    /// Files to write, each behind the file that it is a copy of, if it is one.
    files: Vec<(Option<File>, File)>,
    at: usize,
    done_bytes: u64,
    under_way: u32,
    /// Chunks under way that are being read.
    reading: u32,
    /// Chunks that were read and must be written, by where they began to be read.
    read: BTreeSet<u64>,
    /// Next write of a copy (file, offset): as the page cache hands it over, in the order of the file.
    next_write: (usize, u64),
    /// The flush at the end was asked for.
    is_flushed: bool,
}

impl FileLoad {
    /// Writes new files, one after the other.
    pub(super) fn layout(files: &[File]) -> FileLoad {
        FileLoad::new(files.iter().map(|file| (None, *file)).collect())
    }

    /// Copies files, one after the other.
    pub(super) fn copy(from: &[File], to: &[File]) -> FileLoad {
        FileLoad::new(from.iter().map(|file| Some(*file)).zip(to.iter().copied()).collect())
    }

    fn new(files: Vec<(Option<File>, File)>) -> FileLoad {
        FileLoad {
            files,
            at: 0,
            done_bytes: 0,
            under_way: 0,
            reading: 0,
            read: BTreeSet::new(),
            next_write: (0, 0),
            is_flushed: false,
        }
    }

    /// The next chunk of the copy to be written, if it was read.
    fn next_write(&mut self) -> Option<SectorRange> {
        let (at, at_bytes) = self.next_write;
        let &(from, to) = self.files.get(at)?;
        let from = from?;
        if !self.read.remove(&((from.start_bytes + at_bytes) / SECTOR_BYTES)) {
            return None;
        }
        let len_bytes = chunk_bytes(at_bytes).min(from.size_bytes - at_bytes);
        let end_bytes = at_bytes + len_bytes;
        self.next_write = if end_bytes == from.size_bytes { (at + 1, 0) } else { (at, end_bytes) };
        Some(range(&to, at_bytes, len_bytes))
    }

    fn demand(&mut self, job: u32, action: Action, now: Nanos) -> Next {
        Next::Demand(Demand { job, volume: VolumeIndex(0), action, due: now })
    }
}

/// The length of the part of a request that begins here in a file, which begins at a border itself.
fn chunk_bytes(at_bytes: u64) -> u64 {
    let of_request = REQUEST_BYTES - (at_bytes + REQUEST_BYTES - FIRST_BYTES) % REQUEST_BYTES;
    of_request.min(CUT_BYTES - at_bytes % CUT_BYTES)
}

fn range(file: &File, from_bytes: u64, len_bytes: u64) -> SectorRange {
    SectorRange { start: (file.start_bytes + from_bytes) / SECTOR_BYTES, sectors: len_bytes / SECTOR_BYTES }
}

impl Workload for FileLoad {
    fn next(&mut self, now: Nanos) -> Next {
        if let Some(range) = self.next_write() {
            return self.demand(0, Action::Write { range, fua: false }, now);
        }
        if self.under_way >= CHUNKS_UNDER_WAY || self.reading >= CHUNKS_READ_AHEAD {
            return Next::OnAnswer;
        }
        let Some((from, to)) = self.files.get(self.at).copied() else {
            if self.under_way > 0 {
                return Next::OnAnswer;
            }
            if std::mem::replace(&mut self.is_flushed, true) {
                return Next::End;
            }
            self.under_way += 1;
            return self.demand(0, Action::Flush, now);
        };
        let size_bytes = from.map_or(to.size_bytes, |from| from.size_bytes);
        let at_bytes = self.done_bytes;
        let len_bytes = chunk_bytes(at_bytes).min(size_bytes - at_bytes);
        self.done_bytes += len_bytes;
        if self.done_bytes == size_bytes {
            (self.at, self.done_bytes) = (self.at + 1, 0);
        }
        self.under_way += 1;
        match from {
            None => {
                let range = range(&to, at_bytes, len_bytes);
                self.demand(0, Action::Write { range, fua: false }, now)
            }
            Some(from) => {
                self.reading += 1;
                self.demand(0, Action::Read(range(&from, at_bytes, len_bytes)), now)
            }
        }
    }

    fn answered(&mut self, answer: &Answer) {
        if let Action::Read(read) = answer.demand.action {
            self.reading -= 1;
            self.read.insert(read.start);
        } else {
            self.under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_of_four_blocks_are_written_wholly() {
        let mut at_bytes = 0;
        let mut lengths = Vec::new();
        while at_bytes < REQUEST_BYTES + FIRST_BYTES {
            lengths.push(chunk_bytes(at_bytes) >> 10);
            at_bytes += chunk_bytes(at_bytes);
        }
        assert_eq!(
            (at_bytes, &lengths[..]),
            (REQUEST_BYTES + FIRST_BYTES, &[100, 156, 256, 256, 256, 100][..])
        );
    }

    #[test]
    fn a_copy_is_written_in_order_whatever_the_order_of_its_reads() {
        let file = |start_bytes| File { start_bytes, size_bytes: 5 << 20 };
        let mut load = FileLoad::copy(&[file(0), file(8 << 20)], &[file(16 << 20), file(24 << 20)]);
        let (mut under_way, mut written) = (Vec::new(), Vec::new());
        loop {
            match load.next(Nanos(0)) {
                Next::Demand(demand) => {
                    if let Action::Write { range, .. } = demand.action {
                        written.push(range);
                    }
                    under_way.push(demand);
                }
                Next::End => break,
                // The newest first.
                _ => {
                    let demand = under_way.pop().expect("something is under way");
                    load.answered(&Answer { demand, answered: Nanos(0), result: Ok(()) });
                }
            }
        }
        let bytes: u64 = written.iter().map(|range| range.sectors * SECTOR_BYTES).sum();
        assert_eq!(bytes, 10 << 20);
        assert!(written.windows(2).all(|pair| pair[0].start < pair[1].start), "{written:?}");
    }
}
