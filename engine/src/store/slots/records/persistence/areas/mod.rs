//! Areas of slots and their pages of checksums: when a page may be written, and which data writes wait for it.
//!
//! Data that is written in place cannot share a write with its checksum, and a power cut leaves it old, new or torn. So
//! the device does not tell the checksum of what is being written, but where that may be: an area is *open* while its
//! blocks are written, and *closed* when all of them are durable and their checksums known.
//!
//! ```text
//!            begin            page            page_written        flushed
//!   closed ─────────► Wanted ──────► Opening ─────────────► Settling ──────► Open
//!     ▲                  ▲                                                    │
//!     │ page_written     │ page_written, and a write waits                    │ page
//!     └──────────────────┴─────────────────────────── Closing ◄───────────────┘
//! ```
//!
//! * Data is written only in areas that are Open: a flush covers the page that says so (S9).
//! * An area closes when no write to it is under way and a flush covers them all (S9). It does so a while after the
//!   last write, or earlier if too many areas are open. Its page needs no flush: until the next one the device may
//!   have the page of the open area, which only knows less.
//! * A page has one write in flight. An area that is opened again while it closes waits for that.
//! * At most `open_max` areas are not closed, but where all of them are kept by writes that wait for one more. An area
//!   that is written without a pause *leaves* if others wait: writes to it wait, too, until it was closed.
//!
//! Content that a crash forgets anyway needs no open area ([`Areas::note_stale`]). Then the page is right for every slot
//! that a crash leaves, and a clean stop writes it anew.

use crate::mutation::{Mutation, Mutations};
use crate::table::bits::Bits;
use crate::units::Nanos;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Pages in flight at a time.
const PAGES_IN_FLIGHT_MAX: usize = 32;
/// Time without a write after which an area closes.
pub const AREA_IDLE_NS: u64 = Nanos::SECOND;

/// The state of an area that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its page is to say that it is open.
    Wanted,
    /// That page is in flight.
    Opening,
    /// That page is written, as the write of this number.
    Settling(u64),
    /// That page is durable.
    Open,
    /// The page with the checksums is in flight.
    Closing,
}

/// An area that is not closed.
#[derive(Clone, Copy, Debug)]
struct Area {
    state: State,
    /// Data writes under way.
    writes: u32,
    /// Data writes that wait until it is open, or another area is.
    waiters: u32,
    /// It closes as soon as no write is under way.
    is_leaving: bool,
    /// When the last write began or ended.
    touched: Nanos,
    /// The number of the last data write that is complete.
    written: u64,
}

impl Area {
    fn wanted(now: Nanos) -> Area {
        Area { state: State::Wanted, writes: 0, waiters: 0, is_leaving: false, touched: now, written: 0 }
    }

    fn is_idle(&self) -> bool {
        self.state == State::Open && self.writes == 0 && (self.waiters == 0 || self.is_leaving)
    }
}

/// A page to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaPage {
    /// The area.
    pub area: u32,
    /// Whether the page tells the checksums; else it says that the area is open.
    pub is_closed: bool,
}

/// Areas whose blocks are written, and the writes `W` that wait for them.
#[derive(Debug)]
pub struct Areas<W> {
    open_max: usize,
    idle_ns: u64,
    /// Whether data waits; else only a clean stop writes pages.
    is_guarded: bool,
    areas: BTreeMap<u32, Area>,
    /// Areas in [`State::Wanted`], first come first.
    wanted: VecDeque<u32>,
    /// Areas in [`State::Settling`], in the order of their numbers.
    settling: VecDeque<(u32, u64)>,
    waiting: VecDeque<(Range<u32>, W)>,
    /// Closed areas with blocks that are newer than the page, in slots that a crash forgets.
    stale: Bits,
    /// Pages in flight, and those of them that tell checksums.
    pages: usize,
    closing: usize,
    /// Writes covered by a flush.
    flushed: u64,
    /// Areas became open: waiting writes may go on.
    is_released: bool,
    /// The number of the last data write in areas that only wait for a flush to close.
    due_written: Option<u64>,
    /// No area can be closed before.
    look_again: Nanos,
    is_stopping: bool,
    mutations: Mutations,
}

impl<W> Areas<W> {
    /// The areas of a cache that has `count` of them, all closed. Without `is_guarded` no data waits, and a clean stop
    /// writes all pages.
    pub fn new(count: u32, open_max: u32, is_guarded: bool, mutations: Mutations) -> Areas<W> {
        let mut stale = Bits::new(count);
        if !is_guarded {
            for area in 0..count {
                stale.put(area, true);
            }
        }
        Areas {
            open_max: crate::number::index(open_max),
            idle_ns: AREA_IDLE_NS,
            is_guarded,
            areas: BTreeMap::new(),
            wanted: VecDeque::new(),
            settling: VecDeque::new(),
            waiting: VecDeque::new(),
            stale,
            pages: 0,
            closing: 0,
            flushed: 0,
            is_released: false,
            due_written: None,
            look_again: Nanos(u64::MAX),
            is_stopping: false,
            mutations,
        }
    }

    /// Sets the time without a write after which an area closes, and how many may be open.
    pub fn set_bounds(&mut self, idle_ns: u64, open_max: u32) {
        (self.idle_ns, self.open_max) = (idle_ns, crate::number::index(open_max));
    }

    // ---- data --------------------------------------------------------------------------------

    /// Begins a data write in `areas`. Answers the write if it may be issued; else [`Areas::next_ready`] will.
    pub fn begin(&mut self, areas: Range<u32>, write: W, now: Nanos) -> Option<W> {
        if !self.is_guarded {
            return Some(write);
        }
        if areas.clone().all(|area| self.is_open(area)) {
            self.issue(areas, now);
            return Some(write);
        }
        for area in areas.clone() {
            let entry = self.areas.entry(area).or_insert_with(|| {
                self.wanted.push_back(area);
                Area::wanted(now)
            });
            entry.waiters += 1;
        }
        self.waiting.push_back((areas, write));
        None
    }

    /// The next waiting write that may be issued now.
    pub fn next_ready(&mut self, now: Nanos) -> Option<W> {
        if !self.is_released {
            return None;
        }
        let is_ready = |(areas, _): &(Range<u32>, W)| areas.clone().all(|area| self.is_open(area));
        let Some(at) = self.waiting.iter().position(is_ready) else {
            self.is_released = false;
            return None;
        };
        let (areas, write) = self.waiting.remove(at)?;
        for area in areas.clone() {
            self.area(area).waiters -= 1;
        }
        self.issue(areas, now);
        Some(write)
    }

    /// Notes that a data write in `areas` is over; it was the write number `completed`.
    pub fn end(&mut self, areas: Range<u32>, completed: u64, now: Nanos) {
        if !self.is_guarded {
            return;
        }
        let due = now.plus(self.idle_ns);
        for area in areas {
            let area = self.area(area);
            area.writes -= 1;
            area.touched = now;
            area.written = completed;
        }
        self.look_again = self.look_again.min(due);
    }

    /// Notes that a data write in `areas` is over that waited for none of them: a crash forgets the slot.
    pub fn note_stale(&mut self, areas: Range<u32>, completed: u64) {
        for area in areas {
            match self.areas.get_mut(&area) {
                Some(open) if open.state != State::Closing => open.written = completed,
                _ => _ = self.stale.put(area, true),
            }
        }
    }

    /// Takes back all waiting writes: the cache failed.
    pub fn withdraw(&mut self) -> Vec<W> {
        self.waiting.drain(..).map(|(_, write)| write).collect()
    }

    // ---- pages -------------------------------------------------------------------------------

    /// Whether [`Areas::next_page`] may have a page: worth a buffer.
    pub fn has_page(&self, now: Nanos) -> bool {
        let is_closing = now >= self.look_again || self.is_crowded() || self.is_stopping;
        self.pages < PAGES_IN_FLIGHT_MAX && (is_closing || !self.wanted.is_empty())
    }

    /// The next page that is to be written now. [`Areas::page_written`] ends it.
    pub fn next_page(&mut self, now: Nanos) -> Option<AreaPage> {
        if self.pages >= PAGES_IN_FLIGHT_MAX {
            return None;
        }
        let page = self.next_open().or_else(|| self.next_close(now))?;
        self.pages += 1;
        self.closing += usize::from(page.is_closed);
        Some(page)
    }

    /// Notes that the page of an area is written; it was the write number `completed`.
    pub fn page_written(&mut self, area: u32, completed: u64) {
        self.pages -= 1;
        self.closing -= usize::from(self.area(area).state == State::Closing);
        let open = self.area(area);
        match open.state {
            State::Opening => {
                open.state = State::Settling(completed);
                self.settling.push_back((area, completed));
            }
            State::Closing if open.waiters > 0 => {
                open.state = State::Wanted;
                open.is_leaving = false;
                self.wanted.push_back(area);
            }
            State::Closing => _ = self.areas.remove(&area),
            State::Wanted | State::Settling(_) | State::Open => unreachable!("its page was in flight"),
        }
        // S9: with that mutation a page counts before it is durable.
        self.is_released |= self.mutations.has(Mutation::AreaOpenUnflushed);
    }

    /// Notes that a flush covers the first `covered` writes.
    pub fn note_flushed(&mut self, covered: u64) {
        self.flushed = covered;
        while let Some(&(area, written)) = self.settling.front().filter(|(_, written)| *written <= covered) {
            assert_eq!(self.area(area).state, State::Settling(written), "an area settles once");
            self.area(area).state = State::Open;
            self.settling.pop_front();
            self.is_released = true;
        }
        // Areas that waited for the flush can be closed now.
        self.look_again = Nanos(0);
    }

    /// The number of a write that a flush is to cover now.
    pub fn flush_wanted(&self) -> Option<u64> {
        let settling = self.settling.back().map(|(_, written)| *written);
        settling.max(self.due_written).filter(|&written| written > self.flushed)
    }

    /// The time when an area may be closed, if nothing else happens before.
    pub fn deadline(&self) -> Option<Nanos> {
        (self.look_again.0 < u64::MAX).then_some(self.look_again)
    }

    // ---- a clean stop ------------------------------------------------------------------------

    /// Whether no write waits and no page is on its way.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.areas.values().all(Area::is_idle)
    }

    /// Whether no write waits for an area.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Closes all areas from now on, for a clean stop; true when all pages are written.
    pub fn stop(&mut self) -> bool {
        self.is_stopping = true;
        self.areas.is_empty() && self.stale.first_in(0..self.stale.len()).is_none()
    }

    // ---- parts -------------------------------------------------------------------------------

    fn area(&mut self, area: u32) -> &mut Area {
        self.areas.get_mut(&area).expect("an area whose blocks are written is not closed (S9)")
    }

    /// Whether data may be written in an area now.
    fn is_open(&self, area: u32) -> bool {
        let Some(area) = self.areas.get(&area).filter(|area| !area.is_leaving) else { return false };
        let is_early = self.mutations.has(Mutation::AreaOpenUnflushed);
        area.state == State::Open || is_early && matches!(area.state, State::Settling(_))
    }

    fn issue(&mut self, areas: Range<u32>, now: Nanos) {
        for area in areas {
            let area = self.area(area);
            area.writes += 1;
            area.touched = now;
        }
    }

    /// Areas that are not closed, and count against the limit.
    fn held(&self) -> usize {
        self.areas.len() - self.wanted.len()
    }

    /// Whether areas have to close before others can open.
    fn is_short(&self) -> bool {
        !self.wanted.is_empty() && self.held() >= self.open_max
    }

    /// Whether so many areas are open that some close early: with flushes that come anyway, so that nobody waits.
    fn is_crowded(&self) -> bool {
        self.held() - self.closing > self.open_max - self.open_max / 4
    }

    /// Whether an area has not been written for long enough.
    fn is_due(&self, area: &Area, now: Nanos) -> bool {
        self.is_stopping || area.is_leaving || area.touched.plus(self.idle_ns) <= now
    }

    fn next_open(&mut self) -> Option<AreaPage> {
        if self.is_short() {
            // Where every open area is kept by a write that waits for another one, only that one helps.
            let is_kept = |area: &Area| match area.state {
                State::Open => area.waiters > 0 && !area.is_leaving,
                State::Wanted => true,
                State::Opening | State::Settling(_) | State::Closing => false,
            };
            if !self.areas.values().all(is_kept) {
                self.make_one_leave();
                return None;
            }
        }
        let area = self.wanted.pop_front()?;
        self.area(area).state = State::Opening;
        Some(AreaPage { area, is_closed: false })
    }

    /// Has an area leave that is written without a pause, if no other one is about to close.
    fn make_one_leave(&mut self) {
        let closes = |area: &Area| area.is_idle() || area.is_leaving || area.state == State::Closing;
        if self.areas.values().any(closes) {
            return;
        }
        let open = self.areas.values_mut().filter(|area| area.state == State::Open && area.waiters == 0);
        if let Some(area) = open.min_by_key(|area| area.touched) {
            area.is_leaving = true;
        }
    }

    /// The idle area that was not touched for longest, if one is to close now and may.
    fn next_close(&mut self, now: Nanos) -> Option<AreaPage> {
        let is_short = self.is_crowded() || self.is_short();
        if now < self.look_again && !is_short && !self.is_stopping {
            return None;
        }
        let is_hasty = self.mutations.has(Mutation::AreaClosedUnflushed);
        let is_candidate = |area: &Area| {
            area.is_idle()
                && (area.written <= self.flushed || is_hasty)
                && (is_short || self.is_due(area, now))
        };
        let candidates = self.areas.iter().filter(|(_, area)| is_candidate(area));
        if let Some((&area, _)) = candidates.min_by_key(|(_, area)| area.touched) {
            self.area(area).state = State::Closing;
            self.stale.put(area, false);
            return Some(AreaPage { area, is_closed: true });
        }
        if self.is_stopping
            && let Some(area) = self.stale.first_in(0..self.stale.len())
            && !self.areas.contains_key(&area)
        {
            self.areas.insert(area, Area { state: State::Closing, ..Area::wanted(now) });
            self.stale.put(area, false);
            return Some(AreaPage { area, is_closed: true });
        }
        // Those that are due wait for a flush, which looks here again.
        let waits = |area: &&Area| area.is_idle() && (is_short || self.is_due(area, now));
        self.due_written = self.areas.values().filter(waits).map(|area| area.written).max();
        let due = self.areas.values().map(|area| area.touched.plus(self.idle_ns)).filter(|due| *due > now);
        self.look_again = due.min().unwrap_or(Nanos(u64::MAX));
        None
    }
}

#[cfg(test)]
mod tests;
