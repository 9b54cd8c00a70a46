//! The two devices of a mirrored cache: starts on them, and what happens to each.

use super::World;
use super::image::CutImage;
use super::operations::InFlight;
use super::requests::Ticket;
use crate::content::{Sector, Tag};
use crate::disk::faults::{Fault, Kind};
use crate::disk::{Disk, Unflushed};
use crate::violation::{self, Violation};
use engine::effect::{Errno, RequestOp, Target};
use engine::format::{
    PAIR_PAGE_BYTES, PAIR_PAGE_OFFSETS, PairPage, SEGMENTS_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS,
    Superblock,
};
use engine::image::Image;
use engine::pair::{Half, JoinError, Pair, Standing, page_of};
use engine::recovery::load_superblock;
use engine::units::SECTORS_PER_BLOCK;

/// A way in which a half fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// It is gone.
    Gone,
    /// Nothing is answered any more.
    Hangs,
    /// The next operation of the kind fails.
    Once(Kind),
    /// All operations of the kind fail.
    Always(Kind),
}

impl Failing {
    /// All of them.
    pub const ALL: [Failing; 7] = [
        Failing::Gone,
        Failing::Hangs,
        Failing::Once(Kind::Write),
        Failing::Once(Kind::Flush),
        Failing::Once(Kind::Read),
        Failing::Always(Kind::Write),
        Failing::Always(Kind::Read),
    ];
}

/// Both devices of a cache, or the one that it has, as a start sees them: a device that is gone is not there.
pub(super) fn join<'a>(
    cache: &'a mut Disk,
    mirror: Option<&'a mut Disk>,
    image: impl Fn(&'a mut Disk, Half) -> CutImage<'a>,
) -> Result<Pair<CutImage<'a>>, JoinError> {
    let Some(mirror) = mirror else { return Ok(Pair::alone(image(cache, Half::First))) };
    let is_there = |disk: &Disk| disk.faults.gone.is_none();
    let first = is_there(cache).then_some(cache).map(|disk| image(disk, Half::First));
    let second = is_there(mirror).then_some(mirror).map(|disk| image(disk, Half::Second));
    Pair::join([first, second])
}

impl World {
    /// Whether the cache is mirrored.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.mirror.is_some()
    }

    /// The device of a half.
    ///
    /// # Panics
    /// If the cache is not mirrored.
    pub fn half(&mut self, half: Half) -> &mut Disk {
        self.disk(half.target())
    }

    /// Which halves count, for the engine that runs, or by what they say while none does.
    pub fn standings(&mut self) -> [Standing; 2] {
        if let Some(pair) = self.engine.as_ref().and_then(|engine| engine.status().cache.pair) {
            return pair.halves.map(|half| half.standing);
        }
        let World { cache, mirror, .. } = self;
        let joined = join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk));
        joined.map_or([Standing::Out; 2], |pair| pair.standings())
    }

    /// The device whose log is followed: the cache, of a mirrored one the first half that counts.
    pub(super) fn log_target(&mut self) -> Target {
        let is_first_out = self.is_mirrored() && self.standings()[0] != Standing::In;
        if is_first_out { Target::Mirror } else { Target::Cache }
    }

    /// Whether nothing is wrong with either half, as far as devices go: nothing that the engine was not told of, or turns to the
    /// other half for when its effects are drawn, either.
    #[must_use]
    pub fn are_halves_well(&self) -> bool {
        let is_healthy = |disk: &Disk| disk.faults.is_healthy();
        let is_failing = |of: &InFlight| of.fault.is_some() && self.is_half(of.view.target);
        is_healthy(&self.cache)
            && self.mirror.as_ref().is_none_or(is_healthy)
            && !self.in_flight.values().any(is_failing)
            && self.group.ends_ns().is_none()
    }

    /// The half that failed since both were made the same by a start, or did not count when the engine ended: what it lacks the
    /// other one has, so that one may not be lost.
    #[must_use]
    pub fn hurt(&self) -> Option<Half> {
        self.hurt
    }

    /// The engine ends. A half that it did not count was told to nobody as back, even if the other one says so already.
    pub(super) fn note_who_counts(&mut self) {
        if self.is_mirrored() && self.engine.is_some() {
            let standings = self.standings();
            let lacking = Half::BOTH.into_iter().find(|half| standings[half.at()] != Standing::In);
            self.hurt = lacking.or(self.hurt);
            self.may_half_lack |= lacking.is_some() || !self.are_halves_well();
        }
    }

    /// Makes a half fail, of a pair that counts as a whole.
    pub fn fail_half(&mut self, half: Half, failing: Failing) {
        (self.hurt, self.may_half_lack) = (Some(half), true);
        let faults = &mut self.half(half).faults;
        match failing {
            Failing::Gone => faults.gone = Some(Errno::NODEV),
            Failing::Hangs => {
                for kind in [Kind::Read, Kind::Write, Kind::Flush] {
                    faults.plan(kind, Fault::Hang, u32::MAX);
                }
            }
            Failing::Once(kind) => faults.fail_next(kind, Errno::IO),
            Failing::Always(kind) => faults.fail_always(kind, Errno::IO),
        }
        self.suspect_what_one_half_has();
    }

    /// A half is not there, for now or for good.
    pub fn take_half_away(&mut self, half: Half) {
        self.may_half_lack = true;
        self.half(half).faults.gone = Some(Errno::NODEV);
        self.suspect_what_one_half_has();
    }

    /// A half is gone for good, and a device without content is in its place.
    pub fn blank_half(&mut self, half: Half) {
        self.may_half_lack = true;
        let sectors = self.half(half).sectors();
        let under_way = self.in_flight.values().any(|in_flight| in_flight.view.target == half.target());
        // What is under way on a device that is gone fails there.
        if !under_way {
            *self.half(half) = Disk::new(sectors, |_| Tag::ZERO);
        }
        self.suspect_what_one_half_has();
    }

    /// A sector with clients' data rots on a half that may be the only one later. It is none at the end of the log, which rot may take.
    pub fn rot_lasting_half(&mut self, half: Half, draw: u64) {
        let Some(log_end) = self.log_end.take() else { return };
        let from = SEGMENTS_OFFSET / 512;
        let disk = self.half(half);
        let start = from + draw % (disk.sectors() - from);
        let may_rot = |sector: &u64| {
            matches!(disk.durable(*sector), Sector::Tag(tag) if *tag != Tag::ZERO) && log_end.is_told(*sector)
        };
        let found = (start..disk.sectors()).chain(from..start).find(may_rot);
        self.log_end = Some(log_end);
        if let Some(sector) = found {
            self.rot_data(half, sector, draw);
        }
    }

    /// A bit of a sector rots on a half, if it is durable there.
    fn rot_data(&mut self, half: Half, sector: u64, draw: u64) {
        self.may_half_lack = true;
        let disk = self.half(half);
        let was = disk.read(sector, 1)[0].clone();
        if disk.rot(sector, (draw >> 32) as usize) {
            let is = disk.read(sector, 1)[0].clone();
            self.rotten_halves[half.at()].insert(sector, (was, is));
        }
        self.suspect_what_one_half_has();
    }

    /// Tells the oracle of what has rotted on one half while the other one has no copy: a read of it may fail.
    pub(super) fn suspect_what_one_half_has(&mut self) {
        for half in Half::BOTH {
            let mut rotten = std::mem::take(&mut self.rotten_halves[half.at()]);
            // What was written over it is not flushed: a power cut may bring it back.
            rotten.retain(|sector, (_, is)| self.half(half).durable(*sector) == is);
            self.rotten_halves[half.at()].clone_from(&rotten);
            for (sector, (was, _)) in rotten {
                if !self.has_copy(half, sector)
                    && let Sector::Tag(tag) = was
                    && let Some((volume, sector)) = self.oracle.place_of(tag)
                {
                    self.oracle.explained.suspect(volume, sector);
                }
            }
        }
    }

    /// Whether the other half has the block of a sector as it was before it rotted.
    fn has_copy(&mut self, half: Half, sector: u64) -> bool {
        // One that rots in anything but clients' data may be out at the next start.
        let is_log_rotten =
            self.rotten_halves[half.other().at()].values().any(|(was, _)| matches!(was, Sector::Bytes(_)));
        if self.standings() != [Standing::In; 2] || self.hurt == Some(half.other()) || is_log_rotten {
            return false;
        }
        let first = sector / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
        let mut block = self.half(half).read(first, SECTORS_PER_BLOCK).to_vec();
        for (at, (was, _)) in self.rotten_halves[half.at()].range(first..first + SECTORS_PER_BLOCK) {
            block[(at - first) as usize] = was.clone();
        }
        let other = self.half(half.other());
        other.read(first, SECTORS_PER_BLOCK) == block
            && (first..).zip(&block).all(|(at, sector)| other.durable(at) == sector)
    }

    /// A sector of the segments of a half rots, one of clients' data or one of anything else, if that is durable there and the other half counts,
    /// too.
    pub fn rot_half(&mut self, half: Half, is_data: bool, draw: u64) {
        if self.standings() != [Standing::In; 2] {
            return;
        }
        let disk = self.half(half);
        let sectors = disk.sectors();
        let from = SEGMENTS_OFFSET / 512;
        let start = from + draw % (sectors - from);
        let is_wanted = |sector: &u64| match disk.durable(*sector) {
            Sector::Tag(tag) => is_data && *tag != Tag::ZERO,
            Sector::Bytes(_) => !is_data,
        };
        if let Some(sector) = (start..sectors).chain(from..start).find(is_wanted) {
            self.rot_data(half, sector, draw);
        }
    }

    /// A bit of the head of a segment, or else of the footer of its summary, rots on a half. False if there is none, or it is not
    /// durable.
    pub fn rot_end(&mut self, half: Half, segment: u32, is_head: bool) -> bool {
        let segment_sectors = u64::from(self.setup.segment_blocks) * SECTORS_PER_BLOCK;
        let block = if is_head { 0 } else { segment_sectors - SECTORS_PER_BLOCK };
        let sector = SEGMENTS_OFFSET / 512 + u64::from(segment) * segment_sectors + block;
        let disk = self.half(half);
        let is_done = matches!(disk.durable(sector), Sector::Bytes(_)) && disk.rot(sector, 300);
        self.is_end_rotten |= is_done;
        self.may_half_lack = true;
        is_done
    }

    /// A bit of a page or of a superblock of a half rots.
    pub fn rot_records(&mut self, half: Half, draw: u64) {
        if !self.may_records_rot(half) {
            return;
        }
        let (from, len_bytes) = match draw % 4 {
            copy @ 0..2 => (PAIR_PAGE_OFFSETS[copy as usize], PAIR_PAGE_BYTES),
            copy => (SUPERBLOCK_OFFSETS[copy as usize - 2], SUPERBLOCK_BYTES),
        };
        let sector = (from + (draw >> 2) % len_bytes as u64) / 512;
        let _was_durable = self.half(half).rot(sector, (draw >> 32) as usize);
    }

    /// Both copies of the page of a half rot: it is not used until it is copied anew.
    pub fn rot_page(&mut self, half: Half) {
        if self.standings() != [Standing::In; 2] || !self.may_records_rot(half) {
            return;
        }
        for offset in PAIR_PAGE_OFFSETS {
            let _was_durable = self.half(half).rot(offset / 512, 300);
        }
        self.hurt = Some(half);
        self.suspect_what_one_half_has();
    }

    /// Whether both copies of the page and of the superblock of a half are whole and durable, and none of them alone has an operator's
    /// last change.
    fn may_records_rot(&mut self, half: Half) -> bool {
        self.may_half_lack = true;
        let image = &mut CutImage::whole(self.half(half));
        let mut is_whole = |at: u64, len: usize, decodes: fn(&[u8]) -> bool| {
            image.read(at, len).is_ok_and(|bytes| decodes(&bytes))
        };
        let are_whole = PAIR_PAGE_OFFSETS
            .into_iter()
            .all(|at| is_whole(at, PAIR_PAGE_BYTES, |bytes| PairPage::decode(bytes).is_ok()))
            && SUPERBLOCK_OFFSETS
                .into_iter()
                .all(|at| is_whole(at, SUPERBLOCK_BYTES, |bytes| Superblock::decode(bytes).is_ok()));
        let is_of_records = |write: &Unflushed| write.first < SEGMENTS_OFFSET / 512;
        let are_durable = !self.half(half).unflushed().iter().any(is_of_records);
        are_whole && are_durable && !self.is_edit_alone
    }

    /// A bit of the newest page of a half rots. False if there is none, or it is not durable.
    pub fn rot_newest_page(&mut self, half: Half) -> bool {
        self.may_half_lack = true;
        let Some(page) = page_of(&mut CutImage::whole(self.half(half))) else { return false };
        let sector = PAIR_PAGE_OFFSETS[(page.update % 2) as usize] / 512;
        self.half(half).rot(sector, 300)
    }

    /// RULE 20: checks that a start counts both halves, unless one failed, rotted or was away.
    pub(super) fn expect_both_halves(&mut self) -> Result<(), Violation> {
        let are_both_in = !self.is_mirrored() || self.standings() == [Standing::In; 2];
        let may_half_lack = std::mem::replace(&mut self.may_half_lack, !are_both_in);
        if !are_both_in && !may_half_lack && self.are_halves_well() {
            self.fail(violation::Kind::Contract, "a start goes on without a half that is well");
        }
        self.is_sound()
    }

    /// Asks for the half that is out to be brought up to date. Its device works again.
    pub fn rejoin(&mut self) -> Ticket {
        for half in Half::BOTH {
            if self.standings()[half.at()] == Standing::Out {
                self.half(half).faults.heal();
            }
        }
        // It is asked of the cache by way of a volume.
        let volume = (0..self.origins.len()).find(|volume| self.is_served(*volume));
        self.submit(volume.unwrap_or(0), RequestOp::Rejoin)
    }

    /// Whether an operation of a half that failed is the affair of the cache alone: the other half has everything.
    pub(super) fn is_half(&self, target: Target) -> bool {
        self.mirror.is_some() && matches!(target, Target::Cache | Target::Mirror)
    }

    /// The number of the newest superblock that counts.
    pub fn update_of_pair(&mut self) -> Option<u64> {
        let World { cache, mirror, .. } = self;
        let mut pair = join(cache, mirror.as_mut(), |disk, _| CutImage::whole(disk)).ok()?;
        load_superblock(&mut pair).ok().map(|(superblock, _)| superblock.update)
    }
}
