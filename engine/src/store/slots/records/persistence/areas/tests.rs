//! Areas against a naive device: what it keeps over a crash, whatever is in flight.

use super::*;
use crate::prng::Prng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

const IDLE_NS: u64 = 1000;
const AREAS: u32 = 12;
const OPEN_MAX: u32 = 4;

/// A write of data, by number.
type Write = u32;

/// A version of a page, by number, and how many writes its checksums know of; nothing if the area is open.
type Page = (u32, Option<u32>);

/// A device, and the writes that are under way to it.
struct Naive {
    areas: Areas<Write>,
    prng: Prng,
    now: Nanos,
    next_write: Write,
    next_page: u32,
    /// Areas of each write.
    ranges: BTreeMap<Write, Range<u32>>,
    data_in_flight: Vec<Write>,
    pages_in_flight: Vec<(u32, Page)>,
    /// How many writes were issued in an area, and how many of them no flush covers.
    issued: BTreeMap<u32, u32>,
    unflushed: BTreeMap<u32, u32>,
    /// Pages that the device may have after a power cut, the durable one first.
    pages: BTreeMap<u32, Vec<Page>>,
    /// Completed and unflushed: data of an area, or pages.
    volatile: VecDeque<(u64, u32, Result<Write, Page>)>,
    completed: u64,
    flush: Option<u64>,
    waiting: BTreeSet<Write>,
}

impl Naive {
    fn new(seed: u64) -> Naive {
        let mut areas = Areas::new(AREAS, OPEN_MAX, true, Mutations::NONE);
        areas.set_bounds(IDLE_NS, OPEN_MAX);
        Naive {
            areas,
            prng: Prng::new(seed),
            now: Nanos(0),
            next_write: 0,
            next_page: 0,
            ranges: BTreeMap::new(),
            data_in_flight: Vec::new(),
            pages_in_flight: Vec::new(),
            issued: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            pages: (0..AREAS).map(|area| (area, std::vec![(0, Some(0))])).collect(),
            volatile: VecDeque::new(),
            completed: 0,
            flush: None,
            waiting: BTreeSet::new(),
        }
    }

    fn data_issued(&mut self, write: Write) {
        for area in self.ranges[&write].clone() {
            let is_open = matches!(self.pages[&area][..], [(_, None)]);
            assert!(is_open, "an open page is durable before data is written (S9)");
            *self.issued.entry(area).or_default() += 1;
            *self.unflushed.entry(area).or_default() += 1;
        }
        self.data_in_flight.push(write);
    }

    fn begin(&mut self) {
        self.next_write += 1;
        let write = self.next_write;
        let first = self.prng.below(AREAS - 2);
        let range = first..first + 1 + self.prng.below(3);
        self.ranges.insert(write, range.clone());
        match self.areas.begin(range, write, self.now) {
            Some(write) => self.data_issued(write),
            None => drop(self.waiting.insert(write)),
        }
    }

    /// Does everything that can be done at once.
    fn pump(&mut self) {
        while let Some(write) = self.areas.next_ready(self.now) {
            assert!(self.waiting.remove(&write), "it waited");
            self.data_issued(write);
        }
        while self.areas.has_page(self.now)
            && let Some(AreaPage { area, is_closed }) = self.areas.next_page(self.now)
        {
            assert!(
                !self.pages_in_flight.iter().any(|(other, _)| *other == area),
                "one write of a page at a time"
            );
            let last = self.issued.get(&area).copied().unwrap_or(0);
            if is_closed {
                assert_eq!(
                    self.unflushed.get(&area),
                    Some(&0),
                    "an area is closed when its data is durable (S9)"
                );
            }
            self.next_page += 1;
            let page = (self.next_page, is_closed.then_some(last));
            self.pages.get_mut(&area).expect("an area").push(page);
            self.pages_in_flight.push((area, page));
        }
        if self.flush.is_none() && self.areas.flush_wanted().is_some() {
            self.flush = Some(self.completed);
        }
    }

    fn complete_data(&mut self) {
        if self.data_in_flight.is_empty() {
            return;
        }
        let at = self.prng.below(self.data_in_flight.len() as u32);
        let write = self.data_in_flight.swap_remove(at as usize);
        self.completed += 1;
        for area in self.ranges[&write].clone() {
            self.volatile.push_back((self.completed, area, Ok(write)));
        }
        self.areas.end(self.ranges[&write].clone(), self.completed, self.now);
    }

    fn complete_page(&mut self) {
        if self.pages_in_flight.is_empty() {
            return;
        }
        let at = self.prng.below(self.pages_in_flight.len() as u32);
        let (area, page) = self.pages_in_flight.swap_remove(at as usize);
        self.completed += 1;
        self.volatile.push_back((self.completed, area, Err(page)));
        self.areas.page_written(area, self.completed);
    }

    fn complete_flush(&mut self) {
        let Some(covered) = self.flush.take() else { return };
        while self.volatile.front().is_some_and(|(number, ..)| *number <= covered) {
            let Some((_, area, what)) = self.volatile.pop_front() else { break };
            match what {
                Ok(_) => *self.unflushed.get_mut(&area).expect("it was issued") -= 1,
                Err(page) => {
                    let pages = self.pages.get_mut(&area).expect("an area");
                    let at = pages.iter().position(|other| *other == page).expect("it was written");
                    pages.drain(..at);
                }
            }
        }
        self.areas.note_flushed(covered);
    }

    fn step(&mut self) {
        match self.prng.below(12) {
            0..3 => self.begin(),
            3..6 => self.complete_data(),
            6..9 => self.complete_page(),
            9 => self.complete_flush(),
            _ => self.now = self.now.plus(u64::from(self.prng.below(IDLE_NS as u32 / 4))),
        }
        self.pump();
        // A crash now: a page that tells checksums tells those of what is there.
        for (area, pages) in &self.pages {
            let last = self.issued.get(area).copied().unwrap_or(0);
            let is_right = |(_, told): &Page| told.is_none_or(|told| told == last);
            assert!(pages.iter().all(is_right), "area {area}: {pages:?}, last {last}");
        }
    }

    /// Lets everything end that is under way, and time pass.
    fn rest(&mut self) {
        for _ in 0..2000 {
            self.complete_data();
            self.complete_page();
            self.complete_flush();
            self.pump();
        }
    }

    fn open(&self) -> usize {
        self.pages.values().filter(|pages| pages.iter().any(|(_, told)| told.is_none())).count()
    }
}

#[test]
fn a_crash_at_any_moment_finds_checksums_of_what_is_there() {
    let mut most = 0;
    for seed in 0..200 {
        let mut naive = Naive::new(seed);
        for _ in 0..600 {
            naive.step();
            most = most.max(naive.open());
        }
        naive.rest();
        assert!(naive.waiting.is_empty(), "every write is issued in the end");
        naive.now = naive.now.plus(IDLE_NS);
        naive.rest();
        assert!(naive.areas.stop() && naive.areas.is_quiet(), "what is not written any more is closed");
        for (area, pages) in &naive.pages {
            let last = naive.issued.get(area).copied().unwrap_or(0);
            assert_eq!(pages.last().map(|(_, told)| *told), Some(Some(last)), "area {area}");
        }
    }
    assert!(most >= 4, "{most}");
}

/// Opens `area` for a write, which ends at once.
fn write(areas: &mut Areas<u32>, area: u32, number: u64, now: Nanos) {
    assert_eq!(areas.begin(area..area + 1, area, now), None);
    assert_eq!(areas.next_page(now), Some(AreaPage { area, is_closed: false }));
    areas.page_written(area, number);
    assert_eq!(areas.flush_wanted(), Some(number));
    assert_eq!(areas.next_ready(now), None, "written is not durable (S9)");
    areas.note_flushed(number);
    assert_eq!(areas.next_ready(now), Some(area));
    areas.end(area..area + 1, number + 1, now);
}

#[test]
fn an_idle_area_closes_when_its_data_is_flushed() {
    let mut areas = Areas::new(8, 4, true, Mutations::NONE);
    areas.set_bounds(100, 4);
    write(&mut areas, 3, 1, Nanos(0));
    assert_eq!((areas.next_page(Nanos(50)), areas.flush_wanted()), (None, None));
    assert_eq!(areas.deadline(), Some(Nanos(100)));
    assert_eq!((areas.next_page(Nanos(100)), areas.flush_wanted()), (None, Some(2)));
    areas.note_flushed(2);
    assert_eq!(areas.next_page(Nanos(100)), Some(AreaPage { area: 3, is_closed: true }));
    // A write that comes meanwhile waits for the page, and for the next one.
    assert_eq!(areas.begin(3..4, 7, Nanos(101)), None);
    assert_eq!(areas.next_page(Nanos(101)), None);
    areas.page_written(3, 3);
    assert_eq!(areas.next_page(Nanos(101)), Some(AreaPage { area: 3, is_closed: false }));
}

#[test]
fn the_area_that_rests_longest_makes_room() {
    let mut areas = Areas::new(8, 4, true, Mutations::NONE);
    for (area, number) in [(0, 1), (1, 3), (2, 5)] {
        write(&mut areas, area, number, Nanos(number));
    }
    areas.note_flushed(6);
    assert_eq!(areas.next_page(Nanos(7)), None, "three of four are open");
    write(&mut areas, 3, 7, Nanos(8));
    assert_eq!(areas.next_page(Nanos(9)), Some(AreaPage { area: 0, is_closed: true }));
    assert_eq!(areas.next_page(Nanos(9)), None, "it is enough");
}

#[test]
fn an_area_that_is_written_without_a_pause_leaves_when_others_wait() {
    let mut areas = Areas::new(8, 1, true, Mutations::NONE);
    write(&mut areas, 0, 1, Nanos(0));
    assert_eq!(areas.begin(0..1, 9, Nanos(1)), Some(9));
    assert_eq!(areas.begin(1..2, 1, Nanos(2)), None);
    assert_eq!(areas.next_page(Nanos(2)), None);
    assert_eq!(areas.begin(0..1, 8, Nanos(3)), None, "it waits until the area was closed");
    areas.end(0..1, 3, Nanos(4));
    areas.note_flushed(3);
    assert_eq!(areas.next_page(Nanos(4)), Some(AreaPage { area: 0, is_closed: true }));
    areas.page_written(0, 4);
    assert_eq!(areas.next_page(Nanos(4)), Some(AreaPage { area: 1, is_closed: false }));
}

#[test]
fn a_write_of_several_areas_gets_them_even_beyond_the_limit() {
    let mut areas = Areas::new(8, 2, true, Mutations::NONE);
    assert_eq!(areas.begin(0..3, 1, Nanos(0)), None);
    for area in 0..3 {
        assert_eq!(areas.next_page(Nanos(0)), Some(AreaPage { area, is_closed: false }), "{area}");
        areas.page_written(area, 1);
        areas.note_flushed(1);
    }
    assert_eq!(areas.next_ready(Nanos(0)), Some(1));
}

#[test]
fn what_a_crash_forgets_is_told_by_a_clean_stop() {
    let mut areas: Areas<u32> = Areas::new(8, 4, true, Mutations::NONE);
    areas.note_stale(5..6, 1);
    assert_eq!((areas.next_page(Nanos(u64::MAX)), areas.is_quiet()), (None, true));
    assert!(!areas.stop());
    assert_eq!(areas.next_page(Nanos(0)), Some(AreaPage { area: 5, is_closed: true }));
    assert!(!areas.stop());
    areas.page_written(5, 2);
    assert!(areas.stop());
    let mut unguarded: Areas<u32> = Areas::new(8, 4, false, Mutations::NONE);
    assert_eq!(unguarded.begin(0..2, 1, Nanos(0)), Some(1));
    assert!(!unguarded.stop());
    let pages = core::iter::from_fn(|| unguarded.next_page(Nanos(0))).count();
    assert_eq!(pages, 8, "nothing is known of any area before");
}
