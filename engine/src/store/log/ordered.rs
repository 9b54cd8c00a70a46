//! Strict order in the log: versions stay where they are until their interval is home, and a start finds them again
//! ([`crate::machine::destage::order`]).

use super::publication::checksums_of;
use super::segments::Segments;
use super::{Batch, LogStore, Publish};
use crate::machine::Machine;
use crate::machine::destage::order::ledger::{DataVersion, Interval, Ledger};
use crate::machine::guard::Blocks;
use crate::number::to_u32;
use crate::units::{Nanos, Place};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Machine<LogStore> {
    /// Lists what a batch brings of volumes that go home in strict order; it is about to be published.
    #[cold]
    #[inline(never)]
    pub(super) fn list_versions(&mut self, batch: &Batch) {
        let now = self.now;
        for publish in &batch.publish {
            let Publish::Part { volume, blocks, place, checksums_at, .. } = publish else { continue };
            let destage = &mut self.volumes.of_mut(*volume).destage;
            let Some(ledger) = &mut destage.order else { continue };
            match place {
                Some(place) => {
                    let checksums = checksums_of(&batch.checksums, *checksums_at, *blocks);
                    ledger.wrote(batch.sequence, *blocks, *place, checksums, now);
                    self.store.segments.add_must(*place, to_u32(blocks.count));
                }
                None => {
                    ledger.zeroed(batch.sequence, *blocks, batch.header_place, now);
                    self.store.segments.add_must(batch.header_place, 1);
                }
            }
            destage.count_listed();
        }
    }

    /// Nothing of an interval has to stay: it is home.
    pub(super) fn unlist(&mut self, home: &Interval) {
        home.data.iter().for_each(|version| self.store.segments.remove_must(version.place));
        home.zeroes.iter().for_each(|version| self.store.segments.remove_must(version.place));
    }
}

/// A version that a replay came by.
pub(super) enum Found {
    Data(DataVersion),
    Zeroes(Blocks, Place),
}

/// The versions of a volume that a replay came by and that are not home.
#[derive(Default)]
pub(super) struct FoundOrder {
    /// With the sequence of their batch, which rises.
    versions: VecDeque<(u64, Found)>,
    /// The batches in which another interval begins, rising.
    begins: Vec<u64>,
    home_sequence: u64,
}

impl FoundOrder {
    /// A batch has content of consecutive blocks.
    pub fn wrote(&mut self, sequence: u64, first: u64, place: Place, checksums: &[u32]) {
        for ((block, place), &checksum) in (first..).zip(place.0..).zip(checksums) {
            self.versions
                .push_back((sequence, Found::Data(DataVersion { block, place: Place(place), checksum })));
        }
    }

    /// A batch has zeroes, recorded by its header.
    pub fn zeroed(&mut self, sequence: u64, blocks: Blocks, place: Place) {
        self.versions.push_back((sequence, Found::Zeroes(blocks, place)));
    }

    /// Another interval begins in the batch `sequence`, and all up to `home` is home: what of that was not known to be.
    pub fn begins(&mut self, sequence: u64, home: u64) -> Vec<Found> {
        self.begins.push(sequence);
        self.home_sequence = self.home_sequence.max(home);
        let mut at_home = Vec::new();
        while self.versions.front().is_some_and(|(sequence, _)| *sequence <= home) {
            let Some((_, version)) = self.versions.pop_front() else { break };
            at_home.push(version);
        }
        at_home
    }

    /// Entries before said something of these blocks that is void, or lost.
    pub fn forget(&mut self, gone: Blocks) {
        let is_gone = |block: u64| (gone.first..gone.end()).contains(&block);
        let versions = core::mem::take(&mut self.versions);
        for (sequence, version) in versions {
            match version {
                Found::Data(DataVersion { block, .. }) if is_gone(block) => (),
                Found::Data(_) => self.versions.push_back((sequence, version)),
                Found::Zeroes(blocks, place) => {
                    let before = (blocks.first, blocks.end().min(gone.first));
                    let behind = (blocks.first.max(gone.end()), blocks.end());
                    for (first, end) in [before, behind].into_iter().filter(|(first, end)| first < end) {
                        let rest = Blocks { first, count: end - first };
                        self.versions.push_back((sequence, Found::Zeroes(rest, place)));
                    }
                }
            }
        }
    }

    /// The ledger of what is not home, each version counted in its segment. Below `oldest_dirty_sequence` all is.
    pub fn into_ledger(self, oldest_dirty_sequence: u64, segments: &mut Segments) -> Box<Ledger> {
        let FoundOrder { versions, begins, home_sequence } = self;
        let mut ledger = Ledger::new(home_sequence);
        let mut begins = begins.into_iter().peekable();
        for (sequence, version) in versions {
            while begins.next_if(|begin| *begin <= sequence).is_some() {
                ledger.close();
            }
            let (Found::Data(DataVersion { place, .. }) | Found::Zeroes(_, place)) = version;
            if segments.get(segments.of(place)).last_sequence < oldest_dirty_sequence {
                continue;
            }
            segments.add_must(place, 1);
            match version {
                Found::Data(DataVersion { block, place, checksum }) => {
                    let blocks = Blocks { first: block, count: 1 };
                    ledger.wrote(sequence, blocks, place, &[checksum], Nanos(0));
                }
                Found::Zeroes(blocks, place) => ledger.zeroed(sequence, blocks, place, Nanos(0)),
            }
        }
        ledger.close();
        Box::new(ledger)
    }
}
