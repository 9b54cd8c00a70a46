//! A flood: writes come faster than their origins take them, and the ring is nearly full of what is dirty.
//!
//! A sweep brings several segments home together, because the disk writes many blocks in its order faster than few, and all
//! of them are free at its end. So the ring begins early to empty itself when half of it is dirty, and keeps a sweep's length
//! of free segments. Of these clients get as many blocks as went home: no write waits for the end of a sweep.
//!
//! The last room is for writes of dirty blocks alone. Others may go around the cache; these may not, and would wait until a
//! whole segment is home.

use crate::machine::Machine;
use crate::number::{index, wide};
use crate::store::log::LogStore;
use crate::store::log::room::BATCH_BLOCKS_MAX;
use crate::units::Nanos;

/// Segments beside the reserve whose room is for writes that cannot go around the cache.
const KEPT_SEGMENTS: u32 = 1;
/// Segments beyond the room for a sweep with which that is over.
const SPARE_SEGMENTS: u32 = 4;
/// Segments of a sweep, and of the room for it: at most this, and one in so many of the ring.
pub(super) const SWEEP_SEGMENTS_MAX: u32 = 16;
const SWEEP_ONE_IN: u32 = 16;
/// A sweep of less, 8 MiB, gains nothing by its order.
const SWEEP_BLOCKS_MIN: u32 = 2048;
/// The ring is flooded from one dirty block in so many: then writes take the room that the disk makes, and no more.
const FLOODED_ONE_IN: u64 = 2;
/// Clients owe no more than a batch, which one block of credit may let in.
const OWED_BLOCKS_MAX: u64 = wide(index(BATCH_BLOCKS_MAX));
/// A disk brings something home within this time, even if it is flushed meanwhile: one that empties its memory takes three
/// seconds.
const HOME_WITHIN_NS: u64 = 5 * Nanos::SECOND;

/// The room of a ring, as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Segments that are free.
    pub free: u32,
    /// Of them, those that clients may not take.
    pub reserved: u32,
    /// Below so many free ones the oldest segments are emptied.
    pub low: u32,
    /// All segments, and the blocks of one.
    pub segments: u32,
    pub segment_blocks: u32,
    /// Whether the ring is dirty for the greater part.
    pub is_flooded: bool,
}

/// The state of a ring with regard to floods.
#[derive(Debug)]
pub(crate) struct Flood {
    /// Below so many free segments the oldest ones are emptied.
    low: u32,
    /// From so many on there is nothing to do: none as long as nobody looked.
    rest_from: u32,
    /// Segments of a sweep.
    sweep: u32,
    /// The last room is kept for those who cannot go around, until there is more.
    keeps_room: bool,
    /// Clients get the blocks that go home.
    is_paced: bool,
    /// Eighths of a block that clients get for one that goes home: fewer, the less room there is.
    eighths: u64,
    /// Their credit: that, less what they appended.
    credit_eighths: u64,
    /// Eighths of what they appended beyond it.
    owed_eighths: u64,
    /// The last time that something came home, or the beginning.
    home_at: Nanos,
}

impl Default for Flood {
    fn default() -> Flood {
        Flood {
            low: 0,
            rest_from: u32::MAX,
            sweep: 0,
            keeps_room: false,
            is_paced: false,
            eighths: 0,
            credit_eighths: 0,
            owed_eighths: 0,
            home_at: Nanos(0),
        }
    }
}

impl Flood {
    /// Looks at the room that there is.
    pub fn look(&mut self, room: Room, now: Nanos) {
        let Room { free, reserved, low, segments, segment_blocks, is_flooded } = room;
        let sweep = SWEEP_SEGMENTS_MAX.min((segments / SWEEP_ONE_IN).max(1));
        let kept = if is_flooded { sweep } else { KEPT_SEGMENTS };
        self.low = if is_flooded { low.max(reserved + kept + SPARE_SEGMENTS) } else { low };
        // Clients get about as much while it is under way.
        let most = if is_flooded { sweep.min(free.saturating_sub(reserved)) } else { SWEEP_SEGMENTS_MAX };
        self.sweep = most.max(SWEEP_BLOCKS_MIN.div_ceil(segment_blocks)).min(SWEEP_SEGMENTS_MAX);
        self.keeps_room = free < self.low && (self.keeps_room || free <= reserved + kept);
        self.rest_from = if self.keeps_room { u32::MAX } else { self.low };
        let was_paced = self.is_paced;
        self.is_paced = self.keeps_room && is_flooded;
        self.eighths = u64::from(free.saturating_sub(reserved) * 8 / sweep).clamp(1, 8);
        if !was_paced {
            (self.credit_eighths, self.owed_eighths, self.home_at) = (0, 0, now);
        }
    }

    /// Below so many free segments the oldest ones are emptied.
    pub fn low(&self) -> u32 {
        self.low
    }

    /// Segments that are emptied at the same time, at most.
    pub fn sweep(&self) -> u32 {
        self.sweep
    }

    /// Whether there is room enough for now.
    #[inline]
    pub fn is_at_rest(&self, free: u32) -> bool {
        free >= self.rest_from
    }

    /// Whether the last room is kept for writes that cannot go around the cache.
    #[inline]
    pub fn keeps_room(&self) -> bool {
        self.keeps_room
    }

    /// Whether clients get what goes home, and no more.
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Whether clients got all that went home. They wait for more, if something is on its way.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.is_paced && self.credit_eighths == 0
    }

    /// Whether something came home a moment ago. Of a disk that hangs nothing does.
    pub fn was_fed(&self, now: Nanos) -> bool {
        now.since(self.home_at) < HOME_WITHIN_NS
    }

    /// So many blocks of clients were appended behind one header.
    #[inline]
    pub fn appended(&mut self, blocks: u64) {
        let eighths = (blocks + 1) * 8;
        let owed_eighths = self.owed_eighths + eighths.saturating_sub(self.credit_eighths);
        self.owed_eighths = owed_eighths.min(OWED_BLOCKS_MAX * 8);
        self.credit_eighths = self.credit_eighths.saturating_sub(eighths);
    }

    /// So many blocks went home. Clients that let them pass by have no claim on more than a segment.
    pub fn went_home(&mut self, blocks: u64, segment_blocks: u32, now: Nanos) {
        self.home_at = now;
        if self.is_paced {
            let (eighths, most) = (blocks * self.eighths, u64::from(segment_blocks) * 8);
            let paid = eighths.min(self.owed_eighths);
            self.owed_eighths -= paid;
            self.credit_eighths = (self.credit_eighths + eighths - paid).min(most);
        }
    }
}

impl Machine<LogStore> {
    /// Looks how much room there is, and whether writes flood it.
    pub(super) fn look_at_room(&mut self) {
        let room = Room {
            free: self.store.segments.free(),
            reserved: self.reserved(),
            low: self.config.segments_low,
            segments: self.store.segments.count(),
            segment_blocks: self.store.segments.segment_blocks(),
            is_flooded: self.is_flooded(),
        };
        let now = self.now;
        self.store.flood.look(room, now);
    }

    /// Whether writes wait for room that the disk makes, and what was hit stays all the same. The published logs keep
    /// nothing then.
    pub(super) fn is_flooded(&self) -> bool {
        let LogStore { segments, reclaim, appender, .. } = &self.store;
        appender.weighs_rounds()
            && reclaim.policy.keeps_any()
            && self.dirty_blocks() * FLOODED_ONE_IN >= segments.ring_blocks()
    }

    pub(super) fn dirty_blocks(&self) -> u64 {
        self.volumes.iter().flatten().map(|volume| volume.dirty_blocks).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(100 * Nanos::SECOND);

    fn room(free: u32, is_flooded: bool) -> Room {
        Room { free, reserved: 3, low: 7, segments: 128, segment_blocks: 8192, is_flooded }
    }

    #[test]
    fn the_last_room_is_kept_until_there_is_more() {
        let mut flood = Flood::default();
        for (free, is_kept) in [(7, false), (5, false), (4, true), (6, true), (7, false), (6, false)] {
            flood.look(room(free, false), NOW);
            assert_eq!((free, flood.keeps_room()), (free, is_kept));
            assert!(!flood.is_spent(), "nobody waits for what goes home");
        }
        assert_eq!((flood.low(), flood.sweep()), (7, 16));
    }

    #[test]
    fn clients_owe_what_they_took_beyond_their_credit() {
        let mut flood = Flood::default();
        flood.look(room(11, true), NOW);
        flood.went_home(1, 8192, NOW);
        flood.appended(31);
        assert!(flood.is_spent());
        flood.went_home(30, 8192, NOW);
        assert!(flood.is_spent(), "31 blocks and a header take more");
        flood.went_home(8, 8192, NOW);
        assert!(!flood.is_spent());
        flood.appended(100_000);
        flood.went_home(400, 8192, NOW);
        assert!(!flood.is_spent(), "nobody owes more than a batch");
    }

    #[test]
    fn nobody_waits_for_a_disk_that_hangs() {
        let mut flood = Flood::default();
        flood.look(room(11, true), NOW);
        assert!(flood.was_fed(NOW.plus(4 * Nanos::SECOND)), "it has begun a moment ago");
        flood.went_home(1, 8192, NOW.plus(4 * Nanos::SECOND));
        flood.look(room(11, true), NOW.plus(4 * Nanos::SECOND));
        assert!(flood.was_fed(NOW.plus(8 * Nanos::SECOND)));
        assert!(!flood.was_fed(NOW.plus(9 * Nanos::SECOND)));
    }

    #[test]
    fn clients_get_what_goes_home_in_a_flood() {
        let mut flood = Flood::default();
        flood.look(room(12, true), NOW);
        assert_eq!((flood.low(), flood.sweep()), (15, 8), "a sweep's room is made early");
        flood.went_home(100, 1000, NOW);
        flood.look(room(11, true), NOW);
        assert!(flood.is_spent(), "what went home before is spent");
        flood.went_home(100, 1000, NOW);
        flood.appended(60);
        assert!(!flood.is_spent());
        flood.appended(60);
        flood.look(room(10, true), NOW);
        assert!(flood.is_spent());
        flood.went_home(5000, 1000, NOW);
        flood.appended(1000);
        assert!(flood.is_spent(), "no more than a segment is owed");
        flood.look(room(15, true), NOW);
        assert!(!flood.is_spent(), "there is room");
    }
}
