//! The way home of one interval: the newest version of each block in it, in the order of the origin.

use super::ledger::Interval;
use crate::machine::destage::choice::RUN_BLOCKS_MAX;
use crate::machine::guard::Blocks;
use crate::number::wide;
use crate::store::log::extents::{Extent, ExtentKind, Extents};
use crate::units::{BlockKey, Place};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Runs that somebody else is busy with and that are passed over in one search.
const PASSED_MAX: u32 = 64;

/// Neighbouring blocks to be written home, with the place and the checksum of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionRun {
    pub blocks: Blocks,
    pub versions: Vec<(Place, u32)>,
}

/// The rest of an interval, which has yet to be written home.
#[derive(Default)]
pub(crate) struct Plan {
    data: BTreeMap<u64, (Place, u32)>,
    zeroes: Extents,
    /// The block at which the sweep goes on.
    cursor: u64,
}

impl core::fmt::Debug for Plan {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Plan { data, zeroes, cursor } = self;
        let mut picture = f.debug_struct("Plan");
        picture.field("data", &data.len()).field("zeroes", &zeroes.len()).field("cursor", cursor).finish()
    }
}

impl Plan {
    /// All of an interval but the data at these places.
    pub fn of(interval: &Interval, given_up: &[Place]) -> Plan {
        let mut plan = Plan::default();
        let mut zeroes = interval.zeroes.iter().peekable();
        let end = interval.data.len();
        for (at, version) in interval.data.iter().map(Some).chain([None]).enumerate() {
            while let Some(next) = zeroes.next_if(|next| next.data_before <= at.min(end)) {
                let (first, count) = (next.blocks.first, next.blocks.count);
                let covered: Vec<u64> =
                    plan.data.range(first..first + count).map(|(&block, _)| block).collect();
                for block in covered {
                    plan.data.remove(&block);
                }
                plan.zeroes.cut(BlockKey(first), count, |_| ());
                let place = next.place;
                plan.zeroes.insert(Extent {
                    first: BlockKey(first),
                    blocks: count,
                    kind: ExtentKind::Zero,
                    place,
                });
            }
            if let Some(version) = version {
                plan.zeroes.cut(BlockKey(version.block), 1, |_| ());
                plan.data.insert(version.block, (version.place, version.checksum));
            }
        }
        if !given_up.is_empty() {
            plan.data.retain(|_, (place, _)| !given_up.contains(place));
        }
        plan
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.zeroes.is_empty()
    }

    /// Takes the next run of data that `may_go`, from the sweep's place on. Blocks that have to go alone do.
    pub fn next_data(
        &mut self,
        may_go: impl Fn(Blocks) -> bool,
        is_alone: impl Fn(u64) -> bool,
    ) -> Option<VersionRun> {
        let mut at = self.cursor;
        for _ in 0..PASSED_MAX {
            let next = self.data.range(at..).next().or_else(|| self.data.first_key_value());
            let (&first, _) = next?;
            let is_next = |(block, step): &((&u64, &(Place, u32)), u64)| {
                *block.0 == first + step && (*step == 0 || !is_alone(*block.0) && !is_alone(first))
            };
            let run: Vec<(Place, u32)> = (self.data.range(first..).zip(0..RUN_BLOCKS_MAX))
                .take_while(is_next)
                .map(|((_, version), _)| *version)
                .collect();
            let blocks = Blocks { first, count: wide(run.len()) };
            at = blocks.end();
            if may_go(blocks) {
                for block in blocks.first..blocks.end() {
                    self.data.remove(&block);
                }
                self.cursor = at;
                return Some(VersionRun { blocks, versions: run });
            }
        }
        self.cursor = at;
        None
    }

    /// Puts back a run that could not be begun.
    pub fn put_back(&mut self, run: VersionRun) {
        self.data.extend((run.blocks.first..).zip(run.versions));
    }

    /// Takes the next zeroes that `may_go`, `blocks_max` of them at the most, and the place of the header that recorded them.
    pub fn next_zeroes(
        &mut self,
        may_go: impl Fn(Blocks) -> bool,
        blocks_max: u64,
    ) -> Option<(Blocks, Place)> {
        let piece = |extent: Extent| {
            (Blocks { first: extent.first.0, count: extent.blocks.min(blocks_max) }, extent.place)
        };
        let (blocks, place) = self.zeroes.iter().map(piece).find(|(blocks, _)| may_go(*blocks))?;
        self.zeroes.cut(BlockKey(blocks.first), blocks.count, |_| ());
        Some((blocks, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::destage::order::ledger::{DataVersion, ZeroVersion};
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Write(u64),
        Zero(u64, u64),
    }

    fn any_change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (0u64..200).prop_map(Change::Write),
            1 => (0u64..190, 1u64..40).prop_map(|(first, count)| Change::Zero(first, count)),
        ]
    }

    proptest! {
        /// Goal: a plan brings home the newest version of each block, once. Method: any interval beside an array.
        #[test]
        fn brings_home_the_newest_version_of_each_block(changes in prop::collection::vec(any_change(), 0..80)) {
            let mut interval = Interval::default();
            let mut model: BTreeMap<u64, Option<u32>> = BTreeMap::new();
            for (number, change) in (0u32..).zip(&changes) {
                match *change {
                    Change::Write(block) => {
                        let place = Place(1000 + number);
                        interval.data.push(DataVersion { block, place, checksum: number });
                        model.insert(block, Some(number));
                    }
                    Change::Zero(first, count) => {
                        let data_before = interval.data.len();
                        let place = Place(5000 + number);
                        interval.zeroes.push(ZeroVersion { blocks: Blocks { first, count }, place, data_before });
                        model.extend((first..first + count).map(|block| (block, None)));
                    }
                }
            }
            let mut plan = Plan::of(&interval, &[]);
            let mut home = BTreeMap::new();
            while let Some(run) = plan.next_data(|_| true, |_| false) {
                prop_assert!(run.blocks.count <= RUN_BLOCKS_MAX);
                for (block, (place, checksum)) in (run.blocks.first..).zip(&run.versions) {
                    prop_assert_eq!(place.0, 1000 + checksum);
                    prop_assert!(home.insert(block, Some(*checksum)).is_none(), "a block goes home once");
                }
            }
            while let Some((blocks, _)) = plan.next_zeroes(|_| true, 7) {
                prop_assert!(blocks.count <= 7);
                for block in blocks.first..blocks.end() {
                    prop_assert!(home.insert(block, None).is_none(), "a block goes home once");
                }
            }
            prop_assert!(plan.is_empty());
            prop_assert_eq!(home, model);
        }
    }
}
