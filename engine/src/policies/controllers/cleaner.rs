//! dm-cache's cleaner: nothing enters, everything goes home.
//!
//! Source: dm-cache's cleaner policy (Linux 3.9 to 4.11), and smq 2.0 as cleaner (4.12 and later), which at first
//! cleaned only while idle; from documents, the later one read.

use super::idle::copies_max;
use super::{Budget, HomeOrder, Pressure};
use crate::policies::replacement::Urgency;
use crate::units::Nanos;

/// Time without requests for the origin after which it is idle.
const IDLE_NS: u64 = Nanos::SECOND;

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanerChoice {
    /// Sectors in copies under way; default 2048.
    pub migration_threshold_sectors: u32,
    /// Also while clients send requests; default on. Off: Linux 4.12 until it was mended.
    pub cleans_while_busy: bool,
}

impl CleanerChoice {
    /// The current defaults.
    pub const PUBLISHED: CleanerChoice =
        CleanerChoice { migration_threshold_sectors: 2048, cleans_while_busy: true };

    /// The runs that may be started now.
    #[must_use]
    pub fn budget(&self, pressure: &Pressure) -> Budget {
        let idle_from = pressure.last_origin.plus(IDLE_NS);
        if !self.cleans_while_busy && !pressure.is_draining && pressure.now < idle_from {
            return Budget::rest(Some(idle_from));
        }
        // Frames larger than the threshold go one by one: else the cleaner would never end.
        let copies_max = copies_max(self.migration_threshold_sectors, pressure.frame_sectors, true).max(1);
        Budget::runs(copies_max.saturating_sub(pressure.copies), HomeOrder::Policy(Urgency::All))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_home_busy_or_not() {
        let busy = Pressure { now: Nanos(5), frame_sectors: 512, ..Pressure::default() };
        let all = HomeOrder::Policy(Urgency::All);
        assert_eq!(CleanerChoice::PUBLISHED.budget(&busy), Budget::runs(4, all));
        assert_eq!(CleanerChoice::PUBLISHED.budget(&Pressure { copies: 4, ..busy }).runs, 0);
        let large = Pressure { frame_sectors: 4096, ..busy };
        assert_eq!(CleanerChoice::PUBLISHED.budget(&large).runs, 1, "one by one");
        let early = CleanerChoice { cleans_while_busy: false, ..CleanerChoice::PUBLISHED };
        assert_eq!(early.budget(&busy), Budget::rest(Some(Nanos(Nanos::SECOND))));
        let idle = Pressure { now: Nanos(Nanos::SECOND), ..busy };
        assert_eq!(early.budget(&idle).runs, 4);
        assert_eq!(early.budget(&Pressure { is_draining: true, ..busy }).runs, 4);
    }
}
