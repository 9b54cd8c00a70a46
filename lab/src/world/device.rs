//! Device operations: begun by the engine, carried out on the modelled devices, held back by a scenario.

use super::{What, World};
use crate::content::{Sector, Source};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Content, FlushTicket};
use crate::violation;
use engine::effect::{Errno, Io, IoId, IoOp, Pieces, Target};
use engine::units::{BLOCK_BYTES, Nanos, SECTORS_PER_BLOCK, SectorRange, VolumeIndex};
use std::rc::Rc;

/// Operations of one device under way at the same time at the most: far above what an engine of a small
/// cache may need, far below what one that forgets would reach.
const IN_FLIGHT_MAX: usize = 4096;

/// A device operation's number in a world: in the order they were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A device operation as a scenario sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoView {
    /// Its number.
    pub id: OpId,
    /// The device.
    pub target: Target,
    /// What it does.
    pub kind: Kind,
    /// The first sector; 0 for a flush.
    pub first: u64,
    /// How many sectors; 0 for a flush.
    pub sectors: u64,
    /// Whether it had its effect and only its answer is missing.
    pub has_landed: bool,
}

impl IoView {
    /// Whether it is an operation of that kind on the cache.
    #[must_use]
    pub fn is_cache(&self, kind: Kind) -> bool {
        self.target == Target::Cache && self.kind == kind
    }

    /// Whether it is an operation of that kind on that volume's origin.
    #[must_use]
    pub fn is_origin(&self, volume: usize, kind: Kind) -> bool {
        self.target == Target::Origin(VolumeIndex(volume as u8)) && self.kind == kind
    }

    /// Whether it touches the range.
    #[must_use]
    pub fn touches(&self, range: SectorRange) -> bool {
        self.first < range.end() && range.start < self.first + self.sectors
    }
}

pub(super) type Filter = Box<dyn Fn(&IoView) -> bool>;

pub(super) struct InFlight {
    pub view: IoView,
    io: IoId,
    /// Of a read.
    into: Option<Pieces>,
    /// Of a write: from where, and what it carried when it was issued.
    from: Option<Pieces>,
    pub content: Option<Content>,
    ticket: Option<FlushTicket>,
    /// The write's serial once it landed.
    landed: Option<u64>,
    pub fault: Option<Fault>,
    result: Result<(), Errno>,
    /// A scenario decides when it goes on.
    pub is_held: bool,
    /// The volume of an abandonment.
    volume: Option<VolumeIndex>,
}

/// Flushed records after which a sector may rot. Between a flush and the next header that is durable recovery cannot
/// tell rot from a torn write: it would cut the log there.
const ROT_NOTES_MIN: u64 = 4;

const LAND: u64 = 0;
const ANSWER: u64 = 1;
const TIMEOUT: u64 = 2;

fn event(op: u64, what: u64) -> u64 {
    op << 2 | what
}

impl World {
    pub(super) fn issued(&mut self, io: Io) {
        let op = self.next_op;
        self.next_op += 1;
        self.counts.operations += 1;
        let (kind, offset_bytes, len_bytes) = match &io.op {
            IoOp::Read { offset_bytes, into } => (Kind::Read, *offset_bytes, into.len_bytes()),
            IoOp::Write { offset_bytes, from } => (Kind::Write, *offset_bytes, from.len_bytes()),
            IoOp::Flush => (Kind::Flush, 0, 0),
            IoOp::Discard { offset_bytes, len_bytes } => (Kind::Discard, *offset_bytes, *len_bytes),
            IoOp::WriteZeroes { offset_bytes, len_bytes } => (Kind::WriteZeroes, *offset_bytes, *len_bytes),
            IoOp::Abandon(_) => (Kind::Abandon, 0, 0),
        };
        let view = IoView {
            id: OpId(op),
            target: io.target,
            kind,
            first: offset_bytes / 512,
            sectors: len_bytes / 512,
            has_landed: false,
        };
        let mut content = None;
        if let IoOp::Write { from, .. } = &io.op {
            let mut sectors: Vec<Sector> = Vec::with_capacity(view.sectors as usize);
            from.as_slice().iter().for_each(|slice| self.pool.gather(*slice, &mut sectors));
            content = Some(Content::Data(sectors.into()));
        } else if matches!(kind, Kind::WriteZeroes) {
            content = Some(Content::Zeroes(view.sectors));
        } else if matches!(kind, Kind::Discard) && self.random.one_in(2) {
            // A device may keep what was discarded.
            content = Some(Content::Zeroes(view.sectors));
        }
        if let Some(what) = self.improper(&view, offset_bytes, len_bytes, content.as_ref()) {
            return self.fail(violation::Kind::Effect, format!("device operation @{op}: {what}"));
        }
        let volume = match io.op {
            IoOp::Abandon(volume) => Some(volume),
            _ => None,
        };
        let (into, from) = match io.op {
            IoOp::Read { into, .. } => (Some(into), None),
            IoOp::Write { from, .. } => (None, Some(from)),
            _ => (None, None),
        };
        let mut fault = None;
        let mut ticket = None;
        if io.target != Target::State {
            let World { cache, origins, random, .. } = self;
            let disk = match io.target {
                Target::Origin(volume) => &mut origins[volume.at()],
                _ => cache,
            };
            fault = disk.faults.draw(kind, view.first, view.sectors, random);
            if kind == Kind::Flush {
                ticket = Some(disk.flush_begins());
            }
        }
        self.note(What::Issue {
            op,
            target: io.target,
            kind,
            first: view.first,
            sectors: view.sectors,
            fault,
        });
        if fault.is_some() {
            self.counts.faults += 1;
        }
        if fault == Some(Fault::Hang) && io.target == Target::Cache {
            self.cache_failed_ns.get_or_insert(self.clock.now_ns());
        }
        let is_held = self.is_manual || self.filters.iter().any(|filter| filter(&view));
        let in_flight = InFlight {
            view,
            io: io.id,
            into,
            from,
            content,
            ticket,
            landed: None,
            fault,
            result: Ok(()),
            is_held,
            volume,
        };
        self.in_flight.insert(op, in_flight);
        if !is_held {
            self.schedule(op);
        }
    }

    /// What the engine may not ask for.
    fn improper(
        &self,
        view: &IoView,
        offset_bytes: u64,
        len_bytes: u64,
        content: Option<&Content>,
    ) -> Option<String> {
        if view.target == Target::State || view.kind == Kind::Flush {
            return None;
        }
        let (disk, unit) = match view.target {
            Target::Origin(volume) => (self.origins.get(volume.at())?, 512),
            _ => (&self.cache, BLOCK_BYTES),
        };
        if !offset_bytes.is_multiple_of(unit) || !len_bytes.is_multiple_of(unit) || len_bytes == 0 {
            return Some(format!("{len_bytes} bytes at {offset_bytes} are not in units of {unit}"));
        }
        if offset_bytes + len_bytes > disk.sectors() * 512 {
            return Some("it reaches past the device's end".into());
        }
        let range = SectorRange { start: view.first, sectors: view.sectors };
        let others = self.in_flight.values().filter(|other| other.view.target == view.target);
        let mut count = 0;
        for other in others {
            count += 1;
            // RULE 7: no write overlaps another one in flight: the device may carry them out in any order.
            if view.kind.is_change() && other.view.kind.is_change() && other.view.touches(range) {
                return Some(format!("it overlaps the write @{} in flight", other.view.id.0));
            }
        }
        if count >= IN_FLIGHT_MAX {
            return Some(format!("{count} operations are under way on its device"));
        }
        if let (Target::Origin(volume), Some(Content::Data(sectors))) = (view.target, content) {
            return self.misplaced(volume.at(), view.first, sectors);
        }
        None
    }

    /// An origin gets what clients wrote to that very place, and nothing else.
    fn misplaced(&self, volume: usize, first: u64, sectors: &[Sector]) -> Option<String> {
        for (at, sector) in (first..).zip(sectors) {
            let tag = sector.tag();
            let is_right = match tag.source() {
                Source::Zero => true,
                Source::Garbage => false,
                _ => self.oracle.place_of(tag) == Some((volume, at)),
            };
            if !is_right {
                return Some(format!("sector {at} of origin {volume} would get {:?}", tag.source()));
            }
        }
        None
    }

    /// Lets an operation go on by itself.
    pub(super) fn schedule(&mut self, op: u64) {
        let InFlight { view, fault, landed, .. } = &self.in_flight[&op];
        let (is_cache, has_landed) = (view.target == Target::Cache, landed.is_some() || view.has_landed);
        let (kind, fault) = (view.kind, *fault);
        let latency = if is_cache { self.setup.cache_latency } else { self.setup.origin_latency };
        let mut takes_ns = self.random.between(latency.least_ns, latency.most_ns.max(latency.least_ns));
        match fault {
            Some(Fault::Hang) => {
                let at = self.clock.now_ns() + self.setup.device_timeout_ns;
                return self.clock.at(at, event(op, TIMEOUT));
            }
            Some(Fault::Slow { by_ns }) => takes_ns += by_ns,
            _ => (),
        }
        let now = self.clock.now_ns();
        // A flush that fails takes what it takes when that is told: no other one can succeed in between.
        let is_failing_flush = kind == Kind::Flush && matches!(fault, Some(Fault::Error(_)));
        // Half of the operations have their effect some time before the answer.
        if !has_landed && !is_failing_flush && self.random.one_in(2) {
            let early_ns = self.random.below(takes_ns + 1);
            self.clock.at(now + early_ns, event(op, LAND));
        }
        self.clock.at(now + takes_ns, event(op, ANSWER));
    }

    pub(super) fn device_event(&mut self, event: u64) {
        let (op, what) = (event >> 2, event & 3);
        match what {
            LAND => self.land(op),
            ANSWER => self.answer_op(op),
            _ => self.time_out(op),
        }
    }

    /// The operation has its effect on the device.
    pub(super) fn land(&mut self, op: u64) {
        let Some(in_flight) = self.in_flight.get_mut(&op) else { return };
        if in_flight.view.has_landed {
            return;
        }
        in_flight.view.has_landed = true;
        let (view, fault, volume) = (in_flight.view, in_flight.fault, in_flight.volume);
        self.note(What::Land { op });
        if view.target == Target::State {
            self.abandoned[volume.map_or(0, VolumeIndex::at)] = true;
            self.is_bypassed[volume.map_or(0, VolumeIndex::at)] = true;
            return;
        }
        if let Some(Fault::Error(errno)) = fault {
            return self.land_failed(op, view, errno);
        }
        let World { cache, origins, in_flight, pool, random, setup, .. } = self;
        let disk = match view.target {
            Target::Origin(volume) => &mut origins[volume.at()],
            _ => cache,
        };
        let Some(in_flight) = in_flight.get_mut(&op) else { return };
        match view.kind {
            Kind::Read => {
                let mut at = view.first;
                for slice in in_flight.into.iter().flat_map(Pieces::as_slice) {
                    let sectors = u64::from(slice.len_bytes / 512);
                    pool.scatter(disk.read(at, sectors), *slice);
                    at += sectors;
                }
            }
            Kind::Flush => {
                if let Some(ticket) = in_flight.ticket {
                    disk.flushed(ticket, &mut || random.one_in(4));
                }
            }
            _ => {
                if let Some(content) = &in_flight.content {
                    let first = match fault {
                        Some(Fault::Misdirect { to }) => to,
                        _ => view.first,
                    };
                    in_flight.landed = Some(disk.land(first, content.clone()));
                    let is_kept = match view.target {
                        Target::Cache => setup.cache_keeps,
                        Target::Origin(_) | Target::State => setup.origins_keep,
                    };
                    if is_kept {
                        disk.flush_all();
                    }
                }
            }
        }
        self.check_carried(op);
        if matches!(fault, Some(Fault::Misdirect { .. })) {
            self.misdirected(op);
        }
        if view.kind == Kind::Write {
            self.rot_by_chance(view.target);
        }
    }

    /// The operation fails: of a write any part may land, a flush may have done anything.
    fn land_failed(&mut self, op: u64, view: IoView, errno: Errno) {
        if view.target == Target::Cache && view.kind == Kind::Read {
            self.suspect(view.first, view.sectors);
        }
        let World { cache, origins, in_flight, random, .. } = self;
        let disk = match view.target {
            Target::Origin(volume) => &mut origins[volume.at()],
            _ => cache,
        };
        let Some(in_flight) = in_flight.get_mut(&op) else { return };
        in_flight.result = Err(errno);
        // A device that is gone does nothing at all.
        let is_gone = disk.faults.gone.is_some();
        let mut lost = Vec::new();
        match (&in_flight.content, view.kind) {
            _ if is_gone => (),
            (Some(content), _) => {
                let kept: Vec<bool> = match random.below(3) {
                    0 => vec![false; view.sectors as usize],
                    1 => vec![true; view.sectors as usize],
                    _ => (0..view.sectors).map(|_| random.one_in(2)).collect(),
                };
                disk.land_part(view.first, content, &kept);
            }
            (None, Kind::Flush) => lost = disk.flush_failed(random),
            _ => (),
        }
        if view.kind == Kind::Flush {
            // Others under way there cannot promise what this one took.
            let others = self.in_flight.values_mut().filter(|other| {
                other.view.target == view.target && other.view.kind == Kind::Flush && !other.view.has_landed
            });
            others.for_each(|other| other.fault = Some(Fault::Error(errno)));
        }
        for (first, sectors) in lost {
            match view.target {
                // What has been in the log as dirty stays there until a flush succeeds.
                Target::Origin(volume) if self.is_bypassed[volume.at()] => {
                    let range = SectorRange { start: first, sectors };
                    self.oracle.origin_lost(volume.at(), range, !self.has_dirty(volume));
                }
                Target::Origin(_) => (),
                _ => {
                    self.is_cache_lossy = true;
                    self.oracle.explained.suspect_all();
                }
            }
        }
    }

    /// The cache cannot give back what lies in these sectors.
    pub(super) fn suspect(&mut self, first: u64, sectors: u64) {
        let start = first / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
        let end = (first + sectors).next_multiple_of(SECTORS_PER_BLOCK);
        for block in self.cache.read(start, end - start).chunks(SECTORS_PER_BLOCK as usize) {
            let mut is_known = false;
            for sector in block {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                    is_known = true;
                }
            }
            if !is_known {
                // Zeroes that clients wrote do not say where.
                let volumes = &self.setup.volumes;
                self.oracle.suspect_zeroes(|volume| volumes[volume].sectors);
            }
        }
    }

    /// The bytes of a write under way do not change.
    fn check_carried(&mut self, op: u64) {
        let InFlight { view, from, content, .. } = &self.in_flight[&op];
        let (Some(from), Some(Content::Data(carried))) = (from, content) else { return };
        let first = view.first;
        let mut now: Vec<Sector> = Vec::with_capacity(carried.len());
        let carried = Rc::clone(carried);
        let slices = from.as_slice().to_vec();
        slices.iter().for_each(|slice| self.pool.gather(*slice, &mut now));
        if now[..] != carried[..] {
            let what = format!("the content of write @{op} at sector {first} changed under way");
            self.fail(violation::Kind::Effect, what);
        }
    }

    fn misdirected(&mut self, op: u64) {
        let InFlight { view, content, .. } = &self.in_flight[&op];
        let Some(content) = content.clone() else { return };
        let first = view.first;
        // What should be there is not; what was at the other place was overwritten: the plan named it.
        if let Content::Data(sectors) = &content {
            for sector in sectors.iter() {
                if let Some((volume, sector)) = self.oracle.place_of(sector.tag()) {
                    self.oracle.explained.suspect(volume, sector);
                }
            }
        }
        self.suspect(first, content.sectors());
    }

    fn rot_metadata_by_chance(&mut self) {
        let rate = self.cache.faults.rates.metadata_rot;
        if rate == 0 || !self.random.chance(rate) {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        let is_metadata = matches!(self.cache.read(sector, 1)[0], Sector::Bytes(_));
        let bit = self.random.below(4096) as usize;
        if is_metadata && self.cache.notes_since(sector) >= ROT_NOTES_MIN && self.cache.rot(sector, bit) {
            self.is_metadata_rotten = true;
            self.counts.faults += 1;
            self.note(What::Rot { target: Target::Cache, sector });
        }
    }

    fn rot_by_chance(&mut self, target: Target) {
        if target == Target::Cache {
            self.rot_metadata_by_chance();
        }
        let rate = self.disk(target).faults.rates.rot;
        if rate == 0 || target != Target::Cache || !self.random.chance(rate) {
            return;
        }
        let sector = self.random.below(self.cache.sectors());
        if self.may_rot(sector).is_some() {
            let bit = self.random.below(4096) as usize;
            self.rot_cache(sector, bit);
        }
    }

    /// What of a client's lies in a sector of the cache that may rot: volume and sector there.
    #[must_use]
    pub fn may_rot(&self, sector: u64) -> Option<(usize, u64)> {
        let place = match &self.cache.read(sector, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag),
            Sector::Bytes(_) => None,
        };
        place.filter(|_| self.cache.notes_since(sector) >= ROT_NOTES_MIN)
    }

    /// A bit of a sector of the cache flips. False if the sector is only in the device's volatile cache.
    pub fn rot_cache(&mut self, sector: u64, bit: usize) -> bool {
        self.suspect(sector, 1);
        let is_done = self.cache.rot(sector, bit);
        if is_done {
            self.counts.faults += 1;
            self.note(What::Rot { target: Target::Cache, sector });
        }
        is_done
    }

    /// The sectors of the cache device that hold what was written to a sector of a volume, newest or not.
    #[must_use]
    pub fn copies_of(&self, volume: usize, sector: u64) -> Vec<u64> {
        let holds = |at: &u64| match &self.cache.read(*at, 1)[0] {
            Sector::Tag(tag) => self.oracle.place_of(*tag) == Some((volume, sector)),
            Sector::Bytes(_) => false,
        };
        (0..self.cache.sectors()).filter(holds).collect()
    }

    /// The operation is answered.
    pub(super) fn answer_op(&mut self, op: u64) {
        if !self.in_flight.contains_key(&op) {
            return;
        }
        self.land(op);
        let Some(InFlight { view, io, landed, result, .. }) = self.in_flight.remove(&op) else { return };
        if let Some(serial) = landed {
            self.disk(view.target).answered(serial);
        }
        if let Err(errno) = result {
            self.explain(&view, errno);
        }
        self.tell(op, io, result);
    }

    fn has_dirty(&self, volume: VolumeIndex) -> bool {
        self.engine.as_ref().is_some_and(|engine| {
            engine.status().volumes.iter().any(|v| v.index == volume && v.dirty_bytes > 0)
        })
    }

    /// An injected error is about to be told.
    fn explain(&mut self, view: &IoView, errno: Errno) {
        let at = self.oracle.moment();
        let range = (view.kind != Kind::Flush && view.target != Target::Cache)
            .then_some(SectorRange { start: view.first, sectors: view.sectors });
        self.oracle.explained.hit(view.target, view.kind, range, errno.is_gone(), at);
    }

    fn tell(&mut self, op: u64, io: IoId, result: Result<(), Errno>) {
        self.note(What::Done { op, errno: result.map_or_else(|errno| errno.0, |()| 0) });
        let now = Nanos(self.clock.now_ns());
        if self.violation.is_none()
            && let Some(engine) = &mut self.engine
        {
            engine.complete(now, io, result, &mut self.pool);
        }
        self.pump();
    }

    /// The driver's timeout: the operation's device is gone, and so is all that is under way there. Some
    /// of it may still land.
    fn time_out(&mut self, op: u64) {
        let Some(target) = self.in_flight.get(&op).map(|in_flight| in_flight.view.target) else { return };
        self.disk(target).faults.gone = Some(Errno::TIMEDOUT);
        let concerned = |in_flight: &InFlight| in_flight.view.target == target;
        let ops: Vec<u64> =
            self.in_flight.iter().filter(|(_, in_flight)| concerned(in_flight)).map(|(op, _)| *op).collect();
        for op in ops {
            let Some(in_flight) = self.in_flight.remove(&op) else { continue };
            let InFlight { view, io, content, .. } = in_flight;
            self.explain(&view, Errno::TIMEDOUT);
            if target == Target::Cache && view.kind == Kind::Read {
                self.suspect(view.first, view.sectors);
            }
            if let (false, Some(content)) = (view.has_landed, content)
                && self.random.one_in(2)
            {
                self.disk(target).land(view.first, content);
            }
            self.tell(op, io, Err(Errno::TIMEDOUT));
        }
    }
}
