//! Scrub: cached blocks are compared with their checksums although nobody wants to read them.
//!
//! A request to scrub names a range. What of it is cached is read from the cache device in a buffer of ours. A block that is not
//! what was written, or cannot be read, is read once more, alone: a device may have a bad moment. Then it meets with what a
//! client's read would have brought about (hazard 10): a clean block leaves the cache, a rotten dirty one is lost. A dirty block
//! that cannot be read stays: destage tries it again, and gives it up if that does not help.
//!
//! It counts as nobody's read, and keeps nothing off a block: what was changed while it was read is left to the next scrub.

use crate::effect::{Effect, Errno, Notice};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::piece::{Checksums, Piece, Source};
use crate::machine::request::{RequestKey, Stage};
use crate::machine::volume::Standing;
use crate::machine::work_slice;
use crate::memory::{Memory, Slice};
use crate::mutation::Mutation;
use crate::number::to_u32;
use crate::pair::Half;
use crate::store::{Cached, Store};
use crate::units::{BLOCK_BYTES, BlockKey, Place, VolumeIndex};

/// Bad blocks that are kept until somebody takes them.
const KEPT_MAX: usize = 1000;

/// A cached block that a scrub found bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The volume.
    pub volume: VolumeIndex,
    /// The block.
    pub block: u64,
    /// Its damage.
    pub bad: Bad,
}

/// Damage of a cached block, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It was clean: the origin has it, and the cache no longer. The error of the read, or none if it rotted.
    Dropped(Option<Errno>),
    /// It was dirty and rotted: it is lost.
    Lost,
    /// It could not be read, and stays.
    Unreadable(Errno),
}

/// A block that was not what it should be.
struct Suspect {
    block: u64,
    place: Place,
    /// The checksum to find there.
    checksum: Option<u32>,
    slice: Slice,
}

impl<S: Store> Machine<S> {
    /// Begins to compare what is cached of a request's range with its checksums.
    pub(crate) fn start_scrub<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let active = &self.requests[key];
        let (index, blocks) = (active.volume, active.blocks);
        let is_served = self.volume(index).standing == Standing::Cached;
        if !is_served || self.latched.is_some() || self.is_stopping {
            self.fail(key, Errno::OPNOTSUPP, memory);
            return;
        }
        let Some(buffer) = self.take_work(blocks.count, memory) else {
            self.requests.wait_for_buffer(key);
            return;
        };
        let work = work_slice(buffer, blocks.count);
        let active = &mut self.requests[key];
        (active.work, active.work_buffer, active.stage) = (Some(work), Some(buffer), Stage::Fetching);
        // It is not over before all pieces have begun.
        active.parts += 1;
        self.read_cached(key, work);
        self.requests[key].parts -= 1;
        if self.requests[key].parts == 0 {
            self.reply(key, memory);
        }
    }

    /// Reads what is cached of a request's blocks, neighbours together.
    fn read_cached(&mut self, key: RequestKey, work: Slice) {
        let (index, blocks) = (self.requests[key].volume, self.requests[key].blocks);
        let mut open: Option<Piece> = None;
        for step in 0..blocks.count {
            let block = blocks.first + step;
            let found = self.to_scrub(self.volume(index).key(block));
            let known = found.filter(|cached| cached.checksum.is_some());
            self.volume_mut(index).counters.scrub.unknown_blocks +=
                u64::from(found.is_some() && known.is_none());
            let is_joined = match (&mut open, known) {
                (Some(piece), Some(cached)) => piece.join_cached(cached.place, cached.checksum, |first| {
                    self.store.is_joinable(first, cached.place)
                }),
                _ => false,
            };
            if is_joined {
                continue;
            }
            if let Some(piece) = open.take() {
                self.issue_scrub(key, piece, false);
            }
            open = known.map(|Cached { place, checksum, .. }| Piece {
                first: block,
                blocks: 1,
                slice: work.part(to_u32(step * BLOCK_BYTES), to_u32(BLOCK_BYTES)),
                source: Source::Cache { place, checksums: Checksums::One(checksum) },
            });
        }
        if let Some(piece) = open {
            self.issue_scrub(key, piece, false);
        }
    }

    /// The cached copy of a block, if the device has to have it as it was written: not where it is being overwritten, where
    /// memory has it as well, and where it is known to be lost.
    fn to_scrub(&self, key: BlockKey) -> Option<Cached> {
        let is_elsewhere = self.store.is_changing(key)
            || self.store.in_memory(key).is_some()
            || self.store.kept_in_memory(key).is_some()
            || self.store.extent(key).is_some();
        if is_elsewhere { None } else { self.store.lookup(key) }
    }

    fn issue_scrub(&mut self, request: RequestKey, piece: Piece, is_second: bool) {
        let Source::Cache { place, .. } = &piece.source else { unreachable!("read from the cache") };
        // RULE 1: a place that is read is not reused.
        self.store.pin(*place, piece.blocks);
        let (place, slice) = (*place, piece.slice);
        self.requests[request].parts += 1;
        // Of a mirrored cache the second half follows.
        let flight = Flight::ScrubRead { request, piece, is_second };
        self.read_cache(place, slice, flight, Some(Half::First));
    }

    pub(crate) fn scrub_read_done<M: Memory>(
        &mut self,
        request: RequestKey,
        piece: Piece,
        is_second: bool,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let Source::Cache { place, checksums } = &piece.source else { unreachable!("read from the cache") };
        self.store.unpin(*place, piece.blocks);
        self.requests[request].parts -= 1;
        let gone = result.err().filter(|errno| errno.is_gone());
        if let Some(errno) = gone.or(self.latched) {
            // Of a device that is gone nothing is bad but the device.
            self.requests[request].error = Some(errno);
        } else {
            for (step, checksum) in (0..piece.blocks).zip(checksums.as_slice()) {
                let slice = piece.slice.part(step * to_u32(BLOCK_BYTES), to_u32(BLOCK_BYTES));
                let (block, place) = (piece.first + u64::from(step), Place(place.0 + step));
                if result.is_ok() && *checksum == Some(memory.checksum(slice)) {
                    let index = self.requests[request].volume;
                    self.volume_mut(index).counters.scrub.good_blocks += 1;
                    continue;
                }
                let suspect = Suspect { block, place, checksum: *checksum, slice };
                // RULE 18: a device may have a bad moment, and a block is lost for good.
                if is_second || self.is_mutated(Mutation::ScrubBelievesOnce) {
                    self.judge(request, &suspect, result);
                } else {
                    self.read_again(request, suspect);
                }
            }
        }
        if self.requests[request].parts == 0 {
            self.reply(request, memory);
        }
    }

    /// The copy that was read, if it is still the one that counts.
    fn still_cached(&self, index: VolumeIndex, suspect: &Suspect) -> Option<Cached> {
        let key = self.volume(index).key(suspect.block);
        let is_same = |cached: &Cached| cached.place == suspect.place && cached.checksum == suspect.checksum;
        self.to_scrub(key).filter(is_same)
    }

    fn read_again(&mut self, request: RequestKey, suspect: Suspect) {
        if self.still_cached(self.requests[request].volume, &suspect).is_some() {
            let Suspect { block, place, checksum, slice } = suspect;
            let source = Source::Cache { place, checksums: Checksums::One(checksum) };
            self.issue_scrub(request, Piece { first: block, blocks: 1, slice, source }, true);
        }
    }

    /// A block was bad twice.
    fn judge(&mut self, request: RequestKey, suspect: &Suspect, result: Result<(), Errno>) {
        let (index, block) = (self.requests[request].volume, suspect.block);
        let key = self.volume(index).key(block);
        // RULE 18: a copy that came meanwhile, perhaps the only one, does not pay for the one that was read.
        let found = if self.is_mutated(Mutation::ScrubForgetsChange) {
            self.store.lookup(key).map(|cached| Cached { dirty: false, ..cached })
        } else {
            self.still_cached(index, suspect)
        };
        let Some(cached) = found else { return };
        // RULE 18: it was read and found good on its way home, and waits for the origin's flush alone.
        let is_home = cached.dirty && self.volume(index).destage.is_written_home(block);
        if is_home && !self.is_mutated(Mutation::ScrubLosesWhatIsHome) {
            return;
        }
        // RULE 18: a dirty block has no other copy.
        let is_dirty = cached.dirty && !self.is_mutated(Mutation::ScrubDropsDirty);
        // With an origin that fails a copy that may be read one day is better than none.
        let stays = is_dirty || self.volume(index).origin.is_failing();
        let counts = &mut self.volume_mut(index).counters;
        let bad = match result {
            Err(errno) if stays => {
                counts.scrub.unreadable_blocks += 1;
                if is_dirty {
                    self.push(Effect::Notice(Notice::DirtyUnread { volume: index, block, errno }));
                }
                Bad::Unreadable(errno)
            }
            Ok(()) if is_dirty => {
                counts.scrub.lost_blocks += 1;
                S::mark_lost(self, key);
                Bad::Lost
            }
            result => {
                counts.scrub.dropped_blocks += 1;
                counts.corrupt_clean_blocks += 1;
                let errno = result.err();
                self.push(Effect::Notice(Notice::CorruptClean { volume: index, block, errno }));
                S::drop_rotten(self, key);
                Bad::Dropped(errno)
            }
        };
        if self.scrubbed.len() < KEPT_MAX {
            self.scrubbed.push(Scrubbed { volume: index, block, bad });
        }
    }
}
