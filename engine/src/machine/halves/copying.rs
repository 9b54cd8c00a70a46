//! A half that is brought up to date: it gets a copy of the whole device, while clients work.

use super::changed_range;
use crate::effect::{Effect, Errno, IoOp, Notice, Pieces};
use crate::format::{PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::request::RequestKey;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{to_u32, wide};
use crate::pair::{Half, Standing};
use crate::store::Store;
use crate::units::BLOCK_BYTES;

/// The length of a piece that is copied at a time.
const COPY_BYTES: u64 = 256 << 10;
/// The same in front of the segments, where the pages of the halves lie: they are not copied.
const COPY_BYTES_IN_FRONT: u64 = 64 << 10;
const FRONT_BYTES: u64 = crate::format::SEGMENTS_OFFSET;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The half is told, on both copies of its page, that it does not count yet; so many pages are to be written.
    Telling(u8),
    /// Changes of the next piece that are under way come to their end.
    Clearing,
    Reading,
    Writing,
    /// All is copied, and becomes durable.
    Flushing,
    /// The halves are told that both count.
    Ending,
}

/// A half that is being brought up to date.
pub(crate) struct Copying {
    half: Half,
    request: RequestKey,
    step: Step,
    at: u64,
    len: u64,
    /// The end of a piece that could not be read at once, and is read block by block.
    singly_until: u64,
    buffer: Option<BufferId>,
    /// An operation of it is under way.
    is_in_air: bool,
}

impl Copying {
    pub fn half(&self) -> Half {
        self.half
    }

    pub fn copied_bytes(&self) -> u64 {
        self.at
    }

    /// Whether the half takes what is changed from now on.
    pub fn takes_changes(&self) -> bool {
        !matches!(self.step, Step::Telling(_))
    }

    /// Whether a change has to wait for the piece that is being copied.
    pub fn overlaps(&self, from: u64, len: u64) -> bool {
        let is_under_way = matches!(self.step, Step::Clearing | Step::Reading | Step::Writing);
        is_under_way && from < self.at + self.len && self.at < from + len
    }
}

impl<S: Store> Machine<S> {
    /// Begins to bring the half that is out up to date.
    pub(crate) fn rejoin<M: Memory>(&mut self, key: RequestKey, memory: &mut M) {
        let errno = match &self.halves {
            None => Some(Errno::INVAL),
            Some(halves) if halves.copying.is_some() => Some(Errno::BUSY),
            Some(halves) if halves.are_both_in() => Some(Errno::INVAL),
            Some(_) if self.is_stopping => Some(Errno::SHUTDOWN),
            Some(_) => None,
        };
        if let Some(errno) = errno {
            self.fail(key, errno, memory);
            return;
        }
        let Some(halves) = &mut self.halves else { return };
        let half = halves.counting().other();
        halves.pair.standings[half.at()] = Standing::Behind;
        halves.copying = Some(Copying {
            half,
            request: key,
            step: Step::Telling(2),
            at: 0,
            len: 0,
            singly_until: 0,
            buffer: None,
            is_in_air: false,
        });
        // RULE 20: before it has anything else, both copies of its page say that it does not count: whatever it was before.
        halves.pages.want();
    }

    /// Goes on with the copy.
    pub(super) fn pump_copying<M: Memory>(&mut self, memory: &mut M) {
        let is_hasty = self.is_mutated(Mutation::CopyOverChange);
        let is_stopping = self.is_stopping;
        let Some(halves) = &mut self.halves else { return };
        let Some(copying) = &mut halves.copying else { return };
        let is_over = self.latched.is_some() && !copying.is_in_air;
        if copying.step != Step::Clearing && !is_over {
            return;
        }
        if is_stopping || is_over {
            let errno = self.latched.unwrap_or(Errno::SHUTDOWN);
            halves.pair.standings[copying.half.at()] = Standing::Out;
            self.end_copying(Err(errno), memory);
            return;
        }
        let size_bytes = halves.pair.size_bytes();
        while PAIR_PAGE_OFFSETS.contains(&copying.at) {
            copying.at += wide(PAIR_PAGE_BYTES);
        }
        if copying.at >= size_bytes {
            copying.step = Step::Flushing;
            copying.is_in_air = true;
            let half = copying.half;
            self.outbox.send(half.target(), IoOp::Flush, Flight::Copy);
            return;
        }
        let unit = if copying.at < copying.singly_until {
            BLOCK_BYTES
        } else if copying.at < FRONT_BYTES {
            COPY_BYTES_IN_FRONT
        } else {
            COPY_BYTES
        };
        copying.len = (unit - copying.at % unit).min(size_bytes - copying.at);
        let (at, len) = (copying.at, copying.len);
        let is_busy = halves.joints.iter().any(|(_, joint)| {
            joint.legs > 0 && changed_range(&joint.op).is_some() && joint.overlaps(at, len)
        });
        if is_busy && !is_hasty {
            return;
        }
        let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(len), memory) else { return };
        let Some(halves) = &mut self.halves else { return };
        let from = halves.counting();
        if let Some(copying) = &mut halves.copying {
            copying.step = Step::Reading;
            copying.is_in_air = true;
            copying.buffer = Some(buffer);
        }
        let into = Pieces::One(Slice { buffer, offset_bytes: 0, len_bytes: to_u32(len) });
        self.outbox.send(from.target(), IoOp::Read { offset_bytes: at, into }, Flight::Copy);
    }

    /// A step of the copy was answered.
    pub(crate) fn copy_done<M: Memory>(&mut self, result: Result<(), Errno>, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        let Some(copying) = &mut halves.copying else { return };
        copying.is_in_air = false;
        let half = copying.half;
        if halves.pair.standings[half.at()] != Standing::Behind {
            // It failed another operation meanwhile, and this was the last one of the copy.
            let errno = result.err().unwrap_or(Errno::IO);
            self.end_copying(Err(errno), memory);
            return;
        }
        match (copying.step, result) {
            (Step::Reading, Ok(())) => {
                copying.step = Step::Writing;
                copying.is_in_air = true;
                let (at, len_bytes) = (copying.at, to_u32(copying.len));
                let Some(buffer) = copying.buffer else { return };
                let from = Pieces::One(Slice { buffer, offset_bytes: 0, len_bytes });
                self.outbox.send(half.target(), IoOp::Write { offset_bytes: at, from }, Flight::Copy);
            }
            (Step::Reading, Err(errno)) if !errno.is_gone() => {
                copying.step = Step::Clearing;
                if copying.len > BLOCK_BYTES {
                    copying.singly_until = copying.at + copying.len;
                } else {
                    // No half has this block any more: what reads it finds that by its checksum.
                    copying.at += copying.len;
                }
                self.release_copy(memory);
            }
            (Step::Writing, Ok(())) => {
                copying.step = Step::Clearing;
                copying.at += copying.len;
                self.release_copy(memory);
            }
            (Step::Flushing, Ok(())) => {
                copying.step = Step::Ending;
                halves.pair.standings[half.at()] = Standing::In;
                halves.pair.out_since[half.at()] = 0;
                // RULE 20: what it had alone before is overwritten by the copy.
                let generation = self.store.next_generation();
                halves.pair.once_counts_from[half.at()] = generation;
                self.store.once_counts_from(half, generation);
                halves.pages.want();
            }
            (Step::Reading, Err(errno)) => {
                // The half that counts is gone.
                halves.pair.standings[half.at()] = Standing::Out;
                self.end_copying(Err(errno), memory);
            }
            (_, Err(errno)) => self.lose_half(half, errno, memory),
            (Step::Telling(_) | Step::Clearing | Step::Ending, Ok(())) => {
                unreachable!("no operation of the copy is under way")
            }
        }
    }

    /// The pages of the halves are durable as they are now.
    pub(super) fn copying_page_written<M: Memory>(&mut self, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        let is_whole = halves.are_both_in();
        let Some(copying) = &mut halves.copying else { return };
        match copying.step {
            Step::Telling(left) if left > 1 => {
                copying.step = Step::Telling(left - 1);
                halves.pages.want();
            }
            Step::Telling(_) => copying.step = Step::Clearing,
            // It may have failed while the pages were written.
            Step::Ending if !is_whole => self.end_copying(Err(Errno::IO), memory),
            Step::Ending => {
                let half = copying.half;
                self.push(Effect::Notice(Notice::HalfBack { half }));
                self.end_copying(Ok(()), memory);
                self.follow_halves();
            }
            Step::Clearing | Step::Reading | Step::Writing | Step::Flushing => (),
        }
    }

    fn release_copy<M: Memory>(&mut self, memory: &mut M) {
        let copying = self.halves.as_mut().and_then(|halves| halves.copying.as_mut());
        if let Some(buffer) = copying.and_then(|copying| copying.buffer.take()) {
            memory.release(buffer);
        }
    }

    /// Ends the copy. What of it is under way ends it when that is answered.
    pub(super) fn end_copying<M: Memory>(&mut self, result: Result<(), Errno>, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        let Some(copying) = &halves.copying else { return };
        let request = copying.request;
        if copying.is_in_air {
            return;
        }
        self.release_copy(memory);
        if let Some(halves) = &mut self.halves {
            halves.copying = None;
        }
        match result {
            Ok(()) => self.reply(request, memory),
            Err(errno) => self.fail(request, errno, memory),
        }
    }
}
