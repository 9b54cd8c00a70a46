//! dm-cache's write-back: one frame a copy, chosen by the policy, while few copies are under way.
//!
//! There is no rate, no limit of dirty frames and no order of addresses.
//!
//! | era | Linux | goes home | how many copies |
//! | --- | --- | --- | --- |
//! | `mq1` | 3.9 | anything, one at a time, when a newcomer finds no frame that could leave | the same as `mq` |
//! | `mq` | 3.14 to 4.1 | anything, idle or not | fewer sectors than the threshold, the next one counted |
//! | `smq1` | 4.2 (unverified) to 4.11 | old frames; while busy of the lowest level only, unless few are clean | the same |
//! | `smq2` | 4.12 and later | anything, but only while idle | as many sectors as the threshold |
//!
//! Idle: for one second no client's request went to the origin; hits do not count, nor do copies. smq 2.0 looks once a
//! second whether it is, and goes on from copy to copy. Single frames that it asks for, because nothing could leave, are
//! not the controller's affair.
//!
//! Source: dm-cache of Linux 3.9, 3.18, 4.5 and later, read; 3.16 is taken to be as 3.18. In 3.9 the newcomer
//! waited for the copy of the frame whose place it takes; here it passes by, and the next one finds the place.

use super::{Budget, HomeOrder, Pressure};
use crate::policies::replacement::Urgency;
use crate::policies::replacement::smq::CRITICAL_CLEAN_PERCENT;
use crate::units::Nanos;

/// Time without requests for the origin after which it is idle.
const IDLE_NS: u64 = Nanos::SECOND;
/// How often smq 2.0 looks, and how long a look takes at the most.
const LOOK_NS: u64 = Nanos::SECOND;
const LOOK_NS_MAX: u64 = 5 * Nanos::MILLISECOND;

/// The version of dm-cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleEra {
    /// mq 1.0.
    Mq1,
    /// mq with queues for clean and dirty frames.
    Mq,
    /// smq 1.0.
    Smq1,
    /// smq 2.0.
    #[default]
    Smq2,
}

/// The tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleChoice {
    /// The version; default smq 2.0.
    pub era: IdleEra,
    /// Sectors in copies under way; default 2048. With frames larger than this nothing ever goes home by
    /// itself, as published.
    pub migration_threshold_sectors: u32,
}

impl IdleChoice {
    /// The published defaults.
    pub const PUBLISHED: IdleChoice = IdleChoice { era: IdleEra::Smq2, migration_threshold_sectors: 2048 };

    /// Whether a promotion may begin beside `copies` copies under way, unless nothing of it has to be read: only while
    /// they and it have fewer sectors than the threshold. smq 2.0 does not ask.
    #[must_use]
    pub fn may_promote(&self, copies: u32, frame_sectors: u32) -> bool {
        self.era == IdleEra::Smq2
            || copies < copies_max(self.migration_threshold_sectors, frame_sectors, false)
    }

    /// The runs that may be started now.
    #[must_use]
    pub fn budget(&self, pressure: &Pressure) -> Budget {
        let idle_from = pressure.last_origin.plus(IDLE_NS);
        let is_idle = pressure.now >= idle_from;
        let urgency = match self.era {
            _ if pressure.is_draining => Urgency::All,
            IdleEra::Mq1 if !pressure.wants_room => return Budget::rest(None),
            IdleEra::Mq1 | IdleEra::Mq => Urgency::All,
            IdleEra::Smq1 if is_idle => Urgency::Old,
            IdleEra::Smq1 => Urgency::Busy { is_critical: is_critical(pressure) },
            IdleEra::Smq2 if is_idle && (pressure.copies > 0 || is_look(pressure.now)) => Urgency::All,
            IdleEra::Smq2 => return Budget::rest(Some(next_look(pressure.now.max(idle_from)))),
        };
        let reaches = self.era == IdleEra::Smq2;
        let copies_max = copies_max(self.migration_threshold_sectors, pressure.frame_sectors, reaches);
        // Frames larger than the threshold go one by one in a drain, which would never end otherwise.
        let copies_max = match self.era {
            _ if pressure.is_draining => copies_max.max(1),
            IdleEra::Mq1 => copies_max.min(1),
            IdleEra::Mq | IdleEra::Smq1 | IdleEra::Smq2 => copies_max,
        };
        let mut budget = Budget::runs(copies_max.saturating_sub(pressure.copies), HomeOrder::Policy(urgency));
        if matches!(urgency, Urgency::Busy { .. }) {
            budget.look_again = Some(idle_from);
        }
        budget
    }
}

fn is_look(now: Nanos) -> bool {
    now.0 % LOOK_NS < LOOK_NS_MAX
}

/// The first look from a moment on.
fn next_look(from: Nanos) -> Nanos {
    Nanos(from.0.next_multiple_of(LOOK_NS))
}

/// Copies of one frame each that may be under way: as many as have fewer sectors than the threshold in all, or
/// with `reaches` no more.
pub(super) fn copies_max(threshold_sectors: u32, frame_sectors: u32, reaches: bool) -> u32 {
    assert!(frame_sectors > 0, "a frame has sectors");
    if reaches {
        threshold_sectors / frame_sectors
    } else {
        threshold_sectors.div_ceil(frame_sectors).saturating_sub(1)
    }
}

/// Whether too few frames are clean (smq 1.0).
fn is_critical(pressure: &Pressure) -> bool {
    u64::from(pressure.clean_frames) * 100 < u64::from(pressure.frames) * u64::from(CRITICAL_CLEAN_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(era: IdleEra) -> IdleChoice {
        IdleChoice { era, ..IdleChoice::PUBLISHED }
    }

    /// 256 KiB frames, half of them clean, the last request for the origin at 10 s.
    fn pressure(now_ms: u64) -> Pressure {
        Pressure {
            now: Nanos(now_ms * Nanos::MILLISECOND),
            last_origin: Nanos(10 * Nanos::SECOND),
            frames: 1000,
            clean_frames: 500,
            frame_sectors: 512,
            ..Pressure::default()
        }
    }

    #[test]
    fn three_copies_of_256_kib_are_below_one_mib_and_four_are_one_mib() {
        let at_rest = pressure(20_000);
        let runs = |era| choice(era).budget(&at_rest).runs;
        assert_eq!([IdleEra::Mq, IdleEra::Smq1, IdleEra::Smq2].map(runs), [3, 3, 4]);
        let busy = Pressure { copies: 2, ..at_rest };
        assert_eq!(choice(IdleEra::Mq).budget(&busy).runs, 1, "promotions count too");
        assert_eq!(choice(IdleEra::Mq).budget(&Pressure { copies: 9, ..at_rest }).runs, 0);
    }

    #[test]
    fn frames_above_the_threshold_never_go_home_but_in_a_drain() {
        let large = Pressure { frame_sectors: 4096, ..pressure(20_000) };
        for era in [IdleEra::Mq, IdleEra::Smq1, IdleEra::Smq2] {
            assert_eq!(choice(era).budget(&large).runs, 0);
            assert_eq!(choice(era).budget(&Pressure { is_draining: true, ..large }).runs, 1);
        }
        let equal = Pressure { frame_sectors: 2048, ..large };
        assert_eq!(choice(IdleEra::Smq1).budget(&equal).runs, 0, "strictly below");
        assert_eq!(choice(IdleEra::Smq2).budget(&equal).runs, 1);
    }

    #[test]
    fn the_eras_differ_in_what_goes_home_while_busy() {
        let busy = pressure(10_999);
        let order = |era, pressure: &Pressure| choice(era).budget(pressure).order;
        assert_eq!(order(IdleEra::Mq, &busy), HomeOrder::Policy(Urgency::All));
        let smq1 = HomeOrder::Policy(Urgency::Busy { is_critical: false });
        assert_eq!(order(IdleEra::Smq1, &busy), smq1);
        let few_clean = Pressure { clean_frames: 49, ..busy };
        let critical = HomeOrder::Policy(Urgency::Busy { is_critical: true });
        assert_eq!(order(IdleEra::Smq1, &few_clean), critical);
        assert_eq!(order(IdleEra::Smq1, &Pressure { clean_frames: 50, ..busy }), smq1, "5 % are enough");
        let smq2 = choice(IdleEra::Smq2).budget(&busy);
        assert_eq!((smq2.runs, smq2.look_again), (0, Some(Nanos(11 * Nanos::SECOND))));
        let between = pressure(11_500);
        let smq2 = choice(IdleEra::Smq2).budget(&between);
        assert_eq!((smq2.runs, smq2.look_again), (0, Some(Nanos(12 * Nanos::SECOND))), "nobody looks");
        let smq2 = choice(IdleEra::Smq2).budget(&Pressure { copies: 1, ..between });
        assert_eq!(smq2.runs, 3, "the end of a copy is a look");
        let idle = pressure(11_000);
        assert_eq!(order(IdleEra::Smq1, &idle), HomeOrder::Policy(Urgency::Old));
        assert_eq!(order(IdleEra::Smq2, &idle), HomeOrder::Policy(Urgency::All));
    }

    #[test]
    fn mq_1_0_sends_home_only_what_has_to_leave() {
        let full = pressure(20_000);
        assert_eq!(choice(IdleEra::Mq1).budget(&full), Budget::rest(None));
        let wanted = Pressure { wants_room: true, ..full };
        let one = Budget::runs(1, HomeOrder::Policy(Urgency::All));
        assert_eq!(choice(IdleEra::Mq1).budget(&wanted), one);
        assert_eq!(choice(IdleEra::Mq1).budget(&Pressure { copies: 1, ..wanted }).runs, 0);
        assert_eq!(choice(IdleEra::Mq1).budget(&Pressure { is_draining: true, ..full }).runs, 3);
    }
}
