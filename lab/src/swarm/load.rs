//! The load of a swarm world: rounds of requests and faults, each ended by a crash and a full read-back; at the end
//! all devices are healed, and everything must come home.

use super::aims;
use super::knobs::Knob;
use super::off::Off;
use super::options::Options;
use crate::disk::Fate;
use crate::disk::faults::{Fault, Kind as Operation, Rates};
use crate::random::Random;
use crate::violation::{Kind, Violation};
use crate::world::halves::Failing;
use crate::world::{Refusal, World, blocks};
use engine::effect::{Errno, RequestOp, Room, WriteMode};
use engine::pair::{Half, Standing};
use engine::recovery::OpenError;
use engine::store::log::scan::ScanError;
use engine::units::{BLOCK_BYTES, Nanos, SectorRange};

/// Small writes before a crash, at the most: mostly more than the 64 batches behind which headers come late again, else few.
const TRICKLE_REQUESTS: [u64; 3] = [150, 150, 30];
/// Blocks of such a write at the most.
const TRICKLE_BLOCKS: u64 = 4;
/// The same of one request in eight: as long as a request may be.
const TRICKLE_BLOCKS_LONG: u64 = 64;
/// Events for which such a write is waited for at the most.
const TRICKLE_STEPS: u32 = 100;
/// Requests of a stream at the most, and blocks of each.
const STREAM_REQUESTS: u64 = 30;
const STREAM_BLOCKS: (u64, u64) = (8, 24);
/// Attempts to open a cache whose device fails.
const ATTEMPTS: u32 = 20;

pub(super) struct Load<'a> {
    options: &'a Options,
    random: Random,
    /// The run is over: the cache was refused because its metadata rotted, or rot took its log's end.
    is_refused: bool,
    pub(super) off: Off,
    /// For the halves of a mirrored cache: the draws of everything else are the same with them and without.
    halves: Random,
    /// For small writes before a crash, and for streams, for the same reason.
    trickle: Random,
    streams: Random,
    /// For crashes at moments of the halves.
    aims: Random,
}

impl<'a> Load<'a> {
    pub fn new(options: &'a Options) -> Load<'a> {
        let (random, off) = (Random::new(options.seed).fork(0x10ad), Off::new(options.seed));
        let halves = Random::new(options.seed).fork(0x0_4a1f);
        let trickle = Random::new(options.seed).fork(0x0_d401);
        let streams = Random::new(options.seed).fork(0x0_57ea);
        let aims = Random::new(options.seed).fork(0x0_a135);
        Load { options, random, is_refused: false, off, halves, trickle, streams, aims }
    }

    pub(super) fn get(&self, knob: Knob) -> u64 {
        self.options.get(knob)
    }

    /// True with the knob's per cent.
    fn per_cent(&mut self, knob: Knob) -> bool {
        let per_cent = self.get(knob);
        per_cent > 0 && self.random.below(100) < per_cent
    }

    pub fn run(mut self, world: &mut World) -> Result<(), Violation> {
        for _ in 0..self.get(Knob::cuts) {
            self.break_devices(world);
            self.change_modes(world)?;
            self.operate(world)?;
            if !self.detach(world)? && !self.add(world)? {
                self.requests(world, self.get(Knob::steps))?;
            }
            self.before_an_end(world)?;
            self.stream(world)?;
            self.trickle(world)?;
            if self.per_cent(Knob::stops) {
                self.stop(world)?;
                if self.is_refused {
                    return Ok(());
                }
                continue;
            }
            if self.per_cent(Knob::aimed) {
                aims::aim(&mut self.random, world)?;
            }
            self.aim_at_halves(world)?;
            if !self.stop_sick(world)? && !self.stop_hastily(world)? {
                self.crash(world);
            }
            if self.per_cent(Knob::doubles) {
                self.open(world)?;
                if self.is_refused {
                    return Ok(());
                }
                let steps = self.random.below(60);
                self.requests(world, steps)?;
                self.crash(world);
            }
            self.open(world)?;
            if self.is_refused {
                return Ok(());
            }
            if self.random.one_in(4) {
                // Blocks that recovery read count, and blocks written meanwhile.
                self.requests(world, 30)?;
            }
            world.verify_cut()?;
        }
        self.end(world)
    }

    // ---- devices ---------------------------------------------------------------------------

    pub(super) fn heal(world: &mut World) {
        world.cache().faults.heal();
        if world.is_mirrored() {
            world.half(Half::Second).faults.heal();
        }
        for volume in 0..world.volumes() {
            world.origin(volume).faults.heal();
        }
        world.heal_servers();
    }

    /// Whether something failed, or will: then a cache may not stop cleanly.
    fn is_troubled(world: &World) -> bool {
        world.oracle().explained.any() || world.do_servers_owe()
    }

    /// Waits until everything is answered and all faults are told, on healed devices.
    fn come_to_rest(world: &mut World) -> Result<(), Violation> {
        world.tell_faults()?;
        Load::finish(world)?;
        world.tell_faults()
    }

    /// Waits until everything is answered, on healed devices. Operations that hang end in a timeout, and their device is
    /// gone until a restart: a drain would wait for it.
    fn finish(world: &mut World) -> Result<(), Violation> {
        for volume in 0..world.volumes() {
            let is_gone = world.origin(volume).faults.gone.is_some()
                || world.hangs(volume)
                || world.is_server_gone(volume);
            if is_gone && world.is_draining(volume) {
                world.submit(volume, RequestOp::CancelDrain);
            }
        }
        world.finish()
    }

    fn break_devices(&mut self, world: &mut World) {
        Load::heal(world);
        // Some rounds are quiet.
        if self.get(Knob::remote) > 0 && !self.random.one_in(8) {
            world.trouble_servers(self.options.trouble());
        }
        if !self.per_cent(Knob::faulty) {
            return;
        }
        let slow = self.get(Knob::slow) as u32;
        let rate = |knob| self.options.get(knob) as u32;
        let cache = Rates {
            read_error: rate(Knob::cache_read_error),
            write_error: rate(Knob::cache_write_error),
            flush_error: rate(Knob::cache_flush_error),
            hang: rate(Knob::cache_hang),
            rot: rate(Knob::cache_rot),
            metadata_rot: rate(Knob::metadata_rot),
            slow,
            ..Rates::default()
        };
        let origin = Rates {
            read_error: rate(Knob::origin_read_error),
            write_error: rate(Knob::origin_write_error),
            flush_error: rate(Knob::origin_flush_error),
            hang: rate(Knob::origin_hang),
            no_space: rate(Knob::origin_no_space),
            slow,
            ..Rates::default()
        };
        // Either device alone fails more often than both.
        let which = self.random.below(3);
        if which != 1 {
            world.cache().faults.rates = cache;
            if self.per_cent(Knob::cache_gone) {
                world.cache().faults.gone = Some(Errno::NODEV);
            }
        }
        for volume in 0..world.volumes() {
            if which != 0 {
                world.origin(volume).faults.rates = origin;
                if self.per_cent(Knob::origin_gone) {
                    world.origin(volume).faults.gone = Some(Errno::NODEV);
                }
            }
        }
    }

    // ---- requests --------------------------------------------------------------------------

    pub(super) fn requests(&mut self, world: &mut World, steps: u64) -> Result<(), Violation> {
        let depth = self.get(Knob::depth) as usize;
        for _ in 0..steps {
            if self.per_cent(Knob::refusals) {
                let count = self.random.between(1, 4) as u32;
                world.pool().refuse(count);
            }
            self.turn_halves(world);
            let turns = self.get(Knob::slow_turns);
            if turns > 0 && self.random.below(1000) < turns {
                self.turn_slow(world);
            }
            if world.outstanding() < depth && self.random.below(10) < 4 {
                self.request(world);
                world.is_sound()?;
            } else if self.per_cent(Knob::pauses) {
                let ns = self.random.below(self.get(Knob::pause_ms) * Nanos::MILLISECOND + 1);
                world.pass(ns)?;
            } else if !world.step()? && world.outstanding() > 0 {
                // No event is to come: a request that waits now waits for ever.
                world.finish()?;
            }
        }
        world.pool().refuse(0);
        Ok(())
    }

    /// A volume that is served and has clients.
    fn volume(&mut self, world: &World) -> Option<usize> {
        let volumes = world.volumes();
        let drawn = self.random.below(volumes as u64) as usize;
        let mut all = (drawn..volumes).chain(0..drawn);
        all.find(|volume| world.is_served(*volume) && self.off.leaving != Some(*volume))
    }

    fn range(&mut self, world: &World, volume: usize, most_sectors: u64) -> SectorRange {
        let size = world.volume_sectors(volume);
        let region = if self.per_cent(Knob::hot) { (size / 8).max(8) } else { size };
        let unit = if self.per_cent(Knob::partial) { 1 } else { 8 };
        let most = if self.random.one_in(4) { most_sectors } else { most_sectors.min(32) };
        let sectors = self.random.between(1, (most / unit).max(1)) * unit;
        // Now and then the very end, which may be in the middle of a block.
        let start = if self.random.one_in(20) {
            size.saturating_sub(sectors) / unit * unit
        } else {
            self.random.below(region.saturating_sub(sectors).max(1)) / unit * unit
        };
        SectorRange { start, sectors: sectors.min(size - start) }
    }

    fn request(&mut self, world: &mut World) {
        let Some(volume) = self.volume(world) else { return };
        let most = self.get(Knob::request_blocks) * 8;
        let fua = self.per_cent(Knob::fua);
        let (reads, flushes) = (self.get(Knob::reads), self.get(Knob::flushes));
        let (writes, discards, zeroes) =
            (self.get(Knob::writes), self.get(Knob::discards), self.get(Knob::zeroes));
        let is_readonly = world.mode(volume) == WriteMode::Readonly;
        let changes = if is_readonly { 0 } else { writes + discards + zeroes };
        let all = (reads + flushes + changes).max(1);
        let drawn = self.random.below(all);
        if drawn < reads {
            let range = self.range(world, volume, most);
            world.read(volume, range);
        } else if drawn < reads + flushes || changes == 0 {
            world.flush(volume);
        } else if drawn < reads + flushes + writes {
            let range = self.range(world, volume, most);
            if fua {
                world.write_fua(volume, range)
            } else {
                world.write(volume, range)
            };
        } else {
            let range = self.range(world, volume, most * 4);
            let op = if drawn < reads + flushes + writes + discards {
                RequestOp::Discard { range, fua }
            } else {
                RequestOp::WriteZeroes { range, fua }
            };
            world.submit(volume, op);
        }
    }

    /// Writes a few blocks at a time, as a client does that waits for each write.
    fn trickle(&mut self, world: &mut World) -> Result<(), Violation> {
        if self.trickle.below(100) >= self.get(Knob::trickles) {
            return Ok(());
        }
        let random = &mut self.trickle;
        let (depth, area_blocks) = (random.between(1, 3) as usize, *random.pick(&[16, 256, u64::MAX]));
        let most = *random.pick(&TRICKLE_REQUESTS);
        for _ in 0..random.between(1, most) {
            let volume = random.below(world.volumes() as u64) as usize;
            if !world.is_served(volume) || self.off.leaving == Some(volume) {
                continue;
            }
            let whole = world.volume_sectors(volume) / 8;
            let most = if random.one_in(8) { TRICKLE_BLOCKS_LONG } else { TRICKLE_BLOCKS };
            let count = random.between(1, most).min(whole);
            let range = blocks(random.below(area_blocks.min(whole - count) + 1), count);
            match random.below(64) {
                0 => world.flush(volume),
                1 | 2 => world.read(volume, range),
                _ if world.mode(volume) == WriteMode::Readonly => world.read(volume, range),
                3 => world.submit(volume, RequestOp::Discard { range, fua: false }),
                _ => world.write(volume, range),
            };
            for _ in 0..TRICKLE_STEPS {
                if world.outstanding() < depth || !world.step()? {
                    break;
                }
            }
            if random.one_in(32) {
                world.pass(random.below(25 * Nanos::MILLISECOND))?;
            }
        }
        world.is_sound()
    }

    /// Reads on and on from some place, a few times from the same, as a client does that waits for each read; now and then
    /// something is written in front of it.
    fn stream(&mut self, world: &mut World) -> Result<(), Violation> {
        if self.streams.below(100) >= self.get(Knob::streams) {
            return Ok(());
        }
        let random = &mut self.streams;
        let volume = random.below(world.volumes() as u64) as usize;
        let whole = world.volume_sectors(volume) / 8;
        let (count, begin) = (random.between(STREAM_BLOCKS.0, STREAM_BLOCKS.1), random.below(whole / 2 + 1));
        let turns = random.between(2, 4);
        let requests = ((whole - begin) / count).min(random.between(4, STREAM_REQUESTS));
        for at in (0..turns).flat_map(|_| 0..requests) {
            if !world.is_served(volume) || self.off.leaving == Some(volume) {
                break;
            }
            let first = begin + at * count;
            world.read(volume, blocks(first, count));
            let near = blocks((first + random.below(4 * count)).min(whole - 1), 1);
            let is_readonly = world.mode(volume) == WriteMode::Readonly;
            match random.below(24) {
                0 | 1 if !is_readonly => {
                    world.write(volume, near);
                }
                2 if !is_readonly => {
                    world.submit(volume, RequestOp::Discard { range: near, fua: false });
                }
                3 => {
                    world.read(volume, near);
                }
                4 => world.pass(random.below(25 * Nanos::MILLISECOND))?,
                _ => (),
            }
            for _ in 0..TRICKLE_STEPS {
                if world.outstanding() == 0 || !world.step()? {
                    break;
                }
            }
        }
        world.is_sound()
    }

    fn change_modes(&mut self, world: &mut World) -> Result<(), Violation> {
        let Some(volume) = self.volume(world) else { return Ok(()) };
        if self.per_cent(Knob::mode_changes) && world.mode(volume) != WriteMode::Readonly {
            let (mode, _) = WriteMode::ALL[self.random.below(4) as usize];
            world.submit(volume, RequestOp::SetMode(world.allowed_mode(mode)));
        }
        if self.get(Knob::strict) > 0 && self.per_cent(Knob::order_changes) {
            world.change_order();
        }
        if self.per_cent(Knob::drains) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            world.submit(volume, RequestOp::Drain);
            if self.random.one_in(2) {
                self.requests(world, 20)?;
                world.submit(volume, RequestOp::CancelDrain);
            }
        }
        world.is_sound()
    }

    fn operate(&mut self, world: &mut World) -> Result<(), Violation> {
        if self.per_cent(Knob::growths) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            let sectors = self.random.between(1, 40);
            world.grow(volume, sectors);
        }
        if self.per_cent(Knob::holds) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            let is_held_back = !self.random.one_in(3);
            world.submit(volume, RequestOp::HoldDestage(is_held_back));
        }
        if self.per_cent(Knob::rooms) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            let mut draw = || self.random.one_in(2).then(|| self.random.below(2048) * BLOCK_BYTES);
            let (min_bytes, max_bytes) = (draw().unwrap_or(0), draw());
            world.submit(volume, RequestOp::SetRoom(Room { min_bytes, max_bytes }));
        }
        if self.per_cent(Knob::give_ups) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            if !world.oracle().explained.is_all_suspect() {
                world.give_up_lost(volume);
            }
        }
        if self.per_cent(Knob::warms) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            let whole = world.volume_sectors(volume) / 8;
            for _ in 0..self.random.between(1, 6) {
                let first = self.random.below(whole);
                let count = self.random.between(1, 32).min(whole - first);
                world.warm(volume, blocks(first, count));
            }
        }
        if self.per_cent(Knob::scrubs) {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            let whole = world.volume_sectors(volume) / 8;
            for _ in 0..self.random.between(1, 12) {
                let first = self.random.below(whole);
                let count = self.random.between(1, 32).min(whole - first);
                world.scrub(volume, blocks(first, count));
            }
            if world.is_mirrored() {
                let segment = self.halves.below(u64::from(world.setup().segments)) as u32;
                world.scrub_segment(segment);
            }
        }
        world.is_sound()
    }

    /// Makes the cache take twenty times as long for everything, or lets it be as fast as before.
    fn turn_slow(&mut self, world: &mut World) {
        let slow = Fault::Slow { by_ns: self.options.get(Knob::cache_us) * 20_000 };
        let planned = &mut world.cache().faults.planned;
        let was_slow = planned.iter().any(|planned| planned.fault == slow);
        planned.retain(|planned| planned.fault != slow);
        if !was_slow {
            for kind in [Operation::Read, Operation::Write, Operation::Flush] {
                world.cache().faults.plan(kind, slow, u32::MAX);
            }
        }
    }

    // ---- the halves of a mirrored cache ------------------------------------------------------

    /// Lets a half of a mirrored cache fail while the other one is well, or brings it up to date.
    fn turn_halves(&mut self, world: &mut World) {
        if !world.is_mirrored() {
            return;
        }
        let (turns, rot) = (self.get(Knob::half_turns), self.get(Knob::half_rot));
        if self.halves.below(1000) < turns {
            let half = self.weak_half();
            let is_well = world.are_halves_well();
            let standings = world.standings();
            if standings == [Standing::In; 2] && is_well {
                let failing = *self.halves.pick(&Failing::ALL);
                world.fail_half(half, failing);
            } else if standings.contains(&Standing::Out) && self.halves.one_in(2) {
                let out = if standings[0] == Standing::Out { Half::First } else { Half::Second };
                if self.halves.one_in(2) {
                    world.blank_half(out);
                }
                world.rejoin();
            }
        }
        if self.halves.below(1000) < rot {
            self.rot_half(world);
        }
    }

    fn rot_half(&mut self, world: &mut World) {
        let (half, is_data, draw) = (self.weak_half(), !self.halves.one_in(4), self.halves.next_u64());
        // What the other one lacks this one alone has. In strict order nothing may be lost: the origin alone is judged.
        if is_data && draw.is_multiple_of(3) && self.get(Knob::strict) == 0 {
            world.rot_lasting_half(half.other(), draw >> 2);
        } else if world.hurt() != Some(half.other()) {
            world.rot_half(half, is_data, draw);
        }
    }

    /// The half that may fail: any, one at a time; always the same one where that rots.
    fn weak_half(&mut self) -> Half {
        let is_always_second = self.options.seed.is_multiple_of(2);
        let is_second = if self.get(Knob::half_rot) > 0 { is_always_second } else { self.halves.one_in(2) };
        if is_second { Half::Second } else { Half::First }
    }

    /// Goes on to a moment when the halves of a mirrored cache say something new of each other.
    fn aim_at_halves(&mut self, world: &mut World) -> Result<(), Violation> {
        if !world.is_mirrored() || self.aims.below(100) >= self.get(Knob::half_aims) {
            return Ok(());
        }
        let weak = self.weak_half();
        let may_change_mode = self.get(Knob::strict) == 0;
        aims::aim_at_halves(&mut self.aims, world, (weak, may_change_mode))
    }

    /// A half may be lost for good while the cache is switched off, or rot.
    fn lose_half(&mut self, world: &mut World) {
        if !world.is_mirrored() {
            return;
        }
        let strikes = if self.get(Knob::half_rot) > 0 { self.halves.below(4) } else { 0 };
        for _ in 0..strikes {
            self.rot_half(world);
        }
        if strikes > 0 {
            let half = if self.halves.one_in(2) { Half::First } else { Half::Second };
            let draw = self.halves.next_u64();
            let is_page_lost =
                draw >> 62 == 0 && half == self.weak_half() && world.hurt() != Some(half.other());
            if is_page_lost { world.rot_page(half) } else { world.rot_records(half, draw) }
        }
        let losses = self.get(Knob::half_losses);
        if self.halves.below(100) >= losses {
            return;
        }
        Load::heal(world);
        let half = match world.standings() {
            [Standing::In, Standing::In] => match world.hurt() {
                // What has rotted on the other half, this one alone has: both would be lost at once.
                Some(half) if self.get(Knob::half_rot) > 0 && half != self.weak_half() => return,
                Some(half) => half,
                None => self.weak_half(),
            },
            [Standing::In, _] => Half::Second,
            _ => Half::First,
        };
        let is_lost = self.halves.one_in(2);
        if world.standings() == [Standing::In; 2] && self.aims.below(200) < self.get(Knob::half_aims) {
            // It fails in the start itself.
            let once = Failing::Once(*self.aims.pick(&[Operation::Write, Operation::Flush]));
            world.fail_half(half, once);
        } else if is_lost {
            world.blank_half(half);
        } else {
            world.take_half_away(half);
        }
    }

    // ---- crashes ---------------------------------------------------------------------------

    pub(super) fn crash(&mut self, world: &mut World) {
        if self.per_cent(Knob::kills) { world.kill_by_chance() } else { world.cut_power_by_chance() }
    }

    fn stop(&mut self, world: &mut World) -> Result<(), Violation> {
        Load::heal(world);
        // A stop may come right behind a flush, or when all is quiet.
        if Load::is_troubled(world) || self.random.one_in(2) {
            Load::come_to_rest(world)?;
        }
        if Load::is_troubled(world) {
            // A cache that failed cannot be stopped cleanly.
            self.crash(world);
            self.open(world)?;
            if self.is_refused {
                return Ok(());
            }
        }
        Load::finish(world)?;
        world.stop()?;
        self.rot_behind_a_stop(world);
        self.open(world)?;
        if self.is_refused {
            return Ok(());
        }
        world.verify_cut()
    }

    /// Sectors rot while the cache is switched off after a clean stop.
    pub(super) fn rot_behind_a_stop(&mut self, world: &mut World) {
        // A cache that failed could not say where its log ends: rot there is that behind a crash.
        if world.oracle().explained.is_cache_failed() {
            return;
        }
        let (payload, metadata) = (self.get(Knob::cache_rot) > 0, self.get(Knob::metadata_rot) > 0);
        if (payload || metadata) && self.random.one_in(4) {
            world.rot_while_off(payload, metadata);
        }
    }

    fn open(&mut self, world: &mut World) -> Result<(), Violation> {
        if world.setup().slots.is_some() && self.get(Knob::cache_rot) > 0 && self.random.one_in(8) {
            world.rot_checksums();
        }
        world.repair_checksums()?;
        self.off.leaving = None;
        if self.switched_off(world)? {
            return Ok(());
        }
        // Recovery on a device that fails is a case of its own.
        if !self.random.one_in(4) {
            Load::heal(world);
        }
        self.lose_half(world);
        let strikes = if world.setup().slots.is_some() && self.get(Knob::cache_rot) > 0 {
            self.random.below(4)
        } else {
            0
        };
        world.settle_rot(strikes);
        self.rot_a_record(world);
        let may_be_cut =
            |world: &World| !world.is_metadata_rotten() && !world.are_records_rotten() && !world.has_stale();
        while may_be_cut(world) && self.per_cent(Knob::recovery_cuts) {
            if !world.is_mirrored() {
                world.cache().faults.heal();
            }
            let changes = self.random.below(8);
            let luck = self.random.below(5);
            let mut random = self.random.fork(5);
            if !world.open_and_cut(changes, |write| Fate::draw(write.sectors(), luck, &mut random))? {
                self.is_refused = world.is_end_lost();
                let is_served = world.engine().is_some();
                return if self.is_refused && is_served { world.verify_cut() } else { Ok(()) };
            }
            // The cut may have taken pages of checksums that were closed and not flushed.
            world.settle_rot(0);
        }
        for _ in 0..ATTEMPTS {
            let may_fail = !world.is_mirrored() && !world.cache().faults.is_healthy();
            match world.try_open()? {
                Ok(()) if world.is_end_lost() => {
                    self.is_refused = true;
                    return world.verify_cut();
                }
                Ok(()) => return Ok(()),
                Err(_) if may_fail => world.cache().faults.heal(),
                Err(Refusal::Cache(OpenError::ChecksumPage { .. })) => {
                    world.repair_checksums()?;
                    world.settle_rot(0);
                }
                Err(Refusal::Cache(_)) if world.are_records_rotten() => {
                    Load::heal(world);
                    self.until_done(|changes| world.repair(changes))?;
                    world.settle_rot(0);
                }
                Err(Refusal::Cache(OpenError::Scan(ScanError::Corrupt { .. })))
                    if world.is_metadata_rotten() && self.repair(world)? => {}
                Err(Refusal::Cache(OpenError::Scan(_) | OpenError::Superblock(_)))
                    if world.is_metadata_rotten() =>
                {
                    self.is_refused = true;
                    return Ok(());
                }
                Err(refusal) if world.may_refuse(&refusal) => {
                    self.is_refused = true;
                    return Ok(());
                }
                Err(refusal) if self.accept_late(world, &refusal)? => {}
                Err(error) => {
                    let what = format!("the cache cannot be opened: {error}");
                    return Err(Violation::new(Kind::Contract, what));
                }
            }
        }
        Err(Violation::new(Kind::Contract, "the cache is never opened"))
    }

    // ---- the end ---------------------------------------------------------------------------

    /// Heals all devices: everything is answered, goes home, and comes to rest.
    fn end(&mut self, world: &mut World) -> Result<(), Violation> {
        Load::heal(world);
        // Faults injected before may show only now, and do not excuse a failed drain of healthy devices.
        Load::come_to_rest(world)?;
        if Load::is_troubled(world) {
            // Failed devices work again after a restart.
            world.kill_by_chance();
            self.open_well(world)?;
            if self.is_refused {
                return Ok(());
            }
            world.verify()?;
        }
        Load::finish(world)?;
        for volume in (0..world.volumes()).filter(|volume| world.is_served(*volume)).collect::<Vec<_>>() {
            let has_suspects = world.oracle().explained.has_suspects(volume);
            let may_give_up = has_suspects && !world.oracle().explained.is_all_suspect();
            match world.ask(volume, RequestOp::Drain)? {
                Ok(()) => (),
                Err(_) if may_give_up && self.get(Knob::give_ups) > 0 => {
                    // All data that is left is lost.
                    let ticket = world.give_up_lost(volume);
                    world.succeed(ticket)?;
                    let ticket = world.submit(volume, RequestOp::Drain);
                    world.succeed(ticket)?;
                    world.expect_origin_equals_view(volume)?;
                }
                Err(_) if has_suspects => continue,
                Err(errno) => {
                    let what = format!("volume {volume} does not drain: errno {}", errno.0);
                    return Err(Violation::new(Kind::Liveness, what));
                }
            }
            if !has_suspects {
                world.expect_origin_equals_view(volume)?;
            }
        }
        world.run_dry()?;
        world.check_memory()?;
        if self.get(Knob::detach) > 0 {
            let Some(volume) = self.volume(world) else { return Ok(()) };
            if !world.oracle().explained.has_suspects(volume)
                && let Err(errno) = world.ask(volume, RequestOp::Detach)?
            {
                let what = format!("volume {volume} is clean and cannot be detached: errno {}", errno.0);
                return Err(Violation::new(Kind::Contract, what));
            }
            if world.is_detached(volume) {
                world.expect_origin_equals_view(volume)?;
            }
        }
        world.stop()?;
        self.open_well(world)?;
        if self.is_refused {
            return Ok(());
        }
        world.verify()?;
        world.is_sound()
    }

    /// Opens a cache whose device does not fail.
    fn open_well(&mut self, world: &mut World) -> Result<(), Violation> {
        world.settle_rot(0);
        if !world.is_metadata_rotten() && !world.has_stale() {
            return world.open();
        }
        match world.try_open()? {
            Err(Refusal::Cache(OpenError::Scan(_) | OpenError::Superblock(_))) => self.is_refused = true,
            Err(refusal) if self.accept_late(world, &refusal)? => return self.open_well(world),
            Err(error) => {
                let what = format!("the cache cannot be opened: {error}");
                return Err(Violation::new(Kind::Contract, what));
            }
            Ok(()) => (),
        }
        Ok(())
    }
}
