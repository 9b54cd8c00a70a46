//! Where a replay starts: at the beginning of the log, or behind a checkpoint.

use super::Replay;
use crate::format::{CheckpointArea, CheckpointRecord, Layout, Side, Superblock};
use crate::image::Image;
use crate::mutation::Mutation;
use crate::recovery::Options;
use crate::store::log::checkpoint::Checkpoints;
use crate::store::log::checkpoint::load::{Loading, candidates, load, replayed_from};
use crate::store::log::extents::Extents;
use crate::store::log::index::deferred::DeferredIndex;
use crate::store::log::scan::{Span, Survey};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Where a replay starts.
pub(super) struct Start {
    /// The first span that is visited.
    pub from: usize,
    /// The checkpoints to come.
    pub checkpoints: Option<Box<Checkpoints>>,
}

impl Replay {
    /// Loads the newest checkpoint that counts, if there is any: then the replay starts behind it.
    pub(super) fn load_checkpoint<I: Image>(
        &mut self,
        image: &mut I,
        superblock: &Superblock,
        survey: &mut Survey,
        options: Options,
    ) -> Start {
        let Replay { mutations, .. } = *self;
        let is_all_in_index = matches!(superblock.layout, Layout::Log(_))
            && self.orders.is_none()
            && image.once_counts_from().is_none();
        let geometry = superblock.geometry();
        let area = CheckpointArea::of(&geometry, superblock.cache_bytes).filter(|_| is_all_in_index);
        let Some(area) = area else { return Start { from: 0, checkpoints: None } };
        let (mut from, mut side) = (0, Side::First);
        let candidates = match survey.repaired {
            None => candidates(image, superblock, &area, survey, mutations),
            Some(_) => {
                // What is left of a log that was cut is replayed as a whole, and a start before may have believed more of it.
                survey.stale_blocks.extend(Side::BOTH.map(|side| area.record_at(side)));
                Vec::new()
            }
        };
        for candidate in candidates {
            let Replay { index, extents, volumes, .. } = self;
            let mut loading =
                Loading::new(superblock, survey, &candidate.record, volumes, index, extents, mutations);
            if load(image, &area, &candidate, &mut loading).is_ok() {
                let sums = loading.sums;
                index.loaded(sums);
                self.loaded_blocks = index.len_max();
                from = replayed_from(survey, &candidate.record);
                self.pass_floors_before(&candidate.record, survey.spans.get(from));
                side = candidate.side.other();
                self.believed = Some((area, candidate));
                break;
            }
            self.index = DeferredIndex::new(options.index_budget_bytes, true);
            self.extents = Extents::default();
        }
        let generation = survey.spans.get(from).map_or(survey.last_generation, |span| span.span.generation);
        let last = generation.saturating_mul(u64::from(geometry.segment_blocks));
        Start { from, checkpoints: Some(Box::new(Checkpoints::new(area, side, last))) }
    }

    /// Passes what a checkpoint knows of: what was void when it began had left the index. The first segment that is replayed may
    /// have older batches, and then these say once more what was void (rule 22).
    fn pass_floors_before(&mut self, record: &CheckpointRecord, first: Option<&Span>) {
        let known = record.id.start_sequence;
        let replayed = first.filter(|_| !self.mutations.has(Mutation::VoidIsReplayed));
        let known = replayed.map_or(known, |first| known.min(first.span.first_sequence));
        self.clean_floors.retain(|(floor, _)| *floor > known);
    }
}
