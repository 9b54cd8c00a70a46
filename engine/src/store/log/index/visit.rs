//! A look at all that is cached, in bounded steps.

use super::rows::{GroupHead, runs};
use super::{Index, join, unpermute};
use crate::machine::warm::{CachedRun, Cursor};
use crate::number::{low_u32, to_u32};
use crate::units::BlockKey;

impl Index {
    /// Calls `visit` with what is in `steps` buckets from a place on: first those of singles, then those of groups. Returns
    /// where to go on; `None` at the end. Buckets that are split or joined meanwhile may be seen twice, or not at all.
    pub fn visit_from(&self, from: Cursor, steps: u32, visit: &mut dyn FnMut(CachedRun)) -> Option<Cursor> {
        let singles = u64::from(self.singles.buckets());
        let groups = u64::from(self.groups.buckets());
        let end = from.0.saturating_add(u64::from(steps)).min(singles + groups);
        let kind = self.kind;
        let is_single = |at: u64| low_u32(at.min(singles));
        self.singles.for_each_of(&self.pages, is_single(from.0)..is_single(end), |hash, tag, row| {
            let hits = kind.entry(row).hits;
            visit(run_of(join(unpermute(hash), tag), 1, hits));
        });
        let is_group = |at: u64| low_u32(at.saturating_sub(singles));
        self.groups.for_each_of(&self.pages, is_group(from.0)..is_group(end), |hash, _, row| {
            let (group, head) = (unpermute(hash), GroupHead::read(row));
            for (first, blocks) in runs(head.valid) {
                // The run is worth what the best of it is.
                let hits = (first..first + blocks).map(|tag| head.hits(tag)).max();
                visit(run_of(join(group, first), blocks, hits.unwrap_or(0)));
            }
        });
        (end < singles + groups).then_some(Cursor(end))
    }
}

fn run_of(key: BlockKey, blocks: u32, hits: u8) -> CachedRun {
    CachedRun { volume: key.volume(), first_block: key.block(), blocks: to_u32(blocks), hits }
}
