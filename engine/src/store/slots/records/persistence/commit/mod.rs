//! Pages that change together: transactions without an allocator.
//!
//! Every page has two places. A transaction writes the changed pages to the places that do not count, flushes, writes
//! a record, and flushes: from then on those places count. One transaction runs at a time; later changes share the
//! next one.
//!
//! ```text
//!   at rest ─► (flush) ─► begin: all changed pages ─► flush ─► record ─► flush ─► at rest
//!               after a start only                     covers the pages, and
//!                                                      all data written before
//! ```
//!
//! * I1: the place of a page that counts is never written (histories H12 and H13).
//! * I2: transactions are numbered without gaps, so that the record is never written over the one that counts.
//! * I3: a page of a transaction that was cut off must never count, and later its number will have been reached.
//!   So the pages that have such a version count as changed when a cache is opened.
//! * I4: nothing is written before what was found by a start is durable: a process that died may have left its
//!   last record in a volatile cache. If that one got lost after its pages were overwritten, the record before
//!   it would find neither its pages nor those.
//!
//! * I5: a record has a sum over the versions of the pages that count. A start finds the same one, or a page that counts
//!   has rotted: the version before it, which its other place may hold, does not count for it (rule 5).
//!
//! Changes after [`Commit::begin`] belong to the next transaction. A page of slots may all the same be encoded as
//! late as its write is issued, so that not all of them have to be in memory: a later change in it is either a
//! mapping whose data is complete, and covered by the flush that follows, or a removal. No piece gets another slot,
//! and no slot another piece, before the removal is durable by its own transaction, so no two pages contradict each
//! other. Trees are written as they were at the beginning
//! ([`crate::store::slots::records::persistence::bit_tree::BitTree::page`]).
//!
//! Source: dm-cache, whose metadata is committed by writing a superblock after all blocks that it leads to. The
//! flushes and the places are ours.

use crate::number::{index, to_u32};
use crate::table::bits::Bits;
use crate::units::Nanos;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A page to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// Its number.
    pub page: u32,
    /// The place where it is written: 0 or 1.
    pub place: u32,
}

/// Number and pages of a transaction that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The transaction's number.
    pub transaction: u64,
    /// The changed pages.
    pub pages: Vec<PageWrite>,
}

/// The next operation to be issued, besides pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A flush of the cache device.
    Flush,
    /// The record of a transaction, at the place given by [`crate::format::CommitRecord::place`].
    Record {
        /// The transaction's number.
        transaction: u64,
        /// Whether the record tells of a clean stop.
        is_clean_stop: bool,
    },
}

#[derive(Clone, Debug)]
enum Phase {
    Rest,
    /// The flush of I4.
    FirstFlush {
        is_issued: bool,
    },
    /// Pages are being written.
    Pages {
        left: u32,
    },
    Flush {
        is_issued: bool,
    },
    Record {
        is_issued: bool,
    },
    LastFlush {
        is_issued: bool,
    },
}

/// The transactions of a cache. `W` names a request that waits.
#[derive(Clone, Debug)]
pub struct Commit<W> {
    period_ns: u64,
    /// The last transaction that counts.
    durable: u64,
    /// The place of each page that counts.
    places: Bits,
    /// The transaction of each page that counts; 0 before the first.
    versions: Vec<u64>,
    /// The sum over these (I5).
    versions_sum: u64,
    changed: Bits,
    changed_pages: Vec<u32>,
    changed_at: Option<Nanos>,
    /// The next transaction begins as soon as it may: a request waits for it, or it records a start or a stop.
    is_asked: bool,
    phase: Phase,
    /// The pages of the transaction that runs.
    running: Vec<u32>,
    /// The next transaction is the last one; the one that runs is.
    is_stop_asked: bool,
    is_stop: bool,
    /// Waiters with their transactions, in the order of these.
    waiting: VecDeque<(u64, W)>,
    done: VecDeque<W>,
}

/// Transactions and pages as a start found them on the device.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The transaction that counts; 0 on a new cache.
    pub durable: u64,
    /// The place that counts, of every page; of no meaning where none was written.
    pub places: Bits,
    /// The transaction of the version that counts, of every page; 0 where none was written.
    pub versions: Vec<u64>,
    /// Pages to be written anew: those whose other place does not hold an older version (I3). All pages of a new
    /// cache.
    pub changed: Vec<u32>,
}

/// A reason why nobody can tell which pages count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagesError {
    /// A page that a transaction has written is missing from the device.
    #[error("Page {page} of the slots' mappings is in neither of its places")]
    Missing {
        /// Its number.
        page: u32,
    },
    /// The pages are not those of the last transaction: one that counts is damaged, and its other place has an older version.
    #[error("The slots' mappings are not those of the last transaction: a page of them is damaged")]
    Older,
}

/// The share of a page in the sum over all versions (I5).
fn weight(page: u32, version: u64) -> u64 {
    // As SplitMix64 mixes, so that no few pages make up for each other.
    let seed = (u64::from(page) << 32).wrapping_add(version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The sum over the versions of all pages that were written, as a record of their transaction has it (I5).
#[must_use]
pub fn sum_of(versions: &[u64]) -> u64 {
    let written = (0..).zip(versions).filter(|(_, version)| **version > 0);
    written.fold(0, |sum: u64, (page, version)| sum.wrapping_add(weight(page, *version)))
}

impl Opened {
    /// A new cache of `pages` pages.
    #[must_use]
    pub fn formatted(pages: u32) -> Opened {
        let versions = alloc::vec![0; index(pages)];
        Opened { durable: 0, places: Bits::new(pages), versions, changed: (0..pages).collect() }
    }

    /// The pages that count if `durable` is the transaction of the record that counts, `versions_sum` the sum in it, if it has
    /// one, and `found` are the transactions of each page at its two places, `None` where there is no valid page.
    ///
    /// # Errors
    /// If a page is missing, as the first transaction writes them all, or the version of one is older than that which
    /// counts.
    pub fn find(
        durable: u64,
        versions_sum: Option<u64>,
        found: impl IntoIterator<Item = [Option<u64>; 2]>,
    ) -> Result<Opened, PagesError> {
        let found: Vec<_> = found.into_iter().collect();
        let mut opened = Opened::formatted(to_u32(found.len()));
        if durable == 0 {
            return Ok(opened);
        }
        opened.durable = durable;
        opened.changed.clear();
        for (page, found) in (0..).zip(found) {
            let [first, second] = found.map(|transaction| transaction.filter(|&number| number <= durable));
            let place = match (first, second) {
                (None, None) => return Err(PagesError::Missing { page }),
                (first, second) => second > first,
            };
            opened.places.put(page, place);
            opened.versions[index(page)] = first.max(second).unwrap_or_default();
            // I3. A page that cannot be read may be a version that was cut off, and may be found another time.
            if first.is_none() || second.is_none() {
                opened.changed.push(page);
            }
        }
        // I5.
        if versions_sum.is_some_and(|sum| sum != sum_of(&opened.versions)) {
            return Err(PagesError::Older);
        }
        Ok(opened)
    }
}

impl<W> Commit<W> {
    /// Transactions from `opened` on. One is written at once, even without pages: it records that the cache is in
    /// use. A change alone is committed after `period_ns`.
    #[must_use]
    pub fn new(opened: Opened, period_ns: u64) -> Commit<W> {
        let pages = opened.places.len();
        let mut commit = Commit {
            period_ns,
            durable: opened.durable,
            places: opened.places,
            versions_sum: sum_of(&opened.versions),
            versions: opened.versions,
            changed: Bits::new(pages),
            changed_pages: Vec::new(),
            changed_at: None,
            is_asked: true,
            phase: Phase::FirstFlush { is_issued: false },
            running: Vec::new(),
            is_stop_asked: false,
            is_stop: false,
            waiting: VecDeque::new(),
            done: VecDeque::new(),
        };
        for page in opened.changed {
            commit.mark(page);
        }
        commit
    }

    /// The last transaction that counts.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The transaction that runs.
    #[must_use]
    pub fn running(&self) -> Option<u64> {
        self.is_running().then_some(self.durable + 1)
    }

    /// The transaction of all changes from now on.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.durable + 1 + u64::from(self.is_running())
    }

    /// The sum over the versions of all pages once the transaction that runs counts (I5).
    #[must_use]
    pub fn running_sum(&self) -> u64 {
        let transaction = self.durable + 1;
        self.running.iter().fold(self.versions_sum, |sum, &page| {
            let old = self.versions[index(page)];
            let without = if old > 0 { sum.wrapping_sub(weight(page, old)) } else { sum };
            without.wrapping_add(weight(page, transaction))
        })
    }

    fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Rest | Phase::FirstFlush { .. })
    }

    /// Notes that the content of a page changed.
    pub fn changed(&mut self, page: u32, now: Nanos) {
        self.mark(page);
        self.changed_at.get_or_insert(now);
    }

    fn mark(&mut self, page: u32) {
        if !self.changed.put(page, true) {
            self.changed_pages.push(page);
        }
    }

    /// `waiter` waits until `transaction`, which is [`Commit::next`] at the most, is durable. Answers the
    /// waiter if it is.
    pub fn wait(&mut self, transaction: u64, waiter: W) -> Option<W> {
        assert!(transaction <= self.next(), "a waiter names the next transaction or an earlier one");
        if transaction <= self.durable {
            return Some(waiter);
        }
        if transaction == self.next() {
            self.is_asked = true;
        }
        let at = self.waiting.partition_point(|(other, _)| *other <= transaction);
        self.waiting.insert(at, (transaction, waiter));
        None
    }

    /// Makes a transaction begin as soon as it may, even if no request waits for it.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Whether no transaction runs, none is asked for, and no waiter is left.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(self.phase, Phase::Rest) && !self.is_asked && self.done.is_empty()
    }

    /// The transaction with all changes until now: 0 if it is durable.
    #[must_use]
    pub fn holds_all(&self) -> u64 {
        match self.running() {
            _ if !self.changed_pages.is_empty() => self.next(),
            Some(running) => running,
            None => 0,
        }
    }

    /// Makes the next transaction the last one, with all pages. No change comes from now on.
    pub fn stop(&mut self) {
        for page in 0..self.changed.len() {
            self.mark(page);
        }
        self.is_stop_asked = true;
        self.is_asked = true;
    }

    /// Time when a change becomes old enough to be committed; `None` if no change waits. While a transaction runs,
    /// its end is waited for.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.changed_at.map(|at| at.plus(self.period_ns)).filter(|_| matches!(self.phase, Phase::Rest))
    }

    /// Whether a transaction may and should begin. Before it does, the caller adds changes that were not urgent.
    #[must_use]
    pub fn wants_to_begin(&self, now: Nanos) -> bool {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= now);
        matches!(self.phase, Phase::Rest) && (self.is_asked || is_due)
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Begun {
        assert!(matches!(self.phase, Phase::Rest), "one transaction runs at a time");
        self.running = core::mem::take(&mut self.changed_pages);
        self.running.sort_unstable();
        self.changed.clear();
        self.changed_at = None;
        self.is_asked = false;
        self.is_stop = core::mem::take(&mut self.is_stop_asked);
        self.phase = match self.running.len() {
            0 => Phase::Flush { is_issued: false },
            pages => Phase::Pages { left: to_u32(pages) },
        };
        let write = |&page: &u32| PageWrite { page, place: u32::from(!self.places.get(page)) };
        Begun { transaction: self.durable + 1, pages: self.running.iter().map(write).collect() }
    }

    /// Whether the record of the transaction that runs is written, so that the next flush makes it count.
    #[must_use]
    pub fn is_record_written(&self) -> bool {
        matches!(self.phase, Phase::LastFlush { .. })
    }

    /// Whether the transaction that runs, or is about to, waits for the flush of what the start found (I4).
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::FirstFlush { .. })
    }

    /// The operation to be issued now; it counts as issued.
    pub fn next_step(&mut self) -> Option<Step> {
        let transaction = self.durable + 1;
        let (is_issued, step) = match &mut self.phase {
            Phase::Rest | Phase::Pages { .. } => return None,
            Phase::FirstFlush { is_issued } | Phase::Flush { is_issued } | Phase::LastFlush { is_issued } => {
                (is_issued, Step::Flush)
            }
            Phase::Record { is_issued } => {
                (is_issued, Step::Record { transaction, is_clean_stop: self.is_stop })
            }
        };
        (!core::mem::replace(is_issued, true)).then_some(step)
    }

    /// Notes that the write of a page of the transaction is complete.
    pub fn page_written(&mut self) {
        let Phase::Pages { left } = &mut self.phase else { panic!("a page is being written") };
        *left -= 1;
        if *left == 0 {
            self.phase = Phase::Flush { is_issued: false };
        }
    }

    /// Notes that the flush that [`Commit::next_step`] asked for is complete.
    pub fn flushed(&mut self) {
        match self.phase {
            Phase::FirstFlush { is_issued: true } => self.phase = Phase::Rest,
            Phase::Flush { is_issued: true } => self.phase = Phase::Record { is_issued: false },
            Phase::LastFlush { is_issued: true } => self.finish(),
            _ => panic!("a flush is under way"),
        }
    }

    /// Notes that the write of the record is complete.
    pub fn record_written(&mut self) {
        assert!(matches!(self.phase, Phase::Record { is_issued: true }), "a record is being written");
        self.phase = Phase::LastFlush { is_issued: false };
    }

    /// Makes the transaction count.
    fn finish(&mut self) {
        self.versions_sum = self.running_sum();
        self.durable += 1;
        self.phase = Phase::Rest;
        for page in self.running.drain(..) {
            let place = self.places.get(page);
            self.places.put(page, !place);
            self.versions[index(page)] = self.durable;
        }
        while self.waiting.front().is_some_and(|(transaction, _)| *transaction <= self.durable) {
            self.done.extend(self.waiting.pop_front().map(|(_, waiter)| waiter));
        }
    }

    /// The next request that waits for nothing any more.
    pub fn next_done(&mut self) -> Option<W> {
        self.done.pop_front()
    }
}

#[cfg(test)]
mod tests;
