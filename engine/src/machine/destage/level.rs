//! The pace of a volume's destage: from none, while clients are busy, to all that its origin takes.

use crate::effect::WriteMode;
use crate::limits::Config;
use crate::machine::volume::{Standing, Volume};
use crate::store::Pressure;
use crate::units::Nanos;

/// Share of the cache that only a destage can free, in thousandths, from which destage keeps pace with clients'
/// writes.
const KEEP_PACE_PERMILLE: u64 = 250;
/// The same share up to which a burst of long writes has the cache device to itself.
const BURST_PERMILLE: u64 = 333;

/// The pace of a volume's destage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    /// Runs in flight.
    pub runs: u32,
    /// Whether the sweep works, or only the urgent list.
    pub sweeps: bool,
}

/// The state of a cache, as far as the levels of its volumes follow it.
pub(super) struct Moment {
    pub now: Nanos,
    /// The time of the last request of a client.
    pub last_client: Nanos,
    pub is_latched: bool,
    pub is_stopping: bool,
    /// The store's own controller decides the background write-back.
    pub has_controller: bool,
    /// A planted bug.
    pub holds_back_all: bool,
    pub pressure: Pressure,
}

impl Level {
    /// The level of a volume.
    pub fn of(volume: &Volume, config: &Config, moment: &Moment) -> Level {
        let (now, pressure) = (moment.now, moment.pressure);
        let rest = Level { runs: 0, sweeps: false };
        if !volume.is_dirty() || moment.is_latched || now < volume.origin.backoff_until {
            return rest;
        }
        if volume.standing != Standing::Cached && volume.standing != Standing::Detaching {
            return rest;
        }
        if volume.origin.is_failing() {
            // One run tests whether the origin works again; its flush tests whether the data stays there.
            let is_told = volume.destage.has_written() || moment.is_stopping;
            return if is_told { rest } else { Level { runs: 1, sweeps: true } };
        }
        // HAZARD 12: what somebody waits for is not held back, or a full cache would wait for an hour of the day.
        let is_needed = volume.needs_destage(pressure, config.extents_max) && !moment.holds_back_all;
        if volume.is_held_back(pressure, now) && !is_needed {
            return rest;
        }
        let full = Level { runs: config.destage_runs_max, sweeps: true };
        if volume.share_waiting > 0 || volume.destage.drains > 0 || pressure.extents * 2 >= config.extents_max
        {
            return full;
        }
        // What goes home in a flood makes room that nobody waits for, in the way of what goes around.
        if volume.destage.is_flood_under_way(now) && !pressure.has_waiting && !moment.has_controller {
            let is_resting = now < volume.destage.pause_until;
            return if is_resting { rest } else { Level { runs: 1, sweeps: !volume.destage.has_urgent() } };
        }
        if volume.destage.has_urgent() {
            // Where the clients of a full cache flush, their writes wait for room and do not go around. An origin that did
            // nothing but make room of scattered blocks would leave those who read it next to nothing.
            if volume.leaves_turn_to_readers(now) {
                return rest;
            }
            return Level { runs: config.destage_runs_max, sweeps: false };
        }
        if moment.is_stopping {
            return rest;
        }
        if moment.has_controller {
            // The store's controller decides the background write-back.
            return if volume.mode == WriteMode::Writeback { rest } else { full };
        }
        let idle_ns = now.since(moment.last_client);
        // A reader of the origin who comes back in a moment would find it busy with what it took meanwhile.
        let is_reader_away = volume.origin.was_read(moment.last_client);
        let patience_ns = if is_reader_away { volume.destage.patience_ns(now) } else { 0 };
        let silence_ns = patience_ns.max(config.idle_ns);
        if idle_ns >= silence_ns || volume.mode != WriteMode::Writeback {
            // Some disks end a flush only when nothing is left to be written: what comes meanwhile would hold it up for ever.
            if volume.origin.is_flushing() {
                return rest;
            }
            return Level { runs: config.destage_runs_max.div_ceil(2), sweeps: true };
        }
        // What goes home is read from the device that just now takes as much as it can.
        if pressure.held_permille <= BURST_PERMILLE && volume.destage.is_burst_under_way(now) {
            return rest;
        }
        let is_read = volume.origin.client_reads > 0;
        // Busy: when the cache is full, long writes go at the origin's pace; until then, only as many blocks as they
        // brought are destaged.
        let was_read = volume.origin.was_read(now);
        if pressure.held_permille > KEEP_PACE_PERMILLE && volume.destage.behind_blocks > 0 && !was_read {
            return Level { runs: config.destage_runs_max.div_ceil(4), sweeps: true };
        }
        // Otherwise one run at a time uses an origin that no client reads from.
        if pressure.held_permille > 200 && !is_read && now >= volume.destage.pause_until {
            Level { runs: 1, sweeps: true }
        } else {
            rest
        }
    }
}

impl Volume {
    /// Whether what goes home rests for those who read the origin.
    fn leaves_turn_to_readers(&self, now: Nanos) -> bool {
        self.destage.are_runs_short()
            && self.origin.is_flushed_often(now)
            && self.origin.is_turn_of_readers(now)
    }

    /// Whether nothing goes home just now, and something will in a moment.
    pub(crate) fn rests_between_runs(&self, now: Nanos) -> bool {
        let is_flushing = self.origin.is_flushed_often(now) && self.origin.is_flushing();
        is_flushing || self.leaves_turn_to_readers(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::VolumeRecord;
    use crate::machine::guard::Blocks;
    use crate::machine::origin::FlushTry;
    use crate::units::{VolumeId, VolumeIndex};

    /// Blocks of the cache.
    const CACHE_BLOCKS: u64 = 1000;
    const LONG: Blocks = Blocks { first: 0, count: 64 };
    const NOW: Nanos = Nanos(20 * Nanos::SECOND);
    /// The share of the cache that only a destage can make free.
    const HELD_PERMILLE: u64 = 900;

    fn pressure(has_waiting: bool) -> Pressure {
        Pressure {
            held_permille: HELD_PERMILLE,
            blocks: CACHE_BLOCKS,
            extents: 0,
            is_short: true,
            is_waited_for: false,
            has_waiting,
        }
    }

    /// A dirty volume to which as much was written in long writes as that many caches hold, and nothing was hit. The last
    /// write went around the cache.
    fn written(caches: u64) -> Volume {
        written_within(caches * CACHE_BLOCKS, 16 * Nanos::SECOND)
    }

    /// The same with so many blocks, which came within such a time before.
    fn written_within(blocks: u64, took_ns: u64) -> Volume {
        let record = VolumeRecord::new(VolumeId(1), "v", "/dev/sdb", 1 << 20);
        let mut volume = Volume::new(VolumeIndex(0), &record);
        volume.dirty_blocks = CACHE_BLOCKS;
        let writes = blocks / LONG.count;
        for number in 0..=writes {
            volume.destage.dirtied(LONG);
            let came = Nanos(NOW.0 - took_ns + took_ns * number / writes.max(1));
            volume.destage.note_growth(number + 1, 0, came);
            volume.destage.note_pressure(pressure(false), 0);
        }
        volume.destage.goes_around(LONG.count, NOW);
        volume
    }

    fn level(volume: &Volume, has_waiting: bool, now: Nanos) -> (u32, bool) {
        level_at(volume, HELD_PERMILLE, has_waiting, now)
    }

    fn level_at(volume: &Volume, held_permille: u64, has_waiting: bool, now: Nanos) -> (u32, bool) {
        let moment = Moment {
            now,
            last_client: now,
            is_latched: false,
            is_stopping: false,
            has_controller: false,
            holds_back_all: false,
            pressure: Pressure { held_permille, ..pressure(has_waiting) },
        };
        let Level { runs, sweeps } = Level::of(volume, &Config::for_cache(10, 100), &moment);
        (runs, sweeps)
    }

    #[test]
    fn destage_leaves_the_origin_to_a_flood_unless_a_write_waits_for_room() {
        let runs_max = Config::for_cache(10, 100).destage_runs_max;
        let mut volume = written(2);
        volume.destage.add_urgent(&[1, 2, 3]);
        assert_eq!(level(&volume, false, NOW), (1, false), "one run of what is urgent");
        assert_eq!(level(&volume, true, NOW), (runs_max, false), "a write waits for room");
        volume.destage.pause_until = NOW.plus(1);
        assert_eq!(level(&volume, false, NOW), (0, false), "and the origin rests in between");
        let later = NOW.plus(Nanos::SECOND);
        assert_eq!(level(&volume, false, later), (runs_max, false), "the flood is over");
    }

    /// A long write comes, after so many bytes in all.
    fn burst(volume: &mut Volume, written_bytes: u64, now: Nanos) {
        volume.destage.dirtied(LONG);
        volume.destage.note_growth(written_bytes, 0, now);
    }

    #[test]
    fn a_burst_of_long_writes_has_the_cache_device_to_itself_while_there_is_room() {
        let quarter = Config::for_cache(10, 100).destage_runs_max.div_ceil(4);
        let mut volume = written(0);
        burst(&mut volume, 1, NOW);
        let at = |volume: &Volume, held_permille, now| level_at(volume, held_permille, false, now);
        assert_eq!(at(&volume, 333, NOW), (0, false), "a burst");
        assert_eq!(at(&volume, 334, NOW), (quarter, true), "there is little room left for it");
        let later = NOW.plus(3 * Nanos::MILLISECOND);
        assert_eq!(at(&volume, 333, later), (quarter, true), "it is over");
        volume.destage.note_growth(2, 0, later);
        assert_eq!(at(&volume, 333, later), (quarter, true), "a short write goes on with none");
        let mut now = later;
        for step in 3..8 {
            now = NOW.plus((step - 2) * 600 * Nanos::MILLISECOND);
            burst(&mut volume, step, now);
        }
        assert_eq!(at(&volume, 333, now), (quarter, true), "it goes on for too long");
        now = now.plus(Nanos::SECOND);
        burst(&mut volume, 9, now);
        assert_eq!(at(&volume, 333, now), (0, false), "the next one");
        volume.destage.add_urgent(&[1]);
        assert!(at(&volume, 333, now).0 > 0, "what somebody waits for goes home all the same");
    }

    #[test]
    fn what_lies_scattered_leaves_readers_their_turn_where_clients_flush() {
        let mut volume = written(0);
        volume.destage.add_urgent(&[1, 2, 3]);
        for _ in 0..100 {
            volume.destage.run_begins(1, NOW);
        }
        let full = level(&volume, false, NOW);
        assert_eq!(full.0, Config::for_cache(10, 100).destage_runs_max);
        let began = Nanos(NOW.0 - Nanos::SECOND);
        volume.origin.want_flush(volume.origin.epoch);
        let FlushTry::Begun(epoch) = volume.origin.begin_flush(began) else { panic!("none began") };
        volume.origin.end_flush(epoch, true, NOW);
        volume.origin.last_client_read = NOW;
        let at = |volume: &Volume, after_ns: u64| level(volume, false, NOW.plus(after_ns));
        assert_eq!(at(&volume, 0), full, "no client flushes");
        volume.origin.last_client_flush = Some(NOW);
        assert_eq!(at(&volume, 0), (0, false), "nobody could read for a second");
        assert!(volume.rests_between_runs(NOW));
        volume.origin.last_client_read = NOW.plus(2 * Nanos::SECOND);
        assert_eq!(at(&volume, Nanos::SECOND), full, "and could for as long since");
        assert!(!volume.rests_between_runs(NOW.plus(Nanos::SECOND)));
        for _ in 0..100 {
            volume.destage.run_begins(64, NOW);
        }
        assert_eq!(at(&volume, 0), full, "long runs are over in a moment");
    }

    #[test]
    fn a_flush_is_not_held_up_where_nobody_waits() {
        let mut volume = written(0);
        // What clients wrote through goes home as if they were silent.
        volume.mode = WriteMode::Writethrough;
        let silent = NOW.plus(Nanos::SECOND);
        assert!(level(&volume, false, silent).0 > 0);
        volume.origin.want_flush(volume.origin.epoch);
        let FlushTry::Begun(epoch) = volume.origin.begin_flush(NOW) else { panic!("none began") };
        assert_eq!(level(&volume, false, silent), (0, false));
        volume.destage.add_urgent(&[1]);
        assert!(level(&volume, false, silent).0 > 0, "somebody waits for this");
        volume.destage.set_urgent(alloc::vec![]);
        volume.origin.end_flush(epoch, true, silent);
        assert!(level(&volume, false, silent).0 > 0);
    }

    #[test]
    fn half_of_the_cache_in_a_moment_is_a_flood() {
        let runs_of = |blocks, took_ns| {
            let mut volume = written_within(blocks, took_ns);
            volume.destage.add_urgent(&[1, 2, 3]);
            level(&volume, false, NOW).0
        };
        let runs_max = Config::for_cache(10, 100).destage_runs_max;
        assert_eq!(runs_of(CACHE_BLOCKS / 2, Nanos::SECOND), 1);
        assert_eq!(runs_of(CACHE_BLOCKS / 4, Nanos::SECOND), runs_max);
        assert_eq!(runs_of(CACHE_BLOCKS, 8 * Nanos::SECOND), runs_max, "no moment");
    }

    #[test]
    fn a_run_beside_a_quick_flood_is_followed_by_a_longer_pause() {
        let pause_ns = |took_ns, now: Nanos| {
            let mut volume = written_within(2 * CACHE_BLOCKS, took_ns);
            volume.destage.run_begins(64, now);
            volume.destage.pause_after_run(0, false, now);
            volume.destage.pause_until.since(now)
        };
        let later = NOW.plus(Nanos::SECOND);
        let (quick_ns, slow_ns) = (Nanos::SECOND, 16 * Nanos::SECOND);
        assert_eq!(pause_ns(quick_ns, NOW), 4 * pause_ns(quick_ns, later), "the flood is over then");
        assert_eq!(pause_ns(slow_ns, NOW), pause_ns(slow_ns, later), "it comes slowly");
    }

    #[test]
    fn a_large_copy_is_no_flood() {
        let mut volume = written(1);
        volume.destage.add_urgent(&[1, 2, 3]);
        assert_eq!(level(&volume, false, NOW).0, Config::for_cache(10, 100).destage_runs_max);
    }
}
