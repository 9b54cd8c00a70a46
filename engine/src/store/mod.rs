//! The seam between the part that all caches share and the store that keeps blocks.
//!
//! [`Machine`] takes requests, guards blocks against each other, knows the origins, destages dirty blocks and
//! answers. A [`Store`] says where blocks lie, what it takes to change them, and what is durable when. The choice is
//! made once, by type: no call goes through a pointer, and the code of one store cannot name a field of another.
//!
//! | trait | asked |
//! | --- | --- |
//! | [`Operations`] | what the store's own device operations are for |
//! | [`Lookup`] | where a block lies, and to keep it there while it is read |
//! | [`Reading`] | whether a read may go on, and what is kept of what it brought |
//! | [`Changing`] | to carry out writes, zeroes and discards, and to forget what goes around the cache |
//! | [`Durability`] | what a flush covers, and what has to be flushed |
//! | [`Destaging`] | which dirty blocks may go home, and to note those that did |
//! | [`Life`] | the rest of an engine's life: pumping, stopping, failing, dropping volumes |
//!
//! Calls that issue operations, take buffers or let requests go on are given the whole machine; the others are given
//! the store alone.

pub mod log;
pub mod slots;

use crate::effect::Errno;
#[cfg(doc)]
use crate::format::VolumeRecord;
use crate::machine::Machine;
use crate::machine::destage::order::ledger::Interval;
use crate::machine::destage::run::Copied;
use crate::machine::guard::{Blocks, Hold, Stamp};
use crate::machine::halves::mending::Spot;
use crate::machine::piece::{Piece, WaitingRead};
use crate::machine::request::RequestKey;
use crate::machine::slow_cache::LookedReads;
use crate::machine::volume::Volume;
use crate::machine::warm::{CachedRun, Cursor};
use crate::memory::{Memory, Slice};
use crate::pair::Half;
use crate::policies::fetch::warm_up::Room;
use crate::policies::replacement::Access;
use crate::status::{Bypass, CacheStatus};
use crate::store::log::extents::ExtentKind;
use crate::units::{BlockKey, Nanos, Place, VolumeId, VolumeIndex};
use alloc::vec::Vec;

/// A cached copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub place: Place,
    /// The origin does not have it.
    pub dirty: bool,
    /// The checksum of the block at `place`, if it is known.
    pub checksum: Option<u32>,
}

/// Whether a dirty block may go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// At once.
    Ready,
    /// Only after a flush of the cache that covers everything up to now (hazard 4).
    Unflushed,
    /// Not while it is being changed.
    Busy,
}

/// The outcome of dropping a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// The copy is gone.
    Done,
    /// The copy will be forgotten; ask again.
    Waits,
    /// The copy is the only one.
    Impossible,
}

/// The shortage of a store: each figure in the unit that runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// The part of the cache that only a destage can make free, in thousandths.
    pub held_permille: u64,
    /// Blocks of the part of the cache that takes what clients write.
    pub blocks: u64,
    /// Ranges of zeroes that are not home and of lost blocks; at most `extents_max` of the configuration.
    pub extents: usize,
    /// Clients wait for room, or soon will.
    pub is_short: bool,
    /// They do so outside of a ring, where no list of urgent blocks tells of it.
    pub is_waited_for: bool,
    /// Changes of clients wait for room in a ring.
    pub has_waiting: bool,
}

/// The operations that a store issues itself.
pub(crate) trait Operations: Sized {
    /// The purpose of such an operation; it comes back with the completion.
    type Flight;
    /// Whether such an operation is one of the cache device.
    fn is_of_cache(flight: &Self::Flight) -> bool;
    /// The blocks that such an operation reads, as far as their checksums are known.
    fn spots(_flight: &Self::Flight) -> Vec<Spot> {
        Vec::new()
    }
    /// Takes the completion of the store's own operation.
    fn complete<M: Memory>(
        m: &mut Machine<Self>,
        flight: Self::Flight,
        result: Result<(), Errno>,
        memory: &mut M,
    );
}

/// Cached blocks and their places. None of these calls changes what is cached.
pub(crate) trait Lookup {
    /// The cached copy of a block.
    fn lookup(&self, key: BlockKey) -> Option<Cached>;
    /// The cached copy of a block that a client reads, the first one of its request or not, which is noted. None if
    /// there is no copy, or if it is clean and `use_clean` is false.
    fn hit(&mut self, key: BlockKey, is_first: bool, use_clean: bool) -> Option<Cached> {
        let entry = self.lookup(key).filter(|entry| entry.dirty || use_clean)?;
        self.note_hit(key, is_first);
        Some(entry)
    }
    /// The content of a block, if it lies in memory: what a read returns.
    fn in_memory(&self, _key: BlockKey) -> Option<Slice> {
        None
    }
    /// The content of the dirty copy that [`Lookup::lookup`] finds, if it lies in memory.
    fn kept_in_memory(&self, _key: BlockKey) -> Option<Slice> {
        None
    }
    /// Whether a block is zero, or lost, without a copy anywhere.
    fn extent(&self, key: BlockKey) -> Option<ExtentKind>;
    /// The lost blocks of a volume, rising.
    fn lost_blocks(&self, volume: VolumeIndex) -> Vec<Blocks>;
    /// A client read the cached copy of a block, the first one of its request or not.
    fn note_hit(&mut self, key: BlockKey, is_first: bool);
    /// Whether one operation may read across from one place to the next.
    fn is_joinable(&self, first: Place, next: Place) -> bool;
    /// The number of a place's present life: it rises when the place is freed and written again. Always 0 in a store
    /// that never reuses a place that something still refers to.
    fn life(&self, _place: Place) -> u64 {
        0
    }
    /// Keeps `blocks` places from `place` on, which one operation reads, from being reused (rule 1).
    fn pin(&mut self, place: Place, blocks: u32);
    /// The same for blocks that a client reads.
    fn pin_for_client(&mut self, place: Place, blocks: u32) {
        self.pin(place, blocks);
    }
    /// Ends a [`Lookup::pin`]: its operation has ended.
    fn unpin(&mut self, place: Place, blocks: u32);
    /// The offset of a place on the cache device, in bytes.
    fn offset_bytes(&self, place: Place) -> u64;
    /// The half of a mirrored cache that alone has what is at a place.
    #[inline]
    fn half_of(&self, _place: Place) -> Option<Half> {
        None
    }
    /// Whether the blocks of a volume can be kept from leaving for those of others.
    fn keeps_minimums(&self) -> bool {
        false
    }
    /// The blocks held of a volume, rising.
    fn cached_blocks(&self, volume: VolumeIndex) -> Vec<u64>;
    /// Whether clean copies are used for a read of these blocks.
    fn reads_clean(&self, first: BlockKey, blocks: u64) -> bool {
        let _ = (first, blocks);
        true
    }
    /// Whether the cached copy of a block is being overwritten in its place.
    fn is_changing(&self, key: BlockKey) -> bool {
        let _ = key;
        false
    }
}

/// Reads under way: whether they may go on, what they fill, and what they find broken.
pub(crate) trait Reading: Operations {
    /// Why a request bypasses the cache, if its policies say so. Asked once for each read and write.
    fn passes_by(m: &mut Machine<Self>, key: RequestKey, access: Access) -> Option<Bypass> {
        let _ = (m, key, access);
        None
    }
    /// Whether a client's read may be looked up now. If not, it waits, and the store goes on with
    /// [`Machine::fetch_all`].
    fn may_fetch<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M) -> bool {
        let _ = (m, key, memory);
        true
    }
    /// Whether a client's read that has all its blocks may be answered. If not, the store goes on with
    /// [`Machine::fetch_all`] once more.
    fn may_tell(m: &mut Machine<Self>, key: RequestKey) -> bool {
        let _ = (m, key);
        true
    }
    /// Why a read's fetch from the origin may not be offered as a fill, if so. A store that says it later counts it itself.
    fn bars_fill(m: &mut Machine<Self>, key: RequestKey) -> Option<Bypass> {
        let _ = (m, key);
        None
    }
    /// Offers `piece`, which a request brought from the origin: the store may keep it, if nothing changed since
    /// `stamp`.
    fn offer_fill<M: Memory>(
        m: &mut Machine<Self>,
        request: RequestKey,
        piece: &Piece,
        stamp: Stamp,
        memory: &mut M,
    );
    /// The content of a block that was read from the origin, is as it was then, and waits to enter the cache.
    fn waiting_fill(_m: &Machine<Self>, _key: BlockKey) -> Option<Slice> {
        None
    }
    /// Brings what is not cached of a request's range into the cache, as far as there is room; then the request is answered.
    fn warm<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Blocks that may enter so without pushing any other one out.
    fn warm_room_blocks(m: &Machine<Self>) -> u64;
    /// Whether blocks that were read from an origin are on their way into the cache.
    fn is_filling(&self) -> bool;
    /// Calls `visit` with cached blocks, from a place in the store's tables on: those of `steps` rows, or a few more. Returns
    /// where to go on; `None` at the end.
    fn visit_cached(&self, from: Cursor, steps: u32, visit: &mut dyn FnMut(CachedRun)) -> Option<Cursor>;
    /// The room for what was read beside other blocks.
    fn room(m: &Machine<Self>) -> Room {
        let _ = m;
        Room::default()
    }
    /// Offers blocks that were read beside others, and are as they were when `stamp` was taken. Nobody asked for them.
    fn offer_beside<M: Memory>(
        m: &mut Machine<Self>,
        volume: VolumeIndex,
        blocks: Blocks,
        slice: Slice,
        stamp: Stamp,
        memory: &mut M,
    ) {
        let _ = (m, volume, blocks, slice, stamp, memory);
    }
    /// Notes that the cache device answered a client's read that was issued at `issued`.
    fn answered(m: &mut Machine<Self>, issued: Nanos) {
        let _ = (m, issued);
    }
    /// Looks at reads of the cache device.
    fn looked(m: &mut Machine<Self>, reads: LookedReads) {
        let _ = (m, reads);
    }
    /// Keeps a read of a block that [`Lookup::is_changing`]; it goes on by [`Machine::read_changed`] when the change
    /// is over.
    fn wait_for_change(m: &mut Machine<Self>, read: WaitingRead) {
        let _ = (m, read);
        unreachable!("a store that overwrites no block in its place has no read that waits for that")
    }
    /// Forgets a clean copy that does not match its checksum, after a crash too (rule 8).
    fn drop_rotten(m: &mut Machine<Self>, key: BlockKey);
    /// Marks a dirty copy that does not match its checksum as lost: reads fail from now on, after a crash too.
    fn mark_lost(m: &mut Machine<Self>, key: BlockKey);
    /// Carries out a [`RequestOp::ScrubSegment`](crate::effect::RequestOp::ScrubSegment); a store without segments answers it.
    fn scrub_segment<M: Memory>(m: &mut Machine<Self>, key: RequestKey, segment: u32, memory: &mut M);
}

/// Writes, zeroes and discards, in the cache and around it.
pub(crate) trait Changing: Operations {
    /// The blocks that a change of `blocks` holds: all that share marks with them.
    fn held(&self, volume: &Volume, blocks: Blocks) -> Blocks;
    /// The hold of a change that enters the cache, given whether it covers all of its blocks.
    fn first_hold(m: &Machine<Self>, key: RequestKey, is_whole: bool) -> Hold;
    /// The hold of a write that goes around the cache because of its volume's mode.
    fn hold_around(m: &Machine<Self>, key: RequestKey) -> Hold {
        let _ = (m, key);
        Hold::Merging
    }
    /// Whether a write that ends inside a block may take the blocks behind along.
    fn takes_rows(m: &Machine<Self>) -> bool {
        let _ = m;
        false
    }
    /// Why a write goes around the cache by what is cached when it holds its blocks, if it does.
    fn bars_write(m: &Machine<Self>, key: RequestKey) -> Option<Bypass> {
        let _ = (m, key);
        None
    }
    /// Whether a write may go into the cache in part and then around it in part.
    fn may_split(m: &Machine<Self>) -> bool {
        let _ = m;
        false
    }
    /// Whether a write that went around the cache, and that the origin refused, goes into the cache.
    fn takes_refused(m: &Machine<Self>) -> bool {
        let _ = m;
        false
    }
    /// Carries out a write whose route leads into the cache; its blocks are held.
    fn begin_write<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Carries out a write-zeroes whose route leads into the cache; its blocks are held.
    fn begin_zero<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Goes on with a partial write: the old content of its blocks, and the new one over it, are in the work buffer.
    fn merge<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Goes on with a request whose route leads into the cache and that has its blocks to itself, after
    /// [`Machine::take_exclusive`].
    fn settled<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Whether the device still reads buffers of a request in [`crate::machine::request::Stage::Appending`].
    fn is_writing(m: &Machine<Self>, key: RequestKey) -> bool;
    /// Whether the cached copies of a request's blocks may be forgotten now. If not, the store answers the request or lets it
    /// go on by [`Machine::begin_bypass`] when it may.
    fn may_bypass<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M) -> bool;
    /// Whether [`Changing::forget`] waits for nothing, room above all, that may in turn wait for the blocks.
    fn has_room_to_forget(m: &Machine<Self>) -> bool {
        let _ = m;
        true
    }
    /// Whether [`Changing::forget`] may have anything to do.
    fn has_to_forget(m: &Machine<Self>, volume: VolumeIndex, blocks: Blocks) -> bool {
        let _ = (m, volume, blocks);
        true
    }
    /// Makes sure that the cache has nothing of `blocks`, after a crash too (rule 7, hazard 7); the request holds its
    /// blocks exclusively. Then [`Machine::change_origin`].
    fn forget<M: Memory>(m: &mut Machine<Self>, key: RequestKey, blocks: Blocks, memory: &mut M);
    /// Whether no forgotten copy of the request's blocks could come back after a crash.
    fn is_forgotten(m: &Machine<Self>, key: RequestKey) -> bool;
    /// Hastens what [`Changing::is_forgotten`] waits for.
    fn want_forgotten(m: &mut Machine<Self>, key: RequestKey);
    /// Notes that a change of the origin alone is done; the request is about to be answered.
    fn origin_changed<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Decides again about the queued changes of a volume whose origin began to fail, or became absent (rule 9).
    fn withdraw<M: Memory>(m: &mut Machine<Self>, volume: VolumeIndex, memory: &mut M);
    /// Refuses what waits for room that does not come before the cache stops (rule 9).
    fn refuse_waiting<M: Memory>(m: &mut Machine<Self>, memory: &mut M);
}

/// Flushes: their coverage, and the requests that have to wait for them.
pub(crate) trait Durability: Operations {
    /// Whether a FLUSH has to wait for something that answered writes did not wait for; it is then in
    /// [`Stage::Commit`](crate::machine::request::Stage::Commit), until [`Machine::go_on_with_flush`].
    fn holds_flush(m: &mut Machine<Self>, key: RequestKey) -> bool;
    /// The number of the store's last completed write: a flush issued now covers everything up to it.
    fn completed(&self) -> u64;
    /// The number of the store's last answered write: a FLUSH waits for a flush that covers it.
    fn answered_sequence(&self) -> u64 {
        self.completed()
    }
    /// Acknowledged writes that are not in the log: a FLUSH waits until [`Durability::are_logged`] with this number.
    fn unlogged(&mut self) -> Option<u64> {
        None
    }
    /// Whether everything up to such a number is in the log.
    fn are_logged(&self, number: u64) -> bool {
        let _ = number;
        true
    }
    /// Whether a flush may be issued now.
    fn may_flush(&self) -> bool;
    /// Notes that a flush covered everything up to `sequence`.
    fn flushed<M: Memory>(m: &mut Machine<Self>, sequence: u64, memory: &mut M);
    /// Notes that a flush of an origin failed: it may have lost its unflushed writes.
    fn origin_flush_failed(m: &mut Machine<Self>, volume: VolumeIndex) {
        let _ = (m, volume);
    }
    /// Whether unflushed content of an origin can enter the cache as clean (rule 2): the store keeps reads from
    /// finding it once it is lost, or a write to an origin counts as home without a flush anyway.
    fn trusts_unflushed_origin(&self) -> bool {
        self.is_home_when_written()
    }
    /// Whether a write to an origin counts as home before that was flushed. Never with `safe`.
    fn is_home_when_written(&self) -> bool {
        false
    }
    /// Whether a client's FLUSH, or FUA, waits for a flush of the cache. Always with `safe`.
    fn flush_waits_for_cache(&self) -> bool {
        true
    }
}

/// Dirty blocks on their way home.
pub(crate) trait Destaging: Operations {
    /// The blocks that share one dirty mark with `block`, it included: they go home together.
    fn unit(&self, volume: &Volume, block: u64) -> Blocks;
    /// Whether new content of a block may take the place of what is dirty.
    fn overwrites(&self) -> bool;
    /// Whether a dirty copy may go home.
    fn readiness(&self, dirty: &Cached) -> Readiness;
    /// Whether the store's own controller decides the background write-back.
    fn has_controller(&self) -> bool {
        false
    }
    /// The store's shortage of room: the destager's pace follows it.
    fn pressure(m: &Machine<Self>) -> Pressure;
    /// Notes that these units are about to be read to go home.
    fn run_begins(m: &mut Machine<Self>, volume: VolumeIndex, blocks: Blocks);
    /// Notes that the units of a run were written to the origin, or will not be: nothing reads them any more.
    fn run_ends(m: &mut Machine<Self>, volume: VolumeIndex, blocks: Blocks, is_written: bool);
    /// Brings home zeroes that have no copy. False if there are none to begin with now.
    fn start_zero_run(m: &mut Machine<Self>, volume: VolumeIndex) -> bool;
    /// Notes that these very copies are durable on the origin.
    fn copy_is_home(m: &mut Machine<Self>, volume: VolumeIndex, copy: Copied);
    /// Notes that an interval of a volume is home, durably: nothing of it has to stay, and the log says so.
    fn interval_is_home(m: &mut Machine<Self>, volume: VolumeIndex, home: &Interval) {
        let _ = (m, volume, home);
        unreachable!("order is strict only where older versions stay")
    }
    /// Notes that an interval goes home in any order, and nothing of it has to stay for another reason.
    fn interval_is_free(m: &mut Machine<Self>, left: &Interval) {
        let _ = (m, left);
        unreachable!("order is strict only where older versions stay")
    }
    /// Has the log say that everything of a volume up to a sequence is home; then
    /// [`Ledger::recorded`](crate::machine::destage::order::ledger::Ledger::recorded).
    fn record_home(m: &mut Machine<Self>, volume: VolumeIndex, sequence: u64) {
        let _ = (m, volume, sequence);
        unreachable!("order is strict only where older versions stay")
    }
    /// The dirty copies of blocks that a client's write-through brought home, for [`Destaging::copy_is_home`].
    fn written_through(m: &Machine<Self>, volume: VolumeIndex, blocks: Blocks) -> Vec<Copied>;
}

/// The store's part in the life of an engine: it is pumped, watched, stopped, and may fail.
pub(crate) trait Life: Operations {
    /// Notes that a request is over, and is about to be answered.
    fn request_ended<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M) {
        let _ = (m, key, memory);
    }
    /// Whether the last step left the store nothing to do. A look takes one step of what there is, so a store that has something
    /// to do is looked at after each call.
    fn is_at_rest(_m: &Machine<Self>) -> bool {
        false
    }
    /// Writes those of the store's own structures that the process before left unwritten.
    fn repair<M: Memory>(m: &mut Machine<Self>, memory: &mut M);
    /// Notes the generation of segments from which on counts what a half alone has.
    fn once_counts_from(&mut self, half: Half, generation: u64) {
        let _ = (half, generation);
    }
    /// Has clients' reads do without what a half alone has, or not any more.
    fn pass_half_by(&mut self, half: Half, is_passed: bool) {
        let _ = (half, is_passed);
    }
    /// The generation of the segment that is opened next; 0 in a store without any.
    fn next_generation(&self) -> u64 {
        0
    }
    /// Adds to the superblock, which is about to be written, what the store has to say.
    fn superblock_goes_out(m: &mut Machine<Self>) {
        let _ = m;
    }
    /// Lets everything go on that can. Called after every call of the engine.
    fn pump<M: Memory>(m: &mut Machine<Self>, memory: &mut M);
    /// Sends off writes that waited for group commit: the driver has no more input.
    fn assemble<M: Memory>(m: &mut Machine<Self>, memory: &mut M);
    /// The time when a write stops waiting for group commit, if nothing else happens before.
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    /// Whether the clock has to come back for work that no request waits for.
    fn is_busy(&self) -> bool;
    /// Whether nothing waits and nothing is on its way.
    fn is_quiet(&self) -> bool;
    /// Whether anything on its way belongs to a volume.
    fn concerns(m: &Machine<Self>, volume: VolumeIndex) -> bool;
    /// Issues a clean stop's own writes, when nothing else is under way. True when all are done; until then it is
    /// asked again, and its writes are flushed before the last answer counts.
    fn stop<M: Memory>(m: &mut Machine<Self>, memory: &mut M) -> bool {
        let _ = (m, memory);
        true
    }
    /// Discards queued work after the cache failed; the requests behind it learn of the failure by themselves.
    fn discard_pending<M: Memory>(m: &mut Machine<Self>, memory: &mut M);
    /// Forgets all of a volume, in memory: it is being detached, or its cache was given up.
    fn drop_volume(m: &mut Machine<Self>, volume: VolumeIndex);
    /// Forgets a part of a volume that is being detached and has nothing that its origin lacks; true when nothing is left. It takes
    /// little time, and is asked again.
    fn drop_part(m: &mut Machine<Self>, volume: VolumeIndex) -> bool {
        Self::drop_volume(m, volume);
        true
    }
    /// Notes that a volume is about to come to a place where none is, and returns the number from which on its records
    /// count ([`VolumeRecord::clean_floor_sequence`]); its own is `id`.
    fn volume_comes(m: &mut Machine<Self>, volume: VolumeIndex, id: VolumeId, blocks: u64) -> u64;
    /// Forgets the copy of the last block of a volume that is about to grow: it would hide the origin behind the old
    /// end.
    fn drop_end(m: &mut Machine<Self>, volume: VolumeIndex) -> Dropping;
    /// Gives up a volume's lost blocks for the operator: they read as the origin has them. Called again when the request has the
    /// blocks that it took, if it took any.
    fn give_up_lost<M: Memory>(m: &mut Machine<Self>, key: RequestKey, memory: &mut M);
    /// Whether the dropped blocks of a volume stay dropped after a crash; hastens the writes missing for that.
    fn is_dropped_durably(_m: &mut Machine<Self>, _volume: VolumeIndex) -> bool {
        true
    }
    /// The store's part of the cache's status.
    fn fill_status(&self, status: &mut CacheStatus);
    /// Prints what each piece of work waits for, for a test in which nothing goes on.
    fn describe(&self, f: &mut core::fmt::DebugStruct<'_, '_>);
}

/// A way to keep blocks: all that a [`Machine`] asks of it.
pub(crate) trait Store: Lookup + Reading + Changing + Durability + Destaging + Life {}

impl<S: Lookup + Reading + Changing + Durability + Destaging + Life> Store for S {}
