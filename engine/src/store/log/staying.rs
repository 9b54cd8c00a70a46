//! Which dirty blocks of emptied segments stay in the log, and do not go home first (rule 9).

use super::LogStore;
use super::segments::Segment;
use crate::effect::WriteMode;
use crate::machine::Machine;
use crate::machine::volume::{Standing, Volume};
use crate::units::VOLUMES_MAX;

/// Dirty blocks stay in the log while they are at most one in so many of the ring: what clients wrote once takes room of what
/// they read.
const STAYING_ONE_IN: u64 = 4;
/// The same while most of what they write replaces dirty blocks: each one that went home would soon be dirty again.
const REWRITTEN_ONE_IN: u64 = 2;
/// Blocks after which what was written before counts half.
const FADING_BLOCKS: u64 = 4096;

/// How much of what clients write replaces dirty blocks.
#[derive(Debug, Default)]
pub(crate) struct Rewriting {
    written_blocks: u64,
    rewritten_blocks: u64,
}

impl Rewriting {
    /// Clients wrote so many blocks, and so many of them were dirty before.
    #[inline]
    pub fn wrote(&mut self, blocks: u64, dirty_before: u64) {
        self.written_blocks += blocks;
        self.rewritten_blocks += dirty_before;
        if self.written_blocks >= 2 * FADING_BLOCKS {
            self.written_blocks /= 2;
            self.rewritten_blocks /= 2;
        }
    }

    /// Whether it is most of it.
    fn is_most(&self) -> bool {
        self.rewritten_blocks * 2 > self.written_blocks
    }
}

/// The volumes whose dirty blocks stay in the log, by their number.
pub(super) struct Staying {
    /// Volumes all of whose dirty blocks stay, because the origin fails.
    pub stuck: [bool; VOLUMES_MAX],
    /// Volumes whose dirty blocks stay in segments that have few.
    pub few: [bool; VOLUMES_MAX],
    /// They stay in others, too: a small ring comes round to what it moved before, which lies densely there.
    is_any_segment: bool,
}

impl Staying {
    pub fn any(&self) -> bool {
        self.stuck.contains(&true) || self.few.contains(&true)
    }

    /// Whether the dirty blocks stay that a volume has in a segment. Of a segment that is dirty for the greater part, moving them
    /// would free next to nothing.
    pub fn in_segment(&self, segment: &Segment) -> impl Fn(usize) -> bool {
        let has_few = self.is_any_segment || segment.must * 2 <= segment.used_blocks;
        move |at| self.stuck[at] || has_few && self.few[at]
    }
}

impl Machine<LogStore> {
    /// The volumes whose dirty blocks stay in the log when the ring comes round to them.
    ///
    /// A hard disk writes a block in the time that the cache device takes for hundreds. So while clients read from the origin, or
    /// wait for room, and as long as few blocks are dirty, they are appended again; the sweep brings them home when they are
    /// many, or when there is time.
    pub(super) fn staying(&mut self) -> Staying {
        let has_budget = self.budget_allows_relocation();
        let LogStore { segments, reclaim, appender, policies, .. } = &self.store;
        let one_in = if policies.rewriting.is_most() { REWRITTEN_ONE_IN } else { STAYING_ONE_IN };
        let may_stay = (appender.has_frames() || appender.weighs_rounds() && reclaim.policy.keeps_any())
            && self.config.order.is_none()
            && !self.is_stopping
            && has_budget
            && self.dirty_blocks() * one_in <= segments.ring_blocks();
        let is_pressed = segments.free() <= self.config.segments_reserved;
        let is_any_segment = appender.has_frames();
        let by_volume = |stays: &dyn Fn(&Volume) -> bool| {
            core::array::from_fn(|at| self.volumes[at].as_ref().is_some_and(stays))
        };
        Staying {
            is_any_segment,
            stuck: by_volume(&|volume| volume.origin.is_failing()),
            few: by_volume(&|volume| {
                may_stay
                    && volume.mode == WriteMode::Writeback
                    && volume.standing == Standing::Cached
                    && volume.destage.drains == 0
                    && (is_pressed || volume.origin.was_read(self.now))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_of_late_tells_whether_it_is_written_again() {
        let mut rewriting = Rewriting::default();
        assert!(!rewriting.is_most(), "nothing was written");
        for _ in 0..FADING_BLOCKS {
            rewriting.wrote(4, 3);
        }
        assert!(rewriting.is_most());
        for _ in 0..3 * FADING_BLOCKS {
            rewriting.wrote(1, 0);
        }
        assert!(!rewriting.is_most(), "what came before fades");
    }
}
