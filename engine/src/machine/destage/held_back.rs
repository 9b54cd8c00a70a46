//! Destage that is held back: at an hour at which it should not wake a sleeping disk.
//!
//! The engine knows no hours: the operator says when destage is held back and when it may go on. Only what nobody
//! waits for is held back. It goes on all the same when somebody does (room, a share, a drain, a volume that leaves
//! writeback), when half of the cache is what only a destage can make free, and for a while after the origin was used
//! anyway, be it by a client or by a run that had to go.

use crate::effect::WriteMode;
use crate::machine::volume::Volume;
use crate::store::Pressure;
use crate::units::Nanos;

/// Share of the cache that only a destage can free, in thousandths, beyond which no destage is held back.
const HELD_PERMILLE_MAX: u64 = 500;
/// Time after a use of the origin during which its disk does not sleep yet.
const AWAKE_NS: u64 = 30 * Nanos::SECOND;

impl Volume {
    /// Whether the disk of the origin was used a moment ago.
    pub fn is_awake(&self, now: Nanos) -> bool {
        let is_used = self.origin.last_used.is_some_and(|used| now.since(used) < AWAKE_NS);
        is_used || self.origin.client_reads > 0
    }

    /// Whether destage that nobody waits for is held back now.
    pub fn is_held_back(&self, pressure: Pressure, now: Nanos) -> bool {
        self.destage.is_held_back
            && self.mode == WriteMode::Writeback
            && !self.is_ordered()
            && !self.origin.is_failing()
            && pressure.held_permille <= HELD_PERMILLE_MAX
            && !self.is_awake(now)
    }

    /// Whether somebody waits for destage.
    pub fn needs_destage(&self, pressure: Pressure, extents_max: usize) -> bool {
        self.share_waiting > 0
            || self.destage.drains > 0
            || self.destage.has_urgent()
            || pressure.is_waited_for
            || pressure.extents * 2 >= extents_max
    }
}
