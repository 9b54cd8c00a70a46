//! Files that are laid out and copied: through the page cache, so that the device sees long sequential requests.

use super::procedure::File;
use crate::long::{Action, Answer, Demand, Next, Workload};
use engine::units::{Nanos, SECTOR_BYTES, SectorRange, VolumeIndex};

/// The length of a request.
const CHUNK_BYTES: u64 = 256 << 10;
/// Chunks under way at the same time.
const CHUNKS_UNDER_WAY: u32 = 4;

/// Files are written from beginning to end, or copied.
pub(super) struct FileLoad {
    /// What is copied, if it is, and where to.
    files: Vec<(Option<File>, File)>,
    at: usize,
    done_bytes: u64,
    under_way: u32,
    /// Chunks that were read and must be written: where.
    read: Vec<SectorRange>,
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
        FileLoad { files, at: 0, done_bytes: 0, under_way: 0, read: Vec::new() }
    }

    fn demand(&mut self, job: u32, action: Action, now: Nanos) -> Next {
        Next::Demand(Demand { job, volume: VolumeIndex(0), action, due: now })
    }
}

fn range(file: &File, from_bytes: u64, len_bytes: u64) -> SectorRange {
    SectorRange { start: (file.start_bytes + from_bytes) / SECTOR_BYTES, sectors: len_bytes / SECTOR_BYTES }
}

impl Workload for FileLoad {
    fn next(&mut self, now: Nanos) -> Next {
        if let Some(range) = self.read.pop() {
            return self.demand(0, Action::Write { range, fua: false }, now);
        }
        if self.under_way >= CHUNKS_UNDER_WAY {
            return Next::OnAnswer;
        }
        let Some((from, to)) = self.files.get(self.at).copied() else {
            return if self.under_way > 0 { Next::OnAnswer } else { Next::End };
        };
        let size_bytes = from.map_or(to.size_bytes, |from| from.size_bytes);
        let len_bytes = CHUNK_BYTES.min(size_bytes - self.done_bytes);
        let at_bytes = self.done_bytes;
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
            Some(from) => self.demand(0, Action::Read(range(&from, at_bytes, len_bytes)), now),
        }
    }

    fn answered(&mut self, answer: &Answer) {
        if let Action::Read(read) = answer.demand.action {
            // The copy that the chunk belongs to is the one whose file it lies in.
            let start_bytes = read.start * SECTOR_BYTES;
            let pair = self.files.iter().find_map(|(from, to)| {
                let from = (*from)?;
                let offset_bytes = start_bytes.checked_sub(from.start_bytes)?;
                (offset_bytes < from.size_bytes).then_some((offset_bytes, to))
            });
            let (offset_bytes, to) = pair.expect("a chunk lies in a file that is copied");
            self.read.push(range(to, offset_bytes, read.sectors * SECTOR_BYTES));
        } else {
            self.under_way -= 1;
        }
    }
}
