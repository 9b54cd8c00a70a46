//! Options that are drawn: each feature is off in some runs, so that others get runs of their own.

use super::knobs::Knob;
use super::options::Options;
use crate::random::Random;

impl Options {
    pub(super) fn draw_shape(&mut self, random: &mut Random) {
        self.set(Knob::volumes, *random.pick(&[1, 1, 2, 3]));
        for knob in [Knob::sectors0, Knob::sectors1, Knob::sectors2] {
            let odd = if random.one_in(2) { 0 } else { random.below(8) };
            let blocks = if random.one_in(4) { random.between(16, 200) } else { random.between(200, 1600) };
            self.set(knob, blocks * 8 + odd);
        }
        for knob in [Knob::mode0, Knob::mode1, Knob::mode2] {
            self.set(knob, if random.one_in(2) { 0 } else { random.below(5) });
        }
        self.set(Knob::segments, 64 + random.below(8));
        self.set(Knob::segment_blocks, *random.pick(&[32, 32, 32, 64]));
        self.set(Knob::cache_us, *random.pick(&[20, 100, 1000, 5000]));
        self.set(Knob::origin_us, *random.pick(&[50, 500, 5000, 20_000]));
        self.set(Knob::origin_discards, random.below(2));
    }

    pub(super) fn draw_load(&mut self, random: &mut Random) {
        self.set(Knob::depth, *random.pick(&[1, 2, 4, 16, 32]));
        self.set(Knob::steps, random.between(40, 600));
        self.set(Knob::request_blocks, *random.pick(&[1, 4, 16, 64]));
        for knob in [Knob::reads, Knob::flushes, Knob::discards, Knob::zeroes] {
            let most = if matches!(knob, Knob::reads) { 10 } else { 3 };
            self.set(knob, if random.one_in(3) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::writes, random.between(1, 10));
        for (knob, most) in [(Knob::fua, 30), (Knob::partial, 60), (Knob::hot, 90)] {
            self.set(knob, if random.one_in(2) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::pauses, if random.one_in(2) { 0 } else { random.between(1, 10) });
        self.set(Knob::pause_ms, *random.pick(&[1, 20, 400]));
    }

    pub(super) fn draw_crashes(&mut self, random: &mut Random) {
        self.set(Knob::cuts, random.between(4, 16));
        for (knob, most) in
            [(Knob::kills, 100), (Knob::stops, 30), (Knob::recovery_cuts, 60), (Knob::doubles, 50)]
        {
            self.set(knob, if random.one_in(2) { 0 } else { random.between(1, most) });
        }
        self.set(Knob::mode_changes, if random.one_in(3) { 40 } else { 0 });
        self.set(Knob::drains, if random.one_in(4) { 20 } else { 0 });
        self.set(Knob::detach, random.below(2));
    }

    pub(super) fn draw_faults(&mut self, random: &mut Random) {
        self.set(Knob::faulty, *random.pick(&[20, 50, 100]));
        let rates = [
            Knob::cache_read_error,
            Knob::cache_write_error,
            Knob::cache_flush_error,
            Knob::cache_hang,
            Knob::origin_read_error,
            Knob::origin_write_error,
            Knob::origin_flush_error,
            Knob::origin_hang,
            Knob::origin_no_space,
            Knob::slow,
        ];
        for knob in rates {
            let most = if matches!(knob, Knob::cache_hang | Knob::origin_hang) { 2_000 } else { 100_000 };
            self.set(knob, if random.one_in(4) { random.between(most / 50, most) } else { 0 });
        }
        self.set(Knob::cache_rot, if random.one_in(4) { random.between(10_000, 500_000) } else { 0 });
        self.set(Knob::cache_gone, if random.one_in(6) { 30 } else { 0 });
        self.set(Knob::origin_gone, if random.one_in(4) { 30 } else { 0 });
    }

    pub(super) fn draw_bounds(&mut self, random: &mut Random) {
        self.set(Knob::refusals, if random.one_in(6) { random.between(1, 20) } else { 0 });
        self.set(Knob::idle_ms, *random.pick(&[1, 30, 300]));
        self.set(Knob::flush_after_ms, *random.pick(&[1, 50, 500]));
        self.set(Knob::destage_runs, *random.pick(&[1, 2, 16]));
        self.set(Knob::work_kib, *random.pick(&[512, 16384]));
        self.set(Knob::fill_blocks, *random.pick(&[64, 2048]));
        self.set(Knob::false_dirty_blocks, *random.pick(&[16, 256]));
        self.set(Knob::extents, *random.pick(&[4, 64, 65536]));
        self.set(Knob::unflushed_blocks, *random.pick(&[0, 0, 16, 256]));
    }

    pub(super) fn draw_operator(&mut self, random: &mut Random) {
        self.set(Knob::company, *random.pick(&[96, 96, 8, 1]));
        self.set(Knob::growths, if random.one_in(4) { 30 } else { 0 });
        self.set(Knob::give_ups, if random.one_in(2) { 30 } else { 0 });
        if self.get(Knob::faulty) > 0 && random.one_in(8) {
            self.set(Knob::metadata_rot, random.between(1_000, 20_000));
        }
        self.set(Knob::company_wait_us, *random.pick(&[0, 50, 500, 5000]));
        self.set(Knob::fill_wait_us, *random.pick(&[0, 500, 10_000, 250_000]));
    }

    pub(super) fn draw_aims(&mut self, random: &mut Random) {
        self.set(Knob::aimed, if random.one_in(8) { random.between(20, 80) } else { 0 });
    }

    pub(super) fn draw_holds(&mut self, random: &mut Random) {
        self.set(Knob::holds, if random.one_in(8) { random.between(20, 80) } else { 0 });
        self.set(Knob::rooms, if random.one_in(4) { random.between(20, 80) } else { 0 });
    }

    /// Draws whether the cache may be gone at any start.
    pub(super) fn draw_ephemeral(&mut self, random: &mut Random) {
        self.set(Knob::blank_caches, if random.one_in(8) { random.between(10, 80) } else { 0 });
    }

    /// Draws how often blocks are warmed.
    pub(super) fn draw_warms(&mut self, random: &mut Random) {
        self.set(Knob::warms, if random.one_in(4) { random.between(10, 80) } else { 0 });
    }

    /// Draws how often blocks are scrubbed.
    pub(super) fn draw_scrubs(&mut self, random: &mut Random) {
        self.set(Knob::scrubs, if random.one_in(6) { random.between(20, 80) } else { 0 });
    }

    /// Draws whether everything goes home in strict order, and how far it may lag behind.
    pub(super) fn draw_order(&mut self, random: &mut Random) {
        self.set(Knob::strict, u64::from(random.one_in(6)));
        self.set(Knob::lag_blocks, *random.pick(&[64, 200, 65_536]));
        self.set(Knob::lag_ms, *random.pick(&[20, 1000, 30_000]));
        self.set(Knob::order_changes, *random.pick(&[0, 0, 4, 20]));
    }

    /// Draws whether the cache is mirrored, and what happens to its halves.
    pub(super) fn draw_halves(&mut self, random: &mut Random) {
        self.set(Knob::mirrored, u64::from(random.one_in(6)));
        self.set(Knob::half_turns, *random.pick(&[2, 10, 50]));
        self.set(Knob::half_losses, *random.pick(&[0, 20, 60]));
        self.set(Knob::half_rot, *random.pick(&[0, 0, 20, 100]));
    }

    /// Draws how often the cache becomes slow for long.
    pub(super) fn draw_slow_turns(&mut self, random: &mut Random) {
        self.set(Knob::slow_turns, if random.one_in(6) { random.between(2, 40) } else { 0 });
    }

    /// Draws whether the process has memory that outlives it.
    pub(super) fn draw_lasting(&mut self, random: &mut Random) {
        self.set(Knob::lasting, u64::from(!random.one_in(3)));
    }

    /// Draws how often small writes come before a crash.
    pub(super) fn draw_trickles(&mut self, random: &mut Random) {
        self.set(Knob::trickles, if random.one_in(2) { random.between(20, 90) } else { 0 });
    }

    /// Draws checkpoints: some have too little room, some are as frequent as can be.
    pub(super) fn draw_checkpoints(&mut self, random: &mut Random) {
        if random.one_in(2) {
            self.set(Knob::checkpoint_blocks, *random.pick(&[8, 32, 100, 300, 1000]));
            self.set(Knob::checkpoint_interval, *random.pick(&[1, 16, 64, 256, 1000]));
        }
    }

    /// Draws how often somebody reads on and on.
    pub(super) fn draw_streams(&mut self, random: &mut Random) {
        self.set(Knob::streams, *random.pick(&[0, 0, 0, 20, 60]));
    }

    /// Draws the devices whose flushes others hold up.
    pub(super) fn draw_held_flushes(&mut self, random: &mut Random) {
        self.set(Knob::held_flushes, if random.one_in(6) { random.between(1, 3) } else { 0 });
    }

    /// Draws how many calls of the engine make a group.
    pub(super) fn draw_groups(&mut self, random: &mut Random) {
        self.set(Knob::group_calls, *random.pick(&[1, 1, 2, 4, 32]));
    }

    /// Draws how often a note fails that a cache is given up.
    pub(super) fn draw_notes(&mut self, random: &mut Random) {
        self.set(Knob::note_errors, *random.pick(&[0, 0, 50, 100]));
    }

    /// Draws how often a crash comes when the halves of a mirrored cache say something new of each other.
    pub(super) fn draw_half_aims(&mut self, random: &mut Random) {
        self.set(Knob::half_aims, if random.one_in(2) { random.between(20, 80) } else { 0 });
    }

    /// Draws events between two lives of a cache: origins and caches that change, refused starts, hasty stops, an operator's jobs.
    pub(super) fn draw_between_lives(&mut self, random: &mut Random) {
        self.set(Knob::origin_changes, if random.one_in(2) { random.between(10, 80) } else { 0 });
        self.set(Knob::identities, random.below(2));
        self.set(Knob::older_copies, if random.one_in(3) { 30 } else { 0 });
        self.set(Knob::hasty_stops, if random.one_in(2) { random.between(10, 80) } else { 0 });
        self.set(Knob::detaches, if random.one_in(3) { random.between(10, 60) } else { 0 });
        self.set(Knob::sets, if random.one_in(3) { random.between(10, 60) } else { 0 });
        self.set(Knob::repairs, *random.pick(&[0, 50, 100]));
        self.set(Knob::silences, if random.one_in(2) { random.between(20, 100) } else { 0 });
        self.set(Knob::rot_while_off, if random.one_in(2) { random.between(20, 100) } else { 0 });
        self.set(Knob::sick_stops, if random.one_in(2) { random.between(10, 60) } else { 0 });
        self.set(Knob::additions, if random.one_in(2) { random.between(20, 100) } else { 0 });
        self.set(Knob::successions, if random.one_in(2) { random.between(20, 100) } else { 0 });
    }

    /// Draws what servers of origins do, where there are some: those that `remote` names.
    pub(super) fn draw_servers(&mut self, random: &mut Random) {
        self.set(Knob::server_losses, *random.pick(&[1_000, 5_000, 20_000, 100_000]));
        for (knob, most) in [(Knob::server_doubles, 20_000), (Knob::server_endings, 10_000)] {
            self.set(knob, if random.one_in(2) { random.between(most / 50, most) } else { 0 });
        }
        self.set(Knob::server_deaths, *random.pick(&[0, 30, 100]));
        self.set(Knob::impostors, *random.pick(&[0, 30, 80]));
        self.set(Knob::away_ms, *random.pick(&[1, 100, 3000, 15_000]));
        self.set(Knob::server_sectors, *random.pick(&[0, 0, 8, 32, 128]));
        self.set(Knob::server_fua, u64::from(random.one_in(6)));
    }
}
