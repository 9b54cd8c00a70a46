//! The errors that a fault explains: those of the ranges it hit, and no others.

use super::Moment;
use crate::disk::faults::Kind;
use engine::effect::{Errno, Target};
use engine::units::{SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use std::collections::{BTreeMap, BTreeSet};

struct Hit {
    target: Target,
    kind: Kind,
    /// Range on an origin; none for a flush.
    range: Option<SectorRange>,
    at: Moment,
}

/// Failures of an origin's flush of which FLUSHes may tell.
struct Owed {
    /// The last failure.
    hit: Moment,
    /// A FLUSH that comes later tells clients of it for good, if they have all answers.
    since: Moment,
    /// The driver drew the effects of the engine's hearing of it.
    is_drawn: bool,
}

/// Injected faults, as far as a client may notice them.
#[derive(Default)]
pub struct Explained {
    hits: Vec<Hit>,
    /// The cache failed a write or a flush, or was seen to be gone: since then volumes with dirty data take no
    /// writes.
    is_cache_failed: bool,
    /// Blocks whose copy the cache cannot give back. For good: a newer write may itself be lost in a power cut, and
    /// then that copy is the newest again.
    suspects: BTreeSet<(usize, u64)>,
    /// Blocks beside those in the same slot: a change around the cache cannot pass a slot that has a lost block.
    slot_suspects: BTreeSet<(usize, u64)>,
    /// Volumes whose origin failed a flush, until a FLUSH is answered behind it.
    owed: BTreeMap<usize, Owed>,
    /// When volumes were last seen without their origin.
    absent: BTreeMap<usize, Moment>,
    /// Whether any block may be lost: until the next start.
    is_all_suspect: bool,
}

impl Explained {
    /// Notes that an operation of a device failed by injection. `range` is its range on an origin; `is_gone` if all
    /// later ones fail, too.
    pub fn hit(&mut self, target: Target, kind: Kind, range: Option<SectorRange>, is_gone: bool, at: Moment) {
        if target == Target::Cache && (kind != Kind::Read || is_gone) {
            self.is_cache_failed = true;
        }
        if let (Target::Origin(index), Kind::Flush) = (target, kind) {
            self.owed.insert(index.at(), Owed { hit: at, since: at, is_drawn: false });
        }
        if matches!(target, Target::State) {
            self.is_cache_failed = true;
        }
        self.hits.push(Hit { target, kind, range, at });
    }

    /// Notes that the cache cannot give this sector back.
    pub fn suspect(&mut self, volume: usize, sector: u64) {
        self.suspects.insert((volume, sector / SECTORS_PER_BLOCK));
    }

    /// Notes that the slot of this sector, of so many blocks, may have a lost block: changes of it may fail.
    pub fn suspect_slot(&mut self, volume: usize, sector: u64, slot_blocks: u64) {
        let first = sector / SECTORS_PER_BLOCK / slot_blocks * slot_blocks;
        self.slot_suspects.extend((first..first + slot_blocks).map(|block| (volume, block)));
    }

    /// Notes that the cache lost every write that no flush covered.
    pub fn suspect_all(&mut self) {
        self.is_all_suspect = true;
    }

    /// Whether some block of the volume may be lost.
    #[must_use]
    pub fn has_suspects(&self, volume: usize) -> bool {
        self.is_all_suspect || self.suspects.range((volume, 0)..(volume + 1, 0)).next().is_some()
    }

    /// Forgets what may be lost of a volume: it begins anew.
    pub fn forget(&mut self, volume: usize) {
        self.suspects.retain(|(of, _)| *of != volume);
    }

    /// Whether any block may be lost.
    #[must_use]
    pub fn is_all_suspect(&self) -> bool {
        self.is_all_suspect
    }

    /// The first sectors of the blocks of a volume that may be lost.
    pub fn suspects_of(&self, volume: usize) -> impl Iterator<Item = u64> {
        self.suspects.range((volume, 0)..(volume + 1, 0)).map(|(_, block)| block * SECTORS_PER_BLOCK)
    }

    /// Notes that a new engine began at `at`, which has to tell clients of the losses in `untold`.
    pub fn restarted(&mut self, untold: &[(VolumeIndex, Errno)], at: Moment) {
        self.owed.clear();
        let owed = || Owed { hit: at, since: at, is_drawn: false };
        self.owed.extend(untold.iter().map(|(volume, _)| (volume.at(), owed())));
        self.hits.clear();
        self.is_cache_failed = false;
        self.is_all_suspect = false;
        self.absent.clear();
    }

    /// Notes that the driver drew all effects.
    pub fn drawn(&mut self, now: Moment) {
        for owed in self.owed.values_mut().filter(|owed| !owed.is_drawn) {
            (owed.since, owed.is_drawn) = (now, true);
        }
    }

    /// Notes that a change submitted at `at` is answered now: a flush that failed since may have taken it.
    pub fn change_answered(&mut self, volume: usize, at: Moment, now: Moment) {
        if let Some(owed) = self.owed.get_mut(&volume).filter(|owed| at < owed.hit) {
            owed.since = now;
        }
    }

    /// Notes that a FLUSH of the volume, submitted at `at`, was answered: its error may have told the client of
    /// earlier failures. `oldest` is the first change without an answer.
    pub fn flush_answered(&mut self, volume: usize, at: Moment, oldest: Option<Moment>) {
        let is_last =
            |owed: &Owed| owed.is_drawn && owed.since < at && oldest.is_none_or(|oldest| oldest >= owed.hit);
        if self.owed.get(&volume).is_some_and(is_last) {
            self.owed.remove(&volume);
        }
    }

    /// Whether anything was injected since the start, or is remembered.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.hits.is_empty() || self.is_cache_failed || !self.suspects.is_empty()
    }

    /// Whether the cache failed a write or a flush since the start, or was gone.
    #[must_use]
    pub fn is_cache_failed(&self) -> bool {
        self.is_cache_failed
    }

    fn is_suspect(&self, volume: usize, range: SectorRange) -> bool {
        let range = (volume, range.first_block())..(volume, range.end_block());
        self.is_all_suspect || self.suspects.range(range).next().is_some()
    }

    fn was_origin_hit(
        &self,
        volume: usize,
        range: Option<SectorRange>,
        since: Moment,
        reads_only: bool,
    ) -> bool {
        self.hits.iter().any(|hit| {
            let is_near = match (range, hit.range) {
                // The engine works in whole blocks.
                (Some(range), Some(hit)) => {
                    hit.first_block() < range.end_block() && range.first_block() < hit.end_block()
                }
                _ => true,
            };
            matches!(hit.target, Target::Origin(index) if index.at() == volume)
                && hit.at >= since
                && is_near
                && (!reads_only || hit.kind == Kind::Read)
        })
    }

    /// Whether an error of a read submitted at `since` has a reason.
    #[must_use]
    pub fn may_fail_read(&self, volume: usize, range: SectorRange, since: Moment) -> bool {
        self.is_suspect(volume, range) || self.was_origin_hit(volume, Some(range), since, true)
    }

    /// Whether an error of a change submitted at `since` has a reason.
    #[must_use]
    pub fn may_fail_change(&self, volume: usize, range: SectorRange, since: Moment) -> bool {
        let slots = (volume, range.first_block())..(volume, range.end_block());
        self.is_cache_failed
            || self.is_suspect(volume, range)
            || self.slot_suspects.range(slots).next().is_some()
            || self.was_origin_hit(volume, Some(range), since, false)
    }

    /// Whether the engine has seen the volume's origin fail an operation of its own since the start.
    #[must_use]
    pub fn may_be_absent(&self, volume: usize) -> bool {
        self.hits.iter().any(|hit| {
            hit.kind != Kind::Read && matches!(hit.target, Target::Origin(index) if index.at() == volume)
        })
    }

    /// Notes that the engine does not wait for a volume's origin.
    pub fn seen_absent(&mut self, volume: usize, at: Moment) {
        self.absent.insert(volume, at);
    }

    /// The volumes whose origins the engine did not wait for at some time.
    #[must_use]
    pub fn seen_absent_once(&self) -> Vec<usize> {
        self.absent.keys().copied().collect()
    }

    /// Whether the engine did not wait for the volume's origin at `since` or later. What failed because of that may be answered when
    /// an older operation of the origin has succeeded.
    #[must_use]
    pub fn was_absent(&self, volume: usize, since: Moment) -> bool {
        self.absent.get(&volume).is_some_and(|at| *at >= since)
    }

    /// Whether an error of a FLUSH, or of something that the operator asked, has a reason.
    #[must_use]
    pub fn may_fail_flush(&self, volume: usize, since: Moment) -> bool {
        self.is_cache_failed
            || self.owed.contains_key(&volume)
            || self.has_suspects(volume)
            || self.was_origin_hit(volume, None, since, false)
    }
}

#[cfg(test)]
mod tests {
    use crate::oracle::{Contract, Oracle};

    #[test]
    fn what_an_absent_origin_failed_may_be_answered_later() {
        let mut oracle = Oracle::new(Contract::default(), std::iter::empty());
        let [before, absent, after] = [(); 3].map(|()| oracle.moment());
        let explained = &mut oracle.explained;
        assert!(!explained.was_absent(0, before));
        explained.seen_absent(0, absent);
        assert!(explained.was_absent(0, before), "the request was there when the origin was not");
        assert!(!explained.was_absent(0, after), "the origin was back when the request came");
        assert!(!explained.was_absent(1, before), "another volume has another origin");
        explained.restarted(&[], after);
        assert!(!explained.was_absent(0, before), "a start begins anew");
    }
}
