//! The contents that every sector of a volume may have, by the promise of a disk and nothing stronger.
//!
//! Time is a counter that moves with every request and every reply. An operation happened at some
//! moment between its request and its reply; one whose reply never came, at any moment until the
//! crash, or never. Each sector has the operations that may still show:
//!
//! * An acknowledged operation hides those that had their reply before it was asked for.
//! * One that failed may have happened or not. What a read rules out comes back in a crash at most, and only
//!   until an acknowledged operation hides it.
//! * A read that shows an operation that failed settles nothing for longer than the server lives: the data is where reads
//!   find it, and its record may be what failed, so that the next start finds the sector as it was before. That ends with
//!   a flush or an acknowledged operation. The simulator's oracle has it so, too.
//! * A read may show whatever was not hidden when it was asked for, or was asked for meanwhile.
//! * A read that began after all operations in question had their replies settles what the sector is.
//! * An acknowledged flush makes durable what had its reply before the flush was asked for.
//! * A power cut may bring back what was hidden, down to the newest durable operation.
//! * A discarded sector is zeroes or any earlier version, each time anew, until a flush, FUA or crash.

use super::stamp::Content;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A moment that never comes.
const NEVER: u64 = u64::MAX;

/// How the server came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process ended and the devices did not: all that was acknowledged is still there.
    Process,
    /// The devices lost what was not flushed.
    Power,
}

/// What an operation makes of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Exactly this.
    Becomes(Content),
    /// Zeroes or any earlier version.
    Discarded,
}

/// An operation that may show in a sector.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it makes of the sector.
    pub effect: Effect,
    /// When it was asked for; the version number of a write.
    pub asked: u64,
    /// When it had its reply, or the crash came.
    pub done: u64,
    /// When it was hidden, or ruled out by a read.
    pub hidden: u64,
    /// Whether a power cut may show it.
    pub survives: bool,
    /// A flush or FUA covers it, or it came through a power cut.
    pub flushed: bool,
    /// A read after the last crash settled that the sector is this.
    pub settled: bool,
    /// It was answered with an error, and nothing has hidden it or shown it since: a crash may bring it.
    pub failed: bool,
    /// A read ruled it out by showing an operation that failed and that no flush covers: a crash may bring it back.
    pub doubted: bool,
    /// It was answered without an error.
    pub acknowledged: bool,
}

impl Entry {
    fn is_live(&self) -> bool {
        self.hidden == NEVER
    }
}

/// How a sector differs from what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An older version than one that was acknowledged.
    Stale,
    /// An older version than one that had to survive the last crash.
    Lost,
    /// Another version than the one that was read since the last crash.
    Changed,
    /// A version that was lost in a crash for good, as an earlier read showed.
    Returned,
    /// A version that was never sent.
    Unsent,
}

/// The histories of all sectors.
#[derive(Debug)]
pub struct Histories {
    sectors: Vec<Vec<Entry>>,
    /// Sectors with entries that no flush covers.
    unflushed: BTreeSet<usize>,
    /// Versions that a read after a crash showed to be lost: not even a discard brings them back.
    lost: BTreeMap<usize, Vec<u64>>,
    crashed: u64,
}

impl Histories {
    /// All sectors are zeroes, and durably so.
    pub fn new(sectors: usize) -> Histories {
        let origin = Entry {
            effect: Effect::Becomes(Content::Zeroes),
            asked: 0,
            done: 0,
            hidden: NEVER,
            survives: true,
            flushed: true,
            settled: false,
            failed: false,
            doubted: false,
            acknowledged: true,
        };
        Histories {
            sectors: vec![vec![origin]; sectors],
            unflushed: BTreeSet::new(),
            lost: BTreeMap::new(),
            crashed: 0,
        }
    }

    /// How many sectors there are.
    pub fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// The operations that may show in a sector.
    pub fn of(&self, sector: usize) -> &[Entry] {
        &self.sectors[sector]
    }

    /// The operation `asked` on these sectors was sent. `oldest` is the oldest one without a reply.
    pub fn begin(&mut self, range: Range<usize>, asked: u64, effect: Effect, oldest: u64) {
        for history in &mut self.sectors[range] {
            // What no read under way and no power cut can show is history no more.
            history.retain(|entry| entry.is_live() || entry.survives || entry.hidden >= oldest);
            history.push(Entry {
                effect,
                asked,
                done: NEVER,
                hidden: NEVER,
                survives: true,
                flushed: false,
                settled: false,
                failed: false,
                doubted: false,
                acknowledged: false,
            });
        }
    }

    /// The operation had its reply. One that failed may have happened or not.
    pub fn finish(&mut self, range: Range<usize>, asked: u64, now: u64, worked: bool, fua: bool) {
        for sector in range {
            let history = &mut self.sectors[sector];
            for entry in history.iter_mut().filter(|entry| worked && entry.done < asked) {
                entry.hidden = entry.hidden.min(now);
                entry.survives &= !fua;
                entry.failed = false;
                entry.doubted = false;
            }
            let own = history.iter_mut().find(|entry| entry.asked == asked && entry.done == NEVER);
            let own = own.expect("an operation that is answered was begun");
            own.done = now;
            own.failed = !worked;
            own.acknowledged = worked;
            own.flushed = worked && fua;
            if !own.flushed {
                self.unflushed.insert(sector);
            }
        }
    }

    /// The flush `asked` then was acknowledged.
    pub fn flush(&mut self, asked: u64) {
        self.unflushed.retain(|sector| {
            let history = &mut self.sectors[*sector];
            for entry in history.iter_mut().filter(|entry| entry.done < asked) {
                // What was hidden when the flush was asked for is older than what the flush covers; but an operation
                // that failed and was ruled out by a read is not older than anything.
                entry.survives &= entry.hidden >= asked || entry.failed;
                entry.doubted &= entry.hidden >= asked;
                entry.flushed = true;
            }
            history.iter().any(|entry| entry.survives && !entry.flushed)
        });
    }

    /// The server came to an end; nothing is under way any more.
    pub fn crash(&mut self, crash: Crash, now: u64) {
        self.crashed = now;
        for (sector, history) in self.sectors.iter_mut().enumerate() {
            for entry in &mut *history {
                entry.settled = false;
                let may_come = entry.failed || entry.doubted;
                (entry.failed, entry.doubted) = (false, false);
                if may_come {
                    entry.hidden = NEVER;
                }
                if entry.done == NEVER {
                    entry.done = now;
                    self.unflushed.insert(sector);
                }
                if crash == Crash::Power {
                    entry.hidden = if entry.survives { NEVER } else { now };
                    entry.flushed = true;
                }
            }
            history.retain(|entry| entry.is_live() || entry.survives);
        }
        if crash == Crash::Power {
            self.unflushed.clear();
        }
    }

    /// A read that was `asked` for then and answered `now` showed this content.
    pub fn observe(&mut self, sector: usize, content: Content, asked: u64, now: u64) -> Result<(), Wrong> {
        let lost = self.lost.get(&sector).map_or(&[][..], Vec::as_slice);
        let shows = |entry: &Entry| match entry.effect {
            Effect::Becomes(becomes) => becomes == content,
            Effect::Discarded => match content {
                Content::Zeroes => true,
                Content::Version(version) => version < entry.done && !lost.contains(&version),
            },
        };
        let may_be = |entry: &Entry| entry.hidden > asked && shows(entry);
        let history = &self.sectors[sector];
        if matches!(content, Content::Version(version) if version >= now) {
            return Err(Wrong::Unsent);
        }
        if !history.iter().any(may_be) {
            let returned = matches!(content, Content::Version(version) if lost.contains(&version));
            return Err(if returned { Wrong::Returned } else { self.wrong(sector, asked) });
        }
        let crashed = self.crashed;
        let is_stable =
            |entry: &Entry| entry.effect != Effect::Discarded || entry.flushed || entry.done <= crashed;
        let settles = |entry: &Entry| entry.done < asked && entry.is_live() && is_stable(entry);
        if history.iter().filter(|entry| may_be(entry)).all(settles) {
            let matches: Vec<bool> = history.iter().map(may_be).collect();
            self.settle(sector, content, &matches, asked, now);
        }
        Ok(())
    }

    /// The sector is `content`: one of the operations that match was the last.
    fn settle(&mut self, sector: usize, content: Content, matches: &[bool], asked: u64, now: u64) {
        let history = &mut self.sectors[sector];
        let pairs = || history.iter().zip(matches);
        let flushed = pairs().filter(|(_, matches)| **matches).all(|(entry, _)| entry.flushed);
        let latest = pairs().filter(|(_, matches)| **matches).map(|(entry, _)| entry.done).max();
        let latest = latest.expect("the read was allowed");
        let is_doubtful = pairs().any(|(entry, matches)| *matches && entry.failed && !entry.flushed);
        let mut fixed = Vec::new();
        for (entry, matches) in history.iter_mut().zip(matches) {
            if *matches && entry.effect == Effect::Discarded {
                // From now on it is exact. A read under way may have seen it as it was before, and
                // unless all is flushed, a power cut may lose what was read and show anything again.
                let exact = Entry {
                    effect: Effect::Becomes(content),
                    flushed,
                    settled: true,
                    failed: false,
                    ..*entry
                };
                fixed.push(exact);
                entry.failed = false;
                entry.hidden = now;
                entry.survives &= !flushed;
            } else if *matches {
                entry.settled = true;
                entry.failed = false;
            } else if entry.done < asked && entry.is_live() {
                entry.hidden = now;
                entry.survives &= !flushed || entry.failed;
                entry.doubted = is_doubtful && !entry.failed;
                if !entry.failed
                    && let Effect::Becomes(Content::Version(version)) = entry.effect
                    && latest < entry.asked
                {
                    self.lost.entry(sector).or_default().push(version);
                }
            }
        }
        history.extend(fixed);
    }

    /// What is wrong with a sector that shows none of what it may be.
    fn wrong(&self, sector: usize, asked: u64) -> Wrong {
        let mut allowed = self.sectors[sector].iter().filter(|entry| entry.hidden > asked);
        let is_since_crash = |entry: &Entry| entry.asked > self.crashed && entry.done < asked;
        if self.crashed == 0 || allowed.clone().any(is_since_crash) {
            Wrong::Stale
        } else if allowed.any(|entry| entry.settled) {
            Wrong::Changed
        } else {
            Wrong::Lost
        }
    }
}
