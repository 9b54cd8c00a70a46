//! Frames are given up so that others can be filled.

use super::super::keys::KeyAppend;
use super::super::{InternalAppend, LogStore};
use super::places::RUNS_MAX;
use crate::format::EntryKind;
use crate::machine::Machine;
use crate::machine::guard::Blocks;
use crate::number::{to_u32, wide};
use crate::store::log::draft::{Draft, range_entry};
use crate::units::Place;

impl Machine<LogStore> {
    /// Lets blocks leave where few frames are free, and takes the next step with those that leave.
    pub(in crate::store::log) fn pump_frames(&mut self) {
        if self.latched.is_some() || self.superblock.clean_stop {
            return;
        }
        self.free_frames();
        if !self.is_stopping {
            self.choose_leaving();
        }
        let wanted = self.store.appender.frames().places.wanted();
        if let Some(wanted) = wanted {
            self.barrier.want(wanted);
            // This turn's flushes were looked at already, and nothing else need be to come.
            self.pump_barrier();
        }
    }

    /// Frames whose record is durable, and known to be, are free.
    fn free_frames(&mut self) {
        let flushed = self.barrier.flushed;
        let LogStore { appender, segments, .. } = &mut self.store;
        let void = appender.frames_mut().places.take_flushed(flushed, segments);
        for run in void {
            for (key, place) in run.each() {
                if self.store.index.get(key).is_none_or(|entry| entry.place != place) {
                    continue;
                }
                self.store.appender.frames_mut().worths.leaves(key, place);
                self.drop_entries(key.volume(), Blocks { first: key.block(), count: 1 });
            }
            let LogStore { appender, segments, .. } = &mut self.store;
            appender.frames_mut().places.free(run, segments);
        }
    }

    fn choose_leaving(&mut self) {
        let slack = self.config.index_slack_blocks;
        let LogStore { appender, index, log, .. } = &mut self.store;
        let frames = appender.frames_mut();
        // RULE 15: an index near its budget gives frames up early.
        let tight = if index.is_near_budget(slack) && !frames.places.has_leaving() {
            to_u32(wide(RUNS_MAX))
        } else {
            0
        };
        let wanted = frames.places.wanted_blocks().max(tight);
        if wanted == 0 && !frames.places.has_orphans_to_tell() {
            return;
        }
        let mut left = wanted;
        loop {
            let runs = frames.worths.victims(left, RUNS_MAX, index, &frames.places);
            left = left.saturating_sub(runs.iter().map(|run| run.blocks).sum::<u32>());
            let is_last = runs.is_empty() || left == 0;
            let Some(number) = frames.places.leave(runs) else { return };
            log.push_internal(InternalAppend::Keys(KeyAppend::Leave { number }));
            if is_last && !frames.places.has_orphans_to_tell() {
                return;
            }
        }
    }

    /// Says in a batch that frames are void. False if it has no room for that.
    pub(in crate::store::log) fn gather_leave(&mut self, number: u64, draft: &mut Draft) -> bool {
        let LogStore { appender, .. } = &self.store;
        let runs = appender.frames().places.runs_of(number);
        if draft.entries.len() + runs.len() > draft.entries_max {
            return false;
        }
        let before = draft.entries.len();
        for run in runs {
            // Of a volume that is gone recovery believes no key.
            let Some(volume) = &self.volumes[run.first.volume().at()] else { continue };
            let blocks = Blocks { first: run.first.block(), count: u64::from(run.blocks) };
            let Place(place) = run.place;
            draft.entries.push(range_entry(EntryKind::Evicted, volume.id, blocks, 0, u64::from(place)));
        }
        // A header without entries will do.
        self.store.log.is_floor_wanted |= draft.entries.len() == before;
        true
    }
}
