//! The guard of a volume, which orders overlapping work.
//!
//! A volume is divided into regions of 16 blocks, hashed onto a fixed table of slots. Two ranges that overlap always
//! meet in a slot. Two that do not overlap may meet, too; one then waits needlessly, which costs time and never
//! correctness.
//!
//! | hold | held by | from | to | excludes |
//! | --- | --- | --- | --- | --- |
//! | shared | a write of whole blocks in writeback | submit | publication | merging, exclusive, beside |
//! | merging | every other change, at first | submit | publication | shared, merging, exclusive, beside |
//! | exclusive | a change that goes to the origin | its turn there | reply | all but copying decided later |
//! | beside | a write around the cache that asks for no read | its turn | reply | the same, but of beside only the same sectors |
//! | publishing | a part of a change in a batch | assembly | publication | copying |
//! | copying | a fill or a relocation | assembly of its batch | publication | exclusive |
//! | destaging | a destage | choice | the origin's answer | exclusive; destaging of the same blocks |
//! | home | what a destage wrote | the origin's answer | origin flush | destaging of the same blocks, and exclusive but of writes |
//!
//! A request that waits for room in the log holds nothing that a destage or a relocation waits for: these make the
//! room (hazard 12). That is why merging and exclusive are two holds.
//! Beside is one: it leaves the others and merges, if the cache has no room to forget what it has of its blocks.
//!
//! Every shared, merging, exclusive, beside, destaging and home hold counts as a *change* of its region when it
//! begins and when it ends. A fill compares the count (hazard 1); one that waits after that has its blocks watched.

use crate::machine::unflushed::Unflushed;
use crate::mutation::{Mutation, Mutations};
use crate::number::{index_wide, to_u32, wide};
use crate::units::SectorRange;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// Blocks in a region.
const REGION_BLOCKS: u64 = 16;
/// Slots for 1 GiB, a usual size of files, as a power of 2.
const LARGE_BITS: u32 = 14;

/// The purpose of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Appends whole blocks to the log.
    Shared,
    /// Reads and then appends, or has yet to find out where it goes.
    Merging,
    /// Changes the origin.
    Exclusive,
    /// Is in a batch on its way to the device.
    Publishing,
    /// Appends a copy of what is there.
    Copying,
    /// Writes a dirty block home.
    Destaging,
    /// Changes sectors of the origin, beside others that change other sectors.
    Beside,
    /// Was written home, and waits for the origin's flush.
    Home,
}

impl Hold {
    #[inline]
    fn is_change(self) -> bool {
        !matches!(self, Hold::Copying | Hold::Publishing)
    }

    /// The place of its count in a slot.
    #[inline]
    fn place(self) -> usize {
        match self {
            Hold::Shared => 0,
            Hold::Merging => 1,
            Hold::Exclusive => 2,
            Hold::Publishing => 3,
            Hold::Copying => 4,
            Hold::Destaging => 5,
            Hold::Beside => 6,
            Hold::Home => 7,
        }
    }
}

/// A range of whole blocks of the guarded volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first block.
    pub first: u64,
    /// The number of blocks.
    pub count: u64,
}

impl Blocks {
    /// The blocks that `range` touches.
    #[inline]
    #[must_use]
    pub fn touched_by(range: SectorRange) -> Blocks {
        Blocks { first: range.first_block(), count: range.end_block() - range.first_block() }
    }

    /// The first block after the range.
    #[inline]
    #[must_use]
    pub fn end(self) -> u64 {
        self.first + self.count
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    changes: u32,
    /// The holds of each purpose, by [`Hold::place`].
    holds: [u16; 8],
    waiting: u16,
    /// The origin epoch of the last write to the origin in this region.
    origin_epoch: u64,
}

impl Slot {
    #[inline]
    fn is_held(&self, hold: Hold) -> bool {
        self.holds[hold.place()] > 0
    }

    /// Notes that a hold begins.
    #[inline]
    fn begin(&mut self, hold: Hold) {
        self.holds[hold.place()] += 1;
        // HAZARD 1: a fill that overlaps this hold in time finds another count at its end.
        self.changes = self.changes.wrapping_add(u32::from(hold.is_change()));
    }

    /// Whether something was chosen to go home, and is not known to be durable there.
    #[inline]
    fn is_going_home(&self) -> bool {
        self.is_held(Hold::Destaging) || self.is_held(Hold::Home)
    }

    /// Whether somebody changes the origin for a client.
    #[inline]
    fn is_passed_by(&self) -> bool {
        self.is_held(Hold::Exclusive) || self.is_held(Hold::Beside)
    }
}

/// The state of a range when a fill began to read it; see [`Guard::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The range: counts of different ones may be equal and say nothing.
    first: u64,
    count: NonZeroU32,
    /// Changes of its regions, by the lower bits of their number.
    changes: u32,
}

impl Stamp {
    fn blocks(self) -> Blocks {
        Blocks { first: self.first, count: u64::from(self.count.get()) }
    }
}

/// A watch over a range; see [`Guard::watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchId(u64);

struct Watch {
    id: WatchId,
    blocks: Blocks,
    is_changed: bool,
}

/// The guard of one volume.
pub struct Guard {
    slots: Vec<Slot>,
    /// The sectors of beside holds: first ones, and ends.
    beside: BTreeMap<u64, u64>,
    /// The blocks of destaging and home holds: first ones, and ends.
    homebound: BTreeMap<u64, u64>,
    /// The blocks that were written to the origin and are not flushed there.
    unflushed: Unflushed,
    /// The watches, oldest first.
    watches: Vec<Watch>,
    last_watch: u64,
    /// Planted bugs, in tests only.
    pub mutations: Mutations,
}

impl Guard {
    /// A guard with 2^`slot_bits` slots. A large one has slightly fewer, an odd number: ranges a round number of
    /// regions apart, such as the same places of adjacent files, then do not meet.
    #[must_use]
    pub fn new(slot_bits: u32) -> Guard {
        let round = 1usize << slot_bits;
        let less = if slot_bits >= LARGE_BITS { round / 16 + 1 } else { 0 };
        let slots = vec![Slot::default(); round - less];
        Guard {
            slots,
            beside: BTreeMap::new(),
            homebound: BTreeMap::new(),
            unflushed: Unflushed::default(),
            watches: Vec::new(),
            last_watch: 0,
            mutations: Mutations::NONE,
        }
    }

    #[inline]
    fn slot_of(&self, region: u64) -> usize {
        // Neighbouring regions get neighbouring slots, so that a long range never meets itself.
        index_wide(region % wide(self.slots.len()))
    }

    /// The slot of the first region that blocks touch, and how many regions that are.
    #[inline]
    fn span(&self, blocks: Blocks) -> (usize, u64) {
        assert!(blocks.count > 0, "a range of no blocks holds nothing");
        let first = blocks.first / REGION_BLOCKS;
        (self.slot_of(first), (blocks.end() - 1) / REGION_BLOCKS - first + 1)
    }

    #[inline]
    fn slots_of(&self, blocks: Blocks) -> impl Iterator<Item = usize> + use<> {
        let (start, regions) = self.span(blocks);
        let slots = self.slots.len();
        let count = index_wide(regions).min(slots);
        (0..count).map(move |step| if start + step < slots { start + step } else { start + step - slots })
    }

    /// Changes the slots of blocks; most ranges lie in one.
    #[inline(always)]
    fn change_slots(&mut self, blocks: Blocks, change: impl Fn(&mut Slot)) {
        match self.span(blocks) {
            (at, 1) => change(&mut self.slots[at]),
            _ => self.slots_of(blocks).for_each(|at| change(&mut self.slots[at])),
        }
    }

    /// Whether `hold` could begin on `blocks` now. A change gives way to requests that already wait.
    #[inline]
    #[must_use]
    pub fn is_free(&self, blocks: Blocks, hold: Hold) -> bool {
        if hold == Hold::Destaging && self.is_homebound(blocks) {
            return false;
        }
        match self.span(blocks) {
            (at, 1) => self.allows(&self.slots[at], hold),
            _ => self.slots_of(blocks).all(|at| self.allows(&self.slots[at], hold)),
        }
    }

    /// Whether `hold` could begin in a slot now.
    #[inline]
    fn allows(&self, slot: &Slot, hold: Hold) -> bool {
        let holds_allow = match hold {
            Hold::Shared => !(slot.is_held(Hold::Merging) || slot.is_passed_by()),
            Hold::Merging => {
                !(slot.is_held(Hold::Shared) || slot.is_held(Hold::Merging) || slot.is_passed_by())
            }
            Hold::Beside => {
                !(slot.is_held(Hold::Shared) || slot.is_held(Hold::Merging) || slot.is_held(Hold::Exclusive))
            }
            Hold::Exclusive => unreachable!("an exclusive hold grows out of a merging one"),
            Hold::Publishing | Hold::Home => true,
            // RULE 3: a copy is not decided while a newer version has its sequence and is not
            // published. One that merely waits for its turn will get a higher sequence.
            Hold::Copying => !slot.is_held(Hold::Publishing) || self.mutations.has(Mutation::CopyDuringWrite),
            // HAZARD 12: writes that wait for room do not keep off the destage that makes it: both would
            // wait for ever.
            Hold::Destaging if self.mutations.has(Mutation::WaitersBlockDestage) => {
                !(slot.is_passed_by() || slot.is_held(Hold::Merging))
            }
            Hold::Destaging => !slot.is_passed_by(),
        };
        let gives_way = matches!(hold, Hold::Shared | Hold::Merging | Hold::Beside);
        let queue_allows = slot.waiting == 0 || !gives_way;
        holds_allow && queue_allows
    }

    /// Whether any of these blocks goes home, or waits there for the origin's flush.
    fn is_homebound(&self, blocks: Blocks) -> bool {
        let before = self.homebound.range(..blocks.end()).next_back();
        // RULE 7: no two versions of a block are on their way at the same time: the older one might arrive last.
        before.is_some_and(|(_, &end)| end > blocks.first) && !self.mutations.has(Mutation::OverlapAtOrigin)
    }

    /// Whether no beside hold has any of these sectors.
    #[inline(never)]
    #[must_use]
    pub fn is_apart(&self, range: SectorRange) -> bool {
        // RULE 7: no write overlaps another one in flight to the same origin range.
        let before = self.beside.range(..range.end()).next_back();
        before.is_none_or(|(_, &end)| end <= range.start) || self.mutations.has(Mutation::OverlapAtOrigin)
    }

    /// Notes the sectors of a beside hold that begins.
    #[inline(never)]
    pub fn sectors_held(&mut self, range: SectorRange) {
        self.beside.insert(range.start, range.end());
    }

    /// Notes the sectors of a beside hold that ends.
    pub fn sectors_released(&mut self, range: SectorRange) {
        self.beside.remove(&range.start);
    }

    /// Whether an exclusive or beside hold on `blocks` has them to itself: all holds that began before it are over.
    #[must_use]
    pub fn is_settled(&self, blocks: Blocks) -> bool {
        self.slots_of(blocks).all(|at| {
            let slot = &self.slots[at];
            // RULE 7: no write overlaps another one in flight to the same origin range.
            let is_alone = !slot.is_held(Hold::Destaging) || self.mutations.has(Mutation::OverlapAtOrigin);
            // HAZARD 1: a copy on its way into the log is not in the index yet, and could not be dropped.
            let is_copied = !slot.is_held(Hold::Copying) || self.mutations.has(Mutation::FillBehindBypass);
            is_alone && is_copied
        })
    }

    /// Whether no copy of anything near `blocks` is on its way into the log.
    #[must_use]
    pub fn is_copied_nowhere(&self, blocks: Blocks) -> bool {
        self.slots_of(blocks).all(|at| !self.slots[at].is_held(Hold::Copying))
            || self.mutations.has(Mutation::NewBehindCopy)
    }

    /// Whether something near `blocks` was written home, and waits for the origin's flush.
    #[must_use]
    pub fn is_at_home(&self, blocks: Blocks) -> bool {
        self.slots_of(blocks).any(|at| self.slots[at].is_held(Hold::Home))
    }

    /// Whether something of `blocks` may be destaged although other blocks of the same regions are being destaged:
    /// the caller knows that these blocks are not.
    #[must_use]
    pub fn allows_home(&self, blocks: Blocks) -> bool {
        self.slots_of(blocks).all(|at| !self.slots[at].is_passed_by())
    }

    /// Whether the flush of epoch `flushed_epoch` covers every write to the origin in these blocks.
    #[must_use]
    pub fn is_origin_flushed(&self, blocks: Blocks, flushed_epoch: u64) -> bool {
        self.slots_of(blocks).all(|at| self.slots[at].origin_epoch <= flushed_epoch)
            || !self.unflushed.has_any(blocks, flushed_epoch)
    }

    /// Begins a hold, if it could begin now; returns whether it did. For holds of clients' changes.
    #[inline(always)]
    pub fn try_acquire(&mut self, blocks: Blocks, hold: Hold) -> bool {
        assert!(hold != Hold::Destaging, "a destage asks whether others go home");
        match self.span(blocks) {
            (at, 1) if !self.allows(&self.slots[at], hold) => return false,
            (at, 1) => self.slots[at].begin(hold),
            _ if !self.is_free(blocks, hold) => return false,
            _ => self.change_slots(blocks, |slot| slot.begin(hold)),
        }
        if hold.is_change() {
            self.tell_watches(blocks);
        }
        true
    }

    /// Begins a hold; [`Guard::is_free`] said yes.
    #[inline(always)]
    pub fn acquire(&mut self, blocks: Blocks, hold: Hold) {
        self.change_slots(blocks, |slot| slot.begin(hold));
        if hold == Hold::Destaging {
            self.homebound.insert(blocks.first, blocks.end());
        }
        if hold.is_change() {
            self.tell_watches(blocks);
        }
    }

    /// Turns a destaging hold into a home hold: the origin has written the blocks.
    pub fn wrote_home(&mut self, blocks: Blocks) {
        self.change_slots(blocks, |slot| {
            assert!(slot.is_held(Hold::Destaging), "what was written home was on its way");
            slot.holds[Hold::Destaging.place()] -= 1;
            slot.holds[Hold::Home.place()] += 1;
        });
    }

    /// Ends a hold.
    #[inline(always)]
    pub fn release(&mut self, blocks: Blocks, hold: Hold) {
        let (place, changes) = (hold.place(), u32::from(hold.is_change()));
        self.change_slots(blocks, |slot| {
            slot.holds[place] = slot.holds[place].checked_sub(1).expect("a hold ends once");
            slot.changes = slot.changes.wrapping_add(changes);
        });
        if matches!(hold, Hold::Destaging | Hold::Home) {
            self.homebound.remove(&blocks.first);
        }
        if hold.is_change() {
            self.tell_watches(blocks);
        }
    }

    /// Notes that a request waits for `blocks`, so that later ones do not overtake it.
    pub fn wait(&mut self, blocks: Blocks) {
        for at in self.slots_of(blocks) {
            self.slots[at].waiting += 1;
        }
    }

    /// Takes back one [`Guard::wait`].
    pub fn unwait(&mut self, blocks: Blocks) {
        for at in self.slots_of(blocks) {
            assert!(self.slots[at].waiting > 0, "only a request that waited stops waiting");
            self.slots[at].waiting -= 1;
        }
    }

    /// Notes a write to the origin in `blocks`, issued or completed in origin epoch `epoch`.
    pub fn origin_written(&mut self, blocks: Blocks, epoch: u64) {
        for at in self.slots_of(blocks) {
            let slot = &mut self.slots[at];
            slot.origin_epoch = slot.origin_epoch.max(epoch);
        }
        self.unflushed.note(blocks, epoch);
        self.tell_watches(blocks);
    }

    /// Notes that a flush of the origin covered all writes up to an epoch.
    pub fn origin_flushed(&mut self, epoch: u64) {
        self.unflushed.flushed(epoch);
    }

    /// Watches blocks for as long as a fill of them waits. A stamp covers whole regions, so that any change nearby
    /// would void a fill that waits; a watch covers these blocks alone.
    pub fn watch(&mut self, blocks: Blocks) -> WatchId {
        self.last_watch += 1;
        let id = WatchId(self.last_watch);
        self.watches.push(Watch { id, blocks, is_changed: false });
        id
    }

    /// Ends a watch; true if the blocks are as they were when it began: no change began or ended there, and nothing
    /// was written to the origin.
    pub fn unwatch(&mut self, id: WatchId) -> bool {
        let at = self.watches.iter().position(|watch| watch.id == id).expect("a watch ends once");
        !self.watches.remove(at).is_changed
    }

    #[inline]
    fn tell_watches(&mut self, blocks: Blocks) {
        for watch in &mut self.watches {
            watch.is_changed |= watch.blocks.first < blocks.end() && blocks.first < watch.blocks.end();
        }
    }

    /// The stamp of a read of the origin whose data may later enter the cache as clean; `None`
    /// if it may not: something is being written there, or the origin has writes there that were not
    /// flushed since (`flushed_epoch` is the last epoch that was).
    #[must_use]
    pub fn stamp(&self, blocks: Blocks, flushed_epoch: u64) -> Option<Stamp> {
        let (mut changes, mut is_near_unflushed) = (0u32, false);
        for at in self.slots_of(blocks) {
            let slot = &self.slots[at];
            let is_changing = slot.is_held(Hold::Shared)
                || slot.is_held(Hold::Merging)
                || slot.is_passed_by()
                || slot.is_going_home();
            if is_changing && !self.mutations.has(Mutation::FillDuringChange) {
                return None;
            }
            is_near_unflushed |= slot.origin_epoch > flushed_epoch;
            changes = changes.wrapping_add(slot.changes);
        }
        // RULE 2: what the origin has not flushed it may lose in a power cut: it does not enter the cache as clean.
        let is_unflushed = is_near_unflushed && self.unflushed.has_any(blocks, flushed_epoch);
        if is_unflushed && !self.mutations.has(Mutation::FillOverUnflushedOrigin) {
            return None;
        }
        Some(Stamp { first: blocks.first, count: NonZeroU32::new(to_u32(blocks.count))?, changes })
    }

    /// Whether a range is as it was when `stamp` was taken, and may enter the cache as clean yet. That holds of any part of it,
    /// too.
    #[must_use]
    pub fn is_as_stamped(&self, stamp: Stamp, flushed_epoch: u64) -> bool {
        self.stamp(stamp.blocks(), flushed_epoch) == Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(first: u64, count: u64) -> Blocks {
        Blocks { first, count }
    }

    #[test]
    fn merging_excludes_changes_but_not_what_makes_room() {
        let mut guard = Guard::new(6);
        guard.acquire(blocks(0, 1), Hold::Shared);
        assert!(guard.is_free(blocks(3, 1), Hold::Shared));
        assert!(!guard.is_free(blocks(3, 1), Hold::Merging));
        guard.release(blocks(0, 1), Hold::Shared);
        guard.acquire(blocks(15, 2), Hold::Merging);
        for at in [0, 31] {
            assert!(!guard.is_free(blocks(at, 1), Hold::Shared));
            assert!(!guard.is_free(blocks(at, 1), Hold::Merging));
            assert!(guard.is_free(blocks(at, 1), Hold::Destaging));
            assert!(guard.is_free(blocks(at, 1), Hold::Copying));
        }
        assert!(guard.is_free(blocks(32, 1), Hold::Merging));
    }

    #[test]
    fn exclusive_keeps_destages_off_and_waits_for_those_under_way() {
        let mut guard = Guard::new(6);
        guard.acquire(blocks(0, 1), Hold::Destaging);
        guard.acquire(blocks(0, 1), Hold::Exclusive);
        assert!(!guard.is_settled(blocks(0, 1)));
        assert!(!guard.is_free(blocks(1, 1), Hold::Destaging));
        guard.release(blocks(0, 1), Hold::Destaging);
        assert!(guard.is_settled(blocks(0, 1)));
        assert!(!guard.is_free(blocks(1, 1), Hold::Shared));
    }

    #[test]
    fn what_was_written_home_is_in_nobodys_way_but_of_the_next_destage() {
        let mut guard = Guard::new(6);
        guard.acquire(blocks(0, 2), Hold::Destaging);
        guard.wrote_home(blocks(0, 2));
        assert!(!guard.is_free(blocks(1, 3), Hold::Destaging));
        assert!(guard.is_free(blocks(2, 1), Hold::Destaging), "these blocks go nowhere yet");
        assert_eq!(guard.stamp(blocks(3, 1), 0), None);
        guard.acquire(blocks(3, 1), Hold::Merging);
        guard.acquire(blocks(3, 1), Hold::Exclusive);
        assert!(guard.is_settled(blocks(3, 1)));
        assert!(!guard.is_free(blocks(2, 1), Hold::Destaging), "a client changes the origin near it");
        guard.release(blocks(3, 1), Hold::Exclusive);
        guard.release(blocks(0, 2), Hold::Home);
        assert!(guard.is_free(blocks(0, 1), Hold::Destaging));
    }

    #[test]
    fn writes_around_the_cache_go_beside_each_other_if_their_sectors_differ() {
        let mut guard = Guard::new(6);
        let sectors = |start, sectors| SectorRange { start, sectors };
        guard.acquire(blocks(0, 2), Hold::Beside);
        guard.sectors_held(sectors(3, 9));
        for hold in [Hold::Shared, Hold::Merging, Hold::Destaging] {
            assert!(!guard.is_free(blocks(1, 1), hold), "{hold:?}");
        }
        assert!(guard.is_free(blocks(1, 1), Hold::Beside));
        assert!(guard.is_apart(sectors(12, 4)) && guard.is_apart(sectors(0, 3)));
        for (start, count) in [(0, 4), (3, 1), (11, 1), (0, 100)] {
            assert!(!guard.is_apart(sectors(start, count)), "{start}, {count}");
        }
        guard.sectors_released(sectors(3, 9));
        guard.release(blocks(0, 2), Hold::Beside);
        assert!(guard.is_apart(sectors(0, 100)) && guard.is_free(blocks(0, 1), Hold::Merging));
    }

    #[test]
    fn a_copy_waits_for_what_is_on_its_way_to_the_device() {
        let mut guard = Guard::new(6);
        guard.acquire(blocks(0, 1), Hold::Publishing);
        assert!(!guard.is_free(blocks(3, 1), Hold::Copying));
        guard.release(blocks(0, 1), Hold::Publishing);
        assert!(guard.is_free(blocks(3, 1), Hold::Copying));
    }

    #[test]
    fn those_who_wait_are_not_overtaken() {
        let mut guard = Guard::new(6);
        guard.wait(blocks(0, 4));
        assert!(!guard.is_free(blocks(8, 1), Hold::Shared));
        guard.unwait(blocks(0, 4));
        assert!(guard.is_free(blocks(8, 1), Hold::Shared));
    }

    #[test]
    fn a_stamp_notices_a_write_that_came_and_went() {
        let mut guard = Guard::new(6);
        let before = guard.stamp(blocks(0, 32), 0);
        assert!(before.is_some());
        guard.acquire(blocks(20, 1), Hold::Shared);
        assert_eq!(guard.stamp(blocks(0, 32), 0), None);
        guard.release(blocks(20, 1), Hold::Shared);
        assert_ne!(guard.stamp(blocks(0, 32), 0), before);
    }

    #[test]
    fn a_watch_notices_what_happens_to_its_own_blocks() {
        let mut guard = Guard::new(6);
        let (near, under, home) =
            (guard.watch(blocks(0, 4)), guard.watch(blocks(4, 2)), guard.watch(blocks(8, 2)));
        guard.acquire(blocks(5, 1), Hold::Shared);
        guard.acquire(blocks(0, 4), Hold::Copying);
        guard.origin_written(blocks(9, 1), 1);
        let late = guard.watch(blocks(5, 1));
        guard.release(blocks(5, 1), Hold::Shared);
        assert_eq!([near, under, home, late].map(|id| guard.unwatch(id)), [true, false, false, false]);
    }

    #[test]
    fn a_stamp_says_nothing_of_a_part_that_changed_since() {
        let mut guard = Guard::new(6);
        guard.acquire(blocks(0, 1), Hold::Shared);
        guard.release(blocks(0, 1), Hold::Shared);
        let stamp = guard.stamp(blocks(0, 32), 0).expect("nothing is written");
        assert!(guard.is_as_stamped(stamp, 0));
        // As many changes as the whole range had when the stamp was taken.
        guard.acquire(blocks(16, 1), Hold::Shared);
        guard.release(blocks(16, 1), Hold::Shared);
        assert_ne!(guard.stamp(blocks(16, 16), 0), Some(stamp));
        assert!(!guard.is_as_stamped(stamp, 0));
    }

    #[test]
    fn no_stamp_over_unflushed_origin_writes() {
        let mut guard = Guard::new(6);
        guard.origin_written(blocks(5, 1), 3);
        assert_eq!(guard.stamp(blocks(0, 6), 2), None);
        assert!(guard.stamp(blocks(0, 6), 3).is_some());
        assert!(guard.stamp(blocks(0, 5), 2).is_some(), "beside it in the region");
        assert!(guard.stamp(blocks(5 + 16 * 64, 1), 2).is_some(), "in the slot of its region");
        guard.origin_flushed(3);
        assert!(guard.stamp(blocks(0, 6), 3).is_some());
    }

    #[test]
    fn a_range_longer_than_the_table_holds_every_slot_once() {
        let mut guard = Guard::new(2);
        let all = blocks(3, 16 * 9);
        guard.acquire(all, Hold::Merging);
        assert!(!guard.is_free(blocks(0, 1), Hold::Shared));
        guard.release(all, Hold::Merging);
        assert!(guard.is_free(all, Hold::Merging));
    }

    /// Four files of 1 GiB that lie end to end are written in step, each from its beginning: with as many slots as a file has
    /// regions they would meet all the time.
    #[test]
    fn the_same_places_of_files_that_lie_end_to_end_do_not_meet() {
        let mut guard = Guard::new(14);
        let file_blocks = REGION_BLOCKS << 14;
        for at in [0, 16, 5000, file_blocks - 8] {
            let places = (0..4).map(|file| blocks(file * file_blocks + at, 8));
            for place in places.clone() {
                assert!(guard.is_free(place, Hold::Merging), "{at}: {place:?}");
                guard.acquire(place, Hold::Merging);
            }
            places.for_each(|place| guard.release(place, Hold::Merging));
        }
    }
}
