//! The destager's state of one volume: dirty blocks, their order, and runs that wait for the origin's flush.

use super::choice::RUN_BLOCKS_MAX;
use super::dirty_map::DirtyMap;
use super::order::ledger::Ledger;
use super::run::{Copied, Written};
use super::unreadable::Unreadable;
use crate::limits::Config;
use crate::machine::guard::Blocks;
use crate::number::wide;
use crate::store::Pressure;
use crate::units::{Nanos, Place};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The shortest pause after a run while clients are busy.
const PAUSE_NS_MIN: u64 = 10 * Nanos::MILLISECOND;
/// So many times as long is the pause where a client read from the origin a moment ago, and none wrote for a while. A run costs
/// readers more than it takes, as the disk writes what it keeps in its memory later.
const LEISURE: u64 = 24;
/// That while. An origin is left to readers if one came in it, and no write.
const LEISURE_NS: u64 = 10 * Nanos::SECOND;
/// So many times as long is the pause in a quick flood.
const LEISURE_IN_FLOOD: u64 = 4;
/// Of the time without a write so much may pass in silence, up to a limit, before an origin counts as idle.
const PATIENCE_ONE_IN: u64 = 32;
const PATIENCE_NS_MAX: u64 = 2 * Nanos::SECOND;
/// The longest, however many clients are.
const PAUSE_NS_MAX: u64 = Nanos::SECOND;
/// Writes of at least this length, 128 KiB, are long: they go home quickly, and are seldom overwritten soon.
pub(crate) const LONG_BLOCKS_MIN: u64 = 32;
/// The part of the cache that only a destage can make free, in thousandths, below which a flood is over.
const FLOODED_PERMILLE: u64 = 250;
/// So many times as much as the cache holds makes a flood, if fewer than one block in so many was hit meanwhile. Half of what it
/// holds is enough if that came within a short time: what leaves again so soon is good for nobody.
const OVERRUN: u64 = 2;
const QUICK_OVERRUN_ONE_IN: u64 = 2;
const QUICK_NS: u64 = 2 * Nanos::SECOND;
const HITS_ONE_IN: u64 = 32;
/// A flood of which nothing was seen for so long is not under way any more.
const FLOOD_NS: u64 = Nanos::SECOND;
/// Long writes come as fast as the cache takes them while the last one came no longer ago: an SATA SSD takes a batch in less.
const BURST_GAP_NS: u64 = 2 * Nanos::MILLISECOND;
/// A burst of them begins after so long without, and is none any more after so long.
const BURST_REST_NS: u64 = Nanos::SECOND;
const BURST_NS_MAX: u64 = 3 * Nanos::SECOND;
/// Limit of the lead of paced writes over the origin that later runs make up for: 16 MiB.
const BEHIND_BLOCKS_MAX: u64 = 4096;

/// How long a flush of an origin that nobody waits for is put off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlushDelay {
    /// The least time after the first write that waits for it.
    pub after_ns: u64,
    /// The origin rests after the last one: none for what clients alone wrote.
    pub is_resting: bool,
    /// None for what runs wrote, either: it is not waited for yet.
    pub is_held_on: bool,
    /// Blocks of the volume that count as dirty.
    pub dirty_blocks: u64,
}

/// The destager of one volume.
pub(crate) struct DestageState {
    pub map: DirtyMap,
    /// The block at which the sweep goes on.
    pub cursor: u64,
    /// The block at which the search for zeroes goes on.
    pub zero_cursor: u64,
    /// Dirty blocks that hold up a segment, in origin order.
    pub urgent: VecDeque<u64>,
    pub in_flight: u32,
    /// Runs written home after the last flush of the origin began.
    written: Vec<Written>,
    written_blocks: u64,
    /// Runs of the destage are among them.
    has_held: bool,
    /// The time at which the oldest of `written` was written.
    written_since: Nanos,
    /// Runs written home before the flush of the origin that is under way.
    flushing: Vec<Written>,
    /// Copies that clients' own writes brought home, among `written` and `flushing`.
    through: BTreeSet<(Place, u64)>,
    /// The time of the next look after one that found nothing to start; an event brings it forward.
    pub look_again: Nanos,
    /// Blocks of long writes for which nothing went home.
    pub behind_blocks: u64,
    /// Bytes that clients had written when there were last more of them, and when that was.
    grew: (u64, Nanos),
    /// `long_blocks` when there were last more of them, and when that was.
    long_grew: (u64, Nanos),
    /// The time at which the last burst of long writes began.
    burst_began: Nanos,
    /// `long_blocks` before that.
    burst_before: u64,
    /// The time at which the last run began.
    run_began: Nanos,
    /// The usual length of late runs, in eighths of a block.
    run_block_eighths: u64,
    /// Blocks of long writes that entered.
    long_blocks: u64,
    /// Those, and blocks that had been hit, until clients last wrote nothing for a while.
    long_before: u64,
    hits_before: u64,
    /// Much of what the cache holds came in long writes within a short time, and clients did not rest since.
    is_quick: bool,
    /// See [`DestageState::is_overrun`].
    is_overrun: bool,
    /// A long write went around a full cache: until much of that is home, the others do, too.
    is_flooded: bool,
    /// The time at which the last one did.
    flooded_at: Nanos,
    /// The next background run waits until then.
    pub pause_until: Nanos,
    /// Requests that want everything home.
    pub drains: u32,
    /// The operator wants no destage that nobody waits for.
    pub is_held_back: bool,
    /// Blocks that were dirty when the first of them began, and that runs wrote home since.
    home_blocks: u64,
    /// Blocks that clients changed since.
    changed_blocks: u64,
    pub unreadable: Unreadable,
    /// The versions that are not home, where everything goes home in strict order.
    pub order: Option<Box<Ledger>>,
    /// Versions in that.
    pub listed: u64,
    /// Requests that change that: until they end, changes of content wait.
    pub order_changes: u32,
}

/// While everything is to go home, clients may change one block for so many that were dirty then, or went home since. Two are
/// what it takes to stand still: the block that becomes dirty, and the one whose run the change made useless. What was
/// dirty counts so that clients which write little never wait.
const HOME_FOR_ONE_CHANGED: u64 = 3;

impl core::fmt::Debug for DestageState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DestageState")
            .field("cursor", &self.cursor)
            .field("urgent", &self.urgent.len())
            .field("in_flight", &self.in_flight)
            .field("written", &self.written.len())
            .field("flushing", &self.flushing.len())
            .field("drains", &self.drains)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl DestageState {
    pub fn new(blocks: u64) -> DestageState {
        DestageState {
            map: DirtyMap::new(blocks),
            cursor: 0,
            zero_cursor: 0,
            urgent: VecDeque::new(),
            in_flight: 0,
            written: Vec::new(),
            written_blocks: 0,
            has_held: false,
            written_since: Nanos(0),
            flushing: Vec::new(),
            through: BTreeSet::new(),
            look_again: Nanos(0),
            behind_blocks: 0,
            grew: (0, Nanos(0)),
            long_grew: (0, Nanos(0)),
            burst_began: Nanos(0),
            burst_before: 0,
            run_began: Nanos(0),
            run_block_eighths: 8 * RUN_BLOCKS_MAX,
            long_blocks: 0,
            long_before: 0,
            hits_before: 0,
            is_quick: false,
            is_overrun: false,
            is_flooded: false,
            flooded_at: Nanos(0),
            pause_until: Nanos(0),
            drains: 0,
            is_held_back: false,
            home_blocks: 0,
            changed_blocks: 0,
            unreadable: Unreadable::default(),
            order: None,
            listed: 0,
            order_changes: 0,
        }
    }

    /// A request wants all of these dirty blocks home.
    pub fn begin_drain(&mut self, dirty_blocks: u64) {
        if self.drains == 0 {
            (self.home_blocks, self.changed_blocks) = (dirty_blocks, 0);
        }
        self.drains += 1;
        self.wake();
    }

    /// Whether a change of so many blocks has to wait, while everything is to go home. Clients that are faster than the origin would
    /// otherwise keep everything from ever being home.
    pub fn holds_change(&self, blocks: u64) -> bool {
        (self.changed_blocks + blocks) * HOME_FOR_ONE_CHANGED > self.home_blocks
    }

    /// A change begins.
    pub fn change_begins(&mut self, blocks: u64) {
        self.changed_blocks += blocks;
    }

    /// A run is written home.
    pub fn run_is_home(&mut self, blocks: u64) {
        self.home_blocks += blocks;
    }

    /// Whether something is not home that newer versions may have replaced in the cache.
    #[inline]
    pub fn has_ordered(&self) -> bool {
        self.listed > 0
    }

    /// Begins strict order, or ends it.
    pub fn set_order(&mut self, order: Option<Box<Ledger>>) {
        self.order = order;
        self.count_listed();
    }

    /// The places of what goes home in order, and its checksums: newer content may have replaced it in the cache.
    pub fn ordered_places(&self) -> impl Iterator<Item = (Place, u32)> {
        self.order.iter().flat_map(|ledger| ledger.places())
    }

    /// Counts anew what the ledger lists, after a change of it.
    pub fn count_listed(&mut self) {
        self.listed = self.order.as_ref().map_or(0, |ledger| ledger.versions());
    }

    /// Something that was to be home is not.
    pub fn spoil_order(&mut self) {
        if let Some(ledger) = &mut self.order {
            ledger.spoil();
        }
    }

    /// Not 0 if something is listed, or was written home and is not known to be durable there.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.listed | wide(self.written.len()) | wide(self.flushing.len())
    }

    /// Whether something was written home and is not known to be durable there.
    #[inline]
    pub fn has_written(&self) -> bool {
        !self.written.is_empty() || !self.flushing.is_empty()
    }

    /// Whether the flush that is under way is for something that a run wrote home.
    pub fn is_being_flushed(&self) -> bool {
        self.flushing.iter().any(|written| written.hold.is_some())
    }

    /// Forgets the write-through of blocks that are clean now, or have to be destaged after all.
    fn forget_through(&mut self, written: &Written) {
        if !self.through.is_empty() {
            for copy in written.copies.iter().flat_map(Copied::places) {
                self.through.remove(&copy);
            }
        }
    }

    /// Whether no run and no flush of the origin is still to come for what was begun.
    pub fn is_quiet(&self) -> bool {
        self.in_flight == 0 && !self.has_written()
    }

    /// Notes that a run begins to be read.
    pub fn run_begins(&mut self, blocks: u64, now: Nanos) {
        self.in_flight += 1;
        self.behind_blocks = self.behind_blocks.saturating_sub(blocks);
        self.run_began = now;
        self.run_block_eighths = self.run_block_eighths - self.run_block_eighths / 8 + blocks;
    }

    /// Whether the origin would take that many blocks around a full cache in less time than it takes until there is room for
    /// them. Long runs make room as fast as the origin writes; short ones cost it as much as the write itself.
    pub fn is_faster_around(&self, blocks: u64) -> bool {
        self.are_runs_short() && blocks >= self.run_block_eighths / 8 / 2
    }

    /// Whether what goes home lies scattered.
    pub fn are_runs_short(&self) -> bool {
        self.run_block_eighths / 8 < RUN_BLOCKS_MAX / 2
    }

    /// A write of so many blocks goes around a full cache.
    pub fn goes_around(&mut self, blocks: u64, now: Nanos) {
        if blocks >= LONG_BLOCKS_MIN && self.is_overrun {
            (self.is_flooded, self.flooded_at) = (true, now);
        }
    }

    /// Whether long writes go around a full cache just now: what goes home has to leave the origin to them.
    pub fn is_flood_under_way(&self, now: Nanos) -> bool {
        self.is_flooded && now.since(self.flooded_at) < FLOOD_NS
    }

    /// Whether that is a flood that came within a short time: it ends as soon, and the room can be made behind it. Where long
    /// writes go on for ever, all room there will be is made beside them.
    pub fn is_quick_flood_under_way(&self, now: Nanos) -> bool {
        self.is_quick && self.is_flood_under_way(now)
    }

    /// Notes how short of room the cache is, and how many blocks were hit.
    pub fn note_pressure(&mut self, pressure: Pressure, hit_blocks: u64) {
        self.is_flooded &= pressure.held_permille >= FLOODED_PERMILLE;
        let hits = hit_blocks.saturating_sub(self.hits_before);
        let long_blocks = self.long_blocks - self.long_before;
        self.is_quick |= self.long_grew.1.since(self.burst_began) < QUICK_NS
            && (self.long_blocks - self.burst_before) * QUICK_OVERRUN_ONE_IN >= pressure.blocks;
        let is_much = self.is_quick || long_blocks >= pressure.blocks * OVERRUN;
        self.is_overrun = is_much && hits < long_blocks / HITS_ONE_IN;
    }

    /// Whether so much came in long writes that the cache takes ever more of it in vain: many times what it holds, and clients read
    /// next to nothing there.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    /// Whether long writes go around the cache whatever room there is; `held_permille` says how much only a destage can make free.
    pub fn is_flooded(&self, held_permille: impl FnOnce() -> u64) -> bool {
        self.is_flooded && held_permille() >= FLOODED_PERMILLE
    }

    /// Notes how much clients have written, and how many blocks were hit.
    pub fn note_growth(&mut self, written_bytes: u64, hit_blocks: u64, now: Nanos) {
        if written_bytes > self.grew.0 {
            if now.since(self.grew.1) >= LEISURE_NS {
                (self.long_before, self.hits_before, self.is_quick) = (self.long_blocks, hit_blocks, false);
            }
            self.grew = (written_bytes, now);
        }
        if self.long_blocks != self.long_grew.0 {
            if self.long_grew.0 == 0 || now.since(self.long_grew.1) >= BURST_REST_NS {
                (self.burst_began, self.burst_before) = (now, self.long_grew.0);
            }
            self.long_grew = (self.long_blocks, now);
        }
    }

    /// Blocks of long writes that entered.
    pub fn long_blocks(&self) -> u64 {
        self.long_blocks
    }

    /// Whether long writes come about as fast as the cache takes them, and have not for long.
    pub fn is_burst_under_way(&self, now: Nanos) -> bool {
        now.since(self.long_grew.1) < BURST_GAP_NS && now.since(self.burst_began) < BURST_NS_MAX
    }

    /// Sets the pause after a run. While clients are busy the origin rests for as long as the run took, at least for
    /// a slow disk's seek, and as long again for each of the `held_up` requests that the run held up. Where clients have read
    /// and not written for a while, or write around the cache for a short time, the room that a run makes is for times to come
    /// alone, and may take longer.
    pub fn pause_after_run(&mut self, held_up: u64, was_read: bool, now: Nanos) {
        let pause_ns = now.since(self.run_began).max(PAUSE_NS_MIN);
        let times = match was_read && now.since(self.grew.1) >= LEISURE_NS {
            true => LEISURE,
            false if self.is_quick_flood_under_way(now) => LEISURE_IN_FLOOD,
            false => 1,
        };
        self.pause_until = now.plus(pause_ns.saturating_mul(times * (1 + held_up)).min(PAUSE_NS_MAX));
    }

    /// Whether clients do nothing but read from the origin, or did a moment ago: what goes home then is in nobody's way but
    /// theirs.
    pub fn is_left_to_readers(&self, last_read: Nanos, now: Nanos) -> bool {
        now.since(last_read) < LEISURE_NS && now.since(self.grew.1) >= LEISURE_NS
    }

    /// The silence for which destage waits before it takes all of the origin: the longer nobody writes, the more readers count.
    pub fn patience_ns(&self, now: Nanos) -> u64 {
        (now.since(self.grew.1) / PATIENCE_ONE_IN).min(PATIENCE_NS_MAX)
    }

    /// Blocks were written home: they wait for the origin's flush.
    pub fn add_written(&mut self, written: Written, now: Nanos) {
        if self.written.is_empty() {
            self.written_since = now;
        }
        self.written_blocks += written.blocks.count;
        self.has_held |= written.hold.is_some();
        if written.hold.is_none() {
            self.through.extend(written.copies.iter().flat_map(Copied::places));
        }
        self.written.push(written);
    }

    /// Whether the origin's flush is due: enough was written home, or it waits for long enough, or somebody is in a hurry
    /// and no more will be written for now.
    pub fn is_flush_due(
        &self,
        config: &Config,
        is_last_of_hurry: bool,
        delay: FlushDelay,
        now: Nanos,
    ) -> bool {
        // Blocks that a run wrote are held until then, and make room. What clients wrote through is neither.
        let most = config.false_dirty_blocks_max;
        let (may_rest, is_enough) = match self.has_held {
            true => (delay.is_resting && delay.is_held_on, self.written_blocks >= most / 4),
            false => {
                // Some blocks are written again and again, and count once.
                let blocks = self.written_blocks.min(delay.dirty_blocks);
                (delay.is_resting, blocks >= most / 2 || self.written_blocks >= most)
            }
        };
        let is_late = now.since(self.written_since) >= config.flush_after_ns.max(delay.after_ns);
        !self.written.is_empty()
            && (is_enough || (is_late && !may_rest) || (is_last_of_hurry && self.in_flight == 0))
    }

    /// Whether a copy was brought home by a client's own write, and waits for nothing but the origin's flush.
    pub fn is_written_through(&self, copy: impl FnOnce() -> (Place, u64)) -> bool {
        !self.through.is_empty() && self.through.contains(&copy())
    }

    /// Whether a block was written home and waits for nothing but the origin's flush.
    pub fn is_written_home(&self, block: u64) -> bool {
        let has = |written: &Written| (written.blocks.first..written.blocks.end()).contains(&block);
        self.written.iter().chain(&self.flushing).any(has)
    }

    /// The flush of the origin succeeded: takes what it covers. `covers_later` is a planted bug.
    pub fn flush_succeeded(&mut self, covers_later: bool) -> Vec<Written> {
        self.wake();
        let mut flushed = core::mem::take(&mut self.flushing);
        if covers_later {
            flushed.append(&mut self.written);
        }
        for written in &flushed {
            self.forget_through(written);
        }
        flushed
    }

    /// The flush of the origin failed: takes what was written before its end, all of which counts as not written. What was
    /// written while it was under way may have been thrown away with the rest.
    pub fn flush_failed(&mut self) -> Vec<Written> {
        let mut lost = core::mem::take(&mut self.flushing);
        lost.append(&mut self.written);
        (self.written_blocks, self.has_held) = (0, false);
        for written in &lost {
            self.map.mark(written.blocks.first, written.blocks.count);
            self.forget_through(written);
        }
        lost
    }

    /// A flush of the origin begins: it covers what is written so far.
    pub fn flush_begins(&mut self) {
        assert!(self.flushing.is_empty(), "an origin has one flush under way at a time");
        self.flushing = core::mem::take(&mut self.written);
        (self.written_blocks, self.has_held) = (0, false);
    }

    /// These blocks are dirty, with content that is new.
    pub fn dirtied(&mut self, blocks: Blocks) {
        self.map.mark(blocks.first, blocks.count);
        if blocks.count >= LONG_BLOCKS_MIN {
            self.long_blocks += blocks.count;
            self.behind_blocks = (self.behind_blocks + blocks.count).min(BEHIND_BLOCKS_MAX);
        }
    }

    /// Ends the rest until `look_again`: something happened that may have made work.
    pub fn wake(&mut self) {
        self.look_again = Nanos(0);
    }

    /// Replaces the list of urgent blocks; it is sorted and begins at the sweep's place.
    pub fn set_urgent(&mut self, mut blocks: Vec<u64>) {
        blocks.sort_unstable();
        blocks.dedup();
        let start = blocks.partition_point(|&block| block < self.cursor);
        blocks.rotate_left(start);
        self.urgent = blocks.into();
        self.wake();
    }

    /// Blocks that go home before all others.
    pub fn put_first(&mut self, blocks: Vec<u64>) {
        self.urgent.extend(&blocks);
        self.urgent.rotate_right(blocks.len());
    }

    /// Adds blocks that are not urgent yet. Does not end the rest: a run of them may have failed just now.
    pub fn add_urgent(&mut self, blocks: &[u64]) {
        let look_again = self.look_again;
        let mut all: Vec<u64> = self.urgent.iter().copied().collect();
        all.extend_from_slice(blocks);
        self.set_urgent(all);
        self.look_again = look_again;
    }

    pub fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }
}
