//! The two devices of a mirrored cache while it runs: each operation of the machine becomes one on a half, or one on both.
//!
//! RULE 20. What can be lost without it is told at the lines. The state is in [`Halves`]; `pages` writes what the halves say of
//! each other, `copying` brings a half up to date, `mending` reads from the other half what is wrong on one.

pub(crate) mod copying;
pub(crate) mod mending;
pub(crate) mod pages;

use crate::effect::{Effect, Errno, IoOp, Notice, Pieces, Target, WriteMode};
use crate::machine::Machine;
use crate::machine::flight::Flight;
use crate::machine::halves::copying::Copying;
use crate::machine::halves::mending::Mending;
use crate::machine::halves::pages::PageWriter;
use crate::memory::{Memory, Slice};
use crate::mutation::{Mutation, Mutations};
use crate::pair::{Half, HalfStatus, Marks, PairStatus, PairWords, Standing};
use crate::store::Store;
use crate::units::{Nanos, Place};
use alloc::boxed::Box;
use alloc::vec::Vec;
use slab::Slab;

/// Reads go to one half for so many bytes, then to the other.
const STRIPE_BYTES: u64 = 1 << 20;
/// A half that has been asked and has answered nothing for so long is silent: reads do without it.
const SILENT_NS: u64 = Nanos::SECOND;

/// An operation of the machine on both halves.
struct Joint<T> {
    op: IoOp,
    /// A write of the second half that differs from that of the first one, which is as long or longer.
    second: Option<Box<IoOp>>,
    /// A read of what one half alone has.
    is_alone: bool,
    flight: Flight<T>,
    /// Operations under way for it.
    legs: u8,
    /// The half that a read went to first.
    first: Half,
    /// The half that failed a read, which the other one answers.
    failed: Option<Half>,
    /// No half did it.
    error: Option<Errno>,
}

impl<T> Joint<T> {
    fn range(&self) -> Option<(u64, u64)> {
        changed_range(&self.op)
    }

    fn overlaps(&self, at: u64, len: u64) -> bool {
        self.range().is_some_and(|(from, bytes)| from < at + len && at < from + bytes)
    }
}

/// The range that an operation changes.
fn changed_range(op: &IoOp) -> Option<(u64, u64)> {
    match op {
        IoOp::Write { offset_bytes, from } => Some((*offset_bytes, from.len_bytes())),
        IoOp::Discard { offset_bytes, len_bytes } | IoOp::WriteZeroes { offset_bytes, len_bytes } => {
            Some((*offset_bytes, *len_bytes))
        }
        IoOp::Read { .. } | IoOp::Flush | IoOp::Abandon(_) => None,
    }
}

/// The answers that a half owes.
#[derive(Clone, Copy, Default)]
struct Owed {
    legs: u32,
    /// When it last answered, or was first asked.
    since: Nanos,
    /// As the store was told.
    is_silent: bool,
}

impl Owed {
    fn is_silent(&self, now: Nanos) -> bool {
        self.legs > 0 && now.since(self.since) >= SILENT_NS
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    read_errors: u64,
    mended_blocks: u64,
}

/// The halves of a mirrored cache, and what is under way on them.
pub(crate) struct Halves<T> {
    pair: PairWords,
    joints: Slab<Joint<T>>,
    /// Changes that wait until their regions are marked, or until what they overlap is copied.
    waiting: Vec<usize>,
    /// Changes that are done and are answered when it is recorded who does not count.
    held: Vec<usize>,
    /// Regions written since the last flush of the pages was issued.
    touched: Marks,
    pages: PageWriter,
    copying: Option<Copying>,
    mending: Mending<T>,
    tallies: [Tally; 2],
    owed: [Owed; 2],
    /// The last half that counted failed a change: nothing is changed any more.
    dead: Option<Errno>,
}

/// An operation that is over, for the machine.
pub(crate) struct Landed<T> {
    pub flight: Flight<T>,
    pub result: Result<(), Errno>,
    /// The half that a read came from, and the one that failed it.
    pub read_from: Option<(Half, Option<Half>)>,
}

impl<T> Halves<T> {
    pub fn new(pair: PairWords) -> Halves<T> {
        let touched = pair.marks.none();
        Halves {
            pair,
            joints: Slab::new(),
            waiting: Vec::new(),
            held: Vec::new(),
            touched,
            pages: PageWriter::default(),
            copying: None,
            mending: Mending::default(),
            tallies: [Tally::default(); 2],
            owed: [Owed::default(); 2],
            dead: None,
        }
    }

    pub fn standing(&self, half: Half) -> Standing {
        self.pair.standings[half.at()]
    }

    /// Whether both halves count.
    pub fn are_both_in(&self) -> bool {
        self.pair.standings == [Standing::In; 2]
    }

    /// The halves that count.
    pub fn counting_halves(&self) -> [bool; 2] {
        self.pair.standings.map(|standing| standing == Standing::In)
    }

    /// The half that counts, the first one if both do.
    fn counting(&self) -> Half {
        if self.standing(Half::First) == Standing::In { Half::First } else { Half::Second }
    }

    /// Whether a half takes changes.
    fn takes_changes(&self, half: Half) -> bool {
        match self.standing(half) {
            Standing::In => true,
            Standing::Out => false,
            Standing::Behind => self.copying.as_ref().is_some_and(Copying::takes_changes),
        }
    }

    /// Whether nothing waits to become durable.
    pub fn is_quiet(&self) -> bool {
        self.pages.is_quiet() && self.waiting.is_empty() && self.held.is_empty() && self.mending.is_quiet()
    }

    pub fn rename(&mut self, half: Half, name: &str) {
        self.pair.names[half.at()] = name.into();
    }

    pub fn status(&self) -> PairStatus {
        let halves = Half::BOTH.map(|half| {
            let tally = self.tallies[half.at()];
            let copying = self.copying.as_ref().filter(|copying| copying.half() == half);
            let standing = match self.standing(half) {
                // Who is told that it counts may take the other one away: that has to be durable.
                Standing::In if copying.is_some() => Standing::Behind,
                standing => standing,
            };
            HalfStatus {
                standing,
                read_errors: tally.read_errors,
                mended_blocks: tally.mended_blocks,
                copied_bytes: copying.map_or(0, Copying::copied_bytes),
                to_copy_bytes: copying.map_or(0, |_| self.pair.size_bytes()),
            }
        });
        PairStatus { halves }
    }

    /// The times at which reads of clients that are under way were issued.
    pub fn cache_reads(&self) -> impl Iterator<Item = Nanos> {
        self.joints.iter().filter_map(|(_, joint)| match &joint.flight {
            Flight::CacheRead { issued, .. } | Flight::Probe { issued, .. } => Some(*issued),
            Flight::AheadRead(read) => Some(read.issued),
            _ => None,
        })
    }

    /// Whether a change has to wait before it may go to the devices.
    fn must_wait(&self, key: usize, mutations: Mutations) -> bool {
        let joint = &self.joints[key];
        let Some((from, len)) = joint.range() else { return false };
        // RULE 20: marked on both before either has it: a crash may leave it on one alone, and when that one is lost
        // later, the other one would bring back what was before.
        let stays_marked = self.pages.cover_next(from, len) || mutations.has(Mutation::MarkTakenAway);
        let is_marked =
            self.pair.marks.cover(from, len) && stays_marked || mutations.has(Mutation::HalvesUnmarked);
        // RULE 20: what is being copied may be older than this change, and land after it.
        let is_copied = self.copying.as_ref().is_some_and(|copying| copying.overlaps(from, len));
        !is_marked || is_copied
    }

    fn asked(&mut self, half: Half, now: Nanos) {
        let owed = &mut self.owed[half.at()];
        if owed.legs == 0 {
            owed.since = now;
        }
        owed.legs += 1;
    }

    fn answered(&mut self, half: Half, now: Nanos) {
        let owed = &mut self.owed[half.at()];
        owed.legs -= 1;
        owed.since = now;
    }

    fn read_half(&self, offset_bytes: u64) -> Half {
        if !self.are_both_in() {
            return self.counting();
        }
        let half = if (offset_bytes / STRIPE_BYTES).is_multiple_of(2) { Half::First } else { Half::Second };
        if self.owed[half.at()].is_silent { half.other() } else { half }
    }
}

impl<S: Store> Machine<S> {
    /// Lets the machine run on the two devices of a mirrored cache.
    pub(crate) fn set_pair(&mut self, pair: PairWords) {
        for half in Half::BOTH {
            if pair.standings[half.at()] != Standing::In {
                self.store.once_counts_from(half, u64::MAX);
            }
        }
        self.halves = Some(Box::new(Halves::new(pair)));
        self.follow_halves();
    }

    /// Gives a half another name.
    pub(crate) fn rename_half(&mut self, half: Half, name: &str) {
        if let Some(halves) = &mut self.halves {
            halves.rename(half, name);
        }
    }

    /// The modes of the volumes follow from whether both halves count: with one of them nothing more becomes dirty.
    pub(crate) fn follow_halves(&mut self) {
        let Some(halves) = &self.halves else { return };
        let is_alone = !halves.are_both_in();
        for at in 0..self.volumes.end() {
            let Some(record) = &self.superblock.volumes[at] else { continue };
            let mode = self.mode_on_halves(record.mode, is_alone);
            if let Some(index) = self.volumes[at].as_ref().map(|volume| volume.index) {
                self.serve_in_mode(index, mode);
                self.volume_mut(index).destage.wake();
            }
        }
        self.want_tick(self.now.plus(self.config.tick_ns));
    }

    /// The mode in which a volume is served that is set to `mode`.
    pub(crate) fn mode_on_halves(&self, mode: WriteMode, is_alone: bool) -> WriteMode {
        use WriteMode::{Writeback, Writethrough};
        let stays = self.config.is_lone_writeback || self.config.order.is_some();
        if is_alone && mode == Writeback && !stays { Writethrough } else { mode }
    }

    /// Whether one device of a mirrored cache does the work of both.
    pub(crate) fn is_alone(&self) -> bool {
        self.halves.as_ref().is_some_and(|halves| !halves.are_both_in())
    }

    /// Reads the cache from a place on; of a mirrored one from the half that has it alone, or from `half` if that counts.
    #[inline(always)]
    pub(crate) fn read_cache(
        &mut self,
        place: Place,
        into: Slice,
        flight: Flight<S::Flight>,
        half: Option<Half>,
    ) {
        let op = IoOp::Read { offset_bytes: self.store.offset_bytes(place), into: Pieces::One(into) };
        if self.halves.is_none() {
            self.outbox.issue(Target::Cache, op, flight);
        } else {
            self.issue_read(op, flight, (half, self.store.half_of(place)));
        }
    }

    /// Issues a read of what both halves have, if possible from one of them, or of what the other one named has alone.
    #[inline(never)]
    fn issue_read(
        &mut self,
        op: IoOp,
        flight: Flight<S::Flight>,
        (half, alone): (Option<Half>, Option<Half>),
    ) {
        let IoOp::Read { offset_bytes, .. } = op else { unreachable!("a read") };
        self.outbox.count(Target::Cache, &op);
        let Some(halves) = &mut self.halves else { return };
        let is_in = |half: &Half| halves.standing(*half) == Standing::In;
        let is_there = alone.as_ref().is_none_or(is_in);
        let first = alone.or(half.filter(is_in)).unwrap_or_else(|| halves.read_half(offset_bytes));
        let error = if is_there { None } else { Some(Errno::IO) };
        let is_alone = alone.is_some();
        let joint = Joint { op, second: None, is_alone, flight, legs: 0, first, failed: None, error };
        let key = halves.joints.insert(joint);
        if is_there {
            self.send_joint(key);
        } else {
            halves.held.push(key);
        }
    }

    /// Issues a write that differs between the halves: at its end each has bytes of its own, the second one as many or fewer, which
    /// are given.
    pub(crate) fn issue_differing(
        &mut self,
        op: IoOp,
        (second, its_bytes): (IoOp, u64),
        flight: Flight<S::Flight>,
    ) {
        self.outbox.count_second(its_bytes);
        self.issue_change(op, Some(Box::new(second)), flight);
    }

    /// Issues an operation on the halves.
    #[inline(never)]
    pub(crate) fn issue_on_halves(&mut self, op: IoOp, flight: Flight<S::Flight>) {
        match op {
            IoOp::Read { .. } => self.issue_read(op, flight, (None, None)),
            _ => self.issue_change(op, None, flight),
        }
    }

    fn issue_change(&mut self, op: IoOp, second: Option<Box<IoOp>>, flight: Flight<S::Flight>) {
        self.outbox.count(Target::Cache, &op);
        let mutations = self.config.mutations;
        let Some(halves) = &mut self.halves else { return };
        let first = halves.counting();
        let joint = Joint { op, second, is_alone: false, flight, legs: 0, first, failed: None, error: None };
        let key = halves.joints.insert(joint);
        if halves.must_wait(key, mutations) {
            halves.waiting.push(key);
        } else {
            self.send_joint(key);
        }
    }

    /// Sends an operation to the half it is for, or to all that take changes.
    fn send_joint(&mut self, key: usize) {
        let Some(halves) = &mut self.halves else { return };
        let joint = &mut halves.joints[key];
        let first = joint.first;
        let range = changed_range(&joint.op);
        let (op, now) = (joint.op.clone(), self.now);
        let second = joint.second.as_deref().cloned();
        if let Some((from, len)) = range {
            halves.touched.mark(from, len);
            halves.mark_ahead(from);
        }
        let is_read = matches!(op, IoOp::Read { .. });
        let targets = Half::BOTH.map(|half| if is_read { half == first } else { halves.takes_changes(half) });
        halves.joints[key].legs = u8::from(targets[0]) + u8::from(targets[1]);
        for half in Half::BOTH.into_iter().filter(|half| targets[half.at()]) {
            let op = second.as_ref().filter(|_| half == Half::Second).unwrap_or(&op).clone();
            halves.asked(half, now);
            self.outbox.send(half.target(), op, Flight::Leg { joint: key, half });
        }
    }

    /// Takes the outcome of an operation of a device, of which a mirrored cache has two.
    #[inline(never)]
    pub(crate) fn landed_on_halves<M: Memory>(
        &mut self,
        flight: Flight<S::Flight>,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        match flight {
            Flight::Leg { joint, half } => self.leg_done(joint, half, result, memory),
            Flight::Page { half } => self.page_done(half, result, memory),
            Flight::Copy => self.copy_done(result, memory),
            Flight::Mend { mend, spot } => self.mend_done(mend, spot, result, memory),
            Flight::WriteAgain { half, place, buffer } => {
                self.written_again(half, (place, buffer), result, memory);
            }
            flight => self.take_landed(flight, result, memory),
        }
    }

    /// The outcome of an operation that is over on both halves, or was for one device alone.
    #[inline(never)]
    pub(super) fn take_landed<M: Memory>(
        &mut self,
        flight: Flight<S::Flight>,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        self.landed(flight, result, memory);
    }

    /// A half answered.
    pub(crate) fn leg_done<M: Memory>(
        &mut self,
        key: usize,
        half: Half,
        result: Result<(), Errno>,
        memory: &mut M,
    ) {
        let Some(halves) = &mut self.halves else { return };
        halves.joints[key].legs -= 1;
        halves.answered(half, self.now);
        let standing = halves.standing(half);
        let is_read = matches!(halves.joints[key].op, IoOp::Read { .. });
        if let Err(errno) = result {
            let is_other_in = halves.standing(half.other()) == Standing::In;
            let is_refused = errno == Errno::OPNOTSUPP;
            if is_read {
                halves.tallies[half.at()].read_errors += 1;
                let is_first = halves.joints[key].failed.is_none() && !halves.joints[key].is_alone;
                if errno.is_gone() && standing == Standing::In && is_other_in {
                    self.lose_half(half, errno, memory);
                }
                if let Some(halves) = &mut self.halves
                    && is_first
                    && is_other_in
                {
                    let joint = &mut halves.joints[key];
                    joint.failed = Some(half);
                    joint.first = half.other();
                    self.send_joint(key);
                    return;
                }
                if let Some(halves) = &mut self.halves {
                    // A half that is gone takes what it alone had with it, and the cache goes on.
                    let joint = &mut halves.joints[key];
                    joint.error = Some(if joint.is_alone && is_other_in { Errno::IO } else { errno });
                }
            } else if is_refused {
                halves.joints[key].error = Some(errno);
            } else if standing != Standing::Out {
                if standing == Standing::Behind || is_other_in {
                    self.lose_half(half, errno, memory);
                } else {
                    halves.joints[key].error = Some(errno);
                    halves.dead.get_or_insert(errno);
                }
            }
        }
        self.joint_done(key, memory);
    }

    /// Ends an operation that no half has any more, or lets it wait for the record of who does not count.
    fn joint_done<M: Memory>(&mut self, key: usize, memory: &mut M) {
        let is_hasty = self.is_mutated(Mutation::AnsweredBeforeOutRecorded);
        let Some(halves) = &mut self.halves else { return };
        let joint = &halves.joints[key];
        if joint.legs > 0 {
            return;
        }
        let is_read = matches!(joint.op, IoOp::Read { .. });
        // RULE 20: answered when both have it, or when the one that has it says that the other one does not count: else
        // a start with both may believe the one that has it not.
        if !is_read && joint.error.is_none() && halves.pages.is_recording() && !is_hasty {
            halves.held.push(key);
            return;
        }
        let Joint { flight, error, first, failed, .. } = halves.joints.remove(key);
        let read_from = is_read.then_some((first, failed));
        self.read_or_landed(Landed { flight, result: error.map_or(Ok(()), Err), read_from }, memory);
    }

    /// A half does not count any more.
    pub(crate) fn lose_half<M: Memory>(&mut self, half: Half, errno: Errno, memory: &mut M) {
        let Some(halves) = &mut self.halves else { return };
        let was_in = halves.standing(half) == Standing::In;
        halves.pair.standings[half.at()] = Standing::Out;
        if was_in {
            halves.pair.out_since[half.at()] = halves.pair.update + 1;
            // RULE 20: what it alone had is gone, also if it comes back.
            self.store.once_counts_from(half, u64::MAX);
        }
        self.push(Effect::Notice(Notice::HalfLost { half, errno }));
        if was_in {
            if let Some(halves) = &mut self.halves {
                halves.pages.record();
            }
            // An older half that comes back alone has fewer updates than are noted beside it.
            self.superblock_writer.change(&mut self.superblock);
            self.follow_halves();
        } else {
            self.end_copying(Err(errno), memory);
        }
    }

    /// Has reads do without a half that answers nothing: it may take long until its device is given up.
    fn look_for_silence(&mut self) {
        for half in Half::BOTH {
            let Some(halves) = &mut self.halves else { return };
            let owed = &mut halves.owed[half.at()];
            let look_again = owed.since.plus(SILENT_NS);
            let is_silent = owed.is_silent(self.now);
            if is_silent != owed.is_silent {
                owed.is_silent = is_silent;
                self.store.pass_half_by(half, is_silent);
            }
            if owed.legs > 0 && !is_silent {
                self.want_tick(look_again);
            }
        }
    }

    /// Lets changes go on that waited for marks, for a copy or for a record.
    #[inline(never)]
    pub(crate) fn pump_halves<M: Memory>(&mut self, memory: &mut M) {
        self.look_for_silence();
        self.pump_pages(memory);
        self.pump_copying(memory);
        let mutations = self.config.mutations;
        let Some(halves) = &mut self.halves else { return };
        if halves.waiting.is_empty() && halves.held.is_empty() {
            return;
        }
        if let Some(errno) = halves.dead {
            let all: Vec<usize> = halves.waiting.drain(..).chain(halves.held.drain(..)).collect();
            for key in all {
                if let Some(halves) = &mut self.halves {
                    halves.joints[key].error = Some(errno);
                }
                self.joint_done(key, memory);
            }
            return;
        }
        let waiting = core::mem::take(&mut halves.waiting);
        for key in waiting {
            let Some(halves) = &mut self.halves else { return };
            if halves.must_wait(key, mutations) {
                halves.waiting.push(key);
            } else {
                self.send_joint(key);
            }
        }
        let Some(halves) = &mut self.halves else { return };
        if !halves.pages.is_recording() {
            for key in core::mem::take(&mut halves.held) {
                self.joint_done(key, memory);
            }
        }
    }
}
