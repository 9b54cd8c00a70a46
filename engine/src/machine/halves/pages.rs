//! The pages of the halves: which regions may differ, and who does not count.

use super::{Halves, Joint};
use crate::effect::{Errno, IoOp, Pieces};
use crate::format::{PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS, SEGMENTS_OFFSET};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::memory::{BufferId, Memory, Purpose, Slice};
use crate::mutation::Mutation;
use crate::number::{index_wide, to_u32};
use crate::pair::{Half, Marks, Standing};
use crate::store::Store;

/// So much behind what is written is marked with it, in regions at the least and in bytes at the most: a log goes there next.
const REGIONS_AHEAD_MIN: u64 = 8;
const BYTES_AHEAD_MAX: u64 = 64 << 20;

/// The writer of the pages: once at a time, a flush after it.
#[derive(Default)]
pub(super) struct PageWriter {
    /// Who counts changed, and the halves that count do not say so durably yet.
    is_recording: bool,
    /// A page is wanted whatever is marked.
    is_wanted: bool,
    writing: Option<Writing>,
}

struct Writing {
    buffers: [Option<BufferId>; 2],
    legs: u8,
    is_flushing: bool,
    /// The change of who counts came while it was being written.
    is_outdated: bool,
    marks: Marks,
}

impl PageWriter {
    pub fn is_recording(&self) -> bool {
        self.is_recording
    }

    pub fn is_quiet(&self) -> bool {
        self.writing.is_none() && !self.is_wanted
    }

    /// Whether a range is marked by the page that is being written, too: it takes marks away.
    pub fn cover_next(&self, from: u64, len: u64) -> bool {
        self.writing.as_ref().is_none_or(|writing| writing.marks.cover(from, len))
    }

    /// Who counts changed.
    pub fn record(&mut self) {
        self.is_recording = true;
        self.want();
    }

    /// Wants the pages written once more, from now on.
    pub fn want(&mut self) {
        self.is_wanted = true;
        if let Some(writing) = &mut self.writing {
            writing.is_outdated = true;
        }
    }
}

impl<T> Halves<T> {
    /// The marks for the next page: of what waits, what is under way, and what was written since the last one.
    fn next_marks(&self) -> Marks {
        let mut marks = self.touched.clone();
        for (_, joint) in &self.joints {
            let Some((from, len)) = Joint::range(joint) else { continue };
            marks.mark(
                from,
                (len + self.ahead_bytes()).min(self.pair.size_bytes().saturating_sub(from)).max(1),
            );
        }
        marks
    }

    /// The length of what is marked behind what is written: a part of the device, and not so much that a start after a crash
    /// has long to compare.
    fn ahead_bytes(&self) -> u64 {
        let least = REGIONS_AHEAD_MIN * u64::from(self.pair.marks.region_bytes());
        (self.pair.size_bytes() / 32).min(BYTES_AHEAD_MAX).max(least)
    }

    /// Wants more marks in time, before a log comes to where there are none: then nothing waits for them.
    pub(super) fn mark_ahead(&mut self, from: u64) {
        let next = from + self.ahead_bytes() / 2;
        let is_short =
            from >= SEGMENTS_OFFSET && next < self.pair.size_bytes() && !self.pair.marks.cover(next, 1);
        if is_short && self.pages.writing.is_none() {
            self.pages.is_wanted = true;
        }
    }
}

impl<S: Store> Machine<S> {
    /// Writes the pages if a mark or a record is wanted.
    pub(super) fn pump_pages<M: Memory>(&mut self, memory: &mut M) {
        let is_unmarked_fine = self.is_mutated(Mutation::HalvesUnmarked);
        let Some(halves) = &self.halves else { return };
        let is_mark_wanted = halves.waiting.iter().any(|key| {
            let (from, len) = halves.joints[*key].range().unwrap_or((0, 0));
            !halves.pair.marks.cover(from, len) && !is_unmarked_fine
        });
        let is_due = halves.pages.is_wanted || is_mark_wanted;
        if !is_due || halves.pages.writing.is_some() || halves.dead.is_some() {
            return;
        }
        let mut buffers = [None, None];
        for half in Half::BOTH {
            let is_told = self.halves.as_ref().is_some_and(|halves| halves.standing(half) != Standing::Out);
            if !is_told {
                continue;
            }
            let Some(buffer) = self.allocate(Purpose::Metadata, to_u32(PAIR_PAGE_BYTES), memory) else {
                buffers.into_iter().flatten().for_each(|buffer| memory.release(buffer));
                return;
            };
            buffers[half.at()] = Some(buffer);
        }
        let Some(halves) = &mut self.halves else { return };
        let marks = if is_unmarked_fine { halves.pair.marks.none() } else { halves.next_marks() };
        halves.pair.update += 1;
        halves.pages.is_wanted = false;
        let offset_bytes = PAIR_PAGE_OFFSETS[index_wide(halves.pair.update % 2)];
        let mut legs = 0;
        for half in Half::BOTH {
            let Some(buffer) = buffers[half.at()] else { continue };
            halves.pair.page(half, &marks).encode(&mut memory.metadata_mut(buffer)[..PAIR_PAGE_BYTES]);
            let slice = Slice { buffer, offset_bytes: 0, len_bytes: to_u32(PAIR_PAGE_BYTES) };
            legs += 1;
            let op = IoOp::Write { offset_bytes, from: Pieces::One(slice) };
            self.outbox.send(half.target(), op, Flight::Page { half });
        }
        halves.pages.writing = Some(Writing { buffers, legs, is_flushing: false, is_outdated: false, marks });
    }

    /// A half answered a write or a flush of its page.
    pub(crate) fn page_done<M: Memory>(&mut self, half: Half, result: Result<(), Errno>, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        let Some(writing) = &mut halves.pages.writing else { return };
        writing.legs -= 1;
        if let Err(errno) = result
            && halves.standing(half) != Standing::Out
        {
            let is_other_in = halves.standing(half.other()) == Standing::In;
            if is_other_in {
                self.lose_half(half, errno, memory);
            } else {
                halves.dead.get_or_insert(errno);
                // The machine is told by what waits, or by this.
                self.latch(errno, memory);
            }
        }
        let Some(halves) = &mut self.halves else { return };
        let Some(writing) = &mut halves.pages.writing else { return };
        if writing.legs > 0 {
            return;
        }
        if !writing.is_flushing {
            writing.is_flushing = true;
            let told = Half::BOTH.map(|half| {
                writing.buffers[half.at()].is_some() && halves.pair.standings[half.at()] != Standing::Out
            });
            writing.legs = u8::from(told[0]) + u8::from(told[1]);
            if writing.legs > 0 {
                // What is written from here on is not covered by this flush.
                let mut touched = halves.pair.marks.none();
                for (_, joint) in &halves.joints {
                    if let Some((from, len)) = joint.range() {
                        touched.mark(from, len);
                    }
                }
                halves.touched = touched;
                for half in Half::BOTH.into_iter().filter(|half| told[half.at()]) {
                    self.outbox.send(half.target(), IoOp::Flush, Flight::Page { half });
                }
                return;
            }
        }
        let Some(writing) = halves.pages.writing.take() else { return };
        writing.buffers.into_iter().flatten().for_each(|buffer| memory.release(buffer));
        if halves.dead.is_some() {
            return;
        }
        halves.pair.marks = writing.marks;
        let is_told_once = halves.pair.is_out_told_once();
        halves.pages.is_wanted |= is_told_once;
        if !writing.is_outdated && !is_told_once {
            halves.pages.is_recording = false;
            self.copying_page_written(memory);
        }
    }
}
